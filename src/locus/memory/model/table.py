"""A thread as an object: checkpoints, runs and pending writes, with the steps that change them.

The memory engine keeps one for each thread. The file engine reads a thread's log into one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import islice
from operator import attrgetter, call, setitem
from typing import Any

from locus.memory.model.codec import encode
from locus.memory.model.commit_rules import decide
from locus.memory.model.manifest import newest_runs, wanted
from locus.memory.model.parts import Part, needed
from locus.memory.model.records import (
    Ancestor,
    AncestorQuery,
    Base,
    Commit,
    Entry,
    Exported,
    Extent,
    Known,
    Outcome,
    Run,
    RunInfo,
    Stored,
    TaskWrites,
    Write,
    writes_order,
)
from locus.memory.model.retention import Copied, Removal, chosen_in, plan_removal, unneeded_runs
from locus.memory.model.sizes import (
    Measured,
    brought,
    fitting,
    measured_checkpoint,
    measured_run,
    measured_writes,
    text_bytes,
)

_number = attrgetter("number")

Writes = dict[tuple[str, int], Write]
"""The pending writes of one checkpoint, by task id and index."""


@dataclass(frozen=True, slots=True)
class Row:
    """A checkpoint as a `ThreadTable` stores it."""

    entry: Entry
    head: str
    manifest: str


@dataclass
class ThreadTable:
    """One thread in memory: its checkpoints, runs and pending writes."""

    thread_id: str
    last_seq: int = 0
    expires_at: datetime | None = None
    rows: dict[int, Row] = field(default_factory=dict)
    ids: dict[tuple[str, str], int] = field(default_factory=dict)
    newest: dict[str, list[int]] = field(default_factory=dict)
    runs: dict[str, list[Run]] = field(default_factory=dict)
    writes: dict[tuple[str, str], Writes] = field(default_factory=dict)
    """By namespace and checkpoint id."""

    def find(self, namespace: str, checkpoint_id: str) -> Known | None:
        seq = self.ids.get((namespace, checkpoint_id))
        return None if seq is None else _known(self.rows[seq].entry)

    def latest(self, namespace: str) -> Known | None:
        seqs = self.newest.get(namespace)
        return _known(self.rows[seqs[-1]].entry) if seqs else None

    def has_run(self, branch: str, number: int) -> bool:
        runs = self.runs.get(branch)
        return runs is not None and len(runs) > 0 and runs[-1].number >= number

    def row(self, namespace: str, checkpoint_id: str | None) -> Row | None:
        known = self.latest(namespace) if checkpoint_id is None else self.find(namespace, checkpoint_id)
        return None if known is None else self.rows[known.seq]

    def newest_first(self, namespace: str | None, before_seq: int | None) -> Iterator[Entry]:
        seqs = list(self.rows) if namespace is None else self.newest.get(namespace, [])
        end = len(seqs) if before_seq is None else bisect_left(seqs, before_seq)
        for index in range(end - 1, -1, -1):
            yield self.rows[seqs[index]].entry

    def commit(self, commit: Commit) -> Outcome:
        """Decide on a commit, and carry it out if it is accepted."""
        outcome = decide(commit, self)
        if outcome.is_written:
            self.add(commit, outcome)
        return outcome

    def add(self, commit: Commit, outcome: Outcome) -> Row:
        row = Row(commit.entry(outcome), commit.head, commit.manifest)
        self.add_runs((*commit.runs, *commit.values))
        doomed = {outcome.replaced.seq} if outcome.replaced else set()
        if doomed:
            self.remove(doomed, spare=row)
        self.expires_at = commit.expires_at
        self.put(row)
        return row

    def put(self, row: Row) -> None:
        seq, namespace, checkpoint_id = row.entry.seq, row.entry.namespace, row.entry.checkpoint_id
        steps = (
            partial(setattr, self, "last_seq", max(self.last_seq, seq)),
            partial(setitem, self.rows, seq, row),
            partial(setitem, self.ids, (namespace, checkpoint_id), seq),
            partial(self.newest.setdefault(namespace, []).append, seq),
        )
        # One call of a function in C, so that an interrupt (Ctrl-C) comes before all of it, or after.
        deque(map(call, steps), maxlen=0)

    def clone(self) -> ThreadTable:
        """A copy of this thread, for a change that is kept as a whole or dropped."""
        return replace(
            self,
            rows=dict(self.rows),
            ids=dict(self.ids),
            newest={namespace: list(seqs) for namespace, seqs in self.newest.items()},
            runs={branch: list(runs) for branch, runs in self.runs.items()},
            writes={place: dict(kept) for place, kept in self.writes.items()},
        )

    def add_runs(self, runs: Iterable[Run]) -> None:
        for run in runs:
            kept = self.runs.setdefault(run.branch, [])
            at = bisect_left(kept, run.number, key=_number)
            # Not always the last: a commit may be sent again after what followed it was written, and it removed.
            if at == len(kept) or kept[at].number != run.number:
                kept.insert(at, run)

    def stored(self, row: Row) -> Stored:
        branches = {extent.branch for extent in wanted(row.manifest)}
        runs = {name: self.runs.get(name, []) for name in branches}
        return Stored(row.entry, row.head, row.manifest, runs, self._is_passed(row))

    def stored_part(self, row: Row, part: Part) -> Stored:
        """A checkpoint with the runs that hold a part of it."""
        found: dict[str, dict[int, Run]] = {}
        for extent in needed(row.manifest, part):
            kept = found.setdefault(extent.branch, {})
            kept.update((run.number, run) for run in _needed_runs(extent, self.runs.get(extent.branch, [])))
        runs = {branch: list(kept.values()) for branch, kept in found.items()}
        return Stored(row.entry, row.head, row.manifest, runs, self._is_passed(row))

    def stored_since(self, row: Row, held: Base) -> Stored:
        """A checkpoint without the runs that a reader of the checkpoint `held` has, if that one still exists."""
        there = self.row(row.entry.namespace, held.checkpoint_id)
        if there is None or there.entry.rev != held.rev:
            return self.stored(row)
        known, runs = newest_runs([there.manifest]), dict[str, list[Run]]()
        for extent in wanted(row.manifest):
            kept, newest = self.runs.get(extent.branch, []), known.get(extent.branch, -1)
            # A reader need not have what newer runs hide, and as of an older run it may be in sight.
            first = bisect_right(kept, newest, key=_number) if newest <= extent.run else 0
            if len(kept) - first > len(runs.setdefault(extent.branch, [])):
                runs[extent.branch] = kept[first:]
        return Stored(row.entry, row.head, row.manifest, runs, self._is_passed(row), held)

    def _is_passed(self, row: Row) -> bool:
        return self.newest[row.entry.namespace][-1] != row.entry.seq

    def seqs(self, namespace: str | None, chosen: Mapping[int, str] | None) -> set[int]:
        """Of the chosen checkpoints (sequence number and rev), those that exist in a namespace."""
        found = self.rows if namespace is None else self.newest.get(namespace, [])
        return {seq for seq in found if chosen is None or chosen.get(seq) == self.rows[seq].entry.rev}

    def remove(self, doomed: Collection[int], spare: Row | None = None) -> Removal:
        """Remove checkpoints, and the runs that only they need. `spare` is about to be added, and keeps its runs."""
        stay = {seq: wanted(row.manifest) for seq, row in self.rows.items() if seq not in doomed}
        if spare is not None:
            stay[spare.entry.seq] = wanted(spare.manifest)
        infos = (RunInfo(*run[:4]) for runs in self.runs.values() for run in runs)
        removal = plan_removal(stay, [row.entry for row in self.rows.values()], doomed, infos)
        self._drop(doomed, removal, keep_writes=spare is not None)
        return removal

    def _drop(self, doomed: Collection[int], removal: Removal, keep_writes: bool) -> None:
        for seq in doomed:
            entry = self.rows.pop(seq).entry
            del self.ids[entry.namespace, entry.checkpoint_id]
            if not keep_writes:
                self.writes.pop((entry.namespace, entry.checkpoint_id), None)
        for namespace, seqs in list(self.newest.items()):
            left = [seq for seq in seqs if seq in self.rows]
            if left:
                self.newest[namespace] = left
            else:
                del self.newest[namespace]
        for seq, parent_id in removal.parents.items():
            row = self.rows[seq]
            self.rows[seq] = replace(row, entry=replace(row.entry, parent_id=parent_id))
        unneeded = {(run.branch, run.number) for run in removal.runs}
        for branch in {run.branch for run in removal.runs}:
            left_runs = [run for run in self.runs[branch] if (branch, run.number) not in unneeded]
            if left_runs:
                self.runs[branch] = left_runs
            else:
                del self.runs[branch]

    def put_writes(self, task: TaskWrites) -> None:
        place, task_id = (task.namespace, task.checkpoint_id), task.task_id
        kept = self.writes.get(place, {})
        if not task.keep_numbered:
            kept = {key: write for key, write in kept.items() if key[0] != task_id or key[1] < 0}
        self.writes[place] = kept | {(task_id, write.idx): write for write in task.writes}

    def get_writes(self, namespace: str, checkpoint_id: str, task_id: str | None) -> list[Write]:
        kept = self.writes.get((namespace, checkpoint_id), {})
        found = [write for write in kept.values() if task_id in (None, write.task_id)]
        return sorted(found, key=writes_order)

    def ancestors(self, query: AncestorQuery) -> list[Ancestor]:
        """The ancestors of a checkpoint, its parent first, with their pending writes to some channels."""
        _, namespace, checkpoint_id, limit, channels, _ = query
        line: list[Ancestor] = []
        row, passed = self.row(namespace, checkpoint_id), {checkpoint_id}
        while row is not None and (parent_id := row.entry.parent_id) is not None and len(line) < limit:
            row = None if parent_id in passed else self.row(namespace, parent_id)
            passed.add(parent_id)
            if row is not None:
                stored = Stored(row.entry, row.head, row.manifest, passed=self._is_passed(row))
                line.append(Ancestor.of(stored, self.get_writes(namespace, parent_id, None), channels))
        return line

    def orphans(self) -> dict[tuple[str, str], int]:
        """The number of pending writes for each checkpoint that does not exist."""
        return {place: len(kept) for place, kept in self.writes.items() if kept and place not in self.ids}

    def delete_orphans(self, places: Iterable[tuple[str, str]]) -> int:
        """Remove the pending writes of these places, except where the checkpoint exists; return how many."""
        return sum(len(self.writes.pop(place, ())) for place in places if place not in self.ids)

    def measured(self) -> Measured:
        runs = (run for members in self.runs.values() for run in members)
        return Measured(
            [measured_checkpoint(row.entry, row.head, row.manifest) for row in self.rows.values()],
            dict(map(measured_run, runs)),
            {place: measured_writes(kept.values()) for place, kept in self.writes.items() if kept},
        )

    def exported(self, after_seq: int, limit: int | None, known: Mapping[str, int]) -> Exported:
        """A page of an export: checkpoints, and the runs they need that the reader does not know."""
        rows = list(islice((row for seq, row in self.rows.items() if seq > after_seq), limit))
        page = self._exported(rows, known)
        if limit is not None:
            named = (newest_runs([row.manifest]) for row in rows)
            places = ((row.entry.namespace, row.entry.checkpoint_id) for row in rows)
            count = min(
                fitting(measured_checkpoint(row.entry, row.head, row.manifest).size for row in rows),
                fitting(brought(named, ((run.branch, run.number, text_bytes(run.items)) for run in page.runs))),
                fitting(measured_writes(page.writes.get(place, ())).size for place in places),
            )
            if count < len(rows):
                return replace(self._exported(rows[:count], known), more=True)
        return page

    def _exported(self, rows: Sequence[Row], known: Mapping[str, int]) -> Exported:
        runs = [
            run
            for branch, newest in newest_runs(row.manifest for row in rows).items()
            for run in self.runs.get(branch, [])
            if known.get(branch, -1) < run.number <= newest
        ]
        places = [(row.entry.namespace, row.entry.checkpoint_id) for row in rows]
        return Exported(
            [Stored(row.entry, row.head, row.manifest) for row in rows],
            runs,
            {place: self.get_writes(*place, None) for place in places if place in self.writes},
        )

    def copied(self, dest: ThreadTable, which: Copied) -> ThreadTable:
        """A copy of these checkpoints under another id.

        `dest` has no checkpoint yet; pending writes that wait in it for one stay.
        """
        copy = ThreadTable(dest.thread_id, expires_at=self.expires_at)
        chosen = chosen_in((row.entry for row in self.rows.values()), which)
        extents: list[Extent] = []
        for entry in chosen:
            row = self.rows[entry.seq]
            copy.put(replace(row, entry=replace(entry, thread_id=dest.thread_id)))
            extents += wanted(row.manifest)
        copy.last_seq = self.last_seq
        infos = [RunInfo(*run[:4]) for runs in self.runs.values() for run in runs]
        unneeded = {(run.branch, run.number) for run in unneeded_runs(extents, infos)}
        copy.add_runs(run for runs in self.runs.values() for run in runs if (run.branch, run.number) not in unneeded)
        kept = {(entry.namespace, entry.checkpoint_id) for entry in chosen}
        copy.writes = {place: dict(writes) for place, writes in dest.writes.items()}
        for place in kept & self.writes.keys():
            copy.writes.setdefault(place, {}).update(self.writes[place])
        return copy


def entry_from(thread_id: str, facts: Mapping[str, Any]) -> Entry:
    """Make an entry of its JSON form, which files, the HTTP protocol and plain stores use."""
    return Entry(
        thread_id,
        facts["namespace"],
        facts["checkpoint_id"],
        facts["parent_id"],
        facts["seq"],
        facts["rev"],
        datetime.fromisoformat(facts["created_at"]),
        encode(facts["metadata"]),
    )


def _needed_runs(extent: Extent, runs: Sequence[Run]) -> Sequence[Run]:
    """The runs of a branch that a reader of an extent needs, in order."""
    end = bisect_right(runs, extent.run, key=_number)
    first = next((index for index in range(end - 1, -1, -1) if runs[index].start <= extent.skip), 0)
    return runs[first:end]


def _known(entry: Entry) -> Known:
    return Known(entry.checkpoint_id, entry.seq, entry.rev, entry.parent_id)
