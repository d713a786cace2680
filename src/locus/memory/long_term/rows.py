"""What is held of items to rank them: their words, plain values and vectors, and not their texts.

Words are ranked by BM25. The number of items, their lengths, and how many have a word are those of all items below the
namespace of the search, whatever the filter. Every number is a double and is computed in the same order everywhere, so
the same items have the same scores on every machine, and in whatever portions they are looked at.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from heapq import heappop, heappush, merge
from math import log
from typing import Any

from locus.memory.long_term.filters import plain_equals
from locus.memory.long_term.items import Item
from locus.memory.long_term.names import Namespace, joined_name, place_of
from locus.memory.long_term.vectors import HeldVectors, Model
from locus.memory.long_term.words import terms_in
from locus.memory.model.codec import encode

K1, B = 1.2, 0.75
"""How soon more of the same word counts no more, and how much a long text has to have more of it."""
KEPT_ITEMS = 2_000
"""Rows of up to so many items keep the items themselves, too."""
LONGEST_EQUAL = 64
"""Texts up to this length are held for filters that want just them."""
_ROW_BYTES, _POSTING_BYTES, _PAIR_BYTES, _LIST_BYTES, _ITEM_BYTES = 20, 5, 12, 220, 1_000
_COUNT_BITS = 8
_MOST = (1 << _COUNT_BITS) - 1
MOST_ROWS = 1 << (32 - _COUNT_BITS)

Counts = tuple[int, ...]


@dataclass
class Statistics:
    """What BM25 needs to know of all items: gathered over rows, or over the rows of one portion after another."""

    terms: Sequence[str]
    items: int = 0
    words: int = 0
    having: list[int] = field(default_factory=list)
    shortest: dict[Counts, int] = field(default_factory=dict)
    """How long the shortest item is that has just so many of each word. The best score is that of one of them."""

    def __post_init__(self) -> None:
        self.having = self.having or [0] * len(self.terms)

    def finished(self) -> Statistics:
        """These statistics, with what follows from them."""
        self._average = self.words / self.items if self.words else 1.0
        self._weights = [_weight(self.items, having) for having in self.having]
        self.best = max((self.score(counts, length) for counts, length in self.shortest.items()), default=0.0)
        return self

    def score(self, counts: Counts, length: int) -> float:
        """The score of an item that has so many of each word, and so many words in all."""
        norm = K1 * (1 - B + B * length / self._average)
        score = 0.0
        for weight, count in zip(self._weights, counts, strict=True):
            if count:
                score += weight * count * (K1 + 1) / (count + norm)
        return score


class Rows:
    """Items as rows. One that changes gets a new row, and its old one is dead.

    Everything is in arrays, since an object for each item would be larger than all that is held of it.
    """

    def __init__(self, model: Model | None) -> None:
        """`model` is the model whose vectors are held, with its dimension; the dimension may not be known yet."""
        self._model = model
        self.items: dict[int, Item] | None = {}
        """The items themselves, as long as there are few."""
        self.vectors: HeldVectors | None = None
        self.foreign: set[int] = set()
        """The rows with vectors of another model."""
        self.words = 0
        self._names, self._starts = bytearray(), array("Q", [0])
        """The whole names of the items, one behind the other, and where each begins."""
        self._revs = array("q")
        self._lengths = array("I")
        self._alive = bytearray()
        self._count = 0
        self._sorted = 0
        """So many rows at the beginning are in the order of their names."""
        self._later: dict[bytes, int] = {}
        """All rows behind them, by their names. Of two of one name, only the last one is there."""
        self._ends: list[tuple[datetime, int]] = []
        self._postings: dict[str, array[int]] = {}
        """The rows of each word: each with how often it has it."""
        self._pairs, self._pair_rows = array("q"), array("I")
        """Hashes of a key and the plain value under it, and their rows. What they find is looked at anyway."""
        self._kept_bytes = 0
        self._posted = 0
        self._ranks: Any = None

    def __len__(self) -> int:
        return self._count

    @property
    def total(self) -> int:
        """How many rows there are, with the dead ones."""
        return len(self._alive)

    @property
    def size(self) -> int:
        """About how many bytes this holds."""
        kept = self._kept_bytes if self.items is not None else 0
        return (
            len(self._names)
            + _ROW_BYTES * self.total
            + _POSTING_BYTES * self._posted
            + _PAIR_BYTES * len(self._pairs)
            + _LIST_BYTES * (len(self._postings) + len(self._later))
            + kept
            + (self.vectors.size if self.vectors else 0)
        )

    @property
    def is_worn(self) -> bool:
        """Whether so many rows are dead that it is better to begin anew."""
        return self.total > 2 * self._count + 1_000

    def name(self, row: int) -> bytes:
        return bytes(self._names[self._starts[row] : self._starts[row + 1]])

    def place(self, row: int) -> tuple[Namespace, str]:
        """The namespace and key of a row."""
        place = place_of(self.name(row).decode())
        assert place is not None, "whole names are never cut"
        return place

    def row_named(self, name: str) -> int | None:
        """The row of the item with this whole name."""
        return self._row_of(name.encode())

    def is_version(self, row: int, rev: str) -> bool:
        """Whether a row is of this very version."""
        return bool(self._alive[row]) and self._revs[row] == hash(rev)

    def _row_of(self, name: bytes) -> int | None:
        row = self._later.get(name)
        if row is None:
            row = bisect_left(range(self._sorted), name, key=self.name)
            if row == self._sorted or self.name(row) != name:
                return None
        return row if self._alive[row] else None

    def add(self, item: Item) -> None:
        """Hold this version of an item in place of any other version of it."""
        name, row = joined_name(item.namespace, item.key).encode(), self.total
        if self._later or (row and name <= self.name(row - 1)):
            if (older := self._row_of(name)) is not None:
                self.drop(older)
            self._later[name] = row
        else:
            self._sorted = row + 1
        self._names += name
        self._starts.append(len(self._names))
        self._revs.append(hash(item.rev))
        self._alive.append(1)
        self._count += 1
        self._ranks = None
        counts = Counter(terms_in(item))
        length = counts.total()
        self._lengths.append(length)
        for term, count in counts.items():
            posting = row << _COUNT_BITS | (count if count < _MOST else _MOST)
            try:
                self._postings[term].append(posting)
            except KeyError:
                self._postings[term] = array("I", [posting])
        self._posted += len(counts)
        self.words += length
        if isinstance(item.value, dict):
            for pair in _pairs_of(item.value):
                self._pairs.append(pair)
                self._pair_rows.append(row)
        self._add_vectors(row, item)
        if item.expires_at is not None:
            heappush(self._ends, (item.expires_at, row))
        if self.items is not None:
            self.items[row] = item
            self._kept_bytes += 2 * len(encode(item.value)) + _ITEM_BYTES
            if len(self.items) > KEPT_ITEMS:
                self.items = None

    def drop(self, row: int) -> None:
        """Hold the item of a row no longer."""
        if not self._alive[row]:
            return
        self._alive[row] = 0
        self._count -= 1
        self.foreign.discard(row)
        self.words -= self._lengths[row]
        if self.items is not None:
            self.items.pop(row, None)

    def ended(self, now: datetime) -> list[int]:
        """The rows whose items have ended, unless they were let live longer since they were read."""
        if not self._ends or self._ends[0][0] > now:
            return []
        return [row for end, row in self._ends if end <= now and self._alive[row]]

    def drop_ended(self, now: datetime) -> None:
        """Hold those no longer that have ended."""
        while self._ends and self._ends[0][0] <= now:
            self.drop(heappop(self._ends)[1])

    def _add_vectors(self, row: int, item: Item) -> None:
        vectors = item.vectors
        if self._model is None or vectors is None:
            return
        if not self._model.made(vectors):
            self.foreign.add(row)
        else:
            self.vectors = self.vectors or HeldVectors(vectors.dimension)
            self.vectors.add(row, vectors)

    def in_order(self) -> Iterator[int]:
        """The rows, by path and key."""
        later = sorted(self._later.items())
        rows = (
            (row for _, row in merge(((self.name(row), row) for row in range(self._sorted)), later)) if later else None
        )
        return (row for row in rows or range(self._sorted) if self._alive[row])

    def alive(self, numpy: Any) -> Any:
        """Whether each row is alive."""
        return numpy.frombuffer(bytes(self._alive), bool)

    def ranks(self, numpy: Any) -> Any:
        """A number for each row, which is higher the later its name comes."""
        if self._ranks is None:
            self._ranks = numpy.arange(self.total, dtype=numpy.float64)
            later = sorted(self._later.items())
            for number, (name, row) in enumerate(later, 1):
                place = bisect_left(range(self._sorted), name, key=self.name)
                self._ranks[row] = place - 1 + number / (len(later) + 1)
        return self._ranks

    def with_words(self, terms: Sequence[str]) -> dict[int, Counts]:
        """The rows that have some of these words, with how many of each."""
        found: dict[int, list[int]] = {}
        for number, term in enumerate(terms):
            for posting in self._postings.get(term, ()):
                row = posting >> _COUNT_BITS
                if self._alive[row]:
                    found.setdefault(row, [0] * len(terms))[number] = posting & _MOST
        return {row: tuple(counts) for row, counts in found.items()}

    def add_to(self, statistics: Statistics, having: Mapping[int, Counts]) -> None:
        """Add these rows to statistics; `having` is what `with_words` says."""
        statistics.items += len(self)
        statistics.words += self.words
        for row, counts in having.items():
            length = self._lengths[row]
            statistics.shortest[counts] = min(statistics.shortest.get(counts, length), length)
            for number, count in enumerate(counts):
                statistics.having[number] += bool(count)

    def scores(self, statistics: Statistics, having: Mapping[int, Counts]) -> dict[int, float]:
        return {row: statistics.score(counts, self._lengths[row]) for row, counts in having.items()}

    def all_scores(self, terms: Sequence[str], numpy: Any) -> Any:
        """The score of each row by words, divided by the best, and 0 for those without any.

        The operations are those of `Statistics`, in the same order, so the numbers are the same.
        """
        scores, alive = numpy.zeros(self.total), self.alive(numpy)
        lengths = numpy.frombuffer(self._lengths, numpy.uint32)
        average = self.words / len(self) if self.words else 1.0
        for term in terms:
            postings = numpy.array(self._postings.get(term, ()), numpy.uint32)
            found = postings >> _COUNT_BITS
            is_alive = alive[found]
            found, counts = found[is_alive], (postings[is_alive] & _MOST).astype(numpy.float64)
            norms = K1 * (1 - B + B * lengths[found] / average)
            scores[found] += _weight(len(self), len(found)) * counts * (K1 + 1) / (counts + norms)
        best = scores.max(initial=0.0)
        return scores / best if best else scores

    def admitted(self, wanted: Mapping[str, Any]) -> set[int] | None:
        """Rows among which are all that pass a filter; None if nothing is known of it."""
        pairs = _pairs_of(wanted)
        having = (
            {row for row, other in zip(self._pair_rows, self._pairs, strict=True) if other == pair} for pair in pairs
        )
        return set[int].intersection(*having) if pairs else None

    def mask(self, wanted: Mapping[str, Any], numpy: Any) -> Any:
        """Whether each row is alive, and may pass a filter."""
        mask = self.alive(numpy)
        pairs, rows = (
            numpy.frombuffer(some, kind) if some else numpy.empty(0, kind)
            for some, kind in ((self._pairs, numpy.int64), (self._pair_rows, numpy.uint32))
        )
        for pair in _pairs_of(wanted):
            having = numpy.zeros(self.total, bool)
            having[rows[pairs == pair]] = True
            mask = mask & having
        return mask


def _weight(items: int, having: int) -> float:
    """How much a word counts that so many of the items have."""
    return log(1 + (items - having + 0.5) / (having + 0.5))


def _hash(pair: tuple[str, Any]) -> int:
    """The hash of a key and a value: the same for what a filter takes for the same. `True` is no number there."""
    key, value = pair
    return hash((key, isinstance(value, bool), value))


def _pairs_of(value: Mapping[str, Any]) -> list[int]:
    """The hashes of the plain values under the keys of a value, or of a filter, that can be compared by them."""
    plain = plain_equals(value).items()
    return [_hash(pair) for pair in plain if not isinstance(pair[1], str) or len(pair[1]) <= LONGEST_EQUAL]
