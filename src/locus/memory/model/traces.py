"""What is remembered of a stored checkpoint, so that the next save sends only what is new."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from functools import cache
from hashlib import blake2b
from typing import Any

from pydantic import BaseModel

from locus.core.frozen import Items, is_ours, trusted
from locus.memory.model.codec import encode
from locus.memory.model.records import Base, Extent, Path


def item_text(item: object, path: tuple[str | int, ...], sort_keys: bool = False) -> str:
    """One item of a state's list as JSON text; fields at their defaults are left out.

    A subclass of the user's comes back as its base class, so of that everything is written.
    """
    if is_ours(item) and trusted(item):
        item = _plain(item)
    elif isinstance(item, BaseModel):
        item = item.model_dump(serialize_as_any=True)
    return encode(item, path, sort_keys=sort_keys)


def _plain(model: BaseModel) -> dict[str, Any]:
    """A model of ours as a dict, without what is as it is by default.

    `model_dump` would turn an object in a metadata dict into something that JSON can hold; here it stays, and
    is refused.
    """
    plain: dict[str, Any] = {}
    for name, default in _defaults(type(model)):
        value = getattr(model, name)
        if value is default or value == default:
            continue
        plain[name] = value if type(value) is str else _plain_value(value)
    return plain | model.__pydantic_extra__ if model.__pydantic_extra__ else plain


def _plain_value(value: Any) -> Any:
    if isinstance(value, Items):
        return [_plain(inner) if is_ours(inner) else inner for inner in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return value.value if isinstance(value, Enum) else value


@cache
def _defaults(kind: type[BaseModel]) -> list[tuple[str, Any]]:
    """The fields of a model of ours, of which there are only a few."""
    return [(name, field_info.default) for name, field_info in kind.model_fields.items()]


def fingerprint(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class ListTrace:
    """A stored list: where its items are, and what they were.

    `items` are kept where they are frozen, so that identity tells what is unchanged; `digests` otherwise.
    """

    extents: tuple[Extent, ...]
    items: Sequence[object] | None = None
    digests: tuple[bytes, ...] | None = None

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


@dataclass(frozen=True, slots=True)
class Trace:
    """A stored checkpoint as a base for the next."""

    base: Base
    fields: Mapping[str, FieldTrace]
    passed: bool = False
    """There were newer checkpoints when this one was read, so its branches have most likely gone on."""

    @property
    def weight(self) -> int:
        """How many digests this holds on to."""
        weight = 0
        for trace in self.fields.values():
            for cut in trace.cuts.values():
                if isinstance(cut, ListTrace) and cut.digests is not None:
                    weight += len(cut.digests)
        return weight

    def without_objects(self) -> Trace:
        """This trace with digests only: it keeps no state of the user's alive."""
        return Trace(
            self.base,
            {
                name: FieldTrace(
                    None,
                    trace.text,
                    {
                        path: ListTrace(cut.extents, None, cut.digests) if isinstance(cut, ListTrace) else cut
                        for path, cut in trace.cuts.items()
                    },
                )
                for name, trace in self.fields.items()
            },
            self.passed,
        )


class TraceCache:
    """Digests for the next save of a payload that does not say where it comes from; states carry their own trace.

    Bounded by threads and by digests, the longest unused go first.
    """

    MAX_TRACES = 1_024
    MAX_DIGESTS = 200_000

    def __init__(self) -> None:
        self._traces: OrderedDict[tuple[str, str], Trace] = OrderedDict()
        self._weight = 0
        self._lock = threading.Lock()  # handles serve several event loops at once

    def get(self, key: tuple[str, str]) -> Trace | None:
        return self._traces.get(key)

    def put(self, key: tuple[str, str], trace: Trace) -> None:
        weight = trace.weight
        if not weight and key not in self._traces:
            return
        with self._lock:
            self._drop(key)
            if not weight:
                return
            self._traces[key] = trace.without_objects()
            self._weight += weight
            while self._traces and (len(self._traces) > self.MAX_TRACES or self._weight > self.MAX_DIGESTS):
                _, oldest = self._traces.popitem(last=False)
                self._weight -= oldest.weight

    def drop(self, key: tuple[str, str]) -> None:
        with self._lock:
            self._drop(key)

    def _drop(self, key: tuple[str, str]) -> None:
        old = self._traces.pop(key, None)
        if old is not None:
            self._weight -= old.weight
