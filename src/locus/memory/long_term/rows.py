"""What is held of items to rank them: their words, plain values and vectors, and not their texts.

Words are ranked by BM25. The number of items, their lengths, and how many have a word are those of all items below the
namespace of the search, whatever the filter. Every number is a double and is computed in the same order everywhere, so
the same items have the same scores on every machine, and in whatever portions they are looked at.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from heapq import heappop, heappush
from math import log
from typing import Any

from locus.memory.long_term.filters import plain_equals
from locus.memory.long_term.items import Item
from locus.memory.long_term.names import Namespace, path_of
from locus.memory.long_term.vectors import HeldVectors, Model
from locus.memory.long_term.words import terms_in
from locus.memory.model.codec import encode

K1, B = 1.2, 0.75
"""How soon more of the same word counts no more, and how much a long text has to have more of it."""
KEPT_ITEMS = 2_000
"""Rows of up to so many items keep the items themselves, too."""
_ROW_BYTES, _POSTING_BYTES, _LIST_BYTES, _ITEM_BYTES = 300, 8, 250, 1_000
_COUNT_BITS = 16
_MOST = (1 << _COUNT_BITS) - 1

Place = tuple[Namespace, str]
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
    """Items as rows. One that changes gets a new row, and its old one is dead."""

    def __init__(self, model: Model | None) -> None:
        """`model` is the model whose vectors are held, with its dimension; the dimension may not be known yet."""
        self._model = model
        self.row_of: dict[Place, int] = {}
        self.places: list[Place | None] = []
        self.revs: list[str] = []
        self.items: dict[int, Item] | None = {}
        """The items themselves, as long as there are few."""
        self.dead: list[int] = []
        self.vectors: HeldVectors | None = None
        self.foreign: set[int] = set()
        """The rows with vectors of another model."""
        self.owed: set[int] = set()
        """The rows that have something to embed, and no vector."""
        self._ends: list[tuple[datetime, int]] = []
        self._lengths = array("I")
        self._postings: dict[str, array[int]] = {}
        """The rows of each word: each with how often it has it."""
        self._having: dict[int, array[int]] = {}
        """The rows of each plain value under a key, by the hash of both: what it finds is looked at anyway."""
        self._kept_bytes = 0
        self._order: list[int] | None = None
        self._namespaces: dict[Namespace, Namespace] = {}
        self._posted = 0
        self.words = 0

    def __len__(self) -> int:
        return len(self.row_of)

    @property
    def size(self) -> int:
        """About how many bytes this holds."""
        lists = len(self._postings) + len(self._having)
        kept = self._kept_bytes if self.items is not None else 0
        return (
            _ROW_BYTES * len(self.places)
            + _POSTING_BYTES * self._posted
            + _LIST_BYTES * lists
            + kept
            + (self.vectors.size if self.vectors else 0)
        )

    @property
    def is_worn(self) -> bool:
        """Whether so many rows are dead that it is better to begin anew."""
        return len(self.places) > 2 * len(self.row_of) + 1_000

    def holds(self, item: Item) -> bool:
        """Whether this very version is held."""
        row = self.row_of.get((item.namespace, item.key))
        return row is not None and self.revs[row] == item.rev

    def add(self, item: Item) -> None:
        """Hold this version of an item, and no other."""
        self.drop((item.namespace, item.key))
        namespace = self._namespaces.setdefault(item.namespace, item.namespace)
        row, place = len(self.places), (namespace, item.key)
        counts = Counter(terms_in(item))
        length = counts.total()
        self.row_of[place] = row
        self.places.append(place)
        self.revs.append(item.rev)
        self._lengths.append(length)
        for term, count in counts.items():
            self._postings.setdefault(term, array("Q")).append(row << _COUNT_BITS | min(count, _MOST))
        equals = plain_equals(item.value) if isinstance(item.value, dict) else {}
        for pair in map(_hash, equals.items()):
            self._having.setdefault(pair, array("I")).append(row)
        self._posted += len(counts) + len(equals)
        self.words += length
        self._order = None
        self._add_vectors(row, item, bool(length))
        if item.expires_at is not None:
            heappush(self._ends, (item.expires_at, row))
        if self.items is not None:
            self.items[row] = item
            self._kept_bytes += 2 * len(encode(item.value)) + _ITEM_BYTES
            if len(self.items) > KEPT_ITEMS:
                self.items = None

    def drop(self, place: Place) -> None:
        """Hold an item no longer."""
        row = self.row_of.pop(place, None)
        if row is None:
            return
        self.places[row] = None
        self.dead.append(row)
        self.foreign.discard(row)
        self.owed.discard(row)
        self.words -= self._lengths[row]
        self._order = None
        if self.items is not None:
            self.items.pop(row, None)

    def drop_ended(self, now: datetime) -> None:
        """Hold those no longer that have ended."""
        while self._ends and self._ends[0][0] <= now:
            place = self.places[heappop(self._ends)[1]]
            if place is not None:
                self.drop(place)

    def _add_vectors(self, row: int, item: Item, has_words: bool) -> None:
        if self._model is None:
            return
        vectors = item.vectors
        if vectors is None:
            if has_words:
                self.owed.add(row)
        elif not self._model.made(vectors):
            self.foreign.add(row)
        else:
            self.vectors = self.vectors or HeldVectors(vectors.dimension)
            self.vectors.add(row, vectors)

    def in_order(self) -> list[int]:
        """The rows, by path and key."""
        if self._order is None:
            paths = {namespace: path_of(namespace) for namespace, _ in self.row_of}
            places = sorted(self.row_of, key=lambda place: (paths[place[0]], place[1]))
            self._order = [self.row_of[place] for place in places]
        return self._order

    def with_words(self, terms: Sequence[str]) -> dict[int, Counts]:
        """The rows that have some of these words, with how many of each."""
        found: dict[int, list[int]] = {}
        for number, term in enumerate(terms):
            for posting in self._postings.get(term, ()):
                row = posting >> _COUNT_BITS
                if self.places[row] is not None:
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
        rows = len(self.places)
        alive = numpy.ones(rows, bool)
        alive[self.dead] = False
        average = self.words / len(self) if self.words else 1.0
        norms = K1 * (1 - B + B * numpy.array(self._lengths, numpy.float64) / average)
        scores = numpy.zeros(rows)
        for term in terms:
            postings = numpy.array(self._postings.get(term, ()), numpy.int64)
            postings = postings[alive[postings >> _COUNT_BITS]]
            found, counts = postings >> _COUNT_BITS, (postings & _MOST).astype(numpy.float64)
            scores[found] += _weight(len(self), len(found)) * counts * (K1 + 1) / (counts + norms[found])
        best = scores.max(initial=0.0)
        return scores / best if best else scores

    def admitted(self, wanted: Mapping[str, Any]) -> set[int] | None:
        """Rows among which are all that pass a filter; None if nothing is known of it."""
        pairs = list(map(_hash, plain_equals(wanted).items()))
        if not pairs:
            return None
        lists: Iterable[Sequence[int]] = sorted((self._having.get(pair, ()) for pair in pairs), key=len)
        first, *rest = lists
        return set(first).intersection(*rest)


def _weight(items: int, having: int) -> float:
    """How much a word counts that so many of the items have."""
    return log(1 + (items - having + 0.5) / (having + 0.5))


def _hash(pair: tuple[str, Any]) -> int:
    """The hash of a key and a value: the same for what a filter takes for the same. `True` is no number there."""
    key, value = pair
    return hash((key, isinstance(value, bool), value))
