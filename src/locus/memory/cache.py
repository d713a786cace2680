"""What a handle holds of the threads that it has loaded or saved, so that nothing is read and decoded twice.

One cache for each `CheckpointStore`, bounded by bytes of memory. It holds the newest checkpoint of a thread and
namespace that this handle has seen (`model.warm.HeldCheckpoint`). Nothing in it has to be invalidated: with every load
the engine looks whether that very checkpoint is still there, and answers as to a reader that holds nothing if it is
not.

A save only leaves a note, which is its commit; loads take the notes. So a save pays next to nothing for it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from locus.memory.model.arguments import CACHE_MB, checked_megabytes
from locus.memory.model.records import Base, Commit, Run
from locus.memory.model.warm import HeldCheckpoint, followed, weight_of_runs
from locus.memory.runtime.forks import fork_safe_lock

MOST_NOTES: Final = 32
LARGE_NOTE: Final = 65_536
"""In characters. A save of that size is not left waiting as a note."""
_ENTRY_WEIGHT: Final = 600
"""About how many bytes an entry takes beside what it holds."""

Key = tuple[str, str]
"""Thread id and namespace."""


class CacheInfo(NamedTuple):
    """How a handle's cache has done since it was opened, and what it holds."""

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
    """What is held, and the saves that have followed it since."""

    base: Base
    held: HeldCheckpoint | None = None
    manifest: str = ""
    runs: list[Run] = field(default_factory=list)
    weight: int = _ENTRY_WEIGHT


class LoadCache:
    """The least recently used entries are dropped first. One that is larger than half of the cache is not kept."""

    def __init__(self, megabytes: float = CACHE_MB) -> None:
        self.max_bytes = checked_megabytes(megabytes, "cache_mb")
        self.notes: deque[Commit] = deque()
        """What was saved since the last load, for `take_notes`. Appending to it needs no lock."""
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()
        self._weight = 0
        self._hits = 0
        self._misses = 0
        self._lock = fork_safe_lock()  # handles serve several event loops at once

    def get(self, key: Key) -> HeldCheckpoint | None:
        """What is held of a thread."""
        with self._lock:
            self._take_notes()
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            if entry.held is None or entry.held.base != entry.base:
                entry.held = followed(entry.held, entry.base, entry.manifest, entry.runs)
                entry.runs = []
                if entry.held is None:
                    self._drop(key)
            return entry.held

    def put(self, key: Key, held: HeldCheckpoint | None, seen: HeldCheckpoint | None) -> None:
        """Hold what a load has got, which found `seen` here; None holds nothing more of the thread.

        If a save or another load has put something else here meanwhile, that stays.
        """
        weight = 0 if held is None else held.weight + _ENTRY_WEIGHT
        with self._lock:
            self._take_notes()
            entry = self._entries.get(key)
            if entry is not None and (seen is None or entry.base != seen.base):
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
        """Let go of everything; loads begin anew."""
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
            commit = self.notes.popleft()
            key = (commit.thread_id, commit.namespace)
            entry = self._entries.get(key)
            base = Base(commit.checkpoint_id, commit.rev)
            if commit.base is None:
                entry = _Entry(base)  # all of it is in the commit
            elif entry is None or entry.base != commit.base:
                continue  # it builds on something that is not held; what is held may serve all the same
            self._drop(key)
            entry.base, entry.manifest = base, commit.manifest
            entry.runs += commit.runs + commit.values
            entry.weight += weight_of_runs(commit.runs + commit.values)
            if self._fits(entry.weight):
                self._add(key, entry)

    def _fits(self, weight: int) -> bool:
        return 2 * weight <= self.max_bytes

    def _add(self, key: Key, entry: _Entry) -> None:
        self._entries[key] = entry
        self._weight += entry.weight
        while self._weight > self.max_bytes:
            _, oldest = self._entries.popitem(last=False)
            self._weight -= oldest.weight

    def _drop(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._weight -= entry.weight
