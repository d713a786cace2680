"""The operations that change threads, as steps inside a transaction: save, delete, expire, copy, pending writes.

Every change of a thread begins with a lock on its row, so that commits and deletions exclude each other. `SQLThreads`
has the operations, and `SQLThread` is a thread whose row is locked. A backend overrides what its own columns and
indexes need.

A handle that has just saved to a thread knows its row (`Chain`). If `last_seq` and `removals` are still what they
were, nothing has happened to the thread since, and a save that builds on the last one needs no questions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from locus.memory.backends.sql.flavour import Flavour, Row, Steps, marks, portions
from locus.memory.backends.sql.read import entry_of, now, write_list
from locus.memory.backends.sql.schema import KNOWN, RUN_INFO, CheckpointRow, of, without_thread
from locus.memory.model.commit_rules import continued_runs, decide
from locus.memory.model.manifest import wanted
from locus.memory.model.records import ANY, Base, Commit, Entry, Known, Outcome, Run, RunInfo, Write
from locus.memory.model.retention import plan_removal, unneeded_runs

OF_TASK = "thread = ? AND namespace = ? AND checkpoint_id = ? AND task_id = ?"


@dataclass
class LoadedView:
    """A `commit_rules.View` of a thread that holds only what one commit asks about, read beforehand."""

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


class SQLThread:
    """A thread whose row this transaction has locked."""

    removals = 0
    """How often something was deleted from it, where a save has to know that (see `Chain`)."""

    def __init__(self, sql: Flavour, key: int, thread_id: str, last_seq: int) -> None:
        self.sql = sql
        self.key = key
        self.thread_id = thread_id
        self.last_seq = last_seq

    def look(self, commit: Commit) -> Steps[LoadedView]:
        """Everything that `decide` may ask about this commit."""
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
        for run in continued_runs(commit):
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
        sql, known = self.sql, branches_sent_before(commit)
        unless_there = sql.insert_unless_there(sql.runs, sql.run_columns, sql.run_marks)
        for run in commit.runs:
            yield unless_there if run.branch in known else sql.insert_run, self._run_values(run, outcome.seq)
        for run in commit.values:
            yield unless_there, self._run_values(run, outcome.seq)
        if outcome.replaced is not None:
            yield from self.remove({outcome.replaced.seq}, spare=commit.manifest)
        yield from self.insert(added_entry(commit, outcome), commit.head, commit.manifest)
        yield self.moved(commit, outcome)

    def moved(self, commit: Commit, outcome: Outcome) -> tuple[str, Sequence[Any]]:
        """The statement that raises the thread's counter."""
        return (
            f"UPDATE {self.sql.threads} SET last_seq = ?, expires_at = ? WHERE id = ?",
            (outcome.seq, self.sql.expiry(commit.expires_at), self.key),
        )

    def _run_values(self, run: Run, seq: int) -> tuple[object, ...]:
        return self.sql.new_run(self.key, run, seq)

    def insert(self, entry: Entry, head: str, manifest: str) -> Steps[None]:
        """Write the row of a checkpoint."""
        yield self.sql.insert_checkpoint, self.sql.new_checkpoint(self.key, entry, head, manifest)

    def entries(self) -> Steps[dict[int, tuple[Entry, str]]]:
        """Every checkpoint of the thread by sequence number: its entry and manifest."""
        sql = self.sql
        rows = yield (
            f"SELECT {sql.columns('manifest')} FROM {sql.joined} WHERE c.thread = ? ORDER BY c.seq",
            (self.key,),
        )
        found = [CheckpointRow(*row) for row in rows]
        return {row.seq: (entry_of(sql, row), sql.read_json(row.manifest)) for row in found}

    def runs(self) -> Steps[list[RunInfo]]:
        rows = yield f"SELECT {RUN_INFO} FROM {self.sql.runs} WHERE thread = ?", (self.key,)
        return [RunInfo(*row) for row in rows]

    def before_removing(self, entries: Sequence[Entry], runs: Sequence[RunInfo]) -> Steps[None]:
        """Take checkpoints and runs that are about to be removed out of a backend's own indexes."""
        yield from ()

    def remove(self, doomed: Collection[int], spare: str | None = None) -> Steps[None]:
        """Remove checkpoints with what only they need; `spare` is the manifest of the one that replaces them."""
        sql = self.sql
        entries = yield from self.entries()
        stay = {seq: wanted(manifest) for seq, (_, manifest) in entries.items() if seq not in doomed}
        if spare is not None:
            stay[-1] = wanted(spare)
        removal = plan_removal(stay, [entry for entry, _ in entries.values()], doomed, (yield from self.runs()))
        gone = [entries[seq][0] for seq in doomed]
        yield from self.before_removing(gone, removal.runs)
        for seqs in portions(sorted(doomed)):
            yield f"DELETE FROM {sql.checkpoints} WHERE thread = ? AND seq IN {marks(len(seqs))}", (self.key, *seqs)
        for runs in portions(removal.runs):
            names = [value for run in runs for value in (run.branch, run.number)]
            condition = f"thread = ? AND (branch, number) IN {sql.pairs(len(runs))}"
            yield f"DELETE FROM {sql.runs} WHERE {condition}", (self.key, *names)
        if spare is None:
            yield from self._remove_writes(gone)
        for seq, parent_id in removal.parents.items():
            yield (
                f"UPDATE {sql.checkpoints} SET parent_id = ? WHERE thread = ? AND seq = ?",
                (None if parent_id is None else sql.text(parent_id), self.key, seq),
            )

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

    def chosen(self, namespace: str | None, ids: Collection[str] | None) -> Steps[list[tuple[Entry, str]]]:
        """The checkpoints that a copy is to have: all, or these of one namespace."""
        return [
            (entry, manifest)
            for entry, manifest in (yield from self.entries()).values()
            if ids is None or (entry.namespace == namespace and entry.checkpoint_id in ids)
        ]

    def copy_to(self, dest: SQLThread, chosen: Sequence[tuple[Entry, str]]) -> Steps[None]:
        """Copy checkpoints, and the runs and pending writes that they need, with their numbers."""
        yield from self.copy_checkpoints(dest, chosen)
        extents = [extent for _, manifest in chosen for extent in wanted(manifest)]
        runs = yield from self.runs()
        for some in portions(sorted(set(runs) - set(unneeded_runs(extents, runs)))):
            names = [value for run in some for value in (run.branch, run.number)]
            condition = f"(o.branch, o.number) IN {self.sql.pairs(len(some))}"
            yield self.copied(self.sql.runs, self.sql.run_columns, condition, dest, names)

    def copied(
        self, table: str, columns: str, condition: str, dest: SQLThread, values: Sequence[Any]
    ) -> tuple[str, Sequence[Any]]:
        """The statement that copies the rows `o` of this thread that meet a condition. `thread` comes first."""
        return (
            f"INSERT INTO {table} ({columns}) SELECT d.id, {of('o', without_thread(columns))}"
            f" FROM {table} o, {self.sql.threads} d WHERE d.id = ? AND o.thread = ? AND {condition}",
            (dest.key, self.key, *values),
        )

    def copy_checkpoints(self, dest: SQLThread, chosen: Sequence[tuple[Entry, str]]) -> Steps[None]:
        """Copy these checkpoints, given with their manifests, and their pending writes."""
        sql = self.sql
        for entry, manifest in chosen:
            ((head,),) = yield (
                f"SELECT {sql.json_column('head')} FROM {sql.checkpoints} WHERE thread = ? AND seq = ?",
                (self.key, entry.seq),
            )
            yield from dest.insert(entry, sql.read_json(head), manifest)
            place = (sql.text(entry.namespace), sql.text(entry.checkpoint_id))
            rows = yield (
                f"SELECT {write_list(sql)} FROM {sql.writes} WHERE thread = ? AND namespace = ? AND checkpoint_id = ?",
                (self.key, *place),
            )
            for row in rows:
                yield sql.put_write(), (dest.key, *place, *row)


