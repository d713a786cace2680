"""A save in SQLite, and the other changes of a thread, inside a transaction that has locked the file.

`append` is the quick way for an ordinary save, which follows the checkpoint that it builds on: one question and some
inserts. Everything else takes the steps that all SQL backends share (`SQLiteThreads`). Both keep `locus_metadata` up to
date, and removals take what they remove out of the full text.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cache
from typing import Any

from locus.memory.backends.sql.commit import SQLThread, SQLThreads
from locus.memory.backends.sql.flavour import Steps
from locus.memory.backends.sqlite import search as sqlite_search
from locus.memory.backends.sqlite.client import execute
from locus.memory.backends.sqlite.schema import SQL
from locus.memory.model.codec import canonical, checksum, decode
from locus.memory.model.commit_rules import contested_runs
from locus.memory.model.ids import digest
from locus.memory.model.records import ANY, Base, Commit, Entry, Outcome, RunInfo, TaskWrites, Verdict
from locus.memory.model.retention import Removal

MOST_CONTESTED = 16
"""The number of branches that an ordinary commit may ask about. A state has fewer lists."""

_IS_TAKEN = "EXISTS (SELECT 1 FROM locus_runs r WHERE r.thread = t.id AND r.branch = ? AND r.number >= ?)"


@cache
def _look(contested: int) -> str:
    """A query for a thread, a base, an id, and so many branches of a commit that may have its runs already."""
    return (
        "SELECT t.id, t.last_seq, c.rev,"
        " c.seq <> (SELECT max(n.seq) FROM locus_checkpoints n WHERE n.thread = t.id AND n.namespace = ?),"
        " EXISTS (SELECT 1 FROM locus_checkpoints s WHERE s.thread = t.id AND s.namespace = ? AND s.checkpoint_id = ?),"
        f" {' OR '.join([_IS_TAKEN] * contested) or '0'}"
        " FROM locus_threads t LEFT JOIN locus_checkpoints c"
        " ON c.thread = t.id AND c.namespace = ? AND c.checkpoint_id = ?"
        " WHERE t.thread_id = ? AND t.expires_at IS NULL"
    )


_INSERT_RUN, _INSERT_CHECKPOINT = SQL.insert_run, SQL.insert_checkpoint
_INSERT_VALUE = SQL.insert_unless_there(SQL.runs, SQL.run_columns, SQL.run_marks)
_INSERT_METADATA = "INSERT INTO locus_metadata VALUES (?, ?, last_insert_rowid())"


def commit_within(connection: sqlite3.Connection, commit: Commit) -> Outcome:
    """Decide on a commit, and write it. If it is refused, the transaction may hold traces of it."""
    outcome = append(connection, commit)
    if outcome is None:
        return execute(connection, SQLiteThreads(connection).commit(commit))
    if commit.writes and outcome.is_written:
        execute(connection, SQLiteThreads(connection).put_all(commit.writes))
    return outcome


def commit_apart(connection: sqlite3.Connection, member: Commit | TaskWrites) -> Outcome | None:
    """Carry out one of several saves of a transaction; one that is refused, or fails, leaves no trace in it.

    None if it failed: sent alone, it will say why.
    """
    outcome: Outcome | None = None
    connection.execute("SAVEPOINT member")
    try:
        outcome = _carried_out(connection, member)
    except Exception:
        if not connection.in_transaction:  # SQLite has given up everything, as it may do if the disk is full
            raise
    if outcome is None or not outcome.is_written:
        connection.execute("ROLLBACK TO member")
    connection.execute("RELEASE member")
    return outcome


def _carried_out(connection: sqlite3.Connection, member: Commit | TaskWrites) -> Outcome:
    if isinstance(member, Commit):
        return commit_within(connection, member)
    execute(connection, SQLiteThreads(connection).put_all([member]))
    return Outcome(Verdict.COMMITTED)


def append(connection: sqlite3.Connection, commit: Commit) -> Outcome | None:
    """Decide on an ordinary commit, and write it. None if it is not ordinary; then nothing is written.

    An ordinary commit follows its base, in a thread that does not expire, and its id is new. One statement asks all
    that `commit_rules.decide` needs to know about it.
    """
    base = commit.base
    if base is None or not _follows(commit, base):
        return None
    contested = [place for run in contested_runs(commit) for place in (run.branch, run.number)]
    if len(contested) > 2 * MOST_CONTESTED:
        return None
    namespace = commit.namespace
    places = (namespace, namespace, commit.checkpoint_id, *contested, namespace, base.checkpoint_id)
    row = connection.execute(_look(len(contested) // 2), (*places, commit.thread_id)).fetchone()
    if row is None:
        return None
    key, last_seq, rev, is_passed, is_there, is_taken = row
    if rev is None or is_there or (is_passed and commit.if_latest is not ANY):
        return None
    if rev != base.rev:
        return Outcome(Verdict.STALE_BASE)
    if is_taken:
        return Outcome(Verdict.BRANCH_TAKEN)
    _write(connection, commit, key, last_seq + 1, base.checkpoint_id)
    return Outcome(Verdict.COMMITTED, last_seq + 1, base.checkpoint_id)


def _follows(commit: Commit, base: Base) -> bool:
    """Tell whether nothing but the base has to be known to decide on a commit."""
    if commit.parent_id != base.checkpoint_id:
        return False
    return commit.if_latest is ANY or commit.if_latest == base.checkpoint_id


def _write(connection: sqlite3.Connection, commit: Commit, key: int, seq: int, parent_id: str) -> None:
    step = connection.execute
    for run in commit.runs:
        step(_INSERT_RUN, SQL.new_run(key, run, seq))
    for run in commit.values:
        step(_INSERT_VALUE, SQL.new_run(key, run, seq))
    about = (commit.namespace, commit.checkpoint_id, seq, commit.rev, SQL.time(commit.created_at), commit.metadata)
    namespace, checkpoint_id, *others = about
    row = (key, namespace, checkpoint_id, parent_id, *others, commit.head, commit.manifest)
    step(_INSERT_CHECKPOINT, (*row, checksum(*about, commit.head, commit.manifest)))
    if commit.metadata != "{}":
        connection.executemany(_INSERT_METADATA, metadata_pairs(commit.metadata))
    expires_at = SQL.time(commit.expires_at) if commit.expires_at else None
    step("UPDATE locus_threads SET last_seq = ?, expires_at = ? WHERE id = ?", (seq, expires_at, key))


class SQLiteThread(SQLThread):
    """A locked thread in SQLite. It keeps the index of metadata and the full text up to date."""

    def __init__(self, connection: sqlite3.Connection, key: int, thread_id: str, last_seq: int) -> None:
        super().__init__(SQL, key, thread_id, last_seq)
        self._connection = connection

    def insert(self, entry: Entry, head: str, manifest: str) -> Steps[None]:
        yield SQL.insert_checkpoint, SQL.checked_checkpoint(self.key, entry, head, manifest)
        if entry.metadata != "{}":
            self._connection.executemany(_INSERT_METADATA, metadata_pairs(entry.metadata))

    def copy_metadata(self, dest: SQLThread, condition: str, values: Sequence[Any]) -> Steps[None]:
        """Index the metadata of the copies. The index itself is sorted by metadata, and cannot be copied."""
        rows = yield (
            "SELECT o.id, o.metadata FROM locus_checkpoints o"
            f" WHERE o.thread = ? AND o.metadata <> '{{}}' AND {condition}",
            (dest.key, *values),
        )
        self._connection.executemany(
            "INSERT INTO locus_metadata VALUES (?, ?, ?)",
            [(*pair, key) for key, metadata in rows for pair in metadata_pairs(metadata)],
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

    def take_out(self, gone: Sequence[Entry], removal: Removal, *, keep_writes: bool = False) -> Steps[None]:
        yield from super().take_out(gone, removal, keep_writes=keep_writes)
        sqlite_search.lower_up_to(self._connection)

    def drop(self) -> Steps[int]:
        dropped = yield from super().drop()
        sqlite_search.lower_up_to(self._connection)
        return dropped


class SQLiteThreads(SQLThreads):
    """The operations that change threads in SQLite, on one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(SQL)
        self._connection = connection

    def thread(self, key: int, thread_id: str, last_seq: int) -> SQLThread:
        return SQLiteThread(self._connection, key, thread_id, last_seq)


def metadata_pairs(metadata: str) -> list[tuple[str, str]]:
    """The keys and values of metadata, as `locus_metadata` has them."""
    return [(key, metadata_value(canonical(value))) for key, value in decode(metadata).items()]


def metadata_value(text: str) -> str:
    """A value of metadata, or its digest if it is long."""
    return text if len(text) <= 200 else f"#{digest(text)}"
