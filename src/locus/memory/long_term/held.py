"""`RanksHeld`: the ranking of every store. It holds what ranks items, for the namespaces that are searched.

Before each search it finds out what has changed since the last one: where the store tells, by asking that; elsewhere
by reading the items again. What it then returns is read from the store, unless that has told that nothing has changed,
and has the rev of what was ranked. Namespaces that need more memory than `index_mb` are read in portions, twice for
each search, and nothing of them is held. Whatever the way, the answer is the same.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from itertools import islice
from operator import attrgetter
from typing import Any

from locus.errors import ConfigurationError, CorruptCheckpointError, EmbeddingMismatchError
from locus.extras import require
from locus.memory.long_term.embedding import Embedder
from locus.memory.long_term.items import Found, Item
from locus.memory.long_term.names import Namespace, joined_name, place_of
from locus.memory.long_term.ranking import PAGE, ItemSource, Question, found_of, in_order
from locus.memory.long_term.rows import KEPT_ITEMS, MOST_ROWS, Rows, Statistics
from locus.memory.long_term.vectors import EXTRA, Model, checked_vector
from locus.memory.long_term.words import question_terms
from locus.memory.runtime.forks import fork_safe_lock

MB = 1_000_000
_ATTEMPTS = 8
_AT_ONCE = 16
LARGE_PAGE = 2_000
"""The number of items that are read at once to be held."""
_CHANGED = 1_000
"""The most changed items that are taken into held rows. With more of them, the rows are made anew."""


class _HasChanged(Exception):
    """What was ranked is not there any more."""


@dataclass
class _Asked:
    """A question, as it is computed."""

    question: Question
    terms: Sequence[str]
    vector: Sequence[float] | None

    def words_of(self, statistics: Statistics, scores: Mapping[int, float]) -> dict[int, float]:
        """The part of each score that comes from words: as a fraction of the best."""
        return {row: score / statistics.best for row, score in scores.items()} if statistics.best else {}

    def found(self, item: Item, words: float | None) -> Found | None:
        """An item with its score; None if it is not similar enough."""
        similarity = None
        if self.vector is not None and item.vectors is not None:
            similarity = item.vectors.similarity(self.vector)
        least = self.question.min_similarity
        if least is not None and (similarity is None or similarity < least):
            return None
        known = [part for part in (words, similarity) if part is not None]
        return found_of(item, sum(known) if known else None, similarity)


@dataclass
class _Scope:
    """What is held of a namespace."""

    rows: Rows | None = None
    state: Any = None
    """What the store has said of its state before these rows were read; None if it says nothing."""
    generation: int = 0
    is_large: bool = False
    """Whether to hold this would take too much memory."""
    lock: Any = field(default_factory=fork_safe_lock)


class RanksHeld:
    """Ranks by words (BM25), by vectors (the cosine), or by the sum of both, the former divided by its maximum."""

    def __init__(self, embedder: Embedder | None = None, *, index_mb: float = 256) -> None:
        if isinstance(index_mb, bool) or not isinstance(index_mb, int | float) or not 0 <= index_mb < float("inf"):
            raise ConfigurationError(f"index_mb is a number of megabytes, 0 or more, got {index_mb!r:.40}")
        self.embedder = embedder
        self._budget = index_mb * MB
        self._source: ItemSource | None = None
        self._scopes: OrderedDict[tuple[Namespace, bool], _Scope] = OrderedDict()
        """By namespace, and whether vectors are held: a search by words alone needs none."""
        self._lock = fork_safe_lock()

    async def best(self, source: ItemSource, question: Question, most: int) -> list[Found]:
        if question.by == "newest":
            return await _newest(source, question, most)
        asked = await self._asked(question)
        if not asked.terms and asked.vector is None:
            return await _listed(source, question, most)
        scope = self._scope(source, question.prefix, asked.vector is not None)
        for _ in range(_ATTEMPTS):
            rows = await self._refresh(scope, source, asked)
            if rows is None:
                break
            try:
                return await self._of_held(scope, rows, source, asked, most)
            except _HasChanged:
                scope.state = None
        return await self._in_portions(scope, source, asked, most)

    async def _asked(self, question: Question) -> _Asked:
        by_words = question.by != "vector"
        by_vector = question.by != "words" or question.vector is not None or question.min_similarity is not None
        vector = None
        if self.embedder is None:
            if question.by == "vector" or question.vector is not None or question.min_similarity is not None:
                raise ConfigurationError("this memory has no vectors: say embed=…, or search by words alone")
        elif question.vector is not None:
            vector = checked_vector(question.vector, self.embedder.model.dimension)
        elif by_vector and question.text.strip():
            vector = (await self.embedder.embed([question.text]))[0]
        terms = question_terms(question.text) if by_words else []
        return _Asked(question, terms, vector)

    def _scope(self, source: ItemSource, prefix: Namespace, with_vectors: bool) -> _Scope:
        place = prefix, with_vectors
        with self._lock:
            if source is not self._source:
                self._scopes.clear()
                self._source = source
            scope = self._scopes.setdefault(place, _Scope())
            self._scopes.move_to_end(place)
            size = 0
            for other in list(reversed(self._scopes)):
                rows = self._scopes[other].rows
                size += 1_000 + (rows.size if rows is not None else 0)
                if size > self._budget and other != place:
                    del self._scopes[other]
            return scope

    async def _refresh(self, scope: _Scope, source: ItemSource, asked: _Asked) -> Rows | None:
        """What is held, as things are now. None if that takes too much memory."""
        prefix = asked.question.prefix
        while not scope.is_large:
            generation, rows, state = scope.generation, scope.rows, await source.state()
            changes: _Changes | None = _Changes()
            if rows is None or rows.is_worn:
                rows = await self._read(source, asked)
            else:
                if state is None or state != scope.state:
                    changes = await _changes(source, prefix, rows, scope.state)
                changes = changes and await _ended(source, rows, changes)
            with scope.lock:
                if scope.generation != generation:
                    continue  # another search was faster
                scope.generation += 1
                if changes is None:
                    scope.rows = None
                    continue
                if rows is not None:
                    changes.apply_to(rows)
                if rows is None or rows.size > self._budget:
                    scope.rows, scope.is_large = None, True
                    break
                scope.rows, scope.state = rows, state
                return rows
        return None

    async def _read(self, source: ItemSource, asked: _Asked) -> Rows | None:
        rows = Rows(self._model if asked.vector is not None else None)
        async with aclosing(source.pages(asked.question.prefix, LARGE_PAGE)) as pages:
            async for page in pages:
                for item in page:
                    rows.add(item)
                if rows.size > self._budget or rows.total + LARGE_PAGE > MOST_ROWS:
                    return None
        return rows

    @property
    def _model(self) -> Model | None:
        return None if self.embedder is None else self.embedder.model

    async def _of_held(self, scope: _Scope, rows: Rows, source: ItemSource, asked: _Asked, most: int) -> list[Found]:
        with scope.lock:
            _refuse_foreign(asked, len(rows.foreign))
            numpy = _numpy_for(rows)
            ranking = _RankingByWords(rows, asked, most) if numpy is None else _RankingByAll(rows, asked, most, numpy)

        async def read(wanted: Sequence[int]) -> list[Item]:
            held = rows.items
            if held is not None and all(row in held for row in wanted):
                return [held[row] for row in wanted]
            items = list[Item]()
            for row, item in zip(wanted, await source.currents([*map(rows.place, wanted)]), strict=True):
                if item is None or not rows.is_version(row, item.rev):
                    raise _HasChanged
                items.append(item)
            return items

        return await ranking.best(read)

    async def _in_portions(self, scope: _Scope, source: ItemSource, asked: _Asked, most: int) -> list[Found]:
        """The answer without anything held: one reading for the statistics, and another one for the best."""
        statistics, foreign, size = Statistics(asked.terms), 0, 0
        async with aclosing(source.pages(asked.question.prefix)) as pages:
            async for page in pages:
                rows = _portion(page)
                rows.add_to(statistics, rows.with_words(asked.terms))
                size += rows.size
                made = (self._model is None or item.vectors is None or self._model.made(item.vectors) for item in page)
                foreign += len(page) - sum(made)
        _refuse_foreign(asked, foreign)
        statistics.finished()
        scope.is_large = size > self._budget / 2
        best: list[Found] = []
        async with aclosing(source.pages(asked.question.prefix)) as pages:
            async for page in pages:
                rows = _portion(page)
                scores = rows.scores(statistics, rows.with_words(asked.terms))
                words = asked.words_of(statistics, scores)
                admitted = ((row, item) for row, item in enumerate(page) if asked.question.admits(item))
                found = (asked.found(item, words.get(row)) for row, item in admitted)
                best = heapq.nsmallest(most, [*best, *filter(None, found)], key=in_order)
        return best


class _Ranking(ABC):
    """The rows of a namespace by the scores they may have at most, and then by those they have."""

    is_exact = True
    """Whether the rows come in the order of the scores they have."""

    def __init__(self, rows: Rows, asked: _Asked, most: int) -> None:
        self._rows = rows
        self._asked = asked
        self._most = most

    @abstractmethod
    def _words(self, row: int) -> float | None:
        """The part of a row's score that comes from words."""

    @abstractmethod
    def _batches(self) -> Iterator[list[tuple[float, int]]]:
        """Rows with the most that their scores may be, from the best on; of equal ones, by path and key."""

    @abstractmethod
    def _admits(self, row: int) -> bool:
        """Whether a row may pass the filter."""

    async def best(self, read: Callable[[Sequence[int]], Awaitable[list[Item]]]) -> list[Found]:
        """The best of the rows that pass the filter. `read` is how to get the items of rows."""
        best: list[Found] = []
        ranked = set[int]()
        for limits in self._batches():
            if len(best) == self._most and (self.is_exact or limits[0][0] < (best[-1].score or 0.0)):
                break
            items = await read([row for _, row in limits])
            for (_, row), item in zip(limits, items, strict=True):
                ranked.add(row)
                if self._asked.question.admits(item):
                    found = self._asked.found(item, self._words(row))
                    best += [found] if found is not None else []
            best = heapq.nsmallest(self._most, best, key=in_order)
        else:
            await self._add_rest(best, ranked, read)
        return best

    async def _add_rest(
        self, best: list[Found], ranked: set[int], read: Callable[[Sequence[int]], Awaitable[list[Item]]]
    ) -> None:
        """Add items that nothing is known of, as long as there are too few."""
        if self._asked.question.min_similarity is not None:
            return
        rest = (row for row in self._rows.in_order() if row not in ranked and self._admits(row))
        while len(best) < self._most and (some := list(islice(rest, min(self._most, PAGE)))):
            best += [found_of(item) for item in await read(some) if self._asked.question.admits(item)]
        del best[self._most :]


