"""The operations that change threads, as steps inside a transaction: save, delete, expire, copy, pending writes.

Every change of a thread begins with a lock on its row, so that commits and deletions exclude each other. `SQLThreads`
has the operations, and `SQLThread` is a thread whose row is locked. A backend overrides them for its own columns and
indexes.

A handle that has just saved to a thread remembers its row (`LastSeenThread`). If `last_seq` and `removals` are
unchanged, nothing has happened to the thread since, and a save on top of the last one needs no questions. But a server
that has lost saves, in a failover or with a backup that was restored, may give out the same numbers again: the key of a
thread to another thread, and sequence numbers to other saves. So a save without questions also names the thread by its
id, and requires that the last save (`LastSeenThread.base`) is there with its rev.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import Any

from locus.errors import CorruptCheckpointError
from locus.memory.backends.sql.flavour import Flavour, Row, Steps, marks, portions
from locus.memory.backends.sql.read import write_list
from locus.memory.backends.sql.schema import KNOWN, RUN_INFO, CheckpointRow, of, without_thread
from locus.memory.model.commit_rules import contested_runs, decide
from locus.memory.model.manifest import wanted
from locus.memory.model.records import (
    ANY,
    Base,
    Commit,
    Entry,
    Extent,
    Known,
    Outcome,
    Run,
    RunInfo,
    TaskWrites,
    Verdict,
    Write,
)
from locus.memory.model.retention import Copied, Line, Place, Removal, ancestors, cut, plan_removal, unneeded_runs
from locus.memory.model.trimming import MOST_ROWS

FEW_ANCESTORS = 32
"""The number of ancestors that are looked up one by one. For more, the whole namespace is read, without payloads."""
OF_TASK = "thread = ? AND namespace = ? AND checkpoint_id = ? AND task_id = ?"


@dataclass
class LoadedView:
    """A `commit_rules.View` that holds only what one commit asks about. It is read beforehand."""

    last_seq: int
    by_id: dict[str, Known] = field(default_factory=dict)
    newest: Known | None = None
    taken: set[tuple[str, int]] = field(default_factory=set)

    def find(self, namespace: str, checkpoint_id: str) -> Known | None:
        return self.by_id.get(checkpoint_id)

    def latest(self, namespace: str) -> Known | None:
        return self.newest

    def has_run(self, branch: str, number: int) -> bool:
        return (branch, number) in self.taken


@dataclass(frozen=True)
class Chosen:
    """The checkpoints to copy: all of a thread, or those of a namespace that have these sequence numbers."""

    count: int
    namespace: str | None = None
    seqs: Sequence[int] = ()
    orphan: int | None = None
    """The sequence number of the copied checkpoint whose parent is not copied."""

    def conditions(self, sql: Flavour) -> Iterator[tuple[str, Sequence[Any]]]:
        """Conditions on checkpoints `o`, with their values, that together select the chosen ones."""
        if self.namespace is None:
            yield "1 = 1", ()
        for some in portions(self.seqs):
            yield (
                f"{sql.in_order('o.namespace')} = ? AND o.seq IN {marks(len(some))}",
                (
                    sql.text(self.namespace or ""),
                    *some,
                ),
            )


class SQLThread:
    """A thread whose row this transaction has locked."""

    removals = 0
    """The number of deletions from this thread, for backends that use `LastSeenThread`."""

    def __init__(self, sql: Flavour, key: int, thread_id: str, last_seq: int) -> None:
        self.sql = sql
        self.key = key
        self.thread_id = thread_id
        self.last_seq = last_seq

    def look(self, commit: Commit) -> Steps[LoadedView]:
        """Read everything that `decide` may ask about this commit."""
        sql, view = self.sql, LoadedView(self.last_seq)
        ids = {commit.checkpoint_id, *([commit.base.checkpoint_id] if commit.base else [])}
        if isinstance(commit.parent_id, str):
            ids.add(commit.parent_id)
        place = (self.key, sql.text(commit.namespace))
        select = f"SELECT {KNOWN} FROM {sql.checkpoints} WHERE thread = ?"
        rows = yield f"{select} AND namespace = ? AND checkpoint_id IN {marks(len(ids))}", (*place, *map(sql.text, ids))
        view.by_id = {known.checkpoint_id: known for known in map(self._known, rows)}
        if commit.if_latest is not ANY or (commit.parent_id is not None and commit.parent_id not in view.by_id):
            rows = yield f"{select} AND {sql.in_order('namespace')} = ? ORDER BY seq DESC LIMIT 1", place
            view.newest = self._known(rows[0]) if rows else None
        for run in contested_runs(commit):
            rows = yield (
                f"SELECT 1 FROM {sql.runs} WHERE thread = ? AND branch = ? AND number >= ? LIMIT 1",
                (self.key, run.branch, run.number),
            )
            view.taken |= {run[:2]} if rows else set()
        return view

    def _known(self, row: Sequence[object]) -> Known:
        checkpoint_id, seq, rev, parent_id = row
        assert isinstance(checkpoint_id, str)
        assert isinstance(seq, int)
        assert isinstance(rev, str)
        parent = self.sql.read_text(parent_id) if isinstance(parent_id, str) else None
        return Known(self.sql.read_text(checkpoint_id), seq, rev, parent)

    def add(self, commit: Commit, outcome: Outcome) -> Steps[None]:
        """Write a commit that `decide` has accepted."""
        sql = self.sql
        unless_there = sql.insert_unless_there(sql.runs, sql.run_columns, sql.run_marks)
        for run in commit.runs:
            yield sql.insert_run, self._run_values(run, outcome.seq)
        for run in commit.values:
            yield unless_there, self._run_values(run, outcome.seq)
        if outcome.replaced is not None:
            yield from self.remove({outcome.replaced.seq}, spare=commit.manifest)
        yield from self.insert(commit.entry(outcome), commit.head, commit.manifest)
        yield from self.moved(commit, outcome)

    def moved(self, commit: Commit, outcome: Outcome) -> Steps[None]:
        """Raise the thread's counter to the number of a commit."""
        yield (
            f"UPDATE {self.sql.threads} SET last_seq = ?, expires_at = ? WHERE id = ?",
            (outcome.seq, self.sql.expiry(commit.expires_at), self.key),
        )

    def _run_values(self, run: Run, seq: int) -> tuple[object, ...]:
        return self.sql.new_run(self.key, run, seq)

    def insert(self, entry: Entry, head: str, manifest: str) -> Steps[None]:
        """Write the row of a checkpoint."""
        yield self.sql.insert_checkpoint, self.sql.new_checkpoint(self.key, entry, head, manifest)

    def entries(self) -> Steps[dict[int, tuple[Entry, str]]]:
        """Read the entry and the manifest of every checkpoint of the thread, by sequence number."""
        sql = self.sql
        rows = yield (
            f"SELECT {sql.columns('manifest')} FROM {sql.joined} WHERE c.thread = ? ORDER BY c.seq",
            (self.key,),
        )
        checkpoints = [CheckpointRow(*row) for row in rows]
        return {row.seq: (sql.unproven_entry(row), sql.read_json(row.manifest)) for row in checkpoints}

    def runs(self) -> Steps[list[RunInfo]]:
        rows = yield f"SELECT {RUN_INFO} FROM {self.sql.runs} WHERE thread = ?", (self.key,)
        return [RunInfo(*row) for row in rows]

    def before_removing(self, entries: Sequence[Entry], runs: Sequence[RunInfo]) -> Steps[None]:
        """Remove checkpoints and runs, which are about to be removed, from a backend's own indexes."""
        yield from ()

    def remove(
        self,
        doomed: Collection[int],
        spare: str | None = None,
        known: Mapping[int, tuple[Entry, str]] | None = None,
    ) -> Steps[None]:
        """Remove checkpoints, and everything that only they need.

        `spare` is the manifest of the checkpoint that replaces them. `known` are all checkpoints, if they were read
        already, as `entries` returns them.
        """
        entries = known or (yield from self.entries())
        stay = {seq: wanted(manifest) for seq, (_, manifest) in entries.items() if seq not in doomed}
        if spare is not None:
            stay[-1] = wanted(spare)
        removal = plan_removal(stay, [entry for entry, _ in entries.values()], doomed, (yield from self.runs()))
        yield from self.take_out([entries[seq][0] for seq in sorted(doomed)], removal, keep_writes=spare is not None)

    def take_out(self, gone: Sequence[Entry], removal: Removal, *, keep_writes: bool = False) -> Steps[None]:
        """Carry out a planned removal of these checkpoints."""
        sql = self.sql
        yield from self.before_removing(gone, removal.runs)
        for seqs in portions([entry.seq for entry in gone]):
            yield f"DELETE FROM {sql.checkpoints} WHERE thread = ? AND seq IN {marks(len(seqs))}", (self.key, *seqs)
        for runs in portions(removal.runs):
            names = [value for run in runs for value in (run.branch, run.number)]
            condition = f"thread = ? AND (branch, number) IN {sql.pairs(len(runs))}"
            yield f"DELETE FROM {sql.runs} WHERE {condition}", (self.key, *names)
        if not keep_writes:
            yield from self._remove_writes(gone)
        for seq, parent_id in removal.parents.items():
            yield from self.reparent(seq, parent_id)

    def reparent(self, seq: int, parent_id: str | None) -> Steps[None]:
        """Give a checkpoint another parent."""
        yield (
            f"UPDATE {self.sql.checkpoints} SET parent_id = ? WHERE thread = ? AND seq = ?",
            (None if parent_id is None else self.sql.text(parent_id), self.key, seq),
        )

    def expire_at(self, at: datetime) -> Steps[None]:
        """Set the time at which the thread expires."""
        yield f"UPDATE {self.sql.threads} SET expires_at = ? WHERE id = ?", (self.sql.time(at), self.key)

    def _remove_writes(self, gone: Sequence[Entry]) -> Steps[None]:
        sql = self.sql
        for entries in portions(gone):
            names = [sql.text(name) for entry in entries for name in (entry.namespace, entry.checkpoint_id)]
            condition = f"thread = ? AND (namespace, checkpoint_id) IN {sql.pairs(len(entries))}"
            yield f"DELETE FROM {sql.writes} WHERE {condition}", (self.key, *names)

    def drop(self) -> Steps[int]:
        """Remove the whole thread; return how many checkpoints it had."""
        sql = self.sql
        entries = yield from self.entries()
        yield from self.before_removing([entry for entry, _ in entries.values()], (yield from self.runs()))
        for table in (sql.checkpoints, sql.runs, sql.writes):
            yield f"DELETE FROM {table} WHERE thread = ?", (self.key,)
        yield f"DELETE FROM {sql.threads} WHERE id = ?", (self.key,)
        return len(entries)

    def drop_some(self, most: int) -> Steps[tuple[int, bool]]:
        """Remove some rows of an expired thread. Return how many checkpoints, and whether the thread is gone."""
        sql = self.sql
        if self.last_seq <= most:
            return (yield from self.drop()), True
        rows = yield f"SELECT {sql.entry} FROM {sql.joined} WHERE c.thread = ? LIMIT ?", (self.key, most)
        try:
            gone = [sql.unproven_entry(CheckpointRow(*row)) for row in rows]
        except CorruptCheckpointError:
            return (yield from self.drop()), True
        runs: list[RunInfo] = []
        if len(gone) < most:
            rows = yield f"SELECT {RUN_INFO} FROM {sql.runs} WHERE thread = ? LIMIT ?", (self.key, most - len(gone))
            runs = [RunInfo(*row) for row in rows]
        if len(gone) + len(runs) < most:
            return (yield from self.drop()), True
        yield from self.take_out(gone, Removal(runs, {}))
        return len(gone), False

    def has_any(self) -> Steps[bool]:
        """Tell whether the thread has a checkpoint."""
        rows = yield f"SELECT 1 FROM {self.sql.checkpoints} WHERE thread = ? LIMIT 1", (self.key,)
        return bool(rows)

    def chosen(self, copied: Copied) -> Steps[Chosen]:
        """Choose checkpoints, for a copy."""
        if copied is None:
            ((count,),) = yield f"SELECT count(*) FROM {self.sql.checkpoints} WHERE thread = ?", (self.key,)
            return Chosen(count)
        if isinstance(copied, Line):
            return (yield from self._line(copied))
        among = yield from self._among(copied.namespace)
        seqs = sorted(known.seq for known in among if known.checkpoint_id in copied.checkpoint_ids)
        return Chosen(len(seqs), copied.namespace, seqs)

    def _line(self, line: Line) -> Steps[Chosen]:
        if line.longest > FEW_ANCESTORS:
            chosen = ancestors((yield from self._among(line.namespace)), line.checkpoint_id, line.longest)
        else:
            chosen = yield from self._few(line)
        orphan = cut(chosen, line)
        return Chosen(
            len(chosen), line.namespace, sorted(known.seq for known in chosen), None if orphan is None else orphan.seq
        )

    def _few(self, line: Line) -> Steps[list[Known]]:
        by_id: dict[str, Known] = {}
        at: str | None = line.checkpoint_id
        while at is not None and at not in by_id and len(by_id) < line.longest:
            some = yield from self._among(line.namespace, at)
            if not some:
                break
            by_id[at] = some[0]
            at = some[0].parent_id
        return [*by_id.values()]

    def _among(self, namespace: str, checkpoint_id: str | None = None) -> Steps[list[Known]]:
        """Look up the checkpoints of a namespace, or the one that is named."""
        condition, values = "namespace = ?", [self.sql.text(namespace)]
        if checkpoint_id is not None:
            condition, values = f"{condition} AND checkpoint_id = ?", [*values, self.sql.text(checkpoint_id)]
        rows = yield f"SELECT {KNOWN} FROM {self.sql.checkpoints} WHERE thread = ? AND {condition}", (self.key, *values)
        return [self._known(row) for row in rows]

    def copy_to(self, dest: SQLThread, chosen: Chosen) -> Steps[None]:
        """Copy checkpoints, with their numbers, and the runs and pending writes that they need. The server copies."""
        sql = self.sql
        extents: set[Extent] = set()
        for condition, values in chosen.conditions(sql):
            rows = yield (
                f"SELECT {sql.json_column('o.manifest')} FROM {sql.checkpoints} o WHERE o.thread = ? AND {condition}",
                (self.key, *values),
            )
            extents.update(extent for (manifest,) in rows for extent in wanted(sql.read_json(manifest)))
            yield self.copied(sql.checkpoints, sql.checkpoint_columns, f"{condition} ORDER BY o.seq", dest, values)
            yield from self.copy_metadata(dest, condition, values)
        runs = yield from self.runs()
        for some in portions(sorted(set(runs) - set(unneeded_runs(extents, runs)))):
            names = [value for run in some for value in (run.branch, run.number)]
            condition = f"(o.branch, o.number) IN {sql.pairs(len(some))}"
            yield self.copied(sql.runs, sql.run_columns, condition, dest, names)
        yield from self._copy_writes(dest)
        if chosen.orphan is not None:
            yield from dest.reparent(chosen.orphan, None)

    def copy_metadata(self, dest: SQLThread, condition: str, values: Sequence[Any]) -> Steps[None]:
        """Copy the metadata of checkpoints `o` that meet a condition, if a backend has an index of its own for it."""
        yield from ()

    def _copy_writes(self, dest: SQLThread) -> Steps[None]:
        """Copy the pending writes of the copied checkpoints."""
        sql = self.sql
        is_copied = (
            f"EXISTS (SELECT 1 FROM {sql.checkpoints} n WHERE n.thread = ? AND n.namespace = o.namespace"
            " AND n.checkpoint_id = o.checkpoint_id)"
        )
        if not (yield f"SELECT 1 FROM {sql.writes} WHERE thread = ? LIMIT 1", (dest.key,)):
            yield self.copied(sql.writes, sql.pending_columns, is_copied, dest, (dest.key,))
            return
        # Some wait there for checkpoints already; those of the same tasks are replaced.
        rows = yield (
            f"SELECT o.namespace, o.checkpoint_id, {write_list(sql, 'o')} FROM {sql.writes} o"
            f" WHERE o.thread = ? AND {is_copied}",
            (self.key, dest.key),
        )
        for namespace, checkpoint_id, *row in rows:
            yield from self.copy_write(dest, (namespace, checkpoint_id), row)

    def copy_write(self, dest: SQLThread, place: Sequence[Any], row: Row) -> Steps[None]:
        """Copy a pending write of this thread, a row of `write_list`."""
        yield self.sql.put_write(), (dest.key, *place, *row)

    def copied(
        self, table: str, columns: str, condition: str, dest: SQLThread, values: Sequence[Any]
    ) -> tuple[str, Sequence[Any]]:
        """The statement that copies the rows `o` of this thread that meet a condition. `thread` is the first column."""
        return (
            f"INSERT INTO {table} ({columns}) SELECT d.id, {of('o', without_thread(columns))}"
            f" FROM {table} o, {self.sql.threads} d WHERE d.id = ? AND o.thread = ? AND {condition}",
            (dest.key, self.key, *values),
        )


