"""How Oracle Database saves: three round trips, or two if the save adds nothing to any list.

A save that continues what this handle saved last needs no questions (see `Chain` in `sql.commit`):

    UPDATE locus_threads SET last_seq = 8, … WHERE id = 5 AND last_seq = 7 AND removals = 0 AND …
    INSERT INTO locus_runs …                        all runs of the save at once
    INSERT INTO locus_checkpoints …                 together with the commit

The UPDATE locks the thread's row and raises its counter. If it finds no row, something has happened to the thread,
and nothing is written. A new thread begins with the INSERT of its row. An id that exists violates a unique key
(ORA-00001). In all these cases the save starts over step by step, under a lock on the thread's row. Metadata costs
one more round trip, and so do large values, because the save first looks which of them the thread has.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any

from locus.memory.backends.oracle.client import DUPLICATE, BindRows, OracleConnection, OutBind, has_code, oracledb
from locus.memory.backends.oracle.schema import OracleFlavour
from locus.memory.backends.sql.commit import Chain, SQLThread, SQLThreads, is_written, may_be_there
from locus.memory.backends.sql.flavour import Steps, marks, portions, run_steps_async
from locus.memory.backends.sql.read import now
from locus.memory.backends.sql.search import metadata_key
from locus.memory.model.codec import canonical, decode
from locus.memory.model.commit_rules import decide
from locus.memory.model.manifest import wanted
from locus.memory.model.records import Commit, Entry, Outcome, Run, RunInfo, Verdict, Write
from locus.memory.model.retention import unneeded_runs

Statement = tuple[str, Sequence[Any]]

_RUN = "thread, branch, number, start, count, seq, items"
_CHECKPOINT = "namespace, checkpoint_id, parent_id, seq, rev, created_at, metadata, head, manifest"
_PAIR = "namespace, seq, pair"
_WRITE = "namespace, checkpoint_id, task_id, idx, task_path, channel, value"


class OracleThread(SQLThread):
    """The shared steps on one thread, with fewer round trips, and what Oracle's indexes add to them."""

    sql: OracleFlavour

    removals = 0
    is_indexed = True
    """Whether any of it is in the full text."""

    def __init__(self, sql: OracleFlavour, key: int, thread_id: str, last_seq: int) -> None:
        super().__init__(sql, key, thread_id, last_seq)
        self._entries: dict[int, tuple[Entry, str]] | None = None

    def entries(self) -> Steps[dict[int, tuple[Entry, str]]]:
        """Read once, until something is removed: the thread is locked, so nobody else changes them."""
        if self._entries is None:
            self._entries = yield from super().entries()
        return self._entries

    def add(self, commit: Commit, outcome: Outcome) -> Steps[None]:
        opened = [run for run in commit.runs if may_be_there(commit, run)]
        present = yield from self.present((*opened, *commit.values))
        for statement in self.run_statements(commit, outcome, present):
            yield statement
        if outcome.replaced is not None:
            yield from self.remove({outcome.replaced.seq}, spare=commit.manifest)
        for statement in self.checkpoint_statements(commit, outcome):
            yield statement
        yield (
            f"UPDATE {self.sql.threads} SET last_seq = ?, expires_at = ? WHERE id = ?",
            (outcome.seq, _expiry(self.sql, commit), self.key),
        )

    def present(self, runs: Sequence[Run]) -> Steps[set[str]]:
        """The branches of those of these runs, all with the number 0, that the thread has already."""
        present: set[str] = set()
        for branches in portions([run.branch for run in runs]):
            rows = yield (
                f"SELECT branch FROM {self.sql.runs} WHERE thread = ? AND number = 0 AND branch IN"
                f" {marks(len(branches))}",
                (self.key, *branches),
            )
            present |= {row[0] for row in rows}
        return present

    def run_statements(self, commit: Commit, outcome: Outcome, present: Collection[str]) -> list[Statement]:
        """At most one statement."""
        large = {run.branch: run for run in commit.values if run.branch not in present}
        runs = [*(run for run in commit.runs if run.number > 0 or run.branch not in present), *large.values()]
        rows = BindRows(self._run_values(run, outcome.seq) for run in runs)
        return [(f"INSERT INTO {self.sql.runs} ({_RUN}) VALUES {marks(7)}", rows)] if rows else []

    def checkpoint_statements(self, commit: Commit, outcome: Outcome) -> list[Statement]:
        entry = Entry(
            commit.thread_id,
            commit.namespace,
            commit.checkpoint_id,
            outcome.parent_id,
            outcome.seq,
            commit.rev,
            commit.created_at,
            commit.metadata,
        )
        sql = self.sql
        values = (
            self.key,
            sql.text(entry.namespace),
            sql.text(entry.checkpoint_id),
            None if entry.parent_id is None else sql.text(entry.parent_id),
            entry.seq,
            entry.rev,
            sql.time(entry.created_at),
            sql.json(entry.metadata),
            sql.json(commit.head),
            sql.json_as_text(commit.manifest),
        )
        return [
            (f"INSERT INTO {sql.checkpoints} (thread, {_CHECKPOINT}) VALUES {marks(10)}", values),
            *self._pairs(entry),
        ]

    def _pairs(self, entry: Entry) -> list[Statement]:
        if entry.metadata == "{}":
            return []
        found = {metadata_key(key, canonical(value)) for key, value in decode(entry.metadata).items()}
        rows = BindRows((self.key, self.sql.text(entry.namespace), entry.seq, pair) for pair in sorted(found))
        return [(f"INSERT INTO {self.sql.metadata_pairs} (thread, {_PAIR}) VALUES {marks(4)}", rows)]

    def _run_values(self, run: Run, seq: int) -> tuple[object, ...]:
        return (self.key, *run[:4], seq, self.sql.json(run.items))

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

    def remove(self, doomed: Collection[int], spare: str | None = None) -> Steps[None]:
        yield from super().remove(doomed, spare)
        self._entries = None
        # A handle that saved here before must notice that the thread has changed.
        self.removals += 1
        yield f"UPDATE {self.sql.threads} SET removals = removals + 1 WHERE id = ?", (self.key,)

    def drop(self) -> Steps[int]:
        sql = self.sql
        ((dropped,),) = yield f"SELECT count(*) FROM {sql.checkpoints} WHERE thread = ?", (self.key,)
        yield f"DELETE FROM {sql.threads} WHERE id = ?", (self.key,)
        return int(dropped)

    def copy_to(self, dest: SQLThread, chosen: Sequence[tuple[Entry, str]]) -> Steps[None]:
        """The server copies. Only the choice of the runs to copy is made here."""
        for seqs in portions([entry.seq for entry, _ in chosen]):
            condition = f"o.seq IN {marks(len(seqs))}"
            yield self._copied(self.sql.checkpoints, _CHECKPOINT, f"{condition} ORDER BY o.seq", dest, seqs)
            yield self._copied(self.sql.metadata_pairs, _PAIR, condition, dest, seqs)
        for some in portions([entry for entry, _ in chosen]):
            names = [self.sql.text(name) for entry in some for name in (entry.namespace, entry.checkpoint_id)]
            condition = f"(o.namespace, o.checkpoint_id) IN {self.sql.pairs(len(some))}"
            yield self._copied(self.sql.writes, _WRITE, condition, dest, names)
        extents = [extent for _, manifest in chosen for extent in wanted(manifest)]
        runs = yield from self.runs()
        for needed in portions(sorted(set(runs) - set(unneeded_runs(extents, runs)))):
            runs_named = [value for run in needed for value in (run.branch, run.number)]
            condition = f"(o.branch, o.number) IN {self.sql.pairs(len(needed))}"
            yield self._copied(self.sql.runs, _RUN.removeprefix("thread, "), condition, dest, runs_named)

    def _copied(self, table: str, columns: str, condition: str, dest: SQLThread, values: Sequence[Any]) -> Statement:
        theirs = ", ".join(f"o.{column}" for column in columns.split(", "))
        return (
            f"INSERT INTO {table} (thread, {columns}) SELECT d.id, {theirs} FROM {table} o, {self.sql.threads} d"
            f" WHERE d.id = ? AND o.thread = ? AND {condition}",
            (dest.key, self.key, *values),
        )


