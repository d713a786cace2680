"""`/search`: the checkpoints with which all words came, best first, with a piece of the text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from locus.errors import CapabilityError, ConfigurationError
from locus.memory.model.ids import MAX_QUERY_LENGTH, query_terms
from locus.memory.model.records import Hit
from locus.server.inspector.pages.base import Pages
from locus.server.inspector.words import Piece, marked
from locus.server.requests import Query

PAGE: Final = 20
MOST: Final = 100
"""How many hits all pages have together. Engines give the best ones, and begin anew for each page."""
SECONDS: Final = 3.0
_ROLE = re.compile(r"(?:^|(?<=…)|(?<=[.!?)…] ))(user|assistant|system|tool|human|ai)(?= [^\W\d_a-z])")
"""A role where a sentence could begin: no sentence does with a small letter, and goes on with a capital."""


class SearchQuery(Query):
    q: Annotated[str, Field(max_length=MAX_QUERY_LENGTH)] = ""
    start: Annotated[str, Field(max_length=3, pattern="^[0-9]*$")] = ""


@dataclass(frozen=True)
class Found:
    """A hit, with the words that were looked for marked in its text."""

    hit: Hit
    pieces: list[Piece]


def routes(pages: Pages) -> list[Route]:
    async def search(request: Request) -> Response:
        query = SearchQuery.of(request)
        start = min(int(query.start or 0), MOST - PAGE)
        hits: list[Hit] = []
        complete, note = True, None
        prefix = pages.authorized.prefix(request)
        await pages.ready()
        try:
            terms = query_terms(query.q)
            if terms and prefix is not None:
                found = await pages.store.search_terms(terms, start + PAGE + 1, prefix, SECONDS)
                hits, complete = pages.authorized.visible(request, list(found), _thread), found.complete
        except (ConfigurationError, CapabilityError) as error:
            terms, note = [], str(error)
        shown = [Found(hit, marked(spoken(hit.snippet), terms)) for hit in hits[start : start + PAGE]]
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


def spoken(snippet: str) -> str:
    """A piece of what was said, in which the roles are told from the words: engines find both in the same text."""
    return _ROLE.sub(r"\1:", snippet)


def _thread(hit: Hit) -> str:
    return hit.entry.thread_id
