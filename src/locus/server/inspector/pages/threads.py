"""`/threads`: the threads of a store, newest first, by id, or by their metadata."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from locus.errors import CapabilityError, ConfigurationError
from locus.looking.histories import some_metadata
from locus.looking.revisions import threads_by_metadata
from locus.memory.model import cursors
from locus.memory.model.ids import MAX_QUERY_LENGTH, Pattern, check_pattern
from locus.memory.model.records import Entry
from locus.memory.titles import titles_of
from locus.server.inspector.pages.base import Pages, off_loop
from locus.server.requests import Query

PAGE: Final = 50
_AT_ONCE: Final = 8


class ThreadsQuery(Query):
    q: Annotated[str, Field(max_length=MAX_QUERY_LENGTH)] = ""
    meta: Annotated[str, Field(max_length=MAX_QUERY_LENGTH)] = ""
    order: Literal["recent", "id"] = "recent"
    after: Annotated[str, Field(max_length=cursors.MAX_LENGTH)] = ""


@dataclass(frozen=True)
class ThreadRow:
    """A thread as a line of the list."""

    entry: Entry
    title: str | None
    metadata: dict[str, Any]


@dataclass(frozen=True)
class ThreadPage:
    """A page of threads. `next` is the cursor of the page that follows."""

    entries: list[Entry]
    next: str | None = None
    note: str | None = None


def routes(pages: Pages) -> list[Route]:
    async def threads(request: Request) -> Response:
        query = ThreadsQuery.of(request)
        await pages.ready()
        try:
            listed = await pages.authorized.query(_listed(pages, request, query))
        except (ConfigurationError, CapabilityError) as error:  # of what was typed into the form
            listed = ThreadPage([], note=str(error))
        titles = await pages.authorized.query(titles_of(pages.store, listed.entries, _AT_ONCE))

        def page() -> Response:
            named = zip(listed.entries, titles, strict=True)
            rows = [ThreadRow(entry, title, some_metadata(entry)) for entry, title in named]
            return pages.rendering.page(request, "threads.html", rows=rows, query=query, listed=listed)

        return await off_loop(page)

    async def start(_request: Request) -> Response:
        return RedirectResponse(pages.rendering.url("threads"), 303)

    return [Route("/threads", threads), Route("/", start)]


async def _listed(pages: Pages, request: Request, query: ThreadsQuery) -> ThreadPage:
    prefix = pages.authorized.prefix(request)
    pattern = replace(_pattern(query.q), within=prefix or "")
    if prefix is None or pattern.matches_none:
        return ThreadPage([])
    if query.meta:
        entries, complete = await threads_by_metadata(pages.store, query.meta, PAGE, pattern)
        entries = pages.authorized.visible(request, entries)
        note = None if complete and len(entries) < PAGE else f"These are the newest {len(entries)}; there may be more."
        return ThreadPage(entries, note=note)
    if query.order == "id" or query.q:
        pattern = replace(pattern, after=query.after)
        ids = await pages.authorized.thread_ids(request, pattern, PAGE + 1)
        more = ids[PAGE - 1] if len(ids) > PAGE else None
        newest = [entry for thread_id in ids[:PAGE] for entry in await pages.store.history(thread_id, 1, None, None)]
        return ThreadPage(newest, more)
    page = await pages.store.newest_threads(PAGE, query.after or None, pattern.prefix)
    return ThreadPage(pages.authorized.visible(request, page.entries), page.next)


def _pattern(text: str) -> Pattern:
    """The pattern for a text that somebody typed: a pattern, or a part of an id."""
    text = text.strip()
    return check_pattern(text if "*" in text or "?" in text else f"*{text}*" if text else "*")