class SQLThreads:
    """The operations that change threads; each is one transaction."""

    opening = "t.id, t.last_seq"
    """The columns of a thread that `open` reads."""

    def __init__(self, sql: Flavour) -> None:
        self.sql = sql

    def thread(self, key: int, thread_id: str, last_seq: int) -> SQLThread:
        return SQLThread(self.sql, key, thread_id, last_seq)

    def opened(self, thread_id: str, row: Row) -> SQLThread:
        """Make the locked thread of a row with the columns `opening`."""
        key, last_seq = row
        return self.thread(key, thread_id, last_seq)

    def open(self, thread_id: str) -> Steps[SQLThread | None]:
        """Lock a thread. If it has expired, it is removed; None if it is gone or never existed."""
        sql = self.sql
        rows = yield (
            f"SELECT {self.opening}, {sql.truth(sql.alive)} FROM {sql.threads} t WHERE t.thread_id = ?{sql.lock}",
            (sql.now(), sql.text(thread_id)),
        )
        if not rows:
            return None
        *row, alive = rows[0]
        thread = self.opened(thread_id, row)
        if not alive:
            yield from thread.drop()
            return None
        return thread

    def open_or_create(self, thread_id: str) -> Steps[SQLThread]:
        while True:
            thread = yield from self.open(thread_id)
            if thread is not None:
                return thread
            # Another process may be doing the same; the second one finds the row of the first.
            sql = self.sql
            yield sql.new_thread(thread_id)

    def commit(self, commit: Commit, changed: list[SQLThread] | None = None) -> Steps[Outcome]:
        """Decide on a commit and write it. If it is not written, the transaction has to be rolled back.

        The thread that was written is added to `changed`.
        """
        # A commit with a base needs a thread that exists, so none is created for it.
        opening = self.open if commit.base is not None else self.open_or_create
        thread = yield from opening(commit.thread_id)
        if thread is None:
            return decide(commit, LoadedView(0))
        outcome = decide(commit, (yield from thread.look(commit)))
        if outcome.is_written:
            yield from thread.add(commit, outcome)
            yield from self.put_all(commit.writes)
            if changed is not None:
                changed.append(thread)
        return outcome

    def commit_all(self, commits: Sequence[Commit]) -> Steps[list[Outcome] | None]:
        """Write commits of different threads. None if one is refused; then the transaction has to be rolled back."""
        outcomes: dict[str, Outcome] = {}
        for commit in sorted(commits, key=attrgetter("thread_id")):  # in an order that all have in common
            outcomes[commit.thread_id] = yield from self.commit(commit)
            if outcomes[commit.thread_id].verdict is not Verdict.COMMITTED:
                return None
        return [outcomes[commit.thread_id] for commit in commits]

    def put_all(self, tasks: Iterable[TaskWrites]) -> Steps[None]:
        """Put the pending writes of some tasks."""
        for task in tasks:
            yield from self.put_writes(task)

    def delete(self, thread_id: str, namespace: str | None, seqs: Mapping[int, str] | None) -> Steps[int]:
        thread = yield from self.open(thread_id)
        if thread is None:
            return 0
        if namespace is None and seqs is None:
            return (yield from thread.drop())
        entries = yield from thread.entries()
        doomed = {
            seq
            for seq, (entry, _) in entries.items()
            if (namespace is None or entry.namespace == namespace) and (seqs is None or seqs.get(seq) == entry.rev)
        }
        if not doomed:
            return 0  # also if there are no checkpoints at all: pending writes may wait for their first one
        if len(doomed) == len(entries):
            return (yield from thread.drop())
        yield from thread.remove(doomed, known=entries)
        return len(doomed)

    def expire(self, at: datetime, most: int = MOST_ROWS) -> Steps[tuple[int, bool]]:
        """Remove some of the expired threads. Return how many checkpoints, and whether there may be more.

        Nobody sees an expired thread, so removing only a part of one is safe.
        """
        sql, removed, left = self.sql, 0, most
        expired = yield f"SELECT id, thread_id FROM {sql.threads} WHERE expires_at <= ? LIMIT ?", (sql.time(at), most)
        for key, thread_id in expired:
            rows = yield (
                f"SELECT last_seq FROM {sql.threads} WHERE id = ? AND expires_at <= ?{sql.lock}",
                (key, sql.time(at)),
            )
            for (last_seq,) in rows:
                count, is_gone = yield from self.thread(key, sql.read_text(thread_id), last_seq).drop_some(left)
                removed, left = removed + count, left - max(1, last_seq if is_gone else most)
            if left <= 0:
                return removed, True
        return removed, len(expired) == most

    def copy(self, source: str, dest: str, copied: Copied) -> Steps[int]:
        sql = self.sql
        threads = {}
        # Always in the same order, so that two copies in opposite directions do not wait for each other.
        for thread_id in sorted({source, dest}):
            threads[thread_id] = yield from self.open(thread_id)
        origin, target = threads[source], threads[dest]
        chosen = Chosen(0) if origin is None else (yield from origin.chosen(copied))
        if origin is None or not chosen.count:
            return 0
        target = target or (yield from self.open_or_create(dest))
        # Asked only now: another copy may have filled it while this one waited for the row.
        if (yield from target.has_any()):
            return -1
        ((expires_at,),) = yield f"SELECT expires_at FROM {sql.threads} WHERE id = ?", (origin.key,)
        yield (
            f"UPDATE {sql.threads} SET last_seq = ?, expires_at = ? WHERE id = ?",
            (origin.last_seq, None if expires_at is None else sql.time(sql.read_time(expires_at)), target.key),
        )
        yield from origin.copy_to(target, chosen)
        return chosen.count

    def put_writes(self, task: TaskWrites) -> Steps[None]:
        sql = self.sql
        thread = yield from self.open_or_create(task.thread_id)
        place = (thread.key, sql.text(task.namespace), sql.text(task.checkpoint_id), sql.text(task.task_id))
        if not task.keep_numbered:
            yield f"DELETE FROM {sql.writes} WHERE {OF_TASK} AND idx >= 0", place
        yield from self.put(place, task.writes, task.keep_numbered)

    def delete_orphans(self, thread_id: str, places: Collection[Place]) -> Steps[int]:
        """Remove the pending writes of these checkpoints, except of those that exist; return how many."""
        sql, removed = self.sql, 0
        thread = yield from self.open(thread_id)
        if thread is None:
            return 0
        for some in portions(sorted(places)):
            there = f"thread = ? AND (namespace, checkpoint_id) IN {sql.pairs(len(some))}"
            names = [sql.text(name) for place in some for name in place]
            rows = yield f"SELECT namespace, checkpoint_id FROM {sql.checkpoints} WHERE {there}", (thread.key, *names)
            saved = {(sql.read_text(namespace), sql.read_text(name)) for namespace, name in rows}
            orphans = [place for place in some if place not in saved]
            if orphans:
                here = f"thread = ? AND (namespace, checkpoint_id) IN {sql.pairs(len(orphans))}"
                values = (thread.key, *(sql.text(name) for place in orphans for name in place))
                ((count,),) = yield f"SELECT count(*) FROM {sql.writes} WHERE {here}", values
                yield f"DELETE FROM {sql.writes} WHERE {here}", values
                removed += count
        for table in (sql.checkpoints, sql.writes):
            rows = yield f"SELECT 1 FROM {table} WHERE thread = ? LIMIT 1", (thread.key,)
            if rows:
                return removed
        yield from thread.drop()
        return removed

    def put(self, place: Sequence[Any], writes: Sequence[Write], keep_numbered: bool) -> Steps[None]:
        """Write the pending writes of a task; without `keep_numbered`, its numbered ones are removed already."""
        for write in writes:
            yield self.sql.put_write(), (*place, *self.sql.new_write(write))


