"""Caches the checkpoints that a saver saved or loaded last, so that a save encodes and sends only what is new."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from locus.integrations.langgraph.items import ATOMS, KnownList, NewestItems, newest_items
from locus.threads import EncodedVersion, Path, ReadVersion
from locus.threads.blocking import fork_safe_lock

CacheKey = tuple[str, str]
"""Thread id and namespace."""


class SaverCache:
    """A cache with a limit on namespaces and on items. The least recently used checkpoints are dropped first."""

    MAX_NAMESPACES = 1_024
    MAX_ITEMS = 50_000
    MAX_STEPS = 8
    """For how many checkpoints of a namespace the objects that their tasks returned are kept."""

    def __init__(self) -> None:
        self._checkpoints: OrderedDict[CacheKey, CachedCheckpoint] = OrderedDict()
        self._touched: dict[CacheKey, OrderedDict[str, dict[int, Any]]] = {}
        self._counters: OrderedDict[CacheKey, tuple[str, Mapping[str, Any]]] = OrderedDict()
        self._deltas: OrderedDict[CacheKey, frozenset[str]] = OrderedDict()
        self._weight = 0
        self._lock = fork_safe_lock()  # a saver may be used from several OS threads and event loops at once

    def get(self, key: CacheKey) -> CachedCheckpoint:
        with self._lock:
            if key in self._checkpoints:
                self._checkpoints.move_to_end(key)
            return self._checkpoints.get(key, NOT_CACHED)

    def put(self, key: CacheKey, checkpoint: CachedCheckpoint) -> None:
        with self._lock:
            self._weight += checkpoint.weight - self._checkpoints.pop(key, _NO_WEIGHT).weight
            self._checkpoints[key] = checkpoint
            while len(self._checkpoints) > self.MAX_NAMESPACES or (
                self._weight > self.MAX_ITEMS and len(self._checkpoints) > 1
            ):
                self._drop(next(iter(self._checkpoints)))

    def load(self, key: CacheKey, version: ReadVersion, lists: Mapping[Path, list[Any]]) -> None:
        """Cache a checkpoint that was loaded. The next save probably follows it."""
        known = self.get(key)
        if known.version is not None and known.version.is_same(version):
            same = {path: known.lists[path] for path, items in lists.items() if _fits(known.lists.get(path), items)}
            again = {path: one.loaded(lists[path]) for path, one in same.items()}
            self.put(key, replace(known, lists={**known.lists, **again}, loaded=None))
            return
        loaded = LoadedCheckpoint(version, {path: (items, newest_items(items)) for path, items in lists.items()})
        size = version.size // 1_000 + sum(map(len, lists.values()))
        self.put(key, replace(known, loaded=loaded, weight=known.weight + size))

    def touch(self, key: CacheKey, checkpoint_id: str, values: Iterable[Any]) -> None:
        """Note that a task of a checkpoint returned these objects, since it may have changed them."""
        found = {id(value): value for value in values if type(value) not in ATOMS}
        with self._lock:
            steps = self._touched.setdefault(key, OrderedDict())
            steps.setdefault(checkpoint_id, {}).update(found)
            while len(steps) > self.MAX_STEPS:
                steps.popitem(last=False)
            while len(self._touched) > self.MAX_NAMESPACES:
                self._drop(next(iter(self._touched)))

    def touched(self, key: CacheKey, checkpoint_id: str | None) -> Collection[int]:
        """The ids of the objects that the tasks of this checkpoint have returned.

        They are kept, because a save may fail, and two runs may continue from one checkpoint.
        """
        with self._lock:
            steps = self._touched.get(key)
            return frozenset(steps.get(checkpoint_id or "", ())) if steps else ()

    def note_counters(self, key: CacheKey, checkpoint_id: str, counters: Mapping[str, Any]) -> None:
        """Remember, of a checkpoint that was loaded, how far it is to the snapshots of its delta channels."""
        with self._lock:
            self._counters.pop(key, None)
            if counters:
                self._counters[key] = checkpoint_id, counters
            while len(self._counters) > self.MAX_NAMESPACES:
                self._counters.popitem(last=False)

    def distance(self, key: CacheKey, checkpoint_id: str, channels: Iterable[str]) -> int | None:
        """How many ancestors a checkpoint has at most up to the snapshots of these channels; None if nobody knows."""
        noted, counters = self._counters.get(key, ("", NO_COUNTERS))
        if noted != checkpoint_id:
            return None
        steps: list[int] = []
        for channel in channels:
            counts = counters.get(channel)
            plain = [count for count in counts if isinstance(count, int)] if isinstance(counts, list | tuple) else []
            if not plain:
                return None
            steps.append(max(plain))
        return max(steps, default=None)

    def note_deltas(self, key: CacheKey, channels: Iterable[str]) -> None:
        """Remember delta channels: a checkpoint names those that it does not contain."""
        if not (new := frozenset(channels)):
            return
        with self._lock:
            self._deltas[key] = self._deltas.pop(key, frozenset()) | new
            while len(self._deltas) > self.MAX_NAMESPACES:
                self._deltas.popitem(last=False)

    def deltas(self, key: CacheKey) -> frozenset[str]:
        """The channels of a namespace that are known to be delta channels."""
        return self._deltas.get(key, frozenset())

    def drop_thread(self, thread_id: str) -> None:
        with self._lock:
            for key in [key for key in self._checkpoints if key[0] == thread_id]:
                self._drop(key)

    def _drop(self, key: CacheKey) -> None:
        self._weight -= self._checkpoints.pop(key, _NO_WEIGHT).weight
        self._touched.pop(key, None)


@dataclass(frozen=True, slots=True)
class LoadedCheckpoint:
    """A checkpoint that was loaded, with its lists and copies of their newest items."""

    version: ReadVersion
    lists: Mapping[Path, tuple[list[Any], NewestItems]]


@dataclass(frozen=True, slots=True)
class CachedCheckpoint:
    """The checkpoint that a namespace saved last, and its lists in encoded form."""

    version: EncodedVersion | None = None
    lists: Mapping[Path, KnownList] = field(default_factory=dict)
    loaded: LoadedCheckpoint | None = None
    """A checkpoint that was loaded since, if it is another one. It is only processed if a save follows."""
    weight: int = 1
    """The approximate size, in items."""

    def at(self, checkpoint_id: str | None) -> CachedCheckpoint:
        """The cached content for a save that follows this checkpoint."""
        loaded = self.loaded
        if loaded is None or loaded.version.checkpoint_id != checkpoint_id:
            return self
        digests = loaded.version.digests(self.version)
        lists: dict[Path, KnownList] = {}
        for path, (items, newest) in loaded.lists.items():
            if len(digests[path]) == len(items):
                lists[path] = KnownList(digests[path], (items,), newest)
        return CachedCheckpoint(loaded.version, lists)

    def base(self, checkpoint_id: str | None) -> EncodedVersion | None:
        """The version that a save after this checkpoint can be a delta to; None if another one is cached."""
        return self.version if self.version is not None and self.version.checkpoint_id == checkpoint_id else None


NOT_CACHED = CachedCheckpoint()
NO_COUNTERS: Mapping[str, Any] = {}
_NO_WEIGHT = CachedCheckpoint(weight=0)


def saved_checkpoint(version: EncodedVersion, lists: Mapping[Path, KnownList]) -> CachedCheckpoint:
    return CachedCheckpoint(version, lists, weight=1 + sum(len(known.digests) for known in lists.values()))


def _fits(known: KnownList | None, items: list[Any]) -> bool:
    return known is not None and len(known.digests) == len(items)
