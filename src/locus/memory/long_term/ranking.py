"""How a search ranks items: the seam between items, which are read here, and whatever finds the best of them.

`Ranks` is that seam. It gets the question and a way to read all live items below a namespace, and returns the best of
those that pass the filter, in the order that `in_order` says. So it may read everything, as `RanksByWords` does, or
hold an index between searches and fetch only what it names.
"""

from __future__ import annotations

import heapq
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from locus.errors import ConfigurationError
from locus.memory.long_term.filters import passes, value_at
from locus.memory.long_term.items import Found, Item
from locus.memory.long_term.names import Namespace, path_of
from locus.memory.model.codec import texts_in
from locus.memory.model.ids import words

PAGE = 500
"""The number of items that are read at once."""

WHOLE = "$"
"""The path of a whole value."""

By = Literal["hybrid", "words", "vector"]


@dataclass(frozen=True)
class Question:
    """What a search asks for. All of it was checked."""

    prefix: Namespace
    text: str = ""
    vector: Sequence[float] | None = None
    wanted: Mapping[str, Any] = field(default_factory=dict)
    by: By = "hybrid"
    min_similarity: float | None = None

    def admits(self, item: Item) -> bool:
        """Whether an item passes the filter."""
        return not self.wanted or passes(item.value, self.wanted)


class ItemSource(Protocol):
    """The items that a search may find: those of one store that have neither ended nor been deleted."""

    def pages(self, prefix: Namespace, size: int = PAGE) -> AsyncGenerator[list[Item]]:
        """All items below a namespace, by path and key, in pages. Damaged ones are left out, with a warning."""

    async def current(self, namespace: Namespace, key: str) -> Item | None:
        """The newest version of an item. Whoever holds items compares its `rev` with that of the held one."""


class Ranks(Protocol):
    """Finds the items that fit a question best."""

    async def best(self, source: ItemSource, question: Question, most: int) -> list[Found]:
        """The first `most` items, in the order of `in_order`, of all that are below the prefix and pass the filter.

        Items that nothing is known of, because they have no score, come last; with `min_similarity` they are left out.
        Raises whatever the store raises: an outage is never an empty list.
        """


def in_order(found: Found) -> tuple[float, str, str]:
    """The key by which the items of a search are sorted: by score, then by path, then by key."""
    return -(found.score or 0.0), path_of(found.namespace), found.key


class RanksByWords:
    """Ranks items by the fraction of the question's words that occur in them. It reads all items for that."""

    async def best(self, source: ItemSource, question: Question, most: int) -> list[Found]:
        if question.by == "vector" or question.vector is not None or question.min_similarity is not None:
            raise ConfigurationError("this memory has no vectors: search by words, with a query alone")
        terms = frozenset(words(question.text))
        best: list[Found] = []
        size = PAGE if terms or question.wanted else max(1, min(most, PAGE))
        async for page in source.pages(question.prefix, size):
            admitted = [found_of(item, score_of(item, terms)) for item in page if question.admits(item)]
            if not terms:  # they come in their order
                best += admitted
                if len(best) >= most:
                    break
                continue
            best = heapq.nsmallest(most, [*best, *admitted], key=in_order)
        return best[:most]


def found_of(item: Item, score: float | None = None, similarity: float | None = None) -> Found:
    return Found(**{**vars(item), "score": score, "similarity": similarity})


def score_of(item: Item, terms: frozenset[str]) -> float | None:
    """The fraction of the words that occur in the texts of an item; None if none does."""
    shared = terms.intersection(word for text in searched_texts(item) for word in words(text)) if terms else ()
    return len(shared) / len(terms) if shared else None


def searched_texts(item: Item) -> list[str]:
    """The texts of an item that a search looks at: those under its `index`, or all."""
    if item.index is False:
        return []
    if item.index is None:
        return texts_in(item.value)
    parts = (item.value if path == WHOLE else value_at(item.value, path) for path in item.index)
    return [text for part in parts for text in texts_in(part)]
