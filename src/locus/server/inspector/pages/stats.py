"""`/stats` and `/t/{id}/stats`: where the bytes are, what a vacuum would free, and the times between checkpoints.

One thread is measured at once. A job measures all of them, and can be stopped; its answer is marked as partial before
the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from locus.core.media import bytes_text
from locus.errors import ConfigurationError
from locus.looking.formatting import days, dotted, duration, one_line
from locus.looking.usage import Sums, kinds
from locus.memory.model.ids import MAX_ID_LENGTH
from locus.memory.model.records import Entry
from locus.memory.model.sizes import ThreadSizes
from locus.memory.titles import title_of
from locus.server.bodies import read_form
from locus.server.inspector.charts import Bar, bars, columns
from locus.server.inspector.jobs import Jobs, PageJob
from locus.server.inspector.pages.base import Pages, no_such_thread, off_loop
from locus.server.requests import Query, Text

TOP: Final = 20
"""The number of threads that are listed, and of lists that are drawn for one thread."""
MOST_KINDS: Final = 500
"""The most lists of a thread that a page names."""
SAVES: Final = 200
"""The number of checkpoints whose times are drawn."""
_NAME: Final = 32
_REFRESH: Final = {"Refresh": "1"}


class Rules(Query):
    """The rules of a vacuum, as a form has them."""

    older_than: Annotated[Text, Field(max_length=20)] = ""
    keep_last: Annotated[Text, Field(max_length=10)] = ""

    @property
    def wrong(self) -> dict[str, str]:
        """The mistakes in the form, by field."""
        mistakes: dict[str, str] = {}
        try:
            _ = days(self.older_than) if self.older_than else None
        except ConfigurationError:
            mistakes["older_than"] = "Write an age such as 30d, 12h or 2w."
        if self.keep_last and not (self.keep_last.isascii() and self.keep_last.isdecimal() and int(self.keep_last)):
            mistakes["keep_last"] = "Write a number, 1 or more."
        return mistakes

    def given(self) -> tuple[float | None, int | None]:
        """The age in days, and how many are kept; both None if the form is empty or wrong."""
        if self.wrong:
            return None, None
        older = days(self.older_than) if self.older_than else None
        return older, int(self.keep_last) if self.keep_last else None


class StatsQuery(Rules):
    ns: Annotated[str | None, Field(max_length=MAX_ID_LENGTH)] = None


@dataclass(frozen=True)
class KindSize:
    """The bytes of a list, or of another kind of data."""

    name: str
    bytes: int
    shared: int
    percent: float


@dataclass(frozen=True)
class SaveTime:
    """The time between a checkpoint and its parent."""

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
        newest = await pages.history(thread_id, namespace, SAVES, None)
        title = await title_of(pages.store, newest[0]) if newest else None

        def page() -> Response:
            saves, shown = save_times(newest), kinds_of(sizes)
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
                saves=saves,
                times=columns([(save.seconds, f"#{save.entry.seq}: {save.text}") for save in saves]),
                longest=sorted(saves, key=lambda save: -save.seconds)[:5],
                median=duration(sorted(save.seconds for save in saves)[len(saves) // 2]) if saves else None,
            )

        return await off_loop(page)

    async def stats(request: Request) -> Response:
        return await shown(request, Rules.of(request))

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
                [(sizes.thread_id, sizes.bytes, sizes.shared_bytes) for sizes in sums.largest] if sums else ()
            ),
        )

    async def measure(request: Request) -> Response:
        """Begin to measure all threads that the sender may see, or stop that."""
        form = await read_form(request, pages.authorized.limits)
        action = form.pop("action", "measure")
        query = Rules.check({**form})
        if query.wrong:
            return await shown(request, query)
        key = _key(pages, request, query)
        if action == "stop":
            job = jobs.find(key)
            if job is not None:
                job.stop()
        else:
            prefix = pages.authorized.prefix(request) or ""
            jobs.begin(key, lambda job: _measured(pages, prefix, query.given(), job))
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


async def _measured(pages: Pages, prefix: str, rules: tuple[float | None, int | None], job: PageJob[Sums]) -> Sums:
    sums = job.result = Sums()
    await sums.measure(pages.store, prefix, rules, TOP, job.step)
    return sums


def kinds_of(sizes: ThreadSizes) -> list[KindSize]:
    """The bytes of a thread by kind, the largest first."""
    shared = {dotted(each.path) or "(other)": each.shared_bytes for each in sizes.lists}
    by_kind = [
        KindSize(name, size, shared.get(name, 0), 100 * size / sizes.bytes if sizes.bytes else 0.0)
        for name, size in kinds(sizes)
    ]
    return sorted(by_kind, key=lambda kind: -kind.bytes)


def _chart(values: Sequence[tuple[str, int, int]]) -> list[Bar]:
    return bars([(one_line(name, _NAME), bytes_text(size), size, shared) for name, size, shared in values])


def save_times(entries: Sequence[Entry]) -> list[SaveTime]:
    """The time between each checkpoint and its parent, oldest first, if both are among the entries."""
    known = {entry.checkpoint_id: entry for entry in entries}
    times = []
    for entry in reversed(entries):
        parent = known.get(entry.parent_id or "")
        if parent is not None:
            times.append(SaveTime(entry, max(0.0, (entry.created_at - parent.created_at).total_seconds())))
    return times
