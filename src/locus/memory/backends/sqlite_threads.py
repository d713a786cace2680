"""Threads inside an SQLite transaction: what is asked of them there, and the steps that change them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from locus.memory.backends import sqlite_search
from locus.memory.backends.sqlite_rows import Connection, instant, now, to_entry
from locus.memory.codec import canonical, decode
from locus.memory.decisions import decide, plan_removal, unneeded_runs
from locus.memory.keys import digest
from locus.memory.payloads import wanted
from locus.memory.records import Commit, Entry, Extent, Known, Outcome, RunInfo, Verdict


@contextmanager
def transaction(connection: Connection, kind: str = "IMMEDIATE") -> Iterator[None]:
    """Commits at the end, unless something was raised."""
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


class SQLiteThread:
    """A thread inside a transaction: what `decide` asks, and the steps that change it."""

    def __init__(self, connection: Connection, key: int, last_seq: int) -> None:
        self._connection = connection
        self.key = key
        self.last_seq = last_seq
        self.looked_up: dict[tuple[str, str], Known | None] = {}
        """Checkpoints that were asked for together with the thread."""
        self.free: tuple[str, int] | None = None
        """A run that is known not to be there."""

    def _known(self, condition: str, values: tuple[Any, ...]) -> Known | None:
        row = self._connection.execute(
            f"SELECT checkpoint_id, seq, rev, parent_id FROM locus_checkpoints WHERE thread = ? AND {condition}",
            (self.key, *values),
        ).fetchone()
        return None if row is None else Known(*row)

    def find(self, namespace: str, checkpoint_id: str) -> Known | None:
        if (namespace, checkpoint_id) in self.looked_up:
            return self.looked_up[namespace, checkpoint_id]
        return self._known("namespace = ? AND checkpoint_id = ?", (namespace, checkpoint_id))

    def latest(self, namespace: str) -> Known | None:
        return self._known("namespace = ? ORDER BY seq DESC LIMIT 1", (namespace,))

    def has_run(self, branch: str, number: int) -> bool:
        if self.free == (branch, number):
            return False
        found = self._connection.execute(
            "SELECT 1 FROM locus_runs WHERE thread = ? AND branch = ? AND number >= ?",
            (self.key, branch, number),
        )
        return found.fetchone() is not None

    def add(self, commit: Commit, outcome: Outcome) -> None:
        for runs, otherwise in ((commit.runs, ""), (commit.values, "OR IGNORE")):
            for run in runs:
                self._connection.execute(
                    f"INSERT {otherwise} INTO locus_runs (thread, branch, number, start, count, seq, items)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (self.key, *run[:4], outcome.seq, run.items),
                )
        if outcome.replaced is not None:
            self.remove({outcome.replaced.seq}, spare=commit.manifest)
        self._insert(
            commit.namespace,
            commit.checkpoint_id,
            outcome.parent_id,
            outcome.seq,
            commit.rev,
            instant(commit.created_at),
            commit.metadata,
            commit.head,
            commit.manifest,
        )

    def _insert(self, *row: Any) -> None:
        cursor = self._connection.execute(
            "INSERT INTO locus_checkpoints (thread, namespace, checkpoint_id, parent_id, seq, rev, created_at,"
            " metadata, head, manifest) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (self.key, *row),
        )
        if row[6] != "{}":
            self._connection.executemany(
                "INSERT INTO locus_metadata VALUES (?, ?, ?)",
                [(*pair, cursor.lastrowid) for pair in metadata_pairs(row[6])],
            )

    def entries(self, thread_id: str) -> dict[int, tuple[Entry, str, int]]:
        """Every checkpoint of the thread by sequence number: its entry, manifest and row id."""
        rows = self._connection.execute(
            "SELECT namespace, checkpoint_id, parent_id, seq, rev, created_at, metadata, manifest, id"
            " FROM locus_checkpoints WHERE thread = ? ORDER BY seq",
            (self.key,),
        )
        return {row[3]: (to_entry((thread_id, *row)), row[7], row[8]) for row in rows}

    def runs(self) -> list[RunInfo]:
        rows = self._connection.execute(
            "SELECT branch, number, start, count FROM locus_runs WHERE thread = ?", (self.key,)
        )
        return [RunInfo(*row) for row in rows]

    def remove(self, doomed: Collection[int], spare: str | None = None) -> None:
        """Remove checkpoints with what only they need; `spare` is the manifest of one that takes the place."""
        entries = self.entries("")
        stay = {seq: wanted(manifest) for seq, (_, manifest, _) in entries.items() if seq not in doomed}
        if spare is not None:
            stay[-1] = wanted(spare)
        removal = plan_removal(stay, [entry for entry, _, _ in entries.values()], doomed, self.runs())
        for seq in doomed:
            self._drop_checkpoint(*entries[seq], keep_writes=spare is not None)
        for run in removal.runs:
            self._drop_runs("branch = ? AND number = ?", (run.branch, run.number))
        self._connection.executemany(
            "UPDATE locus_checkpoints SET parent_id = ? WHERE id = ?",
            [(parent_id, entries[seq][2]) for seq, parent_id in removal.parents.items()],
        )
        sqlite_search.lower_marks(self._connection)

    def _drop_checkpoint(self, entry: Entry, _manifest: str, row_id: int, *, keep_writes: bool) -> None:
        execute = self._connection.execute
        sqlite_search.forget_checkpoint(self._connection, row_id)
        execute("DELETE FROM locus_checkpoints WHERE id = ?", (row_id,))
        self._connection.executemany(
            "DELETE FROM locus_metadata WHERE key = ? AND value = ? AND checkpoint = ?",
            [(*pair, row_id) for pair in metadata_pairs(entry.metadata)],
        )
        if not keep_writes:
            execute(
                "DELETE FROM locus_writes WHERE thread = ? AND namespace = ? AND checkpoint_id = ?",
                (self.key, entry.namespace, entry.checkpoint_id),
            )

    def _drop_runs(self, condition: str, values: tuple[Any, ...]) -> None:
        sqlite_search.forget_runs(self._connection, f"thread = ? AND {condition}", (self.key, *values))
        self._connection.execute(f"DELETE FROM locus_runs WHERE thread = ? AND {condition}", (self.key, *values))

    def drop(self) -> int:
        """Remove the whole thread; return how many checkpoints it had."""
        entries = self.entries("")
        for known in entries.values():
            self._drop_checkpoint(*known, keep_writes=False)
        self._drop_runs("1", ())
        self._connection.execute("DELETE FROM locus_writes WHERE thread = ?", (self.key,))
        self._connection.execute("DELETE FROM locus_threads WHERE id = ?", (self.key,))
        sqlite_search.lower_marks(self._connection)
        return len(entries)

    def copy_to(self, dest: SQLiteThread, namespace: str | None, ids: Collection[str] | None) -> int:
        """Copy checkpoints, and the runs and pending writes that they need, with their numbers."""
        chosen = [
            (entry, manifest)
            for entry, manifest, _ in self.entries("").values()
            if ids is None or (entry.namespace == namespace and entry.checkpoint_id in ids)
        ]
        execute = self._connection.execute
        extents: list[Extent] = []
        for entry, manifest in chosen:
            head = execute(
                "SELECT head FROM locus_checkpoints WHERE thread = ? AND namespace = ? AND seq = ?",
                (self.key, entry.namespace, entry.seq),
            ).fetchone()[0]
            dest._insert(
                entry.namespace,
                entry.checkpoint_id,
                entry.parent_id,
                entry.seq,
                entry.rev,
                instant(entry.created_at),
                entry.metadata,
                head,
                manifest,
            )
            execute(
                "INSERT OR REPLACE INTO locus_writes"
                " SELECT ?, namespace, checkpoint_id, task_id, idx, task_path, channel, value FROM locus_writes"
                " WHERE thread = ? AND namespace = ? AND checkpoint_id = ?",
                (dest.key, self.key, entry.namespace, entry.checkpoint_id),
            )
            extents += wanted(manifest)
        runs = self.runs()
        for run in set(runs) - set(unneeded_runs(extents, runs)):
            execute(
                "INSERT INTO locus_runs (thread, branch, number, start, count, seq, items)"
                " SELECT ?, branch, number, start, count, seq, items FROM locus_runs"
                " WHERE thread = ? AND branch = ? AND number = ?",
                (dest.key, self.key, run.branch, run.number),
            )
        return len(chosen)


def metadata_pairs(metadata: str) -> list[tuple[str, str]]:
    """Keys and values as `locus_metadata` has them."""
    return [(key, metadata_value(canonical(value))) for key, value in decode(metadata).items()]


def metadata_value(text: str) -> str:
    """Long values are looked up by their digest."""
    return text if len(text) <= 200 else f"#{digest(text)}"


def open_thread(connection: Connection, thread_id: str) -> SQLiteThread | None:
    """The thread, unless it is not there or has ended; what has ended is removed."""
    row = connection.execute(
        "SELECT id, last_seq, expires_at FROM locus_threads WHERE thread_id = ?", (thread_id,)
    ).fetchone()
    if row is None:
        return None
    thread = SQLiteThread(connection, row[0], row[1])
    if row[2] is not None and row[2] <= now():
        thread.drop()
        return None
    return thread


def create_thread(connection: Connection, thread_id: str, expires_at: str | None) -> SQLiteThread:
    cursor = connection.execute(
        "INSERT INTO locus_threads (thread_id, last_seq, expires_at) VALUES (?, 0, ?)",
        (thread_id, expires_at),
    )
    assert cursor.lastrowid is not None
    return SQLiteThread(connection, cursor.lastrowid, 0)


def open_for(connection: Connection, commit: Commit) -> SQLiteThread | None:
    """The thread of a commit, with what an ordinary one will be asked of it, in one statement."""
    continued = next((run for run in commit.runs if run.number > 0), None)
    if commit.base is None or continued is None:
        return open_thread(connection, commit.thread_id)
    row = connection.execute(
        "SELECT t.id, t.last_seq, t.expires_at, c.checkpoint_id, c.seq, c.rev, c.parent_id,"
        " EXISTS (SELECT 1 FROM locus_runs r WHERE r.thread = t.id AND r.branch = ? AND r.number >= ?)"
        " FROM locus_threads t LEFT JOIN locus_checkpoints c"
        " ON c.thread = t.id AND c.namespace = ? AND c.checkpoint_id = ? WHERE t.thread_id = ?",
        (continued.branch, continued.number, commit.namespace, commit.base.checkpoint_id, commit.thread_id),
    ).fetchone()
    if row is None or row[2] is not None:
        return open_thread(connection, commit.thread_id)
    thread = SQLiteThread(connection, row[0], row[1])
    found = None if row[3] is None else Known(row[3], row[4], row[5], row[6])
    thread.looked_up[commit.namespace, commit.base.checkpoint_id] = found
    thread.free = None if row[7] else (continued.branch, continued.number)
    return thread


def commit_in(connection: Connection, commit: Commit) -> Outcome:
    """Decide on a commit inside a transaction, and write it."""
    thread = open_for(connection, commit) or create_thread(connection, commit.thread_id, None)
    outcome = decide(commit, thread)
    if outcome.verdict is Verdict.COMMITTED and not outcome.repeated:
        connection.execute(
            "UPDATE locus_threads SET last_seq = ?, expires_at = ? WHERE id = ?",
            (outcome.seq, instant(commit.expires_at) if commit.expires_at else None, thread.key),
        )
        thread.add(commit, outcome)
    return outcome
