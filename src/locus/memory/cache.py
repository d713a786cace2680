"""The memory of a handle: the checkpoints that it has loaded or saved, in a `LoadCache` and a `TraceCache`.

A `LoadCache` holds the newest checkpoint of a thread and namespace that this handle has seen (`model.warm`), so that
nothing is read and decoded twice. Nothing in it has to be invalidated: with every load the engine looks whether that
very checkpoint is still there, and answers as to a reader that holds nothing if it is not. A save only leaves a note,
which is its commit; loads take the notes. So a save pays next to nothing for it.

A `TraceCache` holds digests of what was saved last, for payloads that do not say where they come from. A state carries
its own trace.

Both are bounded by bytes of memory.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Final, NamedTuple

from locus.memory.model.arguments import CACHE_MB, checked_megabytes
from locus.memory.model.records import Base, Commit, Cuts, Run
from locus.memory.model.trace import Trace
from locus.memory.model.warm import HeldCheckpoint, followed
from locus.memory.runtime.forks import fork_safe_lock

MOST_NOTES: Final = 32
LARGE_NOTE: Final = 65_536
"""In characters. A save of that size is not left waiting as a note."""

NamespaceKey = tuple[str, str]
"""Thread id and namespace."""

_ENTRY_WEIGHT: Final = 600
"""About how many bytes an entry takes beside what it holds."""
_RUN_WEIGHT: Final = 160
"""About how many bytes a run takes beside its text."""
_DIGEST_WEIGHT, _MARK_WEIGHT, _EXTENT_WEIGHT, _FIELD_WEIGHT = 60, 160, 220, 300
"""About how many bytes each takes in Python."""
_DECODED: Final = 2.2
"""How many bytes a character of JSON takes once it is decoded."""


def weight_of_runs(runs: Iterable[Run]) -> int:
    """About how many bytes runs take as texts."""
    return sum([getsizeof(run.items) + _RUN_WEIGHT for run in runs])


def weight_of_trace(trace: Trace) -> int:
    """About how many bytes of memory a trace takes, without the objects of a state."""
    weight = 0
    for of_field in trace.fields.values():
        weight += _FIELD_WEIGHT + getsizeof(of_field.text)
        for cut in of_field.cuts.values():
            if isinstance(cut, str):
                weight += getsizeof(cut)
                continue
            weight += _DIGEST_WEIGHT * len(cut.digests or ()) + _EXTENT_WEIGHT * len(cut.extents)
            for chain in cut.chains.values():
                weight += _MARK_WEIGHT * len(chain.marks) + (0 if chain.tip is None else getsizeof(chain.tip.items))
    return weight


def weight_of_held(held: HeldCheckpoint) -> int:
    """About how many bytes of memory a held checkpoint takes."""
    weight = _ENTRY_WEIGHT + int(_DECODED * sum(held.sizes.values()))
    for runs in held.runs.values():
        weight += weight_of_runs(runs)
    return weight if held.trace is None else weight + weight_of_trace(held.trace)


class CacheInfo(NamedTuple):
    """The statistics of a handle's cache since it was opened."""

    hits: int
    """Loads that were told only what is new."""
    misses: int
    """Loads that read everything."""
    entries: int
    """Threads (each namespace counts) of which something is held."""
    bytes: int
    """About how much memory that takes."""
    max_bytes: int


@dataclass(slots=True)
class _Entry:
    """A held checkpoint, and the saves that have followed it."""

    base: Base
    held: HeldCheckpoint | None = None
    cuts: Cuts = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    weight: int = _ENTRY_WEIGHT


