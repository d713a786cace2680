"""Decides which checkpoints are removed, and what else changes with them. Pure functions.

- `outlived`: what a vacuum removes; `Retention` says what is old, and `OutlivedPage` is what an engine found.
- `spared`: the same without what a checkpoint that stays is made from.
- `orphaned`: pending writes of checkpoints that never came.
- `plan_removal`: the runs that a removal frees, and the new parents of the checkpoints that stay.
- `chosen_in`: the checkpoints that a copy takes, such as a line of ancestors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import inf
from typing import TypeVar
from uuid import UUID

from locus.errors import CorruptCheckpointError
from locus.memory.model.arguments import days_before
from locus.memory.model.codec import decode
from locus.memory.model.manifest import walk
from locus.memory.model.records import Entry, Extent, Known, RunInfo

K = TypeVar("K", Entry, Known)

OWN_NAMESPACES = "locus:"
"""How the namespaces begin that Locus keeps for itself, such as that of leases. No vacuum looks for orphans there."""

ORPHANS_STAY = timedelta(days=1)
"""How long pending writes wait for their checkpoint at least. A task may write before its checkpoint is saved."""

Place = tuple[str, str]
"""The namespace and the id of a checkpoint."""


@dataclass(frozen=True, slots=True)
class Retention:
    """The rules of a vacuum: the age and the number of the checkpoints that stay."""

    cutoff: datetime | None
    """What is older may go; None: age does not matter."""
    keep_last: int | None
    """So many of each line stay; None: their number does not matter."""
    orphans_before: datetime
    """Pending writes that are older may go if their checkpoint is not there."""


def retention(now: datetime, older_than_days: float | None, keep_last: int | None) -> Retention:
    """The rules of a vacuum, from an age in days and the number of checkpoints to keep."""
    return retention_since(now, None if older_than_days is None else days_before(now, older_than_days), keep_last)


def retention_since(now: datetime, cutoff: datetime | None, keep_last: int | None) -> Retention:
    """The rules of a vacuum, from a point in time and the number of checkpoints to keep."""
    last = now - ORPHANS_STAY
    return Retention(cutoff, keep_last, last if cutoff is None else min(cutoff, last))


@dataclass(frozen=True, slots=True)
class Outlived:
    """The checkpoints and pending writes that a vacuum removes from one thread."""

    thread_id: str
    checkpoints: Mapping[int, str] = field(default_factory=dict)
    """The `rev` of each, by sequence number."""
    writes: Mapping[Place, int] = field(default_factory=dict)
    """How many pending writes wait for a checkpoint that never came."""

    def __bool__(self) -> bool:
        return bool(self.checkpoints or self.writes)


@dataclass(frozen=True, slots=True)
class OutlivedPage:
    """A page of what a vacuum would remove from the threads that were looked at, in any order."""

    after: str
    """Where the next page begins: a text that only the engine understands."""
    looked_at: int
    threads: Sequence[Outlived] = ()
    damaged: Sequence[CorruptCheckpointError] = ()
    """One for each thread that cannot be read."""


@dataclass(frozen=True, slots=True)
class VacuumProgress:
    """The counts of a vacuum, so far."""

    threads: int = 0
    """How many threads were looked at."""
    checkpoints: int = 0
    """How many checkpoints were removed, or would be."""
    writes: int = 0
    """How many pending writes were removed, or would be, because their checkpoint never came."""
    damaged: int = 0
    """How many threads cannot be read. They stay as they are, and the vacuum ends with the error of the first."""

    def __add__(self, other: VacuumProgress) -> VacuumProgress:
        return VacuumProgress(
            self.threads + other.threads,
            self.checkpoints + other.checkpoints,
            self.writes + other.writes,
            self.damaged + other.damaged,
        )


@dataclass(frozen=True, slots=True)
class Removal:
    """The consequences of a removal: the runs that go as well, and new parents for the checkpoints that stay."""

    runs: list[RunInfo]
    parents: dict[int, str | None]
    """The new parents of those that stay, by sequence number."""


def plan_removal(
    stay: Mapping[int, Collection[Extent]],
    entries: Sequence[Entry],
    doomed: Collection[int],
    runs: Iterable[RunInfo],
) -> Removal:
    """Work out the consequences of removing the checkpoints `doomed` (sequence numbers).

    `stay` has the extents of every checkpoint that is left, `entries` all entries, `runs` all runs.
    """
    return Removal(
        runs=unneeded_runs([extent for extents in stay.values() for extent in extents], runs),
        parents=new_parents(entries, doomed),
    )


def new_parents(entries: Iterable[Entry], doomed: Collection[int]) -> dict[int, str | None]:
    """The new parent of each remaining checkpoint whose parent is removed: its nearest remaining ancestor."""
    gone = {(entry.namespace, entry.checkpoint_id): entry for entry in entries if entry.seq in doomed}
    changed: dict[int, str | None] = {}
    for entry in entries:
        if entry.seq in doomed:
            continue
        parent = entry.parent_id
        passed = {entry.checkpoint_id}
        # Parents that were named before they were there may lead in a circle.
        while parent is not None and (entry.namespace, parent) in gone:
            passed.add(parent)
            parent = gone[entry.namespace, parent].parent_id
            parent = None if parent in passed else parent
        if parent != entry.parent_id:
            changed[entry.seq] = parent
    return changed


def unneeded_runs(extents: Iterable[Extent], runs: Iterable[RunInfo]) -> list[RunInfo]:
    """The runs of which no extent shows an item.

    The run that an extent names stays even so. Its number must not be used again, or the extent would show what
    another writer stored under it; and a reader who does not find it has to know that it is lost.
    """
    needs: defaultdict[str, list[Extent]] = defaultdict(list)
    for extent in set(extents):
        needs[extent.branch].append(extent)
    branches: defaultdict[str, list[RunInfo]] = defaultdict(list)
    for run in runs:
        branches[run.branch].append(run)
    unneeded: list[RunInfo] = []
    for branch, members in branches.items():
        members.sort(key=lambda run: run.number)
        done: dict[int, int] = {}
        shown = {index for extent in needs[branch] for index, _, _ in walk(extent, members, done)}
        named = {extent.run for extent in needs[branch]}
        unneeded += [run for index, run in enumerate(members) if index not in shown and run.number not in named]
    return unneeded


@dataclass(frozen=True, slots=True)
class Line:
    """A checkpoint with its ancestors: all of them, or at most so many."""

    namespace: str
    checkpoint_id: str
    ancestors: int | None = None

    @property
    def longest(self) -> float:
        """The most checkpoints that the line can have."""
        return inf if self.ancestors is None else self.ancestors + 1


@dataclass(frozen=True, slots=True)
class Listed:
    """Some checkpoints of one namespace, by their ids."""

    namespace: str
    checkpoint_ids: Collection[str]


Copied = Line | Listed | None
"""The checkpoints that a copy takes: a line, those that are listed, or all of a thread."""


def chosen_in(entries: Iterable[Entry], copied: Copied) -> list[Entry]:
    """The checkpoints of a thread that a copy takes, in the order of `entries`, with the parents that they get."""
    if copied is None:
        return list(entries)
    among = [entry for entry in entries if entry.namespace == copied.namespace]
    if isinstance(copied, Listed):
        return [entry for entry in among if entry.checkpoint_id in copied.checkpoint_ids]
    line = ancestors(among, copied.checkpoint_id, copied.longest)
    orphan, ids = cut(line, copied), {entry.checkpoint_id for entry in line}
    return [
        replace(entry, parent_id=None) if entry is orphan else entry for entry in among if entry.checkpoint_id in ids
    ]


def cut(found: Sequence[K], line: Line) -> K | None:
    """The last checkpoint of a line if its parent is not in it. A copy of that checkpoint gets no parent."""
    return found[-1] if found and len(found) == line.longest and found[-1].parent_id is not None else None


def ancestors(entries: Iterable[K], checkpoint_id: str, longest: float = inf) -> list[K]:
    """A checkpoint and its ancestors, newest first, `longest` in all at most. `entries` are of one namespace."""
    by_id = {entry.checkpoint_id: entry for entry in entries}
    line: list[K] = []
    at: str | None = checkpoint_id
    while at is not None and at in by_id and len(line) < longest:
        entry = by_id.pop(at)
        line.append(entry)
        at = entry.parent_id
    return line


def outlived(entries: Sequence[Entry], cutoff: datetime | None, keep_last: int | None) -> set[int]:
    """The sequence numbers of the checkpoints that a vacuum removes from one thread.

    By age: what is older than `cutoff`. By number: what is not among the last `keep_last` of any line; each
    fork is a line of its own, so a fork stays whole however busy the others are. If both are given, both hold.
    The newest of a namespace always ends a line, even if an older one names it as its parent.
    """
    doomed = {entry.seq for entry in entries if cutoff is None or entry.created_at < cutoff}
    if keep_last is None:
        return doomed
    by_id = {(entry.namespace, entry.checkpoint_id): entry for entry in entries}
    parents = {(entry.namespace, entry.parent_id) for entry in entries}
    newest: dict[str, int] = {}
    kept: dict[int, int] = {}
    for entry in entries:
        newest[entry.namespace] = max(entry.seq, newest.get(entry.namespace, 0))
    for entry in entries:
        if (entry.namespace, entry.checkpoint_id) in parents and entry.seq != newest[entry.namespace]:
            continue
        at: Entry | None = entry
        left = keep_last
        # Where another line has kept as many from here on, the rest is kept. That also ends a circle of parents.
        while at is not None and left > kept.get(at.seq, 0):
            kept[at.seq] = left
            left -= 1
            at = by_id.get((at.namespace, at.parent_id)) if at.parent_id is not None else None
    return doomed - kept.keys()


def outlived_in(thread_id: str, entries: Sequence[Entry], kept: Retention, writes: Mapping[Place, int]) -> Outlived:
    """The result of a vacuum for one thread. `writes` counts its old pending writes without a checkpoint."""
    doomed = outlived(entries, kept.cutoff, kept.keep_last)
    return Outlived(thread_id, {entry.seq: entry.rev for entry in entries if entry.seq in doomed}, writes)


STEPS_NEEDED = "counters_since_delta_snapshot"
"""LangGraph's key in the metadata of a checkpoint whose delta channels are told by its ancestors, and by their pending
writes. Of each channel it has two counts; the larger one is how many ancestors that takes at most."""
WRITTEN = "channel_versions"
"""LangGraph's key in the head of a checkpoint, with the channels that were ever written. The others need nothing."""