MOST_SEEN_THREADS = 10_000
MOST_BRANCHES = 100


@dataclass(frozen=True)
class LastSeenThread:
    """A thread as a handle left it with its last save. It is true as long as nobody else changes the thread."""

    key: int
    seq: int
    removals: int
    namespace: str
    base: Base
    newest_runs: dict[str, int] = field(default_factory=dict)
    """The number of the newest run of each branch that the handle's saves have written."""

    def continued_by(self, commit: Commit, *, any_id: bool = False) -> bool:
        """Tell whether this knows the answers to everything that `commit_rules.decide` asks about a commit.

        `any_id`: the id of the checkpoint need not be fresh, because writing a taken one fails.
        """
        base = self.base
        return (
            (any_id or commit.fresh_id)
            and commit.namespace == self.namespace
            and commit.base == base
            and commit.parent_id in (ANY, base.checkpoint_id)
            and commit.if_latest in (ANY, base.checkpoint_id)
            and all(
                (run.number == 0 and commit.fresh_id) or self.newest_runs.get(run.branch) == run.number - 1
                for run in commit.runs
            )
        )


class LastSeenThreads:
    """The threads that a handle has saved to, by id. Several event loops use them, so each step is atomic."""

    def __init__(self) -> None:
        self._threads: dict[str, LastSeenThread] = {}

    def get(self, thread_id: str) -> LastSeenThread | None:
        return self._threads.get(thread_id)

    def forget(self, thread_id: str) -> None:
        self._threads.pop(thread_id, None)

    def note(self, commit: Commit, key: int, seq: int, removals: int, before: LastSeenThread | None = None) -> None:
        """Remember a thread after a commit. `before` is what was remembered, if this commit continues it."""
        newest_runs = {**(before.newest_runs if before else {}), **{run.branch: run.number for run in commit.runs}}
        while len(newest_runs) > MOST_BRANCHES:
            del newest_runs[next(iter(newest_runs))]
        if len(self._threads) >= MOST_SEEN_THREADS and commit.thread_id not in self._threads:
            self._threads.clear()
        base = Base(commit.checkpoint_id, commit.rev)
        self._threads[commit.thread_id] = LastSeenThread(key, seq, removals, commit.namespace, base, newest_runs)


def can_be_first(commit: Commit) -> bool:
    """Tell whether a commit can be the first of a thread, without a parent there."""
    if commit.base is not None or commit.if_latest not in (ANY, None):
        return False
    return not (isinstance(commit.parent_id, str) and (commit.parent_required or commit.parent_as_named))
