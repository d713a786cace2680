"""Saves of many threads in one commit of MySQL: one round trip asks, and the next writes.

    BEGIN;
    SELECT … FROM locus_threads WHERE thread_id IN (…) FOR UPDATE SKIP LOCKED;
    SELECT …;                                          the revs of the last saves to threads that the handle has seen
    SELECT …;                                          what `decide` has to know of all other members

    INSERT INTO locus_threads …;                       a new thread
    INSERT INTO locus_runs … VALUES …, …, …;           of all members at once
    INSERT INTO locus_checkpoints … VALUES …, …, …;
    UPDATE locus_threads SET last_seq = last_seq + 1 … WHERE id IN (…);
    COMMIT

Nobody waits for a thread that another transaction holds: its member is passed over, and goes alone. A new thread has no
row to lock, and its INSERT would wait for another transaction that is creating it. So right before, NOWAIT asks whether
there is one. New threads are created in the order of their ids, so two groups do not wait for each other.

When saves wait, and how many of them go together, is the same for every database: `locus.memory.together`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from locus.memory.backends.mysql.client import Expression, Result, Statement
from locus.memory.backends.mysql.commit import BEGIN, COMMIT, looked, metadata_keys, questions_in_lock
from locus.memory.backends.mysql.schema import MySQLFlavour
from locus.memory.backends.sql.commit import OF_TASK, LastSeenThread, can_be_first
from locus.memory.backends.sql.flavour import Row, marks
from locus.memory.model.commit_rules import decide
from locus.memory.model.records import Commit, Outcome, TaskWrites, Verdict


@dataclass
class GroupSave:
    """A commit of a group, with its outcome as soon as that is known."""

    commit: Commit
    last_seen: LastSeenThread | None
    """The thread as the handle last saw it, if the commit continues that."""
    outcome: Outcome | None = None
    key: Any = None
    """The key of its thread; for a new thread, an expression for it."""
    removals: int = 0
    base_rev: str | None = None
    """The rev of the handle's last save to the thread, as it is stored; None if the checkpoint is gone."""
    created: int | None = None
    """The index of the statement that creates its thread."""


@dataclass
class GroupTask:
    """Pending writes of a group."""

    writes: TaskWrites
    key: int | None = None
    """The key of its thread if that is locked."""


@dataclass
class Group:
    """Members of different threads, in the order of their ids. All groups use the same order."""

    sql: MySQLFlavour
    saves: list[GroupSave]
    tasks: list[GroupTask]
    creating: bool
    """True if threads that do not exist are created."""
    _written: list[tuple[GroupSave, Outcome]] = field(default_factory=list)
    _new: list[GroupSave] = field(default_factory=list)

    def questions(self) -> list[Statement]:
        """The statements that lock the threads, and ask everything that is not known."""
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
        last_seen = [save.last_seen for save in self.saves if save.last_seen is not None]
        if last_seen:
            statements.append(_base_revs(sql, last_seen))
        for save in self.saves:
            if save.last_seen is None:
                statements += questions_in_lock(sql, save.commit)
        return statements

    def _that_may_create(self) -> list[GroupSave]:
        return [save for save in self.saves if self.creating and can_be_first(save.commit)]

    def decide(self, results: Sequence[Result]) -> None:
        """Decide on all members by the answers to `questions`. A member without an outcome is not written."""
        _, locked, *rest = results
        threads = {row[0]: row[1:] for row in locked.rows if row[-1]}
        may_create = self._that_may_create()
        existing = {row[0] for row in locked.rows}
        if may_create:
            existing |= {thread_id for (thread_id,) in rest.pop(0).rows}
        relying = [save for save in self.saves if save.last_seen is not None]
        if relying:
            (revs,) = rest.pop(0).rows
            for save, rev in zip(relying, revs, strict=True):
                save.base_rev = rev
        for save in self.saves:
            answers: list[Result] = []
            if save.last_seen is None:
                count = len(questions_in_lock(self.sql, save.commit))
                answers, rest = rest[:count], rest[count:]
            if save.commit.thread_id in threads:
                save.key, last_seq, save.removals, _ = threads[save.commit.thread_id]
                save.outcome = _outcome(save, last_seq, answers)
            elif save in may_create and save.commit.thread_id not in existing:
                save.outcome = Outcome(Verdict.COMMITTED, 1)
                self._new.append(save)
            if save.outcome is not None and save.outcome.is_written:
                self._written.append((save, save.outcome))
        for task in self.tasks:
            if task.writes.thread_id in threads:
                task.key = threads[task.writes.thread_id][0]

    def writes(self) -> list[Statement]:
        """The statements that write the members and commit; none if there is nothing to write."""
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
            rows += [sql.new_run(save.key, run, outcome.seq) for run in commit.runs]
            unless_there += [sql.new_run(save.key, run, outcome.seq) for run in commit.values]
        careful = sql.insert_unless_there(sql.runs, sql.run_columns, sql.run_marks)
        return [*_rows(sql.insert_run, rows), *_rows(careful, unless_there)]

    def _checkpoints(self) -> list[Statement]:
        rows: list[Row] = []
        for save, outcome in self._written:
            commit = save.commit
            row = self.sql.new_checkpoint(save.key, commit.entry(outcome), commit.head, commit.manifest)
            rows.append((*row, metadata_keys(commit.metadata)))
        return _rows(self.sql.insert_with_keys, rows)

    def _moves(self) -> list[Statement]:
        """The statements that raise the counters of existing threads."""
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


def _base_revs(sql: MySQLFlavour, threads: Sequence[LastSeenThread]) -> Statement:
    """A statement that asks for the revs of the handle's last saves to threads, all in one row."""
    rev = f"(SELECT c.rev FROM {sql.checkpoints} c WHERE c.thread = ? AND c.namespace = ? AND c.checkpoint_id = ?)"
    values = [value for thread in threads for value in (thread.key, thread.namespace, thread.base.checkpoint_id)]
    return f"SELECT {', '.join([rev] * len(threads))}", values


def _outcome(save: GroupSave, last_seq: int, answers: Sequence[Result]) -> Outcome | None:
    """Decide on a commit whose thread is locked, and has not expired."""
    last_seen = save.last_seen
    if last_seen is not None:
        expected = (last_seen.key, last_seen.seq, last_seen.removals, last_seen.base.rev)
        as_known = expected == (save.key, last_seq, save.removals, save.base_rev)
        return Outcome(Verdict.COMMITTED, last_seq + 1, last_seen.base.checkpoint_id) if as_known else None
    known, latest, *taken = answers
    outcome = decide(save.commit, looked(last_seq, known.rows, latest.rows, [result.rows for result in taken]))
    # To replace one takes more steps.
    return outcome if outcome.replaced is None else None


def _rows(insert: str, rows: Sequence[Row]) -> list[Statement]:
    """Extend an INSERT of one row to many rows."""
    if not rows:
        return []
    before, values, after = insert.partition("VALUES ")
    row = marks(len(rows[0]))
    assert after.startswith(row)
    text = f"{before}{values}{', '.join([row] * len(rows))}{after.removeprefix(row)}"
    return [(text, [value for cells in rows for value in cells])]
