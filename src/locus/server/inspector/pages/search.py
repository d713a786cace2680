"""`/search`: the checkpoints with which all words came, best first, with a piece of the text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from locus.errors import CapabilityError, ConfigurationError
from locus.looking.revisions import first_moment_of, last_moment_of
from locus.looking.searching import Found, Wanted, marks_of, search_said
from locus.memory.model.ids import MAX_ID_LENGTH, MAX_QUERY_LENGTH, query_terms
from locus.memory.model.records import Hit
from locus.server.inspector.pages.base import Pages
from locus.server.inspector.words import Piece, marked
from locus.server.requests import Query

PAGE: Final = 20
MOST: Final = 100
"""The most hits of all pages together. An engine gives the best ones, and begins anew for each page."""
SECONDS: Final = 3.0
ROLES: Final = ("user", "assistant", "tool", "system", "reasoning")


class SearchQuery(Query):
    q: Annotated[str, Field(max_length=MAX_QUERY_LENGTH)] = ""
    thread: Annotated[str, Field(max_length=MAX_ID_LENGTH)] = ""
    """The thread to search; empty for all of them."""
    role: Literal["", "user", "assistant", "tool", "system", "reasoning"] = ""
    since: Annotated[str, Field(max_length=40)] = ""
    until: Annotated[str, Field(max_length=40)] = ""
    start: Annotated[str, Field(max_length=3, pattern="^[0-9]*$")] = ""

    @property
    def kept(self) -> dict[str, str]:
        """The parameters of the other pages."""
        return {name: value for name, value in self if value and name != "start"}

    @property
    def wanted(self) -> Wanted:
        """The hits that are wanted, whatever their words."""
        return Wanted(
            thread_id=self.thread or None,
            role=self.role or None,
            since=first_moment_of(self.since) if self.since else None,
            until=last_moment_of(self.until) if self.until else None,
        )


@dataclass(frozen=True)
class HitShown:
    """A hit, with the words that were looked for marked in its text."""

    hit: Hit
    role: str
    """The role of the speaker; empty if the words stand in something else that was saved."""
    name: str | None
    """The tool, or the speaker, if that has a name."""
    pieces: list[Piece]


def routes(pages: Pages) -> list[Route]:
    async def search(request: Request) -> Response:
        query = SearchQuery.of(request)
        start = min(int(query.start or 0), MOST - PAGE)
        found: list[Found] = []
        terms: list[str] = []
        complete, note = True, None
        prefix = pages.authorized.prefix(request)
        if query.thread and prefix is not None:
            prefix = query.thread if query.thread.startswith(prefix) else None
        await pages.ready()
        try:
            wanted, terms = query.wanted, query_terms(query.q)
            if terms and prefix is not None:
                limit = start + PAGE + 1 if wanted.is_everything else MOST + 1
                page = await pages.authorized.query(search_said(pages.store, query.q, limit, prefix, wanted, SECONDS))
                visible = pages.authorized.visible(request, [one.hit for one in page.found])
                found, complete = [one for one in page.found if one.hit in visible], page.complete
        except (ConfigurationError, CapabilityError) as error:
            note = str(error)
        some = found[start : start + PAGE]
        shown = [HitShown(one.hit, one.role, one.name, _marked(one.excerpt, query.q, terms)) for one in some]
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
            more=len(found) > end,
            next=end if len(found) > end and end < MOST else None,
            previous=max(0, start - PAGE) if start else None,
            page_size=PAGE,
            roles=ROLES,
        )

    return [Route("/search", search)]


def _marked(text: str, query: str, terms: list[str]) -> list[Piece]:
    """A text with what was typed marked in it; if that is not there as it was typed, with the words that were found.

    So `8.99` marks a price, and not the 8 of `80 %`.
    """
    pieces = marked(text, marks_of(query))
    return pieces if any(piece.kind == "marked" for piece in pieces) else marked(text, terms)
