"""A save in Oracle Database: three round trips, or two if the save adds nothing to any list.

A save on top of this handle's last save needs no questions (see `LastSeenThread` in `sql.commit`):

    UPDATE locus_threads SET last_seq = 8, … WHERE id = 5 AND thread_id = 'a' AND last_seq = 7 AND removals = 0 AND …
        AND EXISTS (SELECT 1 FROM locus_checkpoints …)    this handle's last save
    INSERT INTO locus_runs …                        all runs of the save at once
    INSERT INTO locus_checkpoints …                 together with the commit

The UPDATE locks the thread's row and raises its counter. If it finds no row, something has happened to the thread, and
nothing is written. A new thread begins with the INSERT of its row. An id that exists violates a unique key (ORA-00001).
In all these cases the save starts over step by step, under a lock on the thread's row. Metadata costs one more round
trip, and so do large values, because the save first looks which of them the thread has.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any

from locus.memory.backends.oracle.client import DUPLICATE, BindRows, OracleConnection, OutBind, has_code, oracledb
from locus.memory.backends.oracle.schema import PAIR_COLUMNS, OracleFlavour
from locus.memory.backends.sql.commit import (
    OF_TASK,
    LastSeenThread,
    SQLThread,
    SQLThreads,
)
from locus.memory.backends.sql.flavour import Row, Steps, marks, portions, run_steps_async
from locus.memory.backends.sql.schema import WRITE_COLUMNS
from locus.memory.backends.sql.search import metadata_key
from locus.memory.model.codec import canonical, decode
from locus.memory.model.records import Commit, Entry, Outcome, Run, RunInfo, Verdict, Write
from locus.memory.model.retention import Removal

Statement = tuple[str, Sequence[Any]]


class OracleThread(SQLThread):
    """A locked thread in Oracle, with fewer round trips. It keeps Oracle's own indexes up to date."""

    sql: OracleFlavour

    is_indexed = True
    """True if some of the thread is in the full text."""

    def __init__(self, sql: OracleFlavour, key: int, thread_id: str, last_seq: int) -> None:
        super().__init__(sql, key, thread_id, last_seq)
        self._entries: dict[int, tuple[Entry, str]] | None = None

    def entries(self) -> Steps[dict[int, tuple[Entry, str]]]:
        """Read the checkpoints once, until something is removed: the thread is locked, so nobody else changes them."""
        if self._entries is None:
            self._entries = yield from super().entries()
        return self._entries

    def add(self, commit: Commit, outcome: Outcome) -> Steps[None]:
        present = yield from self.present(commit.values)
        for statement in self.run_statements(commit, outcome, present):
            yield statement
        if outcome.replaced is not None:
            yield from self.remove({outcome.replaced.seq}, spare=commit.manifest)
        for statement in self.checkpoint_statements(commit, outcome):
            yield statement
        yield from self.moved(commit, outcome)

    def present(self, runs: Sequence[Run]) -> Steps[set[tuple[str, int]]]:
        """Read which runs the thread has of the branches of these runs, by branch and number."""
        present: set[tuple[str, int]] = set()
        for branches in portions(sorted({run.branch for run in runs})):
            rows = yield (
                f"SELECT branch, number FROM {self.sql.runs} WHERE thread = ? AND branch IN {marks(len(branches))}"
                " ORDER BY branch, number",
                (self.key, *branches),
            )
            present |= {(branch, int(number)) for branch, number in rows}
        return present

    def run_statements(self, commit: Commit, outcome: Outcome, present: Collection[tuple[str, int]]) -> list[Statement]:
        """The statement that writes the runs of a commit, if it has any."""
        large = {run.branch: run for run in commit.values}
        runs = [run for run in (*commit.runs, *large.values()) if run[:2] not in present]
        rows = BindRows(self._run_values(run, outcome.seq) for run in runs)
        return [(self.sql.insert_run, rows)] if rows else []

    def checkpoint_statements(self, commit: Commit, outcome: Outcome) -> list[Statement]:
        entry = commit.entry(outcome)
        row = self.sql.new_checkpoint(self.key, entry, commit.head, commit.manifest)
        return [(self.sql.insert_checkpoint, row), *self._pairs(entry)]

    def _pairs(self, entry: Entry) -> list[Statement]:
        if entry.metadata == "{}":
            return []
        found = {metadata_key(key, canonical(value)) for key, value in decode(entry.metadata).items()}
        rows = BindRows((self.key, self.sql.text(entry.namespace), entry.seq, pair) for pair in sorted(found))
        return [(f"INSERT INTO {self.sql.metadata_pairs} ({PAIR_COLUMNS}) VALUES {marks(4)}", rows)]

    def before_removing(self, entries: Sequence[Entry], runs: Sequence[RunInfo]) -> Steps[None]:
        sql = self.sql
        described = [entry.seq for entry in entries if entry.metadata != "{}"]
        indexed = [entry.seq for entry in entries if self.is_indexed]
        for table, doomed in ((sql.metadata_pairs, described), (sql.search, indexed)):
            for seqs in portions(doomed):
                yield f"DELETE FROM {table} WHERE thread = ? AND seq IN {marks(len(seqs))}", (self.key, *seqs)
        for gone in portions(runs if self.is_indexed else []):
            names = [value for run in gone for value in (run.branch, run.number)]
            condition = f"thread = ? AND (branch, number) IN {sql.pairs(len(gone))}"
            yield f"DELETE FROM {sql.search} WHERE {condition}", (self.key, *names)

    def take_out(self, gone: Sequence[Entry], removal: Removal, *, keep_writes: bool = False) -> Steps[None]:
        yield from super().take_out(gone, removal, keep_writes=keep_writes)
        self._entries = None
        # A handle that saved here before must notice that the thread has changed.
        self.removals += 1
        yield f"UPDATE {self.sql.threads} SET removals = removals + 1 WHERE id = ?", (self.key,)

    def drop(self) -> Steps[int]:
        sql = self.sql
        ((dropped,),) = yield f"SELECT count(*) FROM {sql.checkpoints} WHERE thread = ?", (self.key,)
        yield f"DELETE FROM {sql.threads} WHERE id = ?", (self.key,)
        return int(dropped)

    def copy_metadata(self, dest: SQLThread, condition: str, values: Sequence[Any]) -> Steps[None]:
        yield self.copied(self.sql.metadata_pairs, PAIR_COLUMNS, condition, dest, values)


