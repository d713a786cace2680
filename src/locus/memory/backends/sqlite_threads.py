"""Threads inside an SQLite transaction: the shared steps, and what SQLite's own indexes add to them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from locus.memory.backends import sqlite_search
from locus.memory.backends.sql import Steps
from locus.memory.backends.sql_threads import Looked, SQLThread, SQLThreads, is_written
from locus.memory.backends.sqlite_flavour import SQL, Connection
from locus.memory.checkpointer import ANY
from locus.memory.codec import canonical, decode
from locus.memory.decisions import decide
from locus.memory.keys import digest
from locus.memory.records import Commit, Entry, Known, Outcome, Run, RunInfo


class SQLiteThread(SQLThread):
    """Keeps the index of metadata and the one for search up to date."""

    def __init__(self, connection: Connection, key: int, thread_id: str, last_seq: int) -> None:
        super().__init__(SQL, key, thread_id, last_seq)
        self._connection = connection

    def insert(self, entry: Entry, head: str, manifest: str) -> Steps[None]:
        yield from super().insert(entry, head, manifest)
        if entry.metadata != "{}":
            self._connection.executemany(
                "INSERT INTO locus_metadata VALUES (?, ?, last_insert_rowid())", metadata_pairs(entry.metadata)
            )

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
        if len(continued) != 1 or not _follows_base(commit):
            return (yield from super().commit(commit))
        found = yield from self._look_at_once(commit, continued[0])
        if found is None:
            return (yield from super().commit(commit))
        thread, looked = found
        outcome = decide(commit, looked)
        if is_written(outcome):
            yield from thread.add(commit, outcome)
        return outcome

    def _look_at_once(self, commit: Commit, run: Run) -> Steps[tuple[SQLThread, Looked] | None]:
        """The thread of an ordinary commit, with all that is asked of it, in one statement.

        None if it is not there, or may have ended.
        """
        assert commit.base is not None
        base_id = commit.base.checkpoint_id
        rows = yield (
            "SELECT t.id, t.last_seq, c.seq, c.rev, c.parent_id,"
            " EXISTS (SELECT 1 FROM locus_runs r WHERE r.thread = t.id AND r.branch = ? AND r.number >= ?)"
            " FROM locus_threads t LEFT JOIN locus_checkpoints c"
            " ON c.thread = t.id AND c.namespace = ? AND c.checkpoint_id = ?"
            " WHERE t.thread_id = ? AND t.expires_at IS NULL",
            (run.branch, run.number, commit.namespace, base_id, commit.thread_id),
        )
        if not rows or rows[0][2] is None:
            return None
        key, last_seq, seq, rev, parent_id, taken = rows[0]
        known = {base_id: Known(base_id, seq, rev, parent_id)}
        looked = Looked(last_seq, known, taken={run[:2]} if taken else set())
        return self.thread(key, commit.thread_id, last_seq), looked


def _follows_base(commit: Commit) -> bool:
    """Whether only the base has to be known to decide."""
    base = commit.base
    return base is not None and commit.fresh_id and commit.if_latest is ANY and commit.parent_id == base.checkpoint_id


def metadata_pairs(metadata: str) -> list[tuple[str, str]]:
    """Keys and values as `locus_metadata` has them."""
    return [(key, metadata_value(canonical(value))) for key, value in decode(metadata).items()]


def metadata_value(text: str) -> str:
    """Long values are looked up by their digest."""
    return text if len(text) <= 200 else f"#{digest(text)}"
