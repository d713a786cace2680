"""Threads inside an Oracle transaction: the shared steps, with fewer round trips, and what its indexes add to them.

A save in three round trips, or in two if it adds nothing to any list.

A save that continues what this handle saved last needs no questions (see `sql_chain`):

    UPDATE locus_threads SET last_seq = 8, … WHERE id = 5 AND last_seq = 7 AND removals = 0 AND …
    INSERT INTO locus_runs …                        all runs of the save at once
    INSERT INTO locus_checkpoints …                 together with the commit

The UPDATE locks the thread's row and raises its counter; if it finds none, something has happened to the thread,
and nothing is written. A new thread begins with the INSERT of its row. An id that is taken is a unique key that is
taken (ORA-00001). In all these cases the save is decided on step by step, under a lock on the thread's row. Metadata
costs one round trip more, and so does a large value, which is looked for first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any

from locus.memory.backends.oracle.client import (
    DUPLICATE,
    OracleConnection,
    Returned,
    Rows,
    has_code,
    oracledb,
)
from locus.memory.backends.oracle.schema import OracleFlavour
from locus.memory.backends.sql.commit import Chain, SQLThread, SQLThreads, is_written
from locus.memory.backends.sql.flavour import Steps, marks, portions, run_steps_async
from locus.memory.backends.sql.read import now
from locus.memory.backends.sql.search import metadata_key
from locus.memory.model.codec import canonical, decode
from locus.memory.model.commit_rules import decide
from locus.memory.model.manifest import wanted
from locus.memory.model.records import (
    Commit,
    Entry,
    Outcome,
    Run,
    RunInfo,
    Verdict,
    Write,
)
from locus.memory.model.retention import unneeded_runs

Statement = tuple[str, Sequence[Any]]

_RUN = "thread, branch, number, start, count, seq, items"
_CHECKPOINT = "namespace, checkpoint_id, parent_id, seq, rev, created_at, metadata, head, manifest"
_PAIR = "namespace, seq, pair"
_WRITE = "namespace, checkpoint_id, task_id, idx, task_path, channel, value"


class OracleThread(SQLThread):
    sql: OracleFlavour

    removals = 0
    is_indexed = True
    """Whether the full text has anything of it."""

    def __init__(self, sql: OracleFlavour, key: int, thread_id: str, last_seq: int) -> None:
        super().__init__(sql, key, thread_id, last_seq)
        self._entries: dict[int, tuple[Entry, str]] | None = None

    def entries(self) -> Steps[dict[int, tuple[Entry, str]]]:
        """Asked for once, as long as nothing is removed: nobody else changes them meanwhile."""
        if self._entries is None:
            self._entries = yield from super().entries()
        return self._entries

    def add(self, commit: Commit, outcome: Outcome) -> Steps[None]:
        there = yield from self.known_values(commit)
        for statement in self.written_runs(commit, outcome, there):
            yield statement
        if outcome.replaced is not None:
            yield from self.remove({outcome.replaced.seq}, spare=commit.manifest)
        for statement in self.written_checkpoint(commit, outcome):
            yield statement
        yield (
            f"UPDATE {self.sql.threads} SET last_seq = ?, expires_at = ? WHERE id = ?",
            (outcome.seq, expiry(self.sql, commit), self.key),
        )

    def known_values(self, commit: Commit) -> Steps[set[str]]:
        """Which of the large values of a commit the thread has already."""
        there: set[str] = set()
        for branches in portions([run.branch for run in commit.values]):
            rows = yield (
                f"SELECT branch FROM {self.sql.runs} WHERE thread = ? AND number = 0 AND branch IN"
                f" {marks(len(branches))}",
                (self.key, *branches),
            )
            there |= {row[0] for row in rows}
        return there

    def written_runs(self, commit: Commit, outcome: Outcome, there: Collection[str]) -> list[Statement]:
        """At most one statement."""
        large = {run.branch: run for run in commit.values if run.branch not in there}
        runs = [*commit.runs, *large.values()]
        rows = Rows(self._run_values(run, outcome.seq) for run in runs)
        return [(f"INSERT INTO {self.sql.runs} ({_RUN}) VALUES {marks(7)}", rows)] if rows else []

    def written_checkpoint(self, commit: Commit, outcome: Outcome) -> list[Statement]:
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
            sql.inner_json(commit.manifest),
        )
        return [
            (f"INSERT INTO {sql.checkpoints} (thread, {_CHECKPOINT}) VALUES {marks(10)}", values),
            *self._pairs(entry),
        ]

    def _pairs(self, entry: Entry) -> list[Statement]:
        if entry.metadata == "{}":
            return []
        found = {metadata_key(key, canonical(value)) for key, value in decode(entry.metadata).items()}
        rows = Rows((self.key, self.sql.text(entry.namespace), entry.seq, pair) for pair in sorted(found))
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
        # Whoever saved last here must not take the thread for what it was.
        self.removals += 1
        yield f"UPDATE {self.sql.threads} SET removals = removals + 1 WHERE id = ?", (self.key,)

    def drop(self) -> Steps[int]:
        sql = self.sql
        ((dropped,),) = yield f"SELECT count(*) FROM {sql.checkpoints} WHERE thread = ?", (self.key,)
        yield f"DELETE FROM {sql.threads} WHERE id = ?", (self.key,)
        return int(dropped)

    def copy_to(self, dest: SQLThread, namespace: str | None, ids: Collection[str] | None) -> Steps[int]:
        """The server copies; only which runs are needed is worked out here."""
        chosen = [
            (entry, manifest)
            for entry, manifest in (yield from self.entries()).values()
            if ids is None or (entry.namespace == namespace and entry.checkpoint_id in ids)
        ]
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
        return len(chosen)

    def _copied(self, table: str, columns: str, condition: str, dest: SQLThread, values: Sequence[Any]) -> Statement:
        theirs = ", ".join(f"o.{column}" for column in columns.split(", "))
        return (
            f"INSERT INTO {table} (thread, {columns}) SELECT d.id, {theirs} FROM {table} o, {self.sql.threads} d"
            f" WHERE d.id = ? AND o.thread = ? AND {condition}",
            (dest.key, self.key, *values),
        )


class OracleThreads(SQLThreads):
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
        """As `commit`; the thread that was written to is added to `used`."""
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
        """In one DELETE and one INSERT, however many they are."""
        sql = self.sql
        thread = yield from self.open_or_create(thread_id)
        place = (thread.key, sql.text(namespace), sql.text(checkpoint_id), sql.text(task_id))
        task = "thread = ? AND namespace = ? AND checkpoint_id = ? AND task_id = ?"
        if not keep_numbered:
            yield f"DELETE FROM {sql.writes} WHERE {task} AND idx >= 0", place
        last = {write.idx: write for write in writes}
        for some in portions([idx for idx in last if idx < 0 or keep_numbered]):
            yield f"DELETE FROM {sql.writes} WHERE {task} AND idx IN {marks(len(some))}", (*place, *some)
        rows = Rows(
            (*place, write.idx, sql.text(write.task_path), sql.text(write.channel), sql.json(write.value))
            for write in last.values()
        )
        if rows:
            yield f"INSERT INTO {sql.writes} (thread, {_WRITE}) VALUES {marks(8)}", rows


def expiry(sql: OracleFlavour, commit: Commit) -> int | None:
    return sql.time(commit.expires_at) if commit.expires_at else None


async def in_chain(sql: OracleFlavour, connection: OracleConnection, commit: Commit, chain: Chain) -> Outcome | None:
    """Save without a question; None if something is in the way, and then nothing was written."""
    outcome = Outcome(Verdict.COMMITTED, chain.seq + 1, chain.base.checkpoint_id)
    try:
        async with _transaction(connection):
            await connection.execute(
                f"UPDATE {sql.threads} SET last_seq = ?, expires_at = ? WHERE id = ? AND last_seq = ? AND removals = ?"
                " AND (expires_at IS NULL OR expires_at > ?)",
                (outcome.seq, expiry(sql, commit), chain.key, chain.seq, chain.removals, now(sql)),
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
    """Begin a thread, and return its key; None if it is there already, and then nothing was written."""
    try:
        async with _transaction(connection):
            ((key,),) = await connection.execute(
                f"INSERT INTO {sql.threads} (thread_id, last_seq, expires_at) VALUES (?, 1, ?) RETURNING id INTO ?",
                (sql.text(commit.thread_id), expiry(sql, commit), Returned()),
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
    """One that is committed by its last statement, and rolled back if something goes wrong."""
    await connection.begin(writing=True)
    try:
        yield
    except Exception:
        if connection.in_transaction():
            await connection.rollback()
        raise


async def _write(connection: OracleConnection, thread: OracleThread, commit: Commit, outcome: Outcome) -> None:
    there = await run_steps_async(thread.known_values(commit), connection.execute)
    *first, last = [*thread.written_runs(commit, outcome, there), *thread.written_checkpoint(commit, outcome)]
    for statement in first:
        await connection.execute(*statement)
    await connection.execute(*last, commit=True)