def spared(outlived: Outlived, entries: Iterable[Entry], steps_needed: Mapping[int, int]) -> Outlived:
    """What a vacuum removes, without ancestors that a checkpoint which stays is made from.

    `entries` are all of the thread, and `steps_needed` is how many ancestors a checkpoint needs, by sequence number.
    """
    by_id = {(entry.namespace, entry.checkpoint_id): entry for entry in entries}
    needed: dict[int, int] = {}
    for entry in by_id.values():
        at: Entry | None = entry
        # One more than its ancestors, so that all that are needed have a number from 1 on.
        steps = steps_needed.get(entry.seq, 0) + 1
        # Where another checkpoint has needed as many from here on, the rest is known. That also ends a circle.
        while at is not None and steps > max(1 if at is entry else 0, needed.get(at.seq, 0)):
            needed[at.seq] = steps
            steps -= 1
            at = by_id.get((at.namespace, at.parent_id)) if at.parent_id is not None else None
    kept = {seq: rev for seq, rev in outlived.checkpoints.items() if seq not in needed}
    return outlived if len(kept) == len(outlived.checkpoints) else replace(outlived, checkpoints=kept)


def steps_needed(metadata: str, head: str) -> int:
    """How many ancestors a checkpoint is made from; 0 for whatever does not look like that."""
    counters, fields = decode(metadata).get(STEPS_NEEDED), decode(head)
    written = fields.get(WRITTEN) if isinstance(fields, dict) else None
    counts = counters.items() if isinstance(counters, dict) else ()
    used = [count for name, count in counts if not isinstance(written, dict) or name in written]
    plain = [count.get("value") if isinstance(count, dict) else count for count in used]
    return max((step for pair in plain if isinstance(pair, list) for step in pair if type(step) is int), default=0)


