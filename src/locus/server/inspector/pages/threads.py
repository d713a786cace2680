"""`/threads`: the threads of a store, newest first, by id, or by their metadata."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Annotated, Any, Final, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from locus.errors import CapabilityError, ConfigurationError, CorruptCheckpointError
from locus.looking.histories import some_metadata
from locus.looking.previews import Kind
from locus.looking.recency import newest_by_time
from locus.looking.revisions import first_moment_of, last_moment_of, threads_by_metadata
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
MOST_LOOKED_AT: Final = 200
"""The most threads that are looked at for a page of those that a status or a framework was asked for."""
_AT_ONCE: Final = 8
_LAST: Final = 6
"""The number of saves of a thread that are read for its last words."""


FRAMEWORKS: Final = {
    "": "LangGraph",
    "a2a": "A2A",
    "agent-framework": "Agent Framework",
    "agent-framework-session": "Agent Framework",
    "agent-framework-workflow": "Agent Framework",
    "claude-agent-sdk": "Claude Agent SDK",
    "crewai": "CrewAI",
    "default": "Locus",
    "google-adk": "Google ADK",
    "llmfy": "LLMFY",
    "openai-agents": "OpenAI Agents",
    "pydantic-ai": "Pydantic AI",
    "strands": "Strands",
    "strands-storage": "Strands",
}
"""The frameworks by the namespaces that they save into. Our own agent and plain programs save into the default one."""
STATUSES: Final = {status.name.lower().replace("_", "-"): status for status in Status}
"""How a last turn ended, by the word for it in an address."""
_OF_FRAMEWORKS: Final = frozenset({"source", "step", "parents", "run_id", "node", "prev_node", "status"})
"""The metadata with which frameworks number their steps."""


def slug(name: str) -> str:
    """The word for a framework in an address."""
    return name.lower().replace(" ", "-")


def framework_of(entry: Entry) -> str | None:
    """The framework that saved a checkpoint, if its namespace says so."""
    name = entry.namespace
    return FRAMEWORKS.get("" if ":" in name else name)


class ThreadsQuery(Query):
    q: Annotated[str, Field(max_length=MAX_QUERY_LENGTH)] = ""
    meta: Annotated[str, Field(max_length=MAX_QUERY_LENGTH)] = ""
    status: Literal["", "answered", "waiting", "failed", "under-way", "killed"] = ""
    framework: Annotated[str, Field(max_length=40)] = ""
    since: Annotated[str, Field(max_length=40)] = ""
    until: Annotated[str, Field(max_length=40)] = ""
    order: Literal["recent", "id"] = "recent"
    after: Annotated[str, Field(max_length=cursors.MAX_LENGTH)] = ""

    @property
    def is_narrowed(self) -> bool:
        """Whether threads are left out by what their last save says."""
        return bool(self.status or self.framework or self.since or self.until)

    @property
    def kept(self) -> dict[str, str]:
        """The parameters of the next page."""
        return {name: value for name, value in self if value and name != "after"}

    def takes(self, entry: Entry) -> bool:
        """Whether the framework and the time of a thread's last save are those that were asked for."""
        if self.since and entry.created_at < first_moment_of(self.since):
            return False
        if self.until and entry.created_at > last_moment_of(self.until):
            return False
        return not self.framework or slug(framework_of(entry) or entry.namespace) == self.framework


@dataclass(frozen=True)
class ThreadRow:
    """A thread as a line of the list."""

    entry: Entry
    title: str | None
    metadata: dict[str, Any]
    end: ThreadEnd

    @property
    def framework(self) -> str | None:
        return framework_of(self.entry)


@dataclass(frozen=True)
class ThreadEnd:
    """The last words of a thread, and how its last turn ended."""

    line: Line | None = None
    status: Status | None = None
    forked: bool = False
    """Whether one of its last turns goes another way than an earlier one."""


@dataclass(frozen=True)
class ThreadPage:
    """A page of threads, and how they end. `next` is the cursor of the page that follows."""

    entries: list[Entry]
    next: str | None = None
    note: str | None = None
    ends: list[ThreadEnd] = field(default_factory=list)


def routes(pages: Pages) -> list[Route]:
    async def threads(request: Request) -> Response:
        query = ThreadsQuery.of(request)
        await pages.ready()
        try:
            listed = await pages.authorized.query(_narrowed(pages, request, query))
        except (ConfigurationError, CapabilityError) as error:  # of what was typed into the form
            listed = ThreadPage([], note=str(error))
        titles = await pages.authorized.query(titles_of(pages.store, listed.entries, _AT_ONCE))

        def page() -> Response:
            known = zip(listed.entries, titles, listed.ends, strict=True)
            rows = [ThreadRow(entry, title, _metadata(entry), end) for entry, title, end in known]
            by_time = query.order == "recent" and not query.q
            days = [[*some] for _, some in groupby(rows, lambda row: day_of(row.entry.created_at) if by_time else "")]
            return pages.rendering.page(
                request,
                "threads.html",
                days=days,
                by_time=by_time,
                query=query,
                listed=listed,
                statuses=STATUSES,
                frameworks={slug(name): name for name in sorted({*FRAMEWORKS.values()}, key=str.lower)},
            )

        return await off_loop(page)

    async def start(_request: Request) -> Response:
        return RedirectResponse(pages.rendering.url("threads"), 303)

    return [Route("/threads", threads), Route("/", start)]


async def _narrowed(pages: Pages, request: Request, query: ThreadsQuery) -> ThreadPage:
    """A page of the threads that were asked for. Of a few threads, more are looked at, up to `MOST_LOOKED_AT`."""
    entries: list[Entry] = []
    ends: list[ThreadEnd] = []
    looked_at = 0
    while True:
        page = await _listed(pages, request, query)
        looked_at += len(page.entries)
        some = [entry for entry in page.entries if query.takes(entry)]
        how = await _ends(pages.store, some, newest=not query.meta)
        wanted = STATUSES.get(query.status)
        chosen = [(entry, end) for entry, end in zip(some, how, strict=True) if wanted in (None, end.status)]
        entries += [entry for entry, _ in chosen]
        ends += [end for _, end in chosen]
        if page.next is None or not query.is_narrowed or len(entries) >= PAGE:
            return replace(page, entries=entries, ends=ends)
        if looked_at >= MOST_LOOKED_AT:
            note = f"{looked_at:,} threads were looked at for this page: go on for more."
            return replace(page, entries=entries, ends=ends, note=note)
        query = query.model_copy(update={"after": page.next})


def _metadata(entry: Entry) -> dict[str, Any]:
    return {name: value for name, value in some_metadata(entry).items() if name not in _OF_FRAMEWORKS}


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
        spoken = [turn for turn in turns if turn.previews]
        # Of a graph, perhaps, whose subgraph has saved last.
        waiting = next((turn for turn in reversed(spoken) if turn.status is Status.WAITING), None)
        status = Status.WAITING if waiting is not None else spoken[-1].status if spoken else None
        asked = None if waiting is None else last_line(reversed(waiting.saves), Kind.WAITS)
        return ThreadEnd(asked or last_line(saves), status, any(turn.forked_from for turn in turns))

    return await asyncio.gather(*map(end, entries))


def _pattern(text: str) -> Pattern:
    """The pattern for a text that somebody typed: a pattern, or a part of an id."""
    text = text.strip()
    return check_pattern(text if "*" in text or "?" in text else f"*{text}*" if text else "*")