class _RankingByWords(_Ranking):
    """Ranks a few rows, or all if numpy is not there."""

    def __init__(self, rows: Rows, asked: _Asked, most: int) -> None:
        super().__init__(rows, asked, most)
        statistics, having = Statistics(asked.terms), rows.with_words(asked.terms)
        rows.add_to(statistics, having)
        self._scores = asked.words_of(statistics.finished(), rows.scores(statistics, having))
        self._admitted = rows.admitted(asked.question.wanted)

    def _words(self, row: int) -> float | None:
        return self._scores.get(row)

    def _admits(self, row: int) -> bool:
        return self._admitted is None or row in self._admitted

    def _batches(self) -> Iterator[list[tuple[float, int]]]:
        words = [(-score, self._rows.name(row), row) for row, score in self._scores.items() if self._admits(row)]
        if self._asked.question.min_similarity is not None:
            words = []
        taken, size = 0, self._most
        while taken < len(words):
            first = heapq.nsmallest(taken + size, words)
            for start in range(taken, len(first), _AT_ONCE):
                yield [(-score, row) for score, _, row in first[start : start + _AT_ONCE]]
            taken, size = len(first), 4 * size


class _RankingByAll(_Ranking):
    """Ranks many rows, by words, vectors or both, in arrays."""

    def __init__(self, rows: Rows, asked: _Asked, most: int, numpy: Any) -> None:
        super().__init__(rows, asked, most)
        self._numpy = np = numpy
        self._scores = rows.all_scores(asked.terms, np)
        self._mask = rows.mask(asked.question.wanted, np)
        self._limits, self._far = np.where(self._scores > 0, self._scores, -np.inf), np.zeros(rows.total)
        least = asked.question.min_similarity
        if asked.vector is not None and rows.vectors is not None:
            self.is_exact = False
            near, self._far = rows.vectors.bounds(asked.vector, rows.total)
            most_similar = near + self._far
            known = np.isfinite(near)
            np.add(most_similar, self._scores, out=self._limits, where=known)
            possible = known & (most_similar >= least) if least is not None else None
        else:
            possible = np.zeros(rows.total, bool) if least is not None else None
        self._possible = np.isfinite(self._limits) if possible is None else possible

    def _words(self, row: int) -> float | None:
        return float(self._scores[row]) or None

    def _admits(self, row: int) -> bool:
        return bool(self._mask[row])

    def _batches(self) -> Iterator[list[tuple[float, int]]]:
        np, limits, ranks = self._numpy, self._limits, self._rows.ranks(self._numpy)
        rest, size = np.flatnonzero(self._possible & self._mask), self._most
        while len(rest):
            some, left = rest, rest[:0]
            if size < len(rest):
                values = limits[rest]
                least = np.partition(values, len(rest) - size)[len(rest) - size]
                # As many as wanted have at least the least of their lower bounds. Whatever may have that comes next.
                least = (values - 2 * self._far[rest])[values >= least].min()
                some, left = rest[values >= least], rest[values < least]
            some = some[np.lexsort((ranks[some], -limits[some]))]
            for start in range(0, len(some), _AT_ONCE):
                batch = some[start : start + _AT_ONCE]
                yield list(zip(limits[batch].tolist(), batch.tolist(), strict=True))
            rest, size = left, 4 * size


