"""How MySQL saves for many threads in one commit: one round trip asks, and the next writes.

    BEGIN;
    SELECT … FROM locus_threads WHERE thread_id IN (…) FOR UPDATE SKIP LOCKED;
    SELECT …;                                          the revs of the checkpoints that chains end with
    SELECT …;                                          what `decide` has to know of members that continue no chain

    INSERT INTO locus_threads …;                       a new thread
    INSERT INTO locus_runs … VALUES …, …, …;           of all members at once
    INSERT INTO locus_checkpoints … VALUES …, …, …;
    UPDATE locus_threads SET last_seq = last_seq + 1 … WHERE id IN (…);
    COMMIT

Nobody waits for a thread that another transaction holds: its member is passed over, and goes alone. A new thread has no
row to lock, and its INSERT would wait for another transaction that is creating it. So right before, NOWAIT asks whether
there is one. New threads are created in the order of their ids, so two groups do not wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from locus.memory.backends.mysql.client import Expression, Result, Statement
from locus.memory.backends.mysql.commit import BEGIN, COMMIT, looked, metadata_keys, questions_in_lock
from locus.memory.backends.mysql.schema import MySQLFlavour
from locus.memory.backends.sql.commit import OF_TASK, LastSeenThread, added_entry, branches_sent_before, can_be_first
from locus.memory.backends.sql.flavour import Row, marks
from locus.memory.model.commit_rules import decide
from locus.memory.model.records import Commit, Outcome, TaskWrites, Verdict


@dataclass
class Save:
    """A commit of a group, and what has become of it so far."""

    commit: Commit
    chain: LastSeenThread | None
    """The chain that it continues, as far as its handle knows."""
    outcome: Outcome | None = None
    key: Any = None
    """The key of its thread; of a new one, what stands for it in the statements that follow."""
    removals: int = 0
    base_rev: str | None = None
    """The rev of what its chain ends with; None if that is not there."""
    created: int | None = None
    """Which statement creates its thread."""


@dataclass
class Task:
    """Pending writes of a group."""

    writes: TaskWrites
    key: int | None = None
    """The key of its thread, if that is locked."""


@dataclass
class Group:
    """Members of different threads, in the order of their ids, which all groups have in common."""

    sql: MySQLFlavour
    saves: list[Save]
    tasks: list[Task]
    creating: bool
    """Whether threads that are not there are created."""
    _written: list[tuple[Save, Outcome]] = field(default_factory=list)
    _new: list[Save] = field(default_factory=list)

    def questions(self) -> list[Statement]:
        """Lock the threads, and ask everything that is not known."""
        sql = self.sql
        ids = [save.commit.thread_id for save in self.saves] + [task.writes.thread_id for task in self.tasks]
        statements: list[Statement] = [
            BEGIN,
            (
                # For fewer rows than fit in a page, the server would go through all of them, and lock them on the way.
                f"SELECT t.thread_id, t.id, t.last_seq, t.removals, {sql.alive} FROM {sql.threads} t"
                f" FORCE INDEX (by_id) WHERE t.thread_id IN {marks(len(ids))} FOR UPDATE SKIP LOCKED",
                (sql.now(), *ids),
            ),
        ]
        firsts = [save.commit.thread_id for save in self._that_may_create()]
        if firsts:
            statements.append(
                (f"SELECT t.thread_id FROM {sql.threads} t WHERE t.thread_id IN {marks(len(firsts))}", firsts)
            )
        chains = [save.chain for save in self.saves if save.chain is not None]
        if chains:
            statements.append(_base_revs(sql, chains))
        for save in self.saves:
            if save.chain is None:
                statements += questions_in_lock(sql, save.commit)
        return statements

    def _that_may_create(self) -> list[Save]:
        return [save for save in self.saves if self.creating and can_be_first(save.commit)]

    def decide(self, results: Sequence[Result]) -> None:
        """Take the answers. Whoever gets no outcome is not written."""
        _, locked, *rest = results
        threads = {row[0]: row[1:] for row in locked.rows if row[-1]}
        may_create = self._that_may_create()
        there = {row[0] for row in locked.rows}
        if may_create:
            there |= {thread_id for (thread_id,) in rest.pop(0).rows}
        chained = [save for save in self.saves if save.chain is not None]
        if chained:
            (revs,) = rest.pop(0).rows
            for save, rev in zip(chained, revs, strict=True):
                save.base_rev = rev
        for save in self.saves:
            answers: list[Result] = []
            if save.chain is None:
                count = len(questions_in_lock(self.sql, save.commit))
                answers, rest = rest[:count], rest[count:]
            if save.commit.thread_id in threads:
                save.key, last_seq, save.removals, _ = threads[save.commit.thread_id]
                save.outcome = _outcome(save, last_seq, answers)
            elif save in may_create and save.commit.thread_id not in there:
                save.outcome = Outcome(Verdict.COMMITTED, 1)
                self._new.append(save)
            if save.outcome is not None and save.outcome.is_written:
                self._written.append((save, save.outcome))
        for task in self.tasks:
            if task.writes.thread_id in threads:
                task.key = threads[task.writes.thread_id][0]

    def writes(self) -> list[Statement]:
        """What writes the members that have to be written; nothing if there are none."""
        creation = self._creation()
        statements = [*creation, *self._runs(), *self._checkpoints(), *self._moves(), *self._task_writes()]
        return [*statements, COMMIT] if statements else []

    def _creation(self) -> list[Statement]:
        sql = self.sql
        statements: list[Statement] = []
        for number, save in enumerate(self._new):
            thread_id = save.commit.thread_id
            save.key, save.created = Expression(f"@locus_thread_{number}"), len(statements) + 1
            statements += [
                # One by one: on its way from one id to the next, a scan meets the rows of others who create threads.
                (f"SELECT 1 FROM {sql.threads} WHERE thread_id = ? FOR UPDATE NOWAIT", (thread_id,)),
                (
                    f"INSERT INTO {sql.threads} (thread_id, last_seq, expires_at) VALUES (?, 1, ?)",
                    (thread_id, sql.expiry(save.commit.expires_at)),
                ),
                (f"SET {save.key.text} = LAST_INSERT_ID()", ()),
            ]
        return statements

    def _runs(self) -> list[Statement]:
        sql = self.sql
        rows: list[Row] = []
        unless_there: list[Row] = []
        for save, outcome in self._written:
            commit = save.commit
            sent_before = branches_sent_before(commit)
            for run in commit.runs:
                row = sql.new_run(save.key, run, outcome.seq)
                (unless_there if run.branch in sent_before else rows).append(row)
            unless_there += [sql.new_run(save.key, run, outcome.seq) for run in commit.values]
        careful = sql.insert_unless_there(sql.runs, sql.run_columns, sql.run_marks)
        return [*_rows(sql.insert_run, rows), *_rows(careful, unless_there)]

    def _checkpoints(self) -> list[Statement]:
        rows: list[Row] = []
        for save, outcome in self._written:
            commit = save.commit
            row = self.sql.new_checkpoint(save.key, added_entry(commit, outcome), commit.head, commit.manifest)
            rows.append((*row, metadata_keys(commit.metadata)))
        return _rows(self.sql.insert_with_keys, rows)

    def _moves(self) -> list[Statement]:
        """Raise the counters of threads that were there."""
        by_expiry: dict[Any, list[Any]] = {}
        for save, _ in self._written:
            if save.created is None:
                by_expiry.setdefault(self.sql.expiry(save.commit.expires_at), []).append(save.key)
        return [
            (
                f"UPDATE {self.sql.threads} SET last_seq = last_seq + 1, expires_at = ? WHERE id IN {marks(len(keys))}",
                (expires_at, *keys),
            )
            for expires_at, keys in by_expiry.items()
        ]

    def _task_writes(self) -> list[Statement]:
        sql = self.sql
        statements: list[Statement] = []
        rows: list[Row] = []
        for task in self.tasks:
            if task.key is not None:
                writes = task.writes
                place = (task.key, writes.namespace, writes.checkpoint_id, writes.task_id)
                if not writes.keep_numbered:
                    statements.append((f"DELETE FROM {sql.writes} WHERE {OF_TASK} AND idx >= 0", place))
                rows += [(*place, *sql.new_write(write)) for write in writes.writes]
        return [*statements, *_rows(sql.put_write(), rows)]


def _base_revs(sql: MySQLFlavour, chains: Sequence[LastSeenThread]) -> Statement:
    """Asks for the revs of the checkpoints that chains end with, all in one row."""
    rev = f"(SELECT c.rev FROM {sql.checkpoints} c WHERE c.thread = ? AND c.namespace = ? AND c.checkpoint_id = ?)"
    values = [value for chain in chains for value in (chain.key, chain.namespace, chain.base.checkpoint_id)]
    return f"SELECT {', '.join([rev] * len(chains))}", values


def _outcome(save: Save, last_seq: int, answers: Sequence[Result]) -> Outcome | None:
    """What becomes of a commit whose thread is locked, and has not expired."""
    chain = save.chain
    if chain is not None:
        expected = (chain.key, chain.seq, chain.removals, chain.base.rev)
        as_known = expected == (save.key, last_seq, save.removals, save.base_rev)
        return Outcome(Verdict.COMMITTED, last_seq + 1, chain.base.checkpoint_id) if as_known else None
    known, latest, *taken = answers
    outcome = decide(save.commit, looked(last_seq, known.rows, latest.rows, [result.rows for result in taken]))
    # To replace one takes more steps.
    return outcome if outcome.replaced is None else None


def _rows(insert: str, rows: Sequence[Row]) -> list[Statement]:
    """An INSERT of one row, for many."""
    if not rows:
        return []
    before, values, after = insert.partition("VALUES ")
    row = marks(len(rows[0]))
    assert after.startswith(row)
    text = f"{before}{values}{', '.join([row] * len(rows))}{after.removeprefix(row)}"
    return [(text, [value for one in rows for value in one])]
