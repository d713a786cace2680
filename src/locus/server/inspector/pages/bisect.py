"""`/t/{id}/bisect`: the checkpoint with which a text or a value came. A long search goes on while the page reloads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from locus.errors import ConfigurationError
from locus.looking.bisect import Bisected, Passage, bisect_path, bisect_text, line_of
from locus.looking.formatting import dotted
from locus.looking.histories import some_metadata
from locus.looking.tool_calls import style_of
from locus.memory.model.comparison import TooMuchText
from locus.memory.model.ids import MAX_ID_LENGTH
from locus.memory.model.records import Entry
from locus.memory.titles import title_of
from locus.server.inspector.jobs import Jobs, PageJob
from locus.server.inspector.pages.base import Pages, timeline_before
from locus.server.inspector.pages.checkpoint import path_text
from locus.server.inspector.words import marked
from locus.server.requests import Query, Text, invalid
from locus.wire.problems import Problem

LONGEST: Final = 2_000
"""The most characters of a text, a path or a value to look for."""
MOST_FLIPS: Final = 50
_BEFORE: Final = 4
"""The number of items before the match on the page that a link opens."""
REFRESH_SECONDS: Final = 1


class BisectQuery(Query):
    ns: Annotated[str | None, Field(max_length=MAX_ID_LENGTH)] = None
    appears: Annotated[Text, Field(max_length=LONGEST)] = ""
    path: Annotated[Text, Field(max_length=LONGEST)] = ""
    equals: Annotated[Text, Field(max_length=LONGEST)] = ""
    case: Literal["", "1"] = ""
    """`1` if upper and lower case count."""
    to: Annotated[Text, Field(max_length=MAX_ID_LENGTH)] = ""
    """The id of the checkpoint at which the line ends; empty for the latest."""

    @property
    def is_question(self) -> bool:
        return bool(self.appears or self.path)

    @property
    def wanted(self) -> Any:
        """The value to look for; `...`, which means any value, if none is given."""
        if not self.equals:
            return ...
        try:
            return json.loads(self.equals)
        except (ValueError, RecursionError):
            return self.equals


@dataclass(frozen=True)
class BisectAnswer:
    """The answer of a bisection of the states, or else of the metadata of the checkpoints."""

    bisected: Bisected
    in_metadata: bool = False


def routes(pages: Pages) -> list[Route]:
    jobs: Jobs[BisectAnswer] = Jobs()

    async def bisect(request: Request) -> Response:
        thread_id = pages.thread(request)
        query = BisectQuery.of(request)
        if query.appears and query.path:
            raise invalid("appears", "given, or path, and not both")
        namespace = await pages.namespace(thread_id, query.ns)
        last = await pages.checkpoint(thread_id, query.to or None, namespace)
        job = None
        if query.is_question:
            grant = pages.authorized.grant(request)
            question = (query.appears, query.case, query.path, query.equals)
            key = (grant.token_id, thread_id, namespace, last.rev, *question)
            job = jobs.find(key) or jobs.begin(key, lambda job: _bisected(pages, last, query, job))
            try:
                await jobs.waited(job)
            except ConfigurationError as error:
                raise Problem(422, "invalid_request", str(error)) from None
        running = job is not None and job.is_running
        answer = None if job is None else job.result
        bisected = None if answer is None else answer.bisected
        first, passage = (None, None) if bisected is None else (bisected.first, bisected.passage)
        return pages.rendering.page(
            request,
            "bisect.html",
            headers={"Refresh": str(REFRESH_SECONDS)} if running else None,
            thread_id=thread_id,
            query=query,
            namespace=namespace,
            title=await title_of(pages.store, last),
            last=last,
            job=job,
            found=bisected,
            in_metadata=answer is not None and answer.in_metadata,
            passage=passage,
            passage_style="" if passage is None else style_of(passage.role),
            pieces=[] if passage is None else marked(passage.text, [query.appears], any_case=not query.case),
            place=None if first is None or passage is None else _place(pages, first, passage, query),
            field=None if passage is None else dotted(passage.path),
            timeline_before=None
            if bisected is None or first is None
            else timeline_before([entry for entry in bisected.line if entry.seq > first.seq]),
            metadata={} if first is None else some_metadata(first),
            later=await _later(pages, last) if bisected is not None and first is None and query.to else None,
            most_flips=MOST_FLIPS,
        )

    return [Route("/t/{thread_id}/bisect", bisect)]


async def _bisected(pages: Pages, last: Entry, query: BisectQuery, job: PageJob[BisectAnswer]) -> BisectAnswer:
    line = await line_of(pages.store, last)
    job.total = len(line)
    most, path = pages.authorized.limits.state_bytes, query.path.split(".")
    try:
        if query.appears:
            ignore_case = not query.case
            return BisectAnswer(
                await bisect_text(pages.store, line, query.appears, ignore_case, progress=job.step, most=most)
            )
        return BisectAnswer(*await bisect_path(pages.store, line, path, query.wanted, progress=job.step, most=most))
    except TooMuchText:
        raise Problem(
            507, "state_too_large", f"The items of this thread are larger than {most:,} bytes: use `locus bisect`."
        ) from None


async def _later(pages: Pages, last: Entry) -> Entry | None:
    """The latest checkpoint, if it is newer than the one at which the line ends."""
    latest = await pages.store.entry(last.thread_id, None, last.namespace)
    return latest if latest is not None and latest.seq > last.seq else None


def _place(pages: Pages, entry: Entry, passage: Passage, query: BisectQuery) -> str | None:
    """The address of the item that has the text, on the page of its checkpoint; None if a field has it."""
    if passage.position is None:
        return None
    address = pages.rendering.url(
        "t",
        entry.thread_id,
        "c",
        entry.checkpoint_id,
        ns=entry.namespace,
        path=None if passage.in_conversation else path_text(passage.path),
        text=query.appears,
        **{"from": max(0, passage.position - _BEFORE)},
    )
    return f"{address}#m{passage.position}"
