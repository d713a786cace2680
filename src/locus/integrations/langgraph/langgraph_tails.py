"""The newest items of a list, copied, so that a change in place is seen the next time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any
from uuid import UUID

from pydantic import BaseModel

TAIL = 128
"""How many of the newest items are compared by content."""

# Of these, what is equal and of the same type is written the same (but for the sign of zero).
ATOMS = frozenset({str, int, float, bool, type(None), bytes, UUID})
_attributes = attrgetter("__dict__")
_extra = attrgetter("__pydantic_extra__")


@dataclass(frozen=True, slots=True)
class Tail:
    """Copies of items. Of models (`ends` says where each ends) the values of all their fields stand in one row, which
    is compared in C."""

    kinds: list[type] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    ends: list[int] | None = None
    extras: list[Any] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.kinds)

    def run(self, items: Sequence[Any], at: int, start: int) -> int:
        """How many items from `items[at]` on are what the tail has from `start` on."""
        most = min(len(items) - at, len(self.kinds) - start)
        if most <= 0:
            return 0
        if self._same(items, at, start, most):
            return most
        return bisect_left(range(1, most + 1), True, key=lambda n: not self._same(items, at, start, n))

    def find(self, items: Sequence[Any]) -> int:
        """Where the first item stands: the list was trimmed, perhaps. 0 if nowhere."""
        count = len(self.kinds) if items else 0
        return next((start for start in range(count) if self._same(items, 0, start, 1)), 0)

    def grown(self, items: Sequence[Any], added: int | None) -> Tail:
        """The tail of a list that this one has become by adding so many items (None: nobody knows)."""
        if added is None or added >= TAIL or not self.kinds:
            return tail_of(items)
        fresh = tail_of(items[len(items) - added :]) if added else self.without(len(self.kinds))
        if (self.ends is None) is not (fresh.ends is None):
            return tail_of(items)
        kept = self.without(max(0, len(self.kinds) + added - min(TAIL, len(items))))
        ends = None
        if kept.ends is not None and fresh.ends is not None:
            ends = kept.ends + [end + len(kept.values) for end in fresh.ends]
        return Tail(kept.kinds + fresh.kinds, kept.values + fresh.values, ends, kept.extras + fresh.extras)

    def without(self, count: int) -> Tail:
        """The tail without its first items."""
        if self.ends is None:
            return Tail(self.kinds[count:], self.values[count:])
        low = self.ends[count - 1] if count else 0
        ends = [end - low for end in self.ends[count:]]
        return Tail(self.kinds[count:], self.values[low:], ends, self.extras[count:])

    def _same(self, items: Sequence[Any], at: int, start: int, length: int) -> bool:
        part = items[at : at + length]
        if list(map(type, part)) != self.kinds[start : start + length]:
            return False
        if self.ends is None:
            return part == self.values[start : start + length]
        low = self.ends[start - 1] if start else 0
        return (
            _row(part) == self.values[low : self.ends[start + length - 1]]
            and list(map(_extra, part)) == self.extras[start : start + length]
        )


EMPTY = Tail()


def tail_of(items: Sequence[Any]) -> Tail:
    newest = items[-TAIL:]
    kinds = list(map(type, newest))
    if not kinds or not all(map(_watched, set(kinds))):
        return Tail(kinds, list(map(_copied, newest)))
    sizes = map(len, map(_attributes, newest))
    values = [value if type(value) in ATOMS else _copied(value) for value in _row(newest)]
    return Tail(kinds, values, list(accumulate(sizes)), list(map(_copied, map(_extra, newest))))


def _row(models: Sequence[Any]) -> list[Any]:
    """The values of all fields of all models."""
    return list(chain.from_iterable(map(dict.values, map(_attributes, models))))


def _watched(kind: type) -> bool:
    """Whether a model is no more than its fields."""
    return issubclass(kind, BaseModel) and not kind.__private_attributes__


def _copied(value: Any) -> Any:
    """A copy to compare with later; of what can change in ways that are not seen, something that equals nothing."""
    kind = type(value)
    if kind in ATOMS:
        return value
    if kind is dict:
        return {key: _copied(item) for key, item in value.items()}
    if kind is list:
        return [_copied(item) for item in value]
    if kind is tuple:
        return tuple(map(_copied, value))
    return object()