class LoadCache:
    """The newest checkpoints that this handle has seen, by thread and namespace.

    The least recently used entries are dropped first. One that is larger than half of the cache is not kept.
    """

    def __init__(self, megabytes: float = CACHE_MB) -> None:
        self.max_bytes = checked_megabytes(megabytes, "cache_mb")
        self.notes: deque[tuple[Commit, Cuts]] = deque()
        """What was saved since the last load, and what its manifest says, for `take_notes`. Appending needs no lock."""
        self._entries: OrderedDict[NamespaceKey, _Entry] = OrderedDict()
        self._weight = 0
        self._hits = 0
        self._misses = 0
        self._lock = fork_safe_lock()  # handles serve several event loops at once

    def get(self, key: NamespaceKey) -> HeldCheckpoint | None:
        """The checkpoint that is held for a key; None if there is none."""
        with self._lock:
            if self.notes:
                self._take_notes()
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            if entry.held is None or entry.held.base != entry.base:
                entry.held = followed(entry.held, entry.base, entry.cuts, entry.runs)
                entry.runs = []
                if entry.held is None:
                    self._drop(key)
            return entry.held

    def put(self, key: NamespaceKey, held: HeldCheckpoint | None, seen: HeldCheckpoint | None) -> None:
        """Hold the checkpoint that a load has read; None holds nothing. `seen` is what the load had got from here.

        If a save or another load has put something else here meanwhile, that stays.
        """
        weight = 0 if held is None else weight_of_held(held)
        with self._lock:
            if self.notes:
                self._take_notes()
            entry = self._entries.get(key)
            if entry is not None:
                if seen is None or entry.base != seen.base:
                    return
                self._drop(key)
            if held is not None and self._fits(weight):
                self._add(key, _Entry(held.base, held, weight=weight))

    def take_notes(self) -> None:
        with self._lock:
            self._take_notes()

    def count(self, *, hit: bool) -> None:
        with self._lock:
            self._hits += hit
            self._misses += not hit

    def clear(self) -> None:
        """Forget everything. The next load of each thread reads all of it."""
        with self._lock:
            self.notes.clear()
            self._entries.clear()
            self._weight = 0

    def info(self) -> CacheInfo:
        with self._lock:
            self._take_notes()
            return CacheInfo(self._hits, self._misses, len(self._entries), self._weight, self.max_bytes)

    def _take_notes(self) -> None:
        while self.notes:
            commit, cuts = self.notes.popleft()
            key = (commit.thread_id, commit.namespace)
            entry = self._entries.get(key)
            base = Base(commit.checkpoint_id, commit.rev)
            if commit.base is None:
                entry = _Entry(base)  # all of it is in the commit
            elif entry is None or entry.base != commit.base:
                continue  # it builds on something that is not held; what is held may serve all the same
            self._drop(key)
            added = commit.runs + commit.values
            entry.base, entry.cuts = base, cuts
            entry.runs += added
            entry.weight += weight_of_runs(added)
            if self._fits(entry.weight):
                self._add(key, entry)

    def _fits(self, weight: int) -> bool:
        return 2 * weight <= self.max_bytes

    def _add(self, key: NamespaceKey, entry: _Entry) -> None:
        self._entries[key] = entry
        self._weight += entry.weight
        while self._weight > self.max_bytes and self._entries:
            _, oldest = self._entries.popitem(last=False)
            self._weight -= oldest.weight

    def _drop(self, key: NamespaceKey) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._weight -= entry.weight


class TraceCache:
    """What the last saves stored, by thread and namespace: digests, and no items. The oldest are dropped first."""

    MAX_TRACES = 1_024
    MAX_WEIGHT = 64 * 1024 * 1024

    def __init__(self) -> None:
        self.known: dict[NamespaceKey, Trace] = {}
        """To look into it needs no lock."""
        self._weights: dict[NamespaceKey, int] = {}
        self._weight = 0
        self._lock = fork_safe_lock()  # handles serve several event loops at once

    def put(self, key: NamespaceKey, trace: Trace) -> None:
        weight = weight_of_trace(trace)
        with self._lock:
            self._drop(key)
            self.known[key] = trace.without_objects()
            self._weights[key] = weight
            self._weight += weight
            while self.known and (len(self.known) > self.MAX_TRACES or self._weight > self.MAX_WEIGHT):
                self._drop(next(iter(self.known)))

    def drop(self, key: NamespaceKey) -> None:
        with self._lock:
            self._drop(key)

    def _drop(self, key: NamespaceKey) -> None:
        self.known.pop(key, None)
        self._weight -= self._weights.pop(key, 0)