def _numpy_for(rows: Rows) -> Any:
    """numpy, if rows have vectors, or if they are many and it is there; otherwise None."""
    if rows.vectors is not None:
        return require("numpy", EXTRA)
    if rows.total <= KEPT_ITEMS:
        return None
    try:
        return import_module("numpy")
    except ImportError:
        return None


@dataclass
class _Changes:
    """What has changed since rows were read."""

    changed: list[Item] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    def apply_to(self, rows: Rows) -> None:
        for row in self.gone:
            rows.drop(row)
        for item in self.changed:
            rows.add(item)
        rows.drop_ended(self.now)


async def _changes(source: ItemSource, prefix: Namespace, rows: Rows, since: Hashable) -> _Changes | None:
    """What differs in the store. None if that is so much that it is better to begin anew."""
    names = None if since is None else await source.changed(prefix, since)
    gone = list[int]()
    if names is None:
        revs = await source.revs(prefix)
        if revs is None:
            return await _changes_read(source, prefix, rows)
        held, names = bytearray(rows.total), []
        for name, rev in revs.items():
            row = rows.row_named(name)
            if row is not None and rows.is_version(row, rev):
                held[row] = 1
            else:
                names.append(name)
        gone = [row for row, is_there in enumerate(held) if not is_there]
    if len(names) > _CHANGED:
        return None
    places = list(map(place_of, names))
    if None in places:
        return await _changes_read(source, prefix, rows)
    try:
        items = await source.currents([place for place in places if place is not None])
    except CorruptCheckpointError:  # whoever reads pages leaves it out, and says so
        return await _changes_read(source, prefix, rows)
    for name, item in zip(names, items, strict=True):
        if item is None and (row := rows.row_named(name)) is not None:
            gone.append(row)
    return _Changes([item for item in items if item is not None], gone)


