"""`/stats` and `/t/{id}/stats`: where the bytes are, what a vacuum would free, and how long turns took.

One thread is measured at once. All of them are measured by a job, which can be stopped; what is shown of it before its
end is marked as partial.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from locus.errors import BackendUnavailableError, ConfigurationError, LocusError
from locus.looking.formatting import bytes_text, days, dotted, duration, one_line
from locus.looking.usage import Sums, kinds, thread_ids
from locus.memory.model.ids import MAX_ID_LENGTH
from locus.memory.model.records import Entry
from locus.memory.model.sizes import ThreadSizes
from locus.memory.titles import title_of
from locus.server.bodies import read_form
from locus.server.inspector.charts import Bars, bars, columns
from locus.server.inspector.jobs import Job, Jobs
from locus.server.inspector.pages.base import Pages, no_such_thread, off_loop
from locus.server.requests import Query, Text

TOP: Final = 20
"""How many threads are listed, and how many lists of a thread are drawn."""
MOST_KINDS: Final = 500
"""How many lists of a thread a page names."""
TURNS: Final = 200
"""How many checkpoints the times of turns are taken from."""
_NAME: Final = 32
_REFRESH: Final = {"Refresh": "1"}


class Rules(Query):
    """What a vacuum would keep."""

    older_than: Annotated[Text, Field(max_length=20)] = ""
    keep_last: Annotated[Text, Field(max_length=10)] = ""

    @property
    def wrong(self) -> dict[str, str]:
        """What is wrong, by field."""
        found: dict[str, str] = {}
        try:
            _ = days(self.older_than) if self.older_than else None
        except ConfigurationError:
            found["older_than"] = "Write an age such as 30d, 12h or 2w."
        if self.keep_last and not (self.keep_last.isascii() and self.keep_last.isdecimal() and int(self.keep_last)):
            found["keep_last"] = "Write a number, 1 or more."
        return found

    def given(self) -> tuple[float | None, int | None]:
        """The age in days, and how many are kept; both None if the form is empty or wrong."""
        if self.wrong:
            return None, None
        older = days(self.older_than) if self.older_than else None
        return older, int(self.keep_last) if self.keep_last else None


class StatsQuery(Rules):
    ns: Annotated[str | None, Field(max_length=MAX_ID_LENGTH)] = None


@dataclass(frozen=True)
class Kind:
    """What a list or another kind of bytes takes."""

    name: str
    bytes: int
    shared: int
    percent: float


@dataclass(frozen=True)
class TurnTime:
    """How long after its parent a checkpoint was saved."""

    entry: Entry
    seconds: float

    @property
    def text(self) -> str:
        return duration(self.seconds)


def routes(pages: Pages) -> list[Route]:
    jobs: Jobs[Sums] = Jobs()

    async def thread_stats(request: Request) -> Response:
        thread_id = pages.thread(request)
        query = StatsQuery.of(request)
        older, keep = query.given()
        sizes = await pages.authorized.query(pages.store.sizes(thread_id, older, keep))
        if sizes is None:
            raise no_such_thread()
        namespace = await pages.namespace(thread_id, query.ns)
        newest = await pages.history(thread_id, namespace, TURNS, None)
        title = await title_of(pages.store, newest[0]) if newest else None

        def page() -> Response:
            turns, shown = turn_times(newest), kinds_of(sizes)
            return pages.rendering.page(
                request,
                "thread_stats.html",
                status=422 if query.wrong else 200,
                thread_id=thread_id,
                title=title,
                query=query,
                sizes=sizes,
                kinds=shown[:MOST_KINDS],
                more_kinds=max(0, len(shown) - MOST_KINDS),
                chart=_chart([(kind.name, kind.bytes, kind.shared) for kind in shown[:TOP] if kind.bytes]),
                turns=turns,
                times=columns([(turn.seconds, f"#{turn.entry.seq}: {turn.text}") for turn in turns]),
                longest=sorted(turns, key=lambda turn: -turn.seconds)[:5],
                median=duration(sorted(turn.seconds for turn in turns)[len(turns) // 2]) if turns else None,
            )

        return await off_loop(page)

    async def stats(request: Request) -> Response:
        query = Rules.of(request)
        return await shown(request, query)

    async def shown(request: Request, query: Rules) -> Response:
        job = None if query.wrong else jobs.find(_key(pages, request, query))
        if job is not None:
            await jobs.waited(job)
        sums = None if job is None else job.result
        if sums is not None:
            sums.cut(TOP)
        return pages.rendering.page(
            request,
            "stats.html",
            status=422 if query.wrong else 200,
            headers=_REFRESH if job is not None and job.is_running else None,
            query=query,
            job=job,
            sums=sums,
            lists=[] if sums is None else sorted(sums.by_list.items(), key=lambda kind: -kind[1])[:TOP],
            chart=_chart(
                [(found.thread_id, found.bytes, found.shared_bytes) for found in sums.largest] if sums else ()
            ),
        )

    async def measure(request: Request) -> Response:
        """Begin to measure all threads that the sender may see, or stop that."""
        form = await read_form(request, pages.authorized.limits)
        action = form.pop("action", "measure")
        query = Rules.check({**form})
        if query.wrong:
            return await shown(request, query)
        older, keep = query.given()
        key = _key(pages, request, query)
        if action == "stop":
            job = jobs.find(key)
            if job is not None:
                job.stop()
        else:
            prefix = pages.authorized.prefix(request) or ""
            jobs.begin(key, lambda job: _measured(pages, prefix, older, keep, job))
        way = pages.rendering.url("stats", older_than=query.older_than or None, keep_last=query.keep_last or None)
        return RedirectResponse(way, 303)

    return [
        Route("/t/{thread_id}/stats", thread_stats),
        Route("/stats", stats, methods=["GET"]),
        Route("/stats", measure, methods=["POST"]),
    ]


def _key(pages: Pages, request: Request, query: Rules) -> tuple[str, ...]:
    grant = pages.authorized.grant(request)
    return grant.token_id, grant.prefix, query.older_than, query.keep_last


async def _measured(pages: Pages, prefix: str, older: float | None, keep: int | None, job: Job[Sums]) -> Sums:
    sums = job.result = Sums()
    async for thread_id in thread_ids(pages.store, prefix):
        try:
            sums.add(await pages.store.sizes(thread_id, older, keep), TOP)
        except BackendUnavailableError:
            raise
        except LocusError as error:
            sums.damaged.append((thread_id, error))
        job.step(sums.threads)
    return sums


def kinds_of(sizes: ThreadSizes) -> list[Kind]:
    """What the bytes of a thread are, the largest first."""
    shared = {dotted(each.path) or "(other)": each.shared_bytes for each in sizes.lists}
    found = [
        Kind(name, size, shared.get(name, 0), 100 * size / sizes.bytes if sizes.bytes else 0.0)
        for name, size in kinds(sizes)
    ]
    return sorted(found, key=lambda kind: -kind.bytes)


def _chart(values: Sequence[tuple[str, int, int]]) -> Bars:
    return bars([(one_line(name, _NAME), bytes_text(size), size, shared) for name, size, shared in values])


def turn_times(entries: Sequence[Entry]) -> list[TurnTime]:
    """How long after its parent each checkpoint was saved, oldest first, as far as the parent is among them."""
    known = {entry.checkpoint_id: entry for entry in entries}
    found = []
    for entry in reversed(entries):
        parent = known.get(entry.parent_id or "")
        if parent is not None:
            found.append(TurnTime(entry, max(0.0, (entry.created_at - parent.created_at).total_seconds())))
    return found
