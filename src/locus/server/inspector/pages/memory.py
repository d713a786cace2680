"""`/memory` and `/memory/item`: what agents remember across threads, an item with its versions, and search with scores.

Whoever may see the threads with a prefix may see the items whose names begin with it, and no others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Annotated, Final

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from locus.errors import ConfigurationError, InvalidIdError
from locus.looking.spaces import spaces_of
from locus.memory.long_term.facts import text_of
from locus.memory.long_term.held import RanksHeld
from locus.memory.long_term.items import Item
from locus.memory.long_term.names import behind_keys, item_id, namespace_from, path_of, whole_name
from locus.memory.long_term.ranking import Question
from locus.memory.long_term.store import SPACE, ItemStore
from locus.memory.long_term.words import question_terms, terms_in, terms_of
from locus.memory.model.ids import MAX_ID_LENGTH, MAX_QUERY_LENGTH, query_terms, words
from locus.server.inspector.pages.base import Pages, no_such_thread, off_loop
from locus.server.requests import Query, Text
from locus.wire.problems import Problem

PAGE: Final = 50
MOST: Final = 1_000
"""How far the pages of a search go."""
NAMESPACES: Final = 30
VERSIONS: Final = 50
_HELD_MB: Final = 16
_LONGEST_VALUE: Final = 200_000


class MemoryQuery(Query):
    under: Text = ""
    q: Annotated[str, Field(max_length=MAX_QUERY_LENGTH)] = ""
    after: Text = ""
    start: Annotated[str, Field(max_length=4, pattern="^[0-9]*$")] = ""

    @property
    def begin(self) -> int:
        return min(int(self.start or 0), MOST)

    @property
    def kept(self) -> dict[str, str]:
        """The parameters of the next page."""
        return {name: value for name, value in (("under", self.under), ("q", self.q)) if value}


class ItemQuery(Query):
    path: Text = ""
    key: Text = ""
    version: Annotated[str, Field(max_length=12, pattern="^[0-9]*$")] = ""


@dataclass(frozen=True)
class ItemRow:
    """An item as a line of the list. `counts` says how often it has each word of a question."""

    item: Item
    path: str
    text: str
    score: float | None = None
    counts: Sequence[tuple[str, int]] = ()


@dataclass(frozen=True)
class ItemPage:
    """A page of items. `after` is the name, and `start` the number, that the next one begins behind."""

    rows: Sequence[ItemRow] = ()
    namespaces: Sequence[str] = ()
    after: str | None = None
    start: int | None = None
    note: str | None = None


def routes(pages: Pages) -> list[Route]:
    ranks = RanksHeld(index_mb=_HELD_MB)

    @cache
    def items() -> ItemStore:
        return ItemStore(pages.store)

    async def memory(request: Request) -> Response:
        query = MemoryQuery.of(request)
        try:
            if await _is_there(pages):
                listed = await pages.authorized.query(_listed(pages, request, items(), ranks, query))
            else:
                listed = ItemPage(note="Nothing was ever put into the long-term memory of this store.")
        except (ConfigurationError, InvalidIdError) as error:  # mostly of what was typed into the form
            listed = ItemPage(note=str(error))
        return await off_loop(lambda: pages.rendering.page(request, "memory.html", query=query, listed=listed))

    async def item(request: Request) -> Response:
        query = ItemQuery.of(request)
        try:
            namespace = namespace_from(query.path)
            name = item_id(namespace, query.key)
        except InvalidIdError:
            raise no_such_item() from None
        grant = pages.authorized.grant(request)
        if not grant.allows(name) or not await _is_there(pages):
            raise no_such_item()
        versions = await items().versions(namespace, query.key, VERSIONS, None)
        shown = versions[0] if versions else None
        if query.version:
            shown = await items().version(namespace, query.key, int(query.version))
        if shown is None:
            raise no_such_item()
        source = shown.source
        is_thread = source is not None and 0 < len(source) <= MAX_ID_LENGTH and grant.allows(source)

        def page() -> Response:
            return pages.rendering.page(
                request,
                "item.html",
                item=shown,
                path=query.path if query.path.endswith("/") or not query.path else f"{query.path}/",
                versions=[_row(version) for version in versions],
                source=source if is_thread else None,
                longest=_LONGEST_VALUE,
            )

        return await off_loop(page)

    return [Route("/memory", memory), Route("/memory/item", item)]


async def _is_there(pages: Pages) -> bool:
    await pages.ready()
    return SPACE in await spaces_of(pages.store, [SPACE])


async def _listed(pages: Pages, request: Request, kept: ItemStore, ranks: RanksHeld, query: MemoryQuery) -> ItemPage:
    wanted = path_of(namespace_from(query.under))
    path = pages.authorized.prefix(request, wanted)
    if path is None:
        return ItemPage()
    grant = pages.authorized.grant(request)
    if query.q.strip():
        if path and not path.endswith("/"):
            return ItemPage(note="A search needs a namespace: your token names only the beginning of one.")
        query_terms(query.q)
        start = query.begin
        most = min(start + PAGE + 1, MOST)
        found = await ranks.best(kept, Question(namespace_from(path), query.q, by="words"), most)
        found = [one for one in found if one.score is not None and grant.allows(item_id(one.namespace, one.key))]
        terms = _asked_words(query.q)
        rows = [_row(one, one.score, terms) for one in found[start : start + PAGE]]
        more = len(found) > start + PAGE and start + PAGE < MOST
        return ItemPage(rows, start=start + PAGE if more else None)
    items: list[Item] = []
    async with aclosing(kept.under(path, after=query.after, limit=PAGE + 1)) as found_pages:
        async for page in found_pages:
            items += [one for one in page if grant.allows(item_id(one.namespace, one.key))]
            if len(items) > PAGE:
                break
    after = whole_name(items[PAGE - 1].namespace, items[PAGE - 1].key) if len(items) > PAGE else None
    namespaces = [] if query.after else await _namespaces(kept, path)
    return ItemPage([_row(one) for one in items[:PAGE]], namespaces, after)


async def _namespaces(kept: ItemStore, path: str) -> list[str]:
    """The paths of the first namespaces below a path."""
    found: list[str] = []
    after = ""
    while len(found) < NAMESPACES:
        async with aclosing(kept.under(path, after=after, limit=1)) as pages:
            first = await anext(pages, None)
        if first is None:
            break
        found.append(path_of(first[0].namespace))
        after = behind_keys(found[-1])
    return found


def _asked_words(query: str) -> dict[str, str]:
    """The words of a question as they were typed, by what ranking shortens them to."""
    typed: dict[str, str] = {}
    for word in words(query):
        terms = terms_of(word)
        typed.update({term: word if len(terms) == 1 else term for term in terms if term not in typed})
    return {term: typed.get(term, term) for term in question_terms(query)}


def _row(item: Item, score: float | None = None, terms: Mapping[str, str] = MappingProxyType({})) -> ItemRow:
    counted = Counter(terms_in(item)) if terms else Counter[str]()
    counts = [(typed, counted[term]) for term, typed in terms.items() if counted[term]]
    return ItemRow(item, path_of(item.namespace), text_of(item)[:500], score, counts)


def no_such_item() -> Problem:
    """One and the same problem for an item that is not there and for one that the sender may not see."""
    return Problem(404, no_such_thread().code, "There is no such item, or it is not yours to see.")
