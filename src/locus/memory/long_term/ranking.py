"""How a search ranks items: the seam between items, which are read here, and whatever finds the best of them.

`Ranks` is that seam. It gets the question and a way to read all live items below a namespace, and returns the best of
those that pass the filter, in the order that `in_order` says. `locus.memory.long_term.held` has the one of every store,
which holds what ranks items between searches and fetches only the best.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal, Protocol

from locus.memory.long_term.filters import passes
from locus.memory.long_term.items import Found, Item
from locus.memory.long_term.names import Namespace, path_of

PAGE = 500
"""The number of items that are read at once."""


By = Literal["hybrid", "words", "vector", "newest"]


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

    async def currents(self, places: Sequence[tuple[Namespace, str]]) -> list[Item | None]:
        """The newest versions of items. Whoever holds items compares their `rev` with those of the held ones."""

    async def state(self) -> Hashable | None:
        """Something that differs whenever an item was put or removed; None if the store cannot tell cheaply."""

    async def changed(self, prefix: Namespace, since: Hashable) -> list[str] | None:
        """The ids of items below a namespace that were put since a state.

        None if any item was removed since, or if the store cannot tell.
        """

    async def revs(self, prefix: Namespace) -> dict[str, str] | None:
        """The revs of all items below a namespace, by their ids. None if the store would have to read the items."""


class Ranks(Protocol):
    """Finds the items that fit a question best."""

    async def best(self, source: ItemSource, question: Question, most: int) -> list[Found]:
        """The first `most` items, in the order of `in_order`, of all that are below the prefix and pass the filter.

        Items that nothing is known of, because they have no score, come last; with `min_similarity` they are left out.
        Raises whatever the store raises: an outage is never an empty list.
        """


def in_order(found: Found) -> tuple[float, str, str]:
    """The key by which the items of a search are sorted: by score, then by path, then by key."""
    return inf if found.score is None else -found.score, path_of(found.namespace), found.key


def found_of(item: Item, score: float | None = None, similarity: float | None = None) -> Found:
    return Found(**{**vars(item), "score": score, "similarity": similarity})
