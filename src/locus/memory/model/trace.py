"""Traces: what is remembered of a stored checkpoint, so that the next save writes only what has changed.

A `Trace` has, for each field of the payload, its text in the head, where its lists are, and what their items were:
the frozen objects themselves, which identity recognises, or digests of their texts.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from sys import getsizeof

from locus.memory.model.alignment import part
from locus.memory.model.digests import DigestChain, fingerprint
from locus.memory.model.item_texts import item_text
from locus.memory.model.records import Base, Extent, Path

_DIGEST_WEIGHT, _MARK_WEIGHT, _EXTENT_WEIGHT, _FIELD_WEIGHT = 60, 160, 220, 300
"""About how many bytes each takes in Python."""


@dataclass(frozen=True, slots=True)
class ListTrace:
    """A stored list: where its items are, and what they were.

    `items` are kept where they are frozen, so that identity tells what is unchanged; `digests` otherwise.
    """

    extents: tuple[Extent, ...]
    items: Sequence[object] | None = None
    digests: tuple[bytes, ...] | None = None
    chains: Mapping[str, DigestChain] = field(default_factory=dict)
    """The digests of each branch, as of the newest run that the extents name."""
    omitted: int = 0
    """How many items precede `items` and `digests` in the stored list: those that a window left out."""

    @property
    def is_unread(self) -> bool:
        """Whether nothing but the digests of its branches is known of a list."""
        return self.items is None and self.digests is None

    @property
    def weight(self) -> int:
        """About how many bytes this holds on to, without the items, which a state has anyway."""
        weight = _DIGEST_WEIGHT * len(self.digests or ()) + _EXTENT_WEIGHT * len(self.extents)
        for chain in self.chains.values():
            weight += _MARK_WEIGHT * len(chain.marks) + (0 if chain.tip is None else getsizeof(chain.tip.items))
        return weight

    def known_digests(self, path: Path, sort_keys: bool) -> tuple[bytes, ...]:
        if self.digests is not None:
            return self.digests
        return tuple(fingerprint(item_text(item, path, sort_keys)) for item in self.items or ())


@dataclass(frozen=True, slots=True)
class FieldTrace:
    """A field of the payload: its text in the head, and what was cut out of it."""

    value: object
    text: str
    cuts: Mapping[Path, ListTrace | str] = field(default_factory=dict)
    left_out: tuple[object, ...] = ()
    """The first items of a list that is short, and so all in the head, where a window left them out."""

    @property
    def weight(self) -> int:
        """About how many bytes this holds on to, without the value itself."""
        cuts = (getsizeof(cut) if isinstance(cut, str) else cut.weight for cut in self.cuts.values())
        return getsizeof(self.text) + sum(cuts)


@dataclass(frozen=True, slots=True)
class Trace:
    """A stored checkpoint as a base for the next."""

    base: Base
    fields: Mapping[str, FieldTrace]
    passed: bool = False
    """There were newer checkpoints when this one was read, so its branches have most likely grown since."""
    window: Base | None = None
    """The checkpoint that a window was loaded from: what it left out has not changed since."""

    @property
    def weight(self) -> int:
        """About how many bytes this holds on to, without the objects of a state."""
        return sum(_FIELD_WEIGHT + trace.weight for trace in self.fields.values())

    @property
    def has_digests(self) -> bool:
        """Whether a payload that nobody knows can be compared with this."""
        lists = [cut for trace in self.fields.values() for cut in trace.cuts.values() if isinstance(cut, ListTrace)]
        return any(cut.digests for cut in lists) and not any(cut.omitted for cut in lists)

    def without_objects(self) -> Trace:
        """This trace with digests only, so that it keeps no state alive."""
        return Trace(
            self.base,
            {
                name: FieldTrace(
                    None,
                    trace.text,
                    {
                        path: ListTrace(cut.extents, None, cut.digests, cut.chains)
                        if isinstance(cut, ListTrace)
                        else cut
                        for path, cut in trace.cuts.items()
                    },
                )
                for name, trace in self.fields.items()
            },
            self.passed,
        )


def places_left_out(trace: Trace) -> dict[str, tuple[object, ...]]:
    """What a window left out of each list: where the items are, or the items of a list that is short."""
    found = {name: field_trace.left_out for name, field_trace in trace.fields.items() if field_trace.left_out}
    for name, field_trace in trace.fields.items():
        cut = field_trace.cuts.get((name,))
        if isinstance(cut, ListTrace) and cut.omitted:
            found[name] = tuple(part(cut.extents, 0, cut.omitted))
    return found


class TraceCache:
    """Traces for payloads that do not say where they come from; states carry their own trace.

    Bounded by threads and by bytes; the oldest go first.
    """

    MAX_TRACES = 1_024
    MAX_WEIGHT = 64 * 1024 * 1024

    def __init__(self, lock: threading.Lock) -> None:
        self._traces: OrderedDict[tuple[str, str], tuple[Trace, int]] = OrderedDict()
        self._weight = 0
        self._lock = lock  # handles serve several event loops at once

    def get(self, key: tuple[str, str]) -> Trace | None:
        found = self._traces.get(key)
        return None if found is None else found[0]

    def put(self, key: tuple[str, str], trace: Trace) -> None:
        wanted = trace.has_digests
        if not wanted and key not in self._traces:
            return
        with self._lock:
            self._drop(key)
            if not wanted:
                return
            weight = trace.weight
            self._traces[key] = trace.without_objects(), weight
            self._weight += weight
            while self._traces and (len(self._traces) > self.MAX_TRACES or self._weight > self.MAX_WEIGHT):
                _, (_, oldest) = self._traces.popitem(last=False)
                self._weight -= oldest

    def drop(self, key: tuple[str, str]) -> None:
        with self._lock:
            self._drop(key)

    def _drop(self, key: tuple[str, str]) -> None:
        self._weight -= self._traces.pop(key, (None, 0))[1]
