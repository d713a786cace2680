"""`/threads`: the threads of a store, newest first, by id, or by their metadata."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Annotated, Any, Final, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from locus.errors import CapabilityError, ConfigurationError, CorruptCheckpointError
from locus.looking.histories import some_metadata
from locus.looking.recency import newest_by_time
from locus.looking.revisions import threads_by_metadata
from locus.looking.saves import saves_of
from locus.looking.turns import Status, turns_of
from locus.memory.model import cursors
from locus.memory.model.ids import MAX_QUERY_LENGTH, Pattern, check_pattern
from locus.memory.model.records import Entry
from locus.memory.store import CheckpointStore
from locus.memory.titles import titles_of
from locus.server.inspector.lines import Line, last_line
from locus.server.inspector.pages.base import Pages, off_loop
from locus.server.inspector.rendering import day_of
from locus.server.requests import Query

PAGE: Final = 50
_AT_ONCE: Final = 8
_LAST: Final = 6
"""The number of saves of a thread that are read for its last words."""


class ThreadsQuery(Query):
    q: Annotated[str, Field(max_length=MAX_QUERY_LENGTH)] = ""
    meta: Annotated[str, Field(max_length=MAX_QUERY_LENGTH)] = ""
    order: Literal["recent", "id"] = "recent"
    after: Annotated[str, Field(max_length=cursors.MAX_LENGTH)] = ""


FRAMEWORKS: Final = {
    "": "LangGraph",
    "a2a": "A2A",
    "agent-framework": "Agent Framework",
    "agent-framework-session": "Agent Framework",
    "agent-framework-workflow": "Agent Framework",
    "claude-agent-sdk": "Claude Agent SDK",
    "crewai": "CrewAI",
    "google-adk": "Google ADK",
    "llmfy": "LLMFY",
    "openai-agents": "OpenAI Agents",
    "pydantic-ai": "Pydantic AI",
    "strands": "Strands",
    "strands-storage": "Strands",
}
"""The frameworks by the namespaces that they save into. Our own agent and plain programs save into the default one."""


@dataclass(frozen=True)
class ThreadRow:
    """A thread as a line of the list."""

    entry: Entry
    title: str | None
    metadata: dict[str, Any]
    end: ThreadEnd

    @property
    def framework(self) -> str | None:
        """The framework that wrote it, if its namespace says so."""
        name = self.entry.namespace
        return FRAMEWORKS.get("" if ":" in name else name)


@dataclass(frozen=True)
class ThreadEnd:
    """The last words of a thread, and how its last turn ended."""

    line: Line | None = None
    status: Status | None = None
    forked: bool = False
    """Whether one of its last turns goes another way than an earlier one."""


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
        ends = await pages.authorized.query(_ends(pages.store, listed.entries, newest=not query.meta))

        def page() -> Response:
            known = zip(listed.entries, titles, ends, strict=True)
            rows = [ThreadRow(entry, title, some_metadata(entry), end) for entry, title, end in known]
            by_time = query.order == "recent" and not query.q
            days = [[*some] for _, some in groupby(rows, lambda row: day_of(row.entry.created_at) if by_time else "")]
            return pages.rendering.page(request, "threads.html", days=days, by_time=by_time, query=query, listed=listed)

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
    page = await newest_by_time(pages.store, PAGE, query.after or None, pattern.prefix)
    return ThreadPage(pages.authorized.visible(request, page.entries), page.next)


async def _ends(store: CheckpointStore, entries: Sequence[Entry], *, newest: bool) -> list[ThreadEnd]:
    """How these threads end with these checkpoints: of each, a few saves are read, however many it has.

    Without `newest`, the threads go on after them.
    """
    gate = asyncio.Semaphore(_AT_ONCE)

    async def end(entry: Entry) -> ThreadEnd:
        try:
            async with gate, store.using() as engine:
                last = await engine.history(entry.thread_id, None, _LAST, entry.seq + 1)
                saves = await saves_of(store, last)
        except CorruptCheckpointError:  # the thread's own page says what is wrong
            return ThreadEnd()
        turns = turns_of(saves, newest=newest)
        spoken = [turn.status for turn in turns if turn.previews]
        waits = Status.WAITING in spoken  # of a graph, perhaps, whose subgraph has saved last
        status = Status.WAITING if waits else spoken[-1] if spoken else None
        return ThreadEnd(last_line(saves), status, any(turn.forked_from for turn in turns))

    return await asyncio.gather(*map(end, entries))


def _pattern(text: str) -> Pattern:
    """The pattern for a text that somebody typed: a pattern, or a part of an id."""
    text = text.strip()
    return check_pattern(text if "*" in text or "?" in text else f"*{text}*" if text else "*")