def orphaned(writes: Mapping[Place, int], before: datetime, changed: datetime | None = None) -> dict[Place, int]:
    """Of the pending writes whose checkpoint does not exist, those that are old enough to be removed.

    No time is stored with them. The time counts that is part of the checkpoint's id, as in those of LangGraph; for
    other ids it is when something was last stored in the thread, where that is known (`changed`). Writes whose age
    nobody knows stay.
    """
    return {
        (namespace, checkpoint_id): count
        for (namespace, checkpoint_id), count in writes.items()
        if not namespace.startswith(OWN_NAMESPACES) and _is_older(id_time(checkpoint_id) or changed, before)
    }


def _is_older(at: datetime | None, before: datetime) -> bool:
    return at is not None and at < before


_UUID_EPOCH = datetime(1582, 10, 15, tzinfo=UTC)
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def id_time(checkpoint_id: str) -> datetime | None:
    """The time in a checkpoint's id, if that is a UUID with a time (version 1, 6 or 7)."""
    if len(checkpoint_id) not in (32, 36):
        return None
    try:
        uuid = UUID(checkpoint_id)
        match uuid.version:
            case 1:
                return _UUID_EPOCH + timedelta(microseconds=uuid.time // 10)
            case 6:
                ticks = uuid.int >> 80 << 12 | (uuid.int >> 64 & 0xFFF)
                return _UUID_EPOCH + timedelta(microseconds=ticks // 10)
            case 7:
                return _UNIX_EPOCH + timedelta(milliseconds=uuid.int >> 80)
    except (ValueError, OverflowError):
        return None
    return None
