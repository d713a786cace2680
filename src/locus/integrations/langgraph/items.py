"""Lists of a graph's state, encoded once: what did not change since the last time is not encoded again.

A message may be changed in place, so that it is the same object does not mean that it is the same. The newest items of
a list are compared with copies of their content, which takes a microsecond each where encoding takes ten or more. For
those further back the same object will do, unless a task has returned it since (`touched`): LangGraph asks of nodes
that they return what they change.

The newest items of a list, copied, so that a change in place is seen the next time.
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
from locus.memory.model.codec import encode
from locus.memory.model.plan import EncodedList, fingerprint

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


MAX_PIECES = 32
"""A list in more pieces than this has changed all over, and the rest of it is encoded without looking closer."""
VERSIONS = 2
"""How many sets of objects a list is known by: those of a run, and those that were loaded by someone else meanwhile."""

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KnownList:
    """A list as it was when it was encoded: the digest of each item, objects that stood for them, and the newest ones'
    content."""

    digests: tuple[bytes, ...]
    versions: tuple[Sequence[Any], ...]
    tail: Tail

    def loaded(self, items: Sequence[Any]) -> KnownList:
        """The same list, loaded once more, as other objects."""
        return KnownList(self.digests, (items, *self.versions)[:VERSIONS], self.tail)


def returned(values: Iterable[Any]) -> Iterator[Any]:
    """The objects that a task gives back: those that it writes, and those in lists of such."""
    for value in values:
        inner = getattr(value, "value", value)  # of an Overwrite
        yield from inner if isinstance(inner, list | tuple) else (inner,)


class Piece(NamedTuple):
    """Items from `at` on: those of the known list from `start` on, or (None) new ones."""

    at: int
    length: int
    start: int | None


def _appended(pieces: Sequence[Piece], known: int) -> int | None:
    """How many items were added to the end of a known list that is otherwise as it was; None if that is not so."""
    if not pieces or pieces[0].start is None or pieces[0].start + pieces[0].length != known:
        return None
    return sum(piece.length for piece in pieces[1:])


def _joined(pieces: Iterable[Piece], known: tuple[bytes, ...], new: Mapping[int, bytes]) -> tuple[bytes, ...]:
    digests: tuple[bytes, ...] = ()
    for at, length, start in pieces:
        if start is None:
            digests += tuple(new[index] for index in range(at, at + length))
        else:
            digests += known[start : start + length]
    return digests


class _Comparison:
    """A list held against a known one."""

    def __init__(self, items: Sequence[Any], known: KnownList, touched: Collection[int]) -> None:
        self._items = items
        self._tail = known.tail
        self._count = len(known.digests)
        self._cut = self._count - len(known.tail)
        self.version, self.start = self._found(known)
        self._touched = self._touched_before_tail(touched)

    def _found(self, known: KnownList) -> tuple[Sequence[Any], int]:
        """The objects that the list begins with, and where: it may have been trimmed."""
        for version in known.versions if self._items else ():
            first = self._items[0]
            start = next((at for at, item in enumerate(version) if item is first), None)
            if start is not None:
                return version, start
        return (), self._tail.find(self._items) if not self._cut else 0

    def _touched_before_tail(self, touched: Collection[int]) -> Collection[int]:
        newest = map(id, self._items[max(0, self._cut - self.start) :])
        return set(touched).difference(newest) if self._cut else ()

    def pieces(self) -> list[Piece]:
        """The whole list as what is known, and what is not."""
        pieces: list[Piece] = []
        at, start, count = 0, self.start, len(self._items)
        while at < count:
            length = self._run(at, start)
            if length:
                pieces.append(Piece(at, length, start))
            elif len(pieces) < MAX_PIECES and start < self._count:
                length = 1
                pieces.append(Piece(at, 1, None))
            else:
                length = count - at
                pieces.append(Piece(at, length, None))
            at, start = at + length, start + length
        return pieces

    def _run(self, at: int, start: int) -> int:
        """How many items from `at` on are what the known list has from `start` on."""
        length = 0
        if start < self._cut:
            length = self._identical(at, start)
            if start + length < self._cut:
                return length
        return length + self._tail.run(self._items, at + length, start + length - self._cut)

    def _identical(self, at: int, start: int) -> int:
        count = min(len(self._items) - at, min(self._cut, len(self.version)) - start)
        if count <= 0:
            return 0
        items, known = self._items[at : at + count], self.version[start : start + count]
        if not self._touched and all(map(is_, items, known)):
            return count
        same = (one is other and id(one) not in self._touched for one, other in zip(items, known, strict=True))
        return next((index for index, is_same in enumerate(same) if not is_same), count)


class ListEncoder:
    """Encodes lists for one store. `sort_keys` is for databases that do not keep the order of keys."""

    def __init__(self, codec: TypedCodec, *, sort_keys: bool) -> None:
        self._codec = codec
        self._sort_keys = sort_keys

    def encoded(
        self, given: list[Any], path: Path, known: KnownList | None, touched: Collection[int] = ()
    ) -> tuple[EncodedList, KnownList]:
        """The list for a save, and what to know of it the next time. `touched` are the ids of objects."""
        items = given.copy()  # texts are asked for later, and the caller may go on with the list meanwhile
        known = known or KnownList((), (), EMPTY)
        compared = _Comparison(items, known, touched)
        pieces = compared.pieces()
        # Copied before anything is encoded: a change in the meantime is noticed the next time.
        tail = known.tail.grown(items, _appended(pieces, len(known.digests)))
        texts = {
            index: self._text(items, index, path)
            for piece in pieces
            if piece.start is None
            for index in range(piece.at, piece.at + piece.length)
        }
        digests = _joined(pieces, known.digests, {index: fingerprint(text) for index, text in texts.items()})

        def text(index: int) -> str:
            return texts[index] if index in texts else self._text(items, index, path)

        # Other objects stand for the same items only as long as all of these stay where they are.
        grown = pieces[:1] == [Piece(0, len(known.digests), 0)]
        others = [version for version in known.versions if grown and version is not compared.version]
        return EncodedList(digests, text), KnownList(digests, (items, *others)[:VERSIONS], tail)

    def _text(self, items: Sequence[Any], index: int, path: Path) -> str:
        where: tuple[str | int, ...] = (*path, index)
        return encode(self._codec.encode(items[index], where), where, sort_keys=self._sort_keys)
