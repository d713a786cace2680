"""The sizes of threads, and of what a removal would free. Pure functions.

An engine measures (`Measured`): the bytes of texts, without the texts themselves. Everything else follows from that
and from the plan of a removal. All sizes are bytes of UTF-8, of these JSON texts as the store keeps them: head,
manifest and metadata of each checkpoint, the items of each run, the value of each pending write. Names, ids, numbers
and what a database adds to each row are not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from locus.memory.model.manifest import decode_manifest, walk, wanted
from locus.memory.model.records import Entry, Extent, Path, Run, RunInfo, Write
from locus.memory.model.retention import Outlived, Place, unneeded_runs

EXPORT_BYTES = 32 * 1024 * 1024
"""How large a portion of an export gets before it ends, about: heads, runs and pending writes have so much each."""

MOST_LISTS = 100
"""How many lists are told of: the largest."""

MOST_LINES = 100
"""How many lines of history are compared to find what they share: those that end last."""


class MeasuredCheckpoint(NamedTuple):
    """A checkpoint, and the sizes of its head, manifest and metadata. The entry may lack its metadata."""

    entry: Entry
    manifest: str
    size: int


class MeasuredWrites(NamedTuple):
    """The number and the size of a checkpoint's pending writes."""

    number: int
    size: int


@dataclass(frozen=True, slots=True)
class Measured:
    """The sizes of all parts of a thread, as an engine has measured them at one instant."""

    checkpoints: Sequence[MeasuredCheckpoint]
    runs: Mapping[RunInfo, int]
    """The bytes of the items of each."""
    writes: Mapping[Place, MeasuredWrites] = field(default_factory=dict)

    def orphans(self) -> dict[Place, int]:
        """The number of pending writes for each checkpoint that does not exist."""
        there = {(one.entry.namespace, one.entry.checkpoint_id) for one in self.checkpoints}
        return {place: writes.number for place, writes in self.writes.items() if place not in there and writes.number}


@dataclass(frozen=True, slots=True)
class ListSize:
    """The size of one list in all checkpoints together, or of a large value that is stored apart."""

    path: Path
    runs: int
    """How many runs its items are in (see the storage model)."""
    bytes: int
    shared_bytes: int
    """Of these, the bytes of what more than one line of history shows."""


@dataclass(frozen=True, slots=True)
class Freed:
    """The counts and bytes that a removal frees."""

    checkpoints: int
    runs: int
    writes: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ThreadSizes:
    """The size of a thread. `bytes` is the sum of the three kinds of bytes."""

    thread_id: str
    checkpoints: int
    runs: int
    writes: int
    head_bytes: int
    """Heads, manifests and metadata: what each checkpoint has for itself."""
    run_bytes: int
    """The items of lists, and large values: what checkpoints share."""
    write_bytes: int
    """Pending writes."""
    shared_bytes: int
    """Of `run_bytes`, what more than one line of history shows: a fork shares what it began with."""
    lists: tuple[ListSize, ...]
    """The largest lists, largest first."""
    freed: Freed | None = None
    """What the vacuum, or the deletion, that was asked about would free."""

    @property
    def bytes(self) -> int:
        return self.head_bytes + self.run_bytes + self.write_bytes


