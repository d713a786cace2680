"""Caches the checkpoints that a saver saved or loaded last, so that a save encodes and sends only what is new."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from locus.integrations.langgraph.items import ATOMS, KnownList, NewestItems, Path, newest_items
from locus.memory.model.alignment import part
from locus.memory.model.codec import encode
from locus.memory.model.digests import fingerprint
from locus.memory.model.manifest import decode_manifest, list_items
from locus.memory.model.payloads import chains
from locus.memory.model.records import Base, Extent, Run, Stored
from locus.memory.model.trace import FieldTrace, ListTrace, Trace
from locus.memory.runtime.forks import fork_safe_lock

CacheKey = tuple[str, str]
"""Thread id and namespace."""


class SaverCache:
    """Bounded by namespaces and by items. The least recently used checkpoints are dropped first."""

    MAX_NAMESPACES = 1_024
    MAX_ITEMS = 50_000
    MAX_STEPS = 8
    """For how many checkpoints of a namespace the objects that their tasks returned are kept."""

    def __init__(self) -> None:
        self._checkpoints: OrderedDict[CacheKey, CachedCheckpoint] = OrderedDict()
        self._touched: dict[CacheKey, OrderedDict[str, dict[int, Any]]] = {}
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

    def load(self, key: CacheKey, stored: Stored, lists: Mapping[Path, list[Any]]) -> None:
        """Cache a checkpoint that was loaded. The next save probably follows it."""
        known = self.get(key)
        if known.trace is not None and known.trace.base.rev == stored.entry.rev:
            same = {path: known.lists[path] for path, items in lists.items() if _fits(known.lists.get(path), items)}
            again = {path: one.loaded(lists[path]) for path, one in same.items()}
            self.put(key, replace(known, lists={**known.lists, **again}, loaded=None))
            return
        size = sum(len(run.items) // 1_000 + run.length for runs in stored.runs.values() for run in runs)
        loaded = LoadedCheckpoint(stored, {path: (items, newest_items(items)) for path, items in lists.items()})
        self.put(key, replace(known, loaded=loaded, weight=known.weight + size))

    def touch(self, key: CacheKey, checkpoint_id: str, values: Iterable[Any]) -> None:
        """A task of this checkpoint has returned these objects, so it may have changed them."""
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

    stored: Stored
    lists: Mapping[Path, tuple[list[Any], NewestItems]]


@dataclass(frozen=True, slots=True)
class CachedCheckpoint:
    """The checkpoint of a namespace that was saved last, and its lists as they were encoded."""

    trace: Trace | None = None
    lists: Mapping[Path, KnownList] = field(default_factory=dict)
    loaded: LoadedCheckpoint | None = None
    """A checkpoint that was loaded since, if it is not the one of the trace. It is only processed if a save follows."""
    weight: int = 1
    """The approximate size, in items."""

    def at(self, checkpoint_id: str | None, sort_keys: bool) -> CachedCheckpoint:
        """What is known for a save that follows this checkpoint."""
        loaded = self.loaded
        if loaded is None or loaded.stored.entry.checkpoint_id != checkpoint_id:
            return self
        trace = trace_of(loaded.stored, self.trace, sort_keys)
        lists: dict[Path, KnownList] = {}
        for path, (items, newest) in loaded.lists.items():
            cut = trace.fields[path[0]].cuts[path]
            if isinstance(cut, ListTrace) and cut.digests is not None and len(cut.digests) == len(items):
                lists[path] = KnownList(cut.digests, (items,), newest)
        return CachedCheckpoint(trace, lists)

    def base(self, checkpoint_id: str | None) -> Trace | None:
        """The trace, if it is of this checkpoint."""
        return self.trace if self.trace is not None and self.trace.base.checkpoint_id == checkpoint_id else None


NOT_CACHED = CachedCheckpoint()
_NO_WEIGHT = CachedCheckpoint(weight=0)


def saved_checkpoint(trace: Trace, lists: Mapping[Path, KnownList]) -> CachedCheckpoint:
    return CachedCheckpoint(trace, lists, weight=1 + sum(len(known.digests) for known in lists.values()))


def _fits(known: KnownList | None, items: list[Any]) -> bool:
    return known is not None and len(known.digests) == len(items)


def trace_of(stored: Stored, older: Trace | None, sort_keys: bool) -> Trace:
    """The trace of a loaded checkpoint. If a list begins as in an older trace, only the rest of it is processed."""
    fields: dict[str, dict[Path, ListTrace | str]] = {}
    for path, cut in decode_manifest(stored.manifest).items():
        fields.setdefault(path[0], {})[path] = (
            cut if isinstance(cut, str) else _list_trace(stored, cut, _older_list(older, path), sort_keys)
        )
    traces = {name: FieldTrace(None, "null", cuts) for name, cuts in fields.items()}
    return Trace(Base(stored.entry.checkpoint_id, stored.entry.rev), traces, stored.passed)


def _older_list(trace: Trace | None, path: Path) -> ListTrace:
    known = trace.fields.get(path[0]) if trace is not None else None
    cut = known.cuts.get(path) if known is not None else None
    return cut if isinstance(cut, ListTrace) and cut.digests is not None else ListTrace((), None, ())


def _list_trace(stored: Stored, extents: tuple[Extent, ...], older: ListTrace, sort_keys: bool) -> ListTrace:
    kept = _shared(older.extents, extents, stored.runs)
    rest = part(extents, kept, sum(extent.length for extent in extents) - kept)
    fresh = (fingerprint(encode(item, sort_keys=sort_keys)) for item in list_items(rest, stored.runs))
    return ListTrace(extents, None, ((older.digests or ())[:kept] + tuple(fresh)), chains(stored, extents))


def _shared(old: tuple[Extent, ...], new: tuple[Extent, ...], runs: Mapping[str, list[Run]]) -> int:
    """How many items two versions of a list share at the beginning, judged by their extents."""
    shared = 0
    for before, now in zip(old, new, strict=False):
        if before == now:
            shared += now.length
            continue
        if (before.branch, before.skip) == (now.branch, now.skip) and before.run <= now.run:
            later = [run.start for run in runs.get(now.branch, ()) if before.run < run.number <= now.run]
            shared += max(0, min(before.length, now.length, *(start - now.skip for start in later)))
        break
    return shared
