"""What a saver remembers of the threads that it saved or loaded last, so that a save encodes and sends what is new."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from locus.integrations.langgraph.items import ATOMS, KnownList, Path, Tail, tail_of
from locus.memory.model.codec import decode, encode
from locus.memory.model.manifest import decode_manifest, items_text
from locus.memory.model.plan import FieldTrace, ListTrace, Trace, fingerprint, part
from locus.memory.model.records import Base, Extent, Run, Stored

Place = tuple[str, str]
"""A thread and a namespace."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint that was loaded, and the objects that its lists became."""

    stored: Stored
    lists: Mapping[Path, tuple[list[Any], Tail]]


@dataclass(frozen=True, slots=True)
class Remembered:
    """The checkpoint of a place that was saved last, or loaded since, and its lists as they were encoded."""

    trace: Trace | None = None
    lists: Mapping[Path, KnownList] = field(default_factory=dict)
    loaded: Loaded | None = None
    """It is another one than the trace is of. What a save needs to know of it is worked out only then."""
    weight: int = 1
    """Roughly, in items."""

    def at(self, checkpoint_id: str | None, sort_keys: bool) -> Remembered:
        """What is known of this checkpoint, or of the one before it."""
        loaded = self.loaded
        if loaded is None or loaded.stored.entry.checkpoint_id != checkpoint_id:
            return self
        trace = trace_of(loaded.stored, self.trace, sort_keys)
        lists: dict[Path, KnownList] = {}
        for path, (items, tail) in loaded.lists.items():
            cut = trace.fields[path[0]].cuts[path]
            if isinstance(cut, ListTrace) and cut.digests is not None and len(cut.digests) == len(items):
                lists[path] = KnownList(cut.digests, (items,), tail)
        return Remembered(trace, lists)

    def base(self, checkpoint_id: str | None) -> Trace | None:
        """The trace of this checkpoint, if it is the one that is remembered."""
        return self.trace if self.trace is not None and self.trace.base.checkpoint_id == checkpoint_id else None


NOTHING = Remembered()
_WEIGHTLESS = Remembered(weight=0)


def saved(trace: Trace, lists: Mapping[Path, KnownList]) -> Remembered:
    return Remembered(trace, lists, weight=1 + sum(len(known.digests) for known in lists.values()))


class Memory:
    """Bounded by places and by items; the longest unused go first."""

    MAX_PLACES = 1_024
    MAX_ITEMS = 50_000
    MAX_STEPS = 8
    """Of how many checkpoints of a place it is known what their tasks returned."""

    def __init__(self) -> None:
        self._places: OrderedDict[Place, Remembered] = OrderedDict()
        self._touched: dict[Place, OrderedDict[str, dict[int, Any]]] = {}
        self._weight = 0
        self._lock = threading.Lock()  # savers are used from several threads and event loops at once

    def get(self, place: Place) -> Remembered:
        with self._lock:
            if place in self._places:
                self._places.move_to_end(place)
            return self._places.get(place, NOTHING)

    def put(self, place: Place, remembered: Remembered) -> None:
        with self._lock:
            self._weight += remembered.weight - self._places.pop(place, _WEIGHTLESS).weight
            self._places[place] = remembered
            while len(self._places) > self.MAX_PLACES or (self._weight > self.MAX_ITEMS and len(self._places) > 1):
                self._forget(next(iter(self._places)))

    def load(self, place: Place, stored: Stored, lists: Mapping[Path, list[Any]]) -> None:
        """A checkpoint was loaded: the next save most likely follows it."""
        known = self.get(place)
        if known.trace is not None and known.trace.base.rev == stored.entry.rev:
            same = {path: known.lists[path] for path, items in lists.items() if _fits(known.lists.get(path), items)}
            again = {path: one.loaded(lists[path]) for path, one in same.items()}
            self.put(place, replace(known, lists={**known.lists, **again}, loaded=None))
            return
        size = sum(len(run.items) // 1_000 + run.length for runs in stored.runs.values() for run in runs)
        loaded = Loaded(stored, {path: (items, tail_of(items)) for path, items in lists.items()})
        self.put(place, replace(known, loaded=loaded, weight=known.weight + size))

    def touch(self, place: Place, checkpoint_id: str, values: Iterable[Any]) -> None:
        """A task of this checkpoint has returned these objects: they may be others than they were."""
        found = {id(value): value for value in values if type(value) not in ATOMS}
        with self._lock:
            steps = self._touched.setdefault(place, OrderedDict())
            steps.setdefault(checkpoint_id, {}).update(found)
            while len(steps) > self.MAX_STEPS:
                steps.popitem(last=False)
            while len(self._touched) > self.MAX_PLACES:
                self._forget(next(iter(self._touched)))

    def touched(self, place: Place, checkpoint_id: str | None) -> Collection[int]:
        """The ids of the objects that the tasks of this checkpoint have returned.

        They stay: a save may fail, and two runs may go on from one checkpoint.
        """
        with self._lock:
            steps = self._touched.get(place)
            return frozenset(steps.get(checkpoint_id or "", ())) if steps else ()

    def forget_thread(self, thread_id: str) -> None:
        with self._lock:
            for place in [place for place in self._places if place[0] == thread_id]:
                self._forget(place)

    def _forget(self, place: Place) -> None:
        self._weight -= self._places.pop(place, _WEIGHTLESS).weight
        self._touched.pop(place, None)


def _fits(known: KnownList | None, items: list[Any]) -> bool:
    return known is not None and len(known.digests) == len(items)


def trace_of(stored: Stored, older: Trace | None, sort_keys: bool) -> Trace:
    """A trace of what was loaded. Of lists that begin as in an older trace only the rest is looked at."""
    fields: dict[str, dict[Path, ListTrace | str]] = {}
    for path, cut in decode_manifest(stored.manifest).items():
        fields.setdefault(path[0], {})[path] = (
            cut if isinstance(cut, str) else _list_trace(stored, cut, _older(older, path), sort_keys)
        )
    traces = {name: FieldTrace(None, "null", cuts) for name, cuts in fields.items()}
    return Trace(Base(stored.entry.checkpoint_id, stored.entry.rev), traces, stored.passed)


def _older(trace: Trace | None, path: Path) -> ListTrace:
    known = trace.fields.get(path[0]) if trace is not None else None
    cut = known.cuts.get(path) if known is not None else None
    return cut if isinstance(cut, ListTrace) and cut.digests is not None else ListTrace((), None, ())


def _list_trace(stored: Stored, extents: tuple[Extent, ...], older: ListTrace, sort_keys: bool) -> ListTrace:
    kept = _shared(older.extents, extents, stored.runs)
    rest = part(extents, kept, sum(extent.length for extent in extents) - kept)
    fresh = (fingerprint(encode(item, sort_keys=sort_keys)) for item in decode(items_text(rest, stored.runs)))
    return ListTrace(extents, None, ((older.digests or ())[:kept] + tuple(fresh)))


def _shared(old: tuple[Extent, ...], new: tuple[Extent, ...], runs: Mapping[str, list[Run]]) -> int:
    """How many items two versions of a list have in common at their beginning, as far as their places tell."""
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
