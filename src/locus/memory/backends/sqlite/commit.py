"""A save in SQLite, and the other changes of a thread, inside a transaction that has locked the file.

`append` is the quick way for an ordinary save, which follows the checkpoint that it builds on: one question and some
inserts. Everything else takes the steps that all SQL backends share (`SQLiteThreads`). Both keep `locus_metadata` up
to date, and removals take what they remove out of the full text.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence

from locus.memory.backends.sql.commit import SQLThread, SQLThreads
from locus.memory.backends.sql.flavour import Steps
from locus.memory.backends.sqlite import search as sqlite_search
from locus.memory.backends.sqlite.schema import SQL
from locus.memory.model.codec import canonical, checksum, decode
from locus.memory.model.ids import digest
from locus.memory.model.records import ANY, Base, Commit, Entry, Outcome, RunInfo, Verdict

_LOOK = (
    "SELECT t.id, t.last_seq, c.rev,"
    " c.seq <> (SELECT max(n.seq) FROM locus_checkpoints n WHERE n.thread = t.id AND n.namespace = ?),"
    " EXISTS (SELECT 1 FROM locus_runs r WHERE r.thread = t.id AND r.branch = ? AND r.number >= ?)"
    " FROM locus_threads t LEFT JOIN locus_checkpoints c"
    " ON c.thread = t.id AND c.namespace = ? AND c.checkpoint_id = ?"
    " WHERE t.thread_id = ? AND t.expires_at IS NULL"
)
_INSERT_RUN, _INSERT_CHECKPOINT = SQL.insert_run, SQL.insert_checkpoint
_INSERT_VALUE = SQL.insert_unless_there(SQL.runs, SQL.run_columns, SQL.run_marks)
_INSERT_METADATA = "INSERT INTO locus_metadata VALUES (?, ?, last_insert_rowid())"


def append(connection: sqlite3.Connection, commit: Commit) -> Outcome | None:
    """Decide on an ordinary commit, and write it. None if it is not ordinary; then nothing is written.

    An ordinary commit continues one branch of its base, in a thread that does not expire. One statement asks all that
    `commit_rules.decide` needs to know about it.
    """
    base = commit.base
    if base is None or not _follows(commit, base):
        return None
    continued = [run for run in commit.runs if run.number > 0]
    if len(continued) != 1:
        return None
    run, namespace = continued[0], commit.namespace
    row = connection.execute(
        _LOOK, (namespace, run.branch, run.number, namespace, base.checkpoint_id, commit.thread_id)
    ).fetchone()
    if row is None:
        return None
    key, last_seq, rev, is_passed, is_taken = row
    if rev is None or (is_passed and commit.if_latest is not ANY):
        return None
    if rev != base.rev:
        return Outcome(Verdict.STALE_BASE)
    if is_taken:
        return Outcome(Verdict.BRANCH_TAKEN)
    _write(connection, commit, key, last_seq + 1, base.checkpoint_id)
    return Outcome(Verdict.COMMITTED, last_seq + 1, base.checkpoint_id)


def _follows(commit: Commit, base: Base) -> bool:
    """Whether nothing but the base has to be known to decide."""
    if not commit.fresh_id or commit.parent_id != base.checkpoint_id:
        return False
    return commit.if_latest is ANY or commit.if_latest == base.checkpoint_id


def _write(connection: sqlite3.Connection, commit: Commit, key: int, seq: int, parent_id: str) -> None:
    execute = connection.execute
    for run in commit.runs:
        execute(_INSERT_RUN, SQL.new_run(key, run, seq))
    for run in commit.values:
        execute(_INSERT_VALUE, SQL.new_run(key, run, seq))
    about = (commit.namespace, commit.checkpoint_id, seq, commit.rev, SQL.time(commit.created_at), commit.metadata)
    namespace, checkpoint_id, *others = about
    row = (key, namespace, checkpoint_id, parent_id, *others, commit.head, commit.manifest)
    execute(_INSERT_CHECKPOINT, (*row, checksum(*about, commit.head, commit.manifest)))
    if commit.metadata != "{}":
        connection.executemany(_INSERT_METADATA, metadata_pairs(commit.metadata))
    expires_at = SQL.time(commit.expires_at) if commit.expires_at else None
    execute("UPDATE locus_threads SET last_seq = ?, expires_at = ? WHERE id = ?", (seq, expires_at, key))


class SQLiteThread(SQLThread):
    """Keeps the index of metadata and the full text up to date."""

    def __init__(self, connection: sqlite3.Connection, key: int, thread_id: str, last_seq: int) -> None:
        super().__init__(SQL, key, thread_id, last_seq)
        self._connection = connection

    def insert(self, entry: Entry, head: str, manifest: str) -> Steps[None]:
        yield SQL.insert_checkpoint, SQL.checked_checkpoint(self.key, entry, head, manifest)
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
        sqlite_search.lower_up_to(self._connection)

    def drop(self) -> Steps[int]:
        dropped = yield from super().drop()
        sqlite_search.lower_up_to(self._connection)
        return dropped


class SQLiteThreads(SQLThreads):
    """The shared steps, on one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(SQL)
        self._connection = connection

    def thread(self, key: int, thread_id: str, last_seq: int) -> SQLThread:
        return SQLiteThread(self._connection, key, thread_id, last_seq)


def metadata_pairs(metadata: str) -> list[tuple[str, str]]:
    """Keys and values as `locus_metadata` has them."""
    return [(key, metadata_value(canonical(value))) for key, value in decode(metadata).items()]


def metadata_value(text: str) -> str:
    """Long values are looked up by their digest."""
    return text if len(text) <= 200 else f"#{digest(text)}"