class SQLThreads:
    """The operations that change threads; each is one transaction."""

    opening = "t.id, t.last_seq"
    """What `open` asks about a thread."""

    def __init__(self, sql: Flavour) -> None:
        self.sql = sql

    def thread(self, key: int, thread_id: str, last_seq: int) -> SQLThread:
        return SQLThread(self.sql, key, thread_id, last_seq)

    def opened(self, thread_id: str, row: Row) -> SQLThread:
        """The thread whose row was just locked, from the columns `opening`."""
        key, last_seq = row
        return self.thread(key, thread_id, last_seq)

    def open(self, thread_id: str) -> Steps[SQLThread | None]:
        """The thread, locked, or None if it does not exist or has expired; then it is removed."""
        sql = self.sql
        rows = yield (
            f"SELECT {self.opening}, {sql.truth(sql.alive)} FROM {sql.threads} t WHERE t.thread_id = ?{sql.lock}",
            (now(sql), sql.text(thread_id)),
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
            yield (
                sql.insert_unless_there(sql.threads, "thread_id, last_seq", "VALUES (?, 0)"),
                (sql.text(thread_id),),
            )

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
            if changed is not None:
                changed.append(thread)
        return outcome

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
        if len(doomed) == len(entries):
            return (yield from thread.drop())
        if doomed:
            yield from thread.remove(doomed)
        return len(doomed)

    def expire(self, at: datetime) -> Steps[int]:
        sql = self.sql
        rows = yield (
            f"SELECT id, thread_id, last_seq FROM {sql.threads} WHERE expires_at <= ?{sql.lock}",
            (sql.time(at),),
        )
        removed = 0
        for key, thread_id, last_seq in rows:
            removed += yield from self.thread(key, sql.read_text(thread_id), last_seq).drop()
        return removed

    def copy(self, source: str, dest: str, namespace: str | None, ids: Collection[str] | None) -> Steps[int]:
        sql = self.sql
        threads = {}
        # Always in the same order, so that two copies in opposite directions do not wait for each other.
        for thread_id in sorted({source, dest}):
            threads[thread_id] = yield from self.open(thread_id)
        origin, target = threads[source], threads[dest]
        chosen = [] if origin is None else (yield from origin.chosen(namespace, ids))
        if origin is None or not chosen:
            return 0
        target = target or (yield from self.open_or_create(dest))
        # Asked only now: another copy may have filled it while this one waited for the row.
        if (yield from target.entries()):
            return -1
        ((expires_at,),) = yield f"SELECT expires_at FROM {sql.threads} WHERE id = ?", (origin.key,)
        yield (
            f"UPDATE {sql.threads} SET last_seq = ?, expires_at = ? WHERE id = ?",
            (origin.last_seq, None if expires_at is None else sql.time(sql.read_time(expires_at)), target.key),
        )
        yield from origin.copy_to(target, chosen)
        return len(chosen)

    def put_writes(
        self,
        thread_id: str,
        namespace: str,
        checkpoint_id: str,
        task_id: str,
        writes: Sequence[Write],
        keep_numbered: bool = False,
    ) -> Steps[None]:
        sql = self.sql
        thread = yield from self.open_or_create(thread_id)
        place = (thread.key, sql.text(namespace), sql.text(checkpoint_id), sql.text(task_id))
        if not keep_numbered:
            yield (
                f"DELETE FROM {sql.writes} WHERE {OF_TASK} AND idx >= 0",
                place,
            )
        yield from self.put(place, writes, keep_numbered)

    def put(self, place: Sequence[Any], writes: Sequence[Write], keep_numbered: bool) -> Steps[None]:
        """Write what a task wrote; without `keep_numbered` its numbered writes are gone already."""
        for write in writes:
            yield self.sql.put_write(), (*place, *self.sql.new_write(write))


def added_entry(commit: Commit, outcome: Outcome) -> Entry:
    """The entry of a checkpoint that a commit adds."""
    return Entry(
        commit.thread_id,
        commit.namespace,
        commit.checkpoint_id,
        outcome.parent_id,
        outcome.seq,
        commit.rev,
        commit.created_at,
        commit.metadata,
    )


def branches_sent_before(commit: Commit) -> set[str]:
    """The branches whose runs may be stored although `decide` has not found them taken.

    If a commit is sent again after its checkpoint was removed, others may still use the branches that it opened.
    """
    return set() if commit.fresh_id else {run.branch for run in commit.runs if run.number == 0}


MOST_CHAINS = 10_000
MOST_BRANCHES = 100


@dataclass(frozen=True)
class Chain:
    """What a handle knows of a thread after its last save, if nobody else has changed the thread since."""

    key: int
    seq: int
    removals: int
    namespace: str
    base: Base
    newest_runs: dict[str, int] = field(default_factory=dict)
    """The number of the newest run of each branch that these saves wrote."""

    def continued_by(self, commit: Commit, *, any_id: bool = False) -> bool:
        """Whether the answers to all that `commit_rules.decide` asks about this commit are known.

        `any_id`: the id need not be fresh, because writing one that is taken fails.
        """
        base = self.base
        return (
            (any_id or commit.fresh_id)
            and commit.namespace == self.namespace
            and commit.base == base
            and commit.parent_id in (ANY, base.checkpoint_id)
            and commit.if_latest in (ANY, base.checkpoint_id)
            and all(run.number == 0 or self.newest_runs.get(run.branch) == run.number - 1 for run in commit.runs)
        )


class Chains:
    """The chains of a handle, by thread. Several event loops use them, so each step is atomic."""

    def __init__(self) -> None:
        self._chains: dict[str, Chain] = {}

    def get(self, thread_id: str) -> Chain | None:
        return self._chains.get(thread_id)

    def forget(self, thread_id: str) -> None:
        self._chains.pop(thread_id, None)

    def note(self, commit: Commit, key: int, seq: int, removals: int, before: Chain | None = None) -> None:
        """A commit was written; `before` is the chain that it continues."""
        newest_runs = {**(before.newest_runs if before else {}), **{run.branch: run.number for run in commit.runs}}
        while len(newest_runs) > MOST_BRANCHES:
            del newest_runs[next(iter(newest_runs))]
        if len(self._chains) >= MOST_CHAINS and commit.thread_id not in self._chains:
            self._chains.clear()
        base = Base(commit.checkpoint_id, commit.rev)
        self._chains[commit.thread_id] = Chain(key, seq, removals, commit.namespace, base, newest_runs)


def can_be_first(commit: Commit) -> bool:
    """Whether a commit can be the first of a thread, and have no parent there."""
    if commit.base is not None or commit.if_latest not in (ANY, None):
        return False
    return not (isinstance(commit.parent_id, str) and (commit.parent_required or commit.parent_as_named))
