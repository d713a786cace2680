"""`/search`: the checkpoints with which all words came, best first, with a piece of the text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from locus.errors import CapabilityError, ConfigurationError
from locus.looking.searching import marks_of, said_in
from locus.memory.model.ids import MAX_ID_LENGTH, MAX_QUERY_LENGTH, query_terms
from locus.memory.model.records import Hit
from locus.server.inspector.pages.base import Pages
from locus.server.inspector.words import Piece, marked
from locus.server.requests import Query

PAGE: Final = 20
MOST: Final = 100
"""The most hits of all pages together. An engine gives the best ones, and begins anew for each page."""
SECONDS: Final = 3.0


class SearchQuery(Query):
    q: Annotated[str, Field(max_length=MAX_QUERY_LENGTH)] = ""
    thread: Annotated[str, Field(max_length=MAX_ID_LENGTH)] = ""
    """The thread to search; empty for all of them."""
    start: Annotated[str, Field(max_length=3, pattern="^[0-9]*$")] = ""


@dataclass(frozen=True)
class HitShown:
    """A hit, with the words that were looked for marked in its text."""

    hit: Hit
    role: str
    """The role of the speaker; empty if the words stand in something else that was saved."""
    pieces: list[Piece]


def routes(pages: Pages) -> list[Route]:
    async def search(request: Request) -> Response:
        query = SearchQuery.of(request)
        start = min(int(query.start or 0), MOST - PAGE)
        hits: list[Hit] = []
        complete, note = True, None
        prefix = pages.authorized.prefix(request)
        if query.thread and prefix is not None:
            prefix = query.thread if query.thread.startswith(prefix) else None
        await pages.ready()
        try:
            terms = query_terms(query.q)
            if terms and prefix is not None:
                best = await pages.store.search_terms(terms, start + PAGE + 1, prefix, SECONDS)
                hits, complete = pages.authorized.visible(request, list(best)), best.complete
                if query.thread:  # and not those whose ids begin with its id
                    hits = [hit for hit in hits if hit.entry.thread_id == query.thread]
        except (ConfigurationError, CapabilityError) as error:
            terms, note = [], str(error)
        found = await pages.authorized.query(said_in(pages.store, hits[start : start + PAGE], query.q))
        shown = [HitShown(one.hit, one.role, _marked(one.excerpt, query.q, terms)) for one in found]
        end = start + len(shown)
        return pages.rendering.page(
            request,
            "search.html",
            query=query,
            found=shown,
            complete=complete,
            note=note,
            start=start,
            end=end,
            more=len(hits) > end,
            next=end if len(hits) > end and end < MOST else None,
            previous=max(0, start - PAGE) if start else None,
            page_size=PAGE,
        )

    return [Route("/search", search)]


def _marked(text: str, query: str, terms: list[str]) -> list[Piece]:
    """A text with what was typed marked in it; if that is not there as it was typed, with the words that were found.

    So `8.99` marks a price, and not the 8 of `80 %`.
    """
    pieces = marked(text, marks_of(query))
    return pieces if any(piece.kind == "marked" for piece in pieces) else marked(text, terms)
