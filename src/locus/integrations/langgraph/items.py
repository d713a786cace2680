"""Encodes the lists of a graph's state. Items that have not changed since the last save are not encoded again.

A message may be changed in place, so the same object is not always the same value. The newest items of a list are
compared with copies of their content, which takes a microsecond each; encoding takes ten or more. For older items the
same object is enough, unless a task has returned it since (`touched`), because LangGraph requires nodes to return what
they change.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from operator import attrgetter, is_
from typing import Any, NamedTuple
from uuid import UUID

from pydantic import BaseModel

from locus.integrations.langgraph.codec import TypedCodec
from locus.threads import EncodedList, Path, fingerprint
from locus.threads.json import encode

NEWEST = 128
"""How many of the newest items of a list are compared by content."""
MAX_PARTS = 32
"""A list in more parts than this has changed everywhere, so the rest of it is encoded without comparison."""
MAX_VERSIONS = 2
"""How many sets of objects are kept per list: those of a run, and those that another caller has loaded meanwhile."""

ATOMS = frozenset({str, int, float, bool, type(None), bytes, UUID})
"""Types whose equal values are written the same (except for the sign of zero)."""


class ListEncoder:
    """Encodes lists for one store. `sort_keys` is for databases that do not preserve the order of keys."""

    def __init__(self, codec: TypedCodec, *, sort_keys: bool) -> None:
        self._codec = codec
        self._sort_keys = sort_keys

    def encoded(
        self, given: list[Any], path: Path, known: KnownList | None, touched: Collection[int] = ()
    ) -> tuple[EncodedList, KnownList]:
        """Encode a list for a save, and what to remember of it. `touched` has the ids of objects to encode again."""
        items = given.copy()  # texts are requested later, and the caller may change the list meanwhile
        known = known or KnownList((), (), NO_ITEMS)
        compared = _Comparison(items, known, touched)
        parts = compared.parts()
        # Copied before anything is encoded, so that a change in the meantime is noticed the next time.
        newest = known.newest.grown(items, _appended(parts, len(known.digests)))
        texts = {
            index: self._text(items, index, path)
            for part in parts
            if part.start is None
            for index in range(part.at, part.at + part.length)
        }
        digests = _join_digests(parts, known.digests, {index: fingerprint(text) for index, text in texts.items()})

        def text(index: int) -> str:
            return texts[index] if index in texts else self._text(items, index, path)

        # The other versions are only valid while all known items keep their positions.
        grown = parts[:1] == [ListPart(0, len(known.digests), 0)]
        others = [version for version in known.versions if grown and version is not compared.version]
        return EncodedList(digests, text), KnownList(digests, (items, *others)[:MAX_VERSIONS], newest)

    def _text(self, items: Sequence[Any], index: int, path: Path) -> str:
        where: tuple[str | int, ...] = (*path, index)
        return encode(self._codec.encode(items[index], where), where, sort_keys=self._sort_keys)


@dataclass(frozen=True, slots=True)
class KnownList:
    """A list as it was last encoded: the digests of its items, the objects, and copies of the newest."""

    digests: tuple[bytes, ...]
    versions: tuple[Sequence[Any], ...]
    newest: NewestItems

    def loaded(self, items: Sequence[Any]) -> KnownList:
        """This list after a load, which has made equal items of new objects."""
        return KnownList(self.digests, (items, *self.versions)[:MAX_VERSIONS], self.newest)


def returned(values: Iterable[Any]) -> Iterator[Any]:
    """The objects that a task has returned: the values it writes, and the items of values that are lists."""
    for value in values:
        inner = getattr(value, "value", value)  # of an Overwrite
        yield from inner if isinstance(inner, list | tuple) else (inner,)


class ListPart(NamedTuple):
    """Items from `at` on: those of the known list from `start` on, or new ones if `start` is None."""

    at: int
    length: int
    start: int | None


def _appended(parts: Sequence[ListPart], known: int) -> int | None:
    """How many items were appended to a known list; None if it has changed in another way."""
    if not parts or parts[0].start is None or parts[0].start + parts[0].length != known:
        return None
    return sum(part.length for part in parts[1:])


def _join_digests(parts: Iterable[ListPart], known: tuple[bytes, ...], new: Mapping[int, bytes]) -> tuple[bytes, ...]:
    digests: tuple[bytes, ...] = ()
    for at, length, start in parts:
        if start is None:
            digests += tuple(new[index] for index in range(at, at + length))
        else:
            digests += known[start : start + length]
    return digests


class _Comparison:
    """Compares a list with the last known version of it."""

    def __init__(self, items: Sequence[Any], known: KnownList, touched: Collection[int]) -> None:
        self._items = items
        self._newest = known.newest
        self._count = len(known.digests)
        self._older = self._count - len(known.newest)
        self.version, self.start = self._find_start(known)
        self._touched = self._touched_before_newest(touched)

    def _find_start(self, known: KnownList) -> tuple[Sequence[Any], int]:
        """Find the first object of the list in a known version, and its index there: the front may be trimmed."""
        for version in known.versions if self._items else ():
            first = self._items[0]
            start = next((at for at, item in enumerate(version) if item is first), None)
            if start is not None:
                return version, start
        return (), self._newest.find(self._items) if not self._older else 0

    def _touched_before_newest(self, touched: Collection[int]) -> Collection[int]:
        newest = map(id, self._items[max(0, self._older - self.start) :])
        return set(touched).difference(newest) if self._older else ()

    def parts(self) -> list[ListPart]:
        """The list as parts: items of the known version, and new ones."""
        parts: list[ListPart] = []
        at, start, count = 0, self.start, len(self._items)
        while at < count:
            length = self._matching(at, start)
            if length:
                parts.append(ListPart(at, length, start))
            elif len(parts) < MAX_PARTS and start < self._count:
                length = 1
                parts.append(ListPart(at, 1, None))
            else:
                length = count - at
                parts.append(ListPart(at, length, None))
            at, start = at + length, start + length
        return parts

    def _matching(self, at: int, start: int) -> int:
        """How many items from `at` on equal those of the known list from `start` on."""
        length = 0
        if start < self._older:
            length = self._identical(at, start)
            if start + length < self._older:
                return length
        return length + self._newest.matching(self._items, at + length, start + length - self._older)

    def _identical(self, at: int, start: int) -> int:
        count = min(len(self._items) - at, min(self._older, len(self.version)) - start)
        if count <= 0:
            return 0
        items, known = self._items[at : at + count], self.version[start : start + count]
        if not self._touched and all(map(is_, items, known)):
            return count
        same = (one is other and id(one) not in self._touched for one, other in zip(items, known, strict=True))
        return next((index for index, is_same in enumerate(same) if not is_same), count)


@dataclass(frozen=True, slots=True)
class NewestItems:
    """Copies of the newest items of a list.

    If all are models, the values of all their fields are in one list, which is compared in C; `ends` is where each
    model ends.
    """

    kinds: list[type] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    ends: list[int] | None = None
    extras: list[Any] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.kinds)

    def matching(self, items: Sequence[Any], at: int, start: int) -> int:
        """How many items from `items[at]` on equal the copies from `start` on."""
        most = min(len(items) - at, len(self.kinds) - start)
        if most <= 0:
            return 0
        if self._same(items, at, start, most):
            return most
        return bisect_left(range(1, most + 1), True, key=lambda n: not self._same(items, at, start, n))

    def find(self, items: Sequence[Any]) -> int:
        """The index of the first item among the copies, for a list that was trimmed; 0 if it is not there."""
        count = len(self.kinds) if items else 0
        return next((start for start in range(count) if self._same(items, 0, start, 1)), 0)

    def grown(self, items: Sequence[Any], added: int | None) -> NewestItems:
        """The newest items after `added` items were appended to the list (None: it is not known how many)."""
        if added is None or added >= NEWEST or not self.kinds:
            return newest_items(items)
        fresh = newest_items(items[len(items) - added :]) if added else self.without(len(self.kinds))
        if (self.ends is None) is not (fresh.ends is None):
            return newest_items(items)
        kept = self.without(max(0, len(self.kinds) + added - min(NEWEST, len(items))))
        ends = None
        if kept.ends is not None and fresh.ends is not None:
            ends = kept.ends + [end + len(kept.values) for end in fresh.ends]
        return NewestItems(kept.kinds + fresh.kinds, kept.values + fresh.values, ends, kept.extras + fresh.extras)

    def without(self, count: int) -> NewestItems:
        """These copies, without the first `count`."""
        if self.ends is None:
            return NewestItems(self.kinds[count:], self.values[count:])
        low = self.ends[count - 1] if count else 0
        ends = [end - low for end in self.ends[count:]]
        return NewestItems(self.kinds[count:], self.values[low:], ends, self.extras[count:])

    def _same(self, items: Sequence[Any], at: int, start: int, length: int) -> bool:
        part = items[at : at + length]
        if list(map(type, part)) != self.kinds[start : start + length]:
            return False
        if self.ends is None:
            return part == self.values[start : start + length]
        low = self.ends[start - 1] if start else 0
        return (
            _field_values(part) == self.values[low : self.ends[start + length - 1]]
            and list(map(_extra, part)) == self.extras[start : start + length]
        )


_attributes = attrgetter("__dict__")
_extra = attrgetter("__pydantic_extra__")


NO_ITEMS = NewestItems()


def newest_items(items: Sequence[Any]) -> NewestItems:
    newest = items[-NEWEST:]
    kinds = list(map(type, newest))
    if not kinds or not all(map(_is_plain_model, set(kinds))):
        return NewestItems(kinds, list(map(_copied, newest)))
    sizes = map(len, map(_attributes, newest))
    values = [value if type(value) in ATOMS else _copied(value) for value in _field_values(newest)]
    return NewestItems(kinds, values, list(accumulate(sizes)), list(map(_copied, map(_extra, newest))))


def _field_values(models: Sequence[Any]) -> list[Any]:
    """The values of all fields of all models, in one list."""
    return list(chain.from_iterable(map(dict.values, map(_attributes, models))))


def _is_plain_model(kind: type) -> bool:
    """Whether instances of a class are models with nothing but fields."""
    return issubclass(kind, BaseModel) and not kind.__private_attributes__


def _copied(value: Any) -> Any:
    """A copy of a value to compare with later. If the value may change unnoticed, an object that equals nothing."""
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