class OracleThreads(SQLThreads):
    """The operations that change threads in Oracle."""

    sql: OracleFlavour
    opening = f"{SQLThreads.opening}, t.removals, t.indexed_seq"

    def thread(self, key: int, thread_id: str, last_seq: int) -> OracleThread:
        return OracleThread(self.sql, key, thread_id, last_seq)

    def opened(self, thread_id: str, row: Row) -> OracleThread:
        key, last_seq, removals, indexed_seq = row
        thread = self.thread(key, thread_id, last_seq)
        thread.removals, thread.is_indexed = removals, indexed_seq > 0
        return thread

    def put(self, place: Sequence[Any], writes: Sequence[Write], keep_numbered: bool) -> Steps[None]:
        """Write the pending writes of a task in one INSERT, after a DELETE of those that they replace."""
        sql = self.sql
        last = {write.idx: write for write in writes}
        for some in portions([idx for idx in last if idx < 0 or keep_numbered]):
            yield f"DELETE FROM {sql.writes} WHERE {OF_TASK} AND idx IN {marks(len(some))}", (*place, *some)
        rows = BindRows((*place, *sql.new_write(write)) for write in last.values())
        if rows:
            yield f"INSERT INTO {sql.writes} ({WRITE_COLUMNS}) VALUES {marks(8)}", rows


async def in_seen_thread(
    sql: OracleFlavour, connection: OracleConnection, commit: Commit, last_seen: LastSeenThread
) -> Outcome | None:
    """Save without questions. None if the thread has changed or the id exists, and then nothing was written."""
    outcome = Outcome(Verdict.COMMITTED, last_seen.seq + 1, last_seen.base.checkpoint_id)
    try:
        async with _transaction(connection):
            await connection.execute(
                f"UPDATE {sql.threads} SET last_seq = ?, expires_at = ?"
                " WHERE id = ? AND thread_id = ? AND last_seq = ? AND removals = ?"
                " AND (expires_at IS NULL OR expires_at > ?)"
                f" AND EXISTS (SELECT 1 FROM {sql.checkpoints} c"
                " WHERE c.thread = ? AND c.namespace = ? AND c.checkpoint_id = ? AND c.rev = ?)",
                (
                    outcome.seq,
                    sql.expiry(commit.expires_at),
                    last_seen.key,
                    sql.text(commit.thread_id),
                    last_seen.seq,
                    last_seen.removals,
                    sql.now(),
                    last_seen.key,
                    sql.text(last_seen.namespace),
                    sql.text(last_seen.base.checkpoint_id),
                    last_seen.base.rev,
                ),
            )
            if connection.changed != 1:
                await connection.rollback()
                return None
            await _write(connection, OracleThread(sql, last_seen.key, commit.thread_id, last_seen.seq), commit, outcome)
    except oracledb.Error as error:
        if not has_code(error, DUPLICATE):
            raise
        return None
    return outcome


async def in_new_thread(sql: OracleFlavour, connection: OracleConnection, commit: Commit) -> int | None:
    """Create a thread with its first checkpoint, and return its key. None if it exists, and nothing was written."""
    try:
        async with _transaction(connection):
            ((key,),) = await connection.execute(
                f"INSERT INTO {sql.threads} (thread_id, last_seq, expires_at) VALUES (?, 1, ?) RETURNING id INTO ?",
                (sql.text(commit.thread_id), sql.expiry(commit.expires_at), OutBind()),
            )
            thread = OracleThread(sql, int(key), commit.thread_id, 0)
            await _write(connection, thread, commit, Outcome(Verdict.COMMITTED, 1))
    except oracledb.Error as error:
        if not has_code(error, DUPLICATE):
            raise
        return None
    return thread.key


@asynccontextmanager
async def _transaction(connection: OracleConnection) -> AsyncIterator[None]:
    """A context for a transaction that its last statement commits. It is rolled back if something is raised."""
    await connection.begin(writing=True)
    try:
        yield
    except Exception:
        if connection.in_transaction():
            await connection.rollback()
        raise


async def _write(connection: OracleConnection, thread: OracleThread, commit: Commit, outcome: Outcome) -> None:
    # A branch that is there already is a duplicate, like an id: then the save is decided step by step.
    present = await run_steps_async(thread.present(commit.values), connection.execute)
    *first, last = [*thread.run_statements(commit, outcome, present), *thread.checkpoint_statements(commit, outcome)]
    for statement in first:
        await connection.execute(*statement)
    await connection.execute(*last, commit=True)