def text_bytes(text: str) -> int:
    """The number of bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def fitting(sizes: Iterable[int]) -> int:
    """How many things of these sizes, from the first on, fit into one portion of an export. One always does.

    No more sizes are asked for than that, and one.
    """
    count = total = 0
    for size in sizes:
        total += size
        if count and total > EXPORT_BYTES:
            break
        count += 1
    return count


def brought(named: Iterable[Mapping[str, int]], runs: Iterable[tuple[str, int, int]]) -> Iterator[int]:
    """For each checkpoint, the bytes of the runs that it needs and that no checkpoint before it needed.

    Given are, for each, the newest run that it names of each branch, and the runs: branch, number and bytes.
    """
    left: dict[str, list[tuple[int, int]]] = {}
    for branch, number, size in sorted(runs, reverse=True):
        left.setdefault(branch, []).append((number, size))
    for newest in named:
        total = 0
        for branch, number in newest.items():
            waiting = left.get(branch, [])
            while waiting and waiting[-1][0] <= number:
                total += waiting.pop()[1]
        yield total


def measured_checkpoint(entry: Entry, head: str, manifest: str) -> MeasuredCheckpoint:
    return MeasuredCheckpoint(entry, manifest, sum(map(text_bytes, (head, manifest, entry.metadata))))


def measured_run(run: Run) -> tuple[RunInfo, int]:
    return RunInfo(*run[:4]), text_bytes(run.items)


def measured_writes(writes: Collection[Write]) -> MeasuredWrites:
    return MeasuredWrites(len(writes), sum(text_bytes(write.value) for write in writes))


def thread_sizes(thread_id: str, measured: Measured, freed: Freed | None = None) -> ThreadSizes:
    """The sizes of a thread, from the measurements of an engine."""
    paths = _paths(measured.checkpoints)
    shared = _shared(measured)
    runs, sizes, shared_sizes = Counter[Path](), Counter[Path](), Counter[Path]()
    for run, size in measured.runs.items():
        path = paths.get(run.branch, ())
        runs[path] += 1
        sizes[path] += size
        shared_sizes[path] += size if run in shared else 0
    return ThreadSizes(
        thread_id,
        len(measured.checkpoints),
        len(measured.runs),
        sum(writes.number for writes in measured.writes.values()),
        sum(one.size for one in measured.checkpoints),
        sum(measured.runs.values()),
        sum(writes.size for writes in measured.writes.values()),
        sum(measured.runs[run] for run in shared),
        tuple(ListSize(path, runs[path], size, shared_sizes[path]) for path, size in sizes.most_common(MOST_LISTS)),
        freed,
    )


def _paths(checkpoints: Sequence[MeasuredCheckpoint]) -> dict[str, Path]:
    """The path of the list that each branch stores."""
    found: dict[str, Path] = {}
    for one in checkpoints:
        for path, cut in decode_manifest(one.manifest).items():
            for branch in [cut] if isinstance(cut, str) else [extent.branch for extent in cut]:
                found.setdefault(branch, path)
    return found


def _shared(measured: Measured) -> set[RunInfo]:
    """The runs that belong to more than one line of history."""
    parents = {(one.entry.namespace, one.entry.parent_id) for one in measured.checkpoints}
    ends = [one for one in measured.checkpoints if (one.entry.namespace, one.entry.checkpoint_id) not in parents]
    if len(ends) < 2:
        return set()
    ends = sorted(ends, key=lambda one: one.entry.seq)[-MOST_LINES:]
    branches: dict[str, list[RunInfo]] = {}
    for run in sorted(measured.runs, key=attrgetter("number")):
        branches.setdefault(run.branch, []).append(run)
    seen, shared = set[RunInfo](), set[RunInfo]()
    for one in ends:
        shown = _shown(wanted(one.manifest), branches)
        shared |= shown & seen
        seen |= shown
    return shared


def _shown(extents: Collection[Extent], branches: Mapping[str, Sequence[RunInfo]]) -> set[RunInfo]:
    return {
        branches[extent.branch][index]
        for extent in extents
        for index, _, _ in walk(extent, branches.get(extent.branch, ()))
    }


def freed_by(measured: Measured, removed: Outlived) -> Freed:
    """The counts and bytes that are freed by removing these checkpoints and orphaned writes."""
    doomed = {one.entry.seq for one in measured.checkpoints if removed.checkpoints.get(one.entry.seq) == one.entry.rev}
    gone = [one for one in measured.checkpoints if one.entry.seq in doomed]
    places = {(one.entry.namespace, one.entry.checkpoint_id) for one in gone} | removed.writes.keys()
    if gone and len(gone) == len(measured.checkpoints):
        places, runs = set(measured.writes), list(measured.runs)
    elif gone:
        stay = [
            extent for one in measured.checkpoints if one.entry.seq not in doomed for extent in wanted(one.manifest)
        ]
        runs = unneeded_runs(stay, measured.runs)
    else:
        runs = []
    writes = [measured.writes[place] for place in places if place in measured.writes]
    return Freed(
        len(gone),
        len(runs),
        sum(one.number for one in writes),
        sum(one.size for one in gone) + sum(measured.runs[run] for run in runs) + sum(one.size for one in writes),
    )