class OracleThreads(SQLThreads):
    """The shared operations, with `OracleThread`."""

    sql: OracleFlavour

    def thread(self, key: int, thread_id: str, last_seq: int) -> OracleThread:
        return OracleThread(self.sql, key, thread_id, last_seq)

    def open(self, thread_id: str) -> Steps[OracleThread | None]:
        sql = self.sql
        rows = yield (
            f"SELECT t.id, t.last_seq, t.removals, t.indexed_seq, {sql.truth(sql.alive)} FROM {sql.threads} t"
            f" WHERE t.thread_id = ?{sql.lock}",
            (now(sql), sql.text(thread_id)),
        )
        if not rows:
            return None
        key, last_seq, removals, indexed_seq, alive = rows[0]
        thread = self.thread(key, thread_id, last_seq)
        thread.removals, thread.is_indexed = removals, indexed_seq > 0
        if not alive:
            yield from thread.drop()
            return None
        return thread

    def commit_in(self, commit: Commit, used: list[OracleThread]) -> Steps[Outcome]:
        """Like `commit`, but adds the thread that was written to `used`."""
        opening = self.open if commit.base is not None else self.open_or_create
        thread = yield from opening(commit.thread_id)
        if not isinstance(thread, OracleThread):
            return (yield from self.commit(commit))
        outcome = decide(commit, (yield from thread.look(commit)))
        if is_written(outcome):
            yield from thread.add(commit, outcome)
            used.append(thread)
        return outcome

    def put_writes(
        self,
        thread_id: str,
        namespace: str,
        checkpoint_id: str,
        task_id: str,
        writes: Sequence[Write],
        keep_numbered: bool = False,
    ) -> Steps[None]:
        """All of them in one INSERT, after the DELETE of those they replace."""
        sql = self.sql
        thread = yield from self.open_or_create(thread_id)
        task_key = (thread.key, sql.text(namespace), sql.text(checkpoint_id), sql.text(task_id))
        task = "thread = ? AND namespace = ? AND checkpoint_id = ? AND task_id = ?"
        if not keep_numbered:
            yield f"DELETE FROM {sql.writes} WHERE {task} AND idx >= 0", task_key
        last = {write.idx: write for write in writes}
        for some in portions([idx for idx in last if idx < 0 or keep_numbered]):
            yield f"DELETE FROM {sql.writes} WHERE {task} AND idx IN {marks(len(some))}", (*task_key, *some)
        rows = BindRows(
            (*task_key, write.idx, sql.text(write.task_path), sql.text(write.channel), sql.json(write.value))
            for write in last.values()
        )
        if rows:
            yield f"INSERT INTO {sql.writes} (thread, {_WRITE}) VALUES {marks(8)}", rows


async def in_chain(sql: OracleFlavour, connection: OracleConnection, commit: Commit, chain: Chain) -> Outcome | None:
    """Save without questions. None if the thread has changed or the id exists, and then nothing was written."""
    outcome = Outcome(Verdict.COMMITTED, chain.seq + 1, chain.base.checkpoint_id)
    try:
        async with _transaction(connection):
            await connection.execute(
                f"UPDATE {sql.threads} SET last_seq = ?, expires_at = ? WHERE id = ? AND last_seq = ? AND removals = ?"
                " AND (expires_at IS NULL OR expires_at > ?)",
                (outcome.seq, _expiry(sql, commit), chain.key, chain.seq, chain.removals, now(sql)),
            )
            if connection.changed != 1:
                await connection.rollback()
                return None
            await _write(connection, OracleThread(sql, chain.key, commit.thread_id, chain.seq), commit, outcome)
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
                (sql.text(commit.thread_id), _expiry(sql, commit), OutBind()),
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
    """A transaction that its last statement commits. It is rolled back if something goes wrong."""
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


def _expiry(sql: OracleFlavour, commit: Commit) -> int | None:
    return sql.time(commit.expires_at) if commit.expires_at else None