async def _ended(source: ItemSource, rows: Rows, changes: _Changes) -> _Changes | None:
    """Add those items to the changes whose end has come, and that somebody has let live longer."""
    ended = rows.ended(changes.now)
    if len(ended) > _CHANGED:
        return None
    if ended:
        items = await source.currents(list(map(rows.place, ended)))
        changes.changed += (item for item in items if item is not None)
    return changes


async def _changes_read(source: ItemSource, prefix: Namespace, rows: Rows) -> _Changes | None:
    """What differs in the store, which has to read all items for that."""
    changed, seen = list[Item](), bytearray(rows.total)
    async with aclosing(source.pages(prefix, LARGE_PAGE)) as pages:
        async for page in pages:
            for item in page:
                row = rows.row_named(joined_name(item.namespace, item.key))
                if row is None or not rows.is_version(row, item.rev):
                    changed.append(item)
                else:
                    seen[row] = 1
            if len(changed) > _CHANGED:
                return None
    return _Changes(changed, [row for row, was_seen in enumerate(seen) if not was_seen])


def _portion(page: Sequence[Item]) -> Rows:
    """The words of a page of items."""
    rows = Rows(None)
    for item in page:
        rows.add(item)
    return rows


def _refuse_foreign(asked: _Asked, count: int) -> None:
    if asked.vector is not None and count:
        raise EmbeddingMismatchError(
            f"the vectors of {count:,} item{'s are' if count > 1 else ' is'} of another model than this memory's: "
            "`reindex()` embeds them anew, and until then you can search with by='words'",
            count=count,
        )


async def _listed(source: ItemSource, question: Question, most: int) -> list[Found]:
    """The first items that pass the filter, by path and key."""
    best: list[Found] = []
    if question.min_similarity is not None:
        return best
    size = PAGE if question.wanted else max(1, min(most, PAGE))
    async with aclosing(source.pages(question.prefix, size)) as pages:
        async for page in pages:
            best += [found_of(item) for item in page if question.admits(item)]
            if len(best) >= most:
                break
    return best[:most]


async def _newest(source: ItemSource, question: Question, most: int) -> list[Found]:
    """The items that pass the filter and were put last."""
    best: list[Item] = []
    async with aclosing(source.pages(question.prefix)) as pages:
        async for page in pages:
            admitted = [item for item in page if question.admits(item)]
            best = heapq.nlargest(most, [*best, *admitted], key=attrgetter("updated_at"))
    return list(map(found_of, best))
