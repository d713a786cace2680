"""Threads inside an SQLite transaction: the shared steps, and what SQLite's own indexes add to them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from locus.memory.backends.sql.commit import SQLThread, SQLThreads
from locus.memory.backends.sql.flavour import Steps
from locus.memory.backends.sqlite import search as sqlite_search
from locus.memory.backends.sqlite.schema import SQL, Connection
from locus.memory.model.codec import canonical, decode
from locus.memory.model.ids import digest
from locus.memory.model.records import (
    ANY,
    Commit,
    Entry,
    Outcome,
    Run,
    RunInfo,
    Verdict,
)

_LOOK = (
    "SELECT t.id, t.last_seq, c.rev,"
    " c.seq <> (SELECT max(n.seq) FROM locus_checkpoints n WHERE n.thread = t.id AND n.namespace = ?),"
    " EXISTS (SELECT 1 FROM locus_runs r WHERE r.thread = t.id AND r.branch = ? AND r.number >= ?)"
    " FROM locus_threads t LEFT JOIN locus_checkpoints c"
    " ON c.thread = t.id AND c.namespace = ? AND c.checkpoint_id = ?"
    " WHERE t.thread_id = ? AND t.expires_at IS NULL"
)
_INSERT_RUN = "INSERT INTO locus_runs (thread, branch, number, start, count, seq, items) VALUES (?, ?, ?, ?, ?, ?, ?)"
_INSERT_CHECKPOINT = (
    "INSERT INTO locus_checkpoints"
    " (thread, namespace, checkpoint_id, parent_id, seq, rev, created_at, metadata, head, manifest)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_INSERT_METADATA = "INSERT INTO locus_metadata VALUES (?, ?, last_insert_rowid())"


class SQLiteThread(SQLThread):
    """Keeps the index of metadata and the one for search up to date."""

    def __init__(self, connection: Connection, key: int, thread_id: str, last_seq: int) -> None:
        super().__init__(SQL, key, thread_id, last_seq)
        self._connection = connection

    def insert(self, entry: Entry, head: str, manifest: str) -> Steps[None]:
        yield from super().insert(entry, head, manifest)
        if entry.metadata != "{}":
            self._connection.executemany(_INSERT_METADATA, metadata_pairs(entry.metadata))

    def before_removing(self, entries: Sequence[Entry], runs: Sequence[RunInfo]) -> Steps[None]:
        for entry in entries:
            ((key,),) = yield (
                "SELECT id FROM locus_checkpoints WHERE thread = ? AND namespace = ? AND seq = ?",
                (self.key, entry.namespace, entry.seq),
            )
            sqlite_search.forget_checkpoint(self._connection, key)
            self._connection.executemany(
                "DELETE FROM locus_metadata WHERE key = ? AND value = ? AND checkpoint = ?",
                [(*pair, key) for pair in metadata_pairs(entry.metadata)],
            )
        for run in runs:
            sqlite_search.forget_run(self._connection, self.key, run.branch, run.number)

    def remove(self, doomed: Collection[int], spare: str | None = None) -> Steps[None]:
        yield from super().remove(doomed, spare)
        sqlite_search.lower_marks(self._connection)

    def drop(self) -> Steps[int]:
        dropped = yield from super().drop()
        sqlite_search.lower_marks(self._connection)
        return dropped


class SQLiteThreads(SQLThreads):
    def __init__(self, connection: Connection) -> None:
        super().__init__(SQL)
        self._connection = connection

    def thread(self, key: int, thread_id: str, last_seq: int) -> SQLThread:
        return SQLiteThread(self._connection, key, thread_id, last_seq)

    def commit(self, commit: Commit) -> Steps[Outcome]:
        continued = [run for run in commit.runs if run.number > 0]
        outcome = self._append(commit, continued[0]) if len(continued) == 1 and _follows_base(commit) else None
        return outcome or (yield from super().commit(commit))

    def _append(self, commit: Commit, run: Run) -> Outcome | None:
        """An ordinary commit: all that is asked of the thread in one statement, and none of the steps of the others.

        None if the thread is not there, or may have ended, or if the base is not the latest that the commit asks for.
        """
        base = commit.base
        assert base is not None
        place = (commit.namespace, base.checkpoint_id, commit.thread_id)
        row = self._connection.execute(_LOOK, (commit.namespace, run.branch, run.number, *place)).fetchone()
        if row is None or row[2] is None or (row[3] and commit.if_latest is not ANY):
            return None
        key, last_seq, rev, _, taken = row
        if rev != base.rev:
            return Outcome(Verdict.STALE_BASE)
        if taken:
            return Outcome(Verdict.BRANCH_TAKEN)
        self._write(commit, key, last_seq + 1, base.checkpoint_id)
        return Outcome(Verdict.COMMITTED, last_seq + 1, base.checkpoint_id)

    def _write(self, commit: Commit, key: int, seq: int, parent_id: str) -> None:
        execute = self._connection.execute
        for branch, number, start, length, items in commit.runs:
            execute(_INSERT_RUN, (key, branch, number, start, length, seq, items))
        for branch, number, start, length, items in commit.values:
            execute(f"{_INSERT_RUN} ON CONFLICT DO NOTHING", (key, branch, number, start, length, seq, items))
        names = (key, commit.namespace, commit.checkpoint_id, parent_id, seq, commit.rev, SQL.time(commit.created_at))
        execute(_INSERT_CHECKPOINT, (*names, commit.metadata, commit.head, commit.manifest))
        if commit.metadata != "{}":
            self._connection.executemany(_INSERT_METADATA, metadata_pairs(commit.metadata))
        expires_at = SQL.time(commit.expires_at) if commit.expires_at else None
        execute("UPDATE locus_threads SET last_seq = ?, expires_at = ? WHERE id = ?", (seq, expires_at, key))


def _follows_base(commit: Commit) -> bool:
    """Whether only the base has to be known to decide."""
    base = commit.base
    if base is None or not commit.fresh_id or commit.parent_id != base.checkpoint_id:
        return False
    return commit.if_latest is ANY or commit.if_latest == base.checkpoint_id


def metadata_pairs(metadata: str) -> list[tuple[str, str]]:
    """Keys and values as `locus_metadata` has them."""
    return [(key, metadata_value(canonical(value))) for key, value in decode(metadata).items()]


def metadata_value(text: str) -> str:
    """Long values are looked up by their digest."""
    return text if len(text) <= 200 else f"#{digest(text)}"
