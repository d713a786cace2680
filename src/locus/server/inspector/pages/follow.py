"""New checkpoints of a thread as they come, as server-sent events.

    checkpoint   a row of the timeline; its number is the id of the event
    missed       more came at once than is read: the page has to be loaded again
    shortened    checkpoints were deleted: the page has to be loaded again
    trouble      the store does not answer, and is asked again; `fine` when it does

A stream ends when its client goes, when the session or its token has ended, when the server shuts down, and by itself
after some minutes. The browser then asks
again with the id of the last event, goes on after it, and has to show again that it may see the thread.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, aclosing, contextmanager, suppress
from functools import partial
from time import monotonic
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from locus.errors import LocusError
from locus.looking.formatting import ago, one_line
from locus.looking.histories import Following
from locus.looking.saves import saves_of
from locus.looking.turns import Save
from locus.memory.model.codec import encode_trusted
from locus.memory.model.records import DEFAULT_NAMESPACE
from locus.server.connections import ON_SHUTDOWN
from locus.server.inspector.pages.base import Pages, no_such_thread, off_loop
from locus.server.inspector.pages.timeline import TimelineRow, rows_of
from locus.server.inspector.rendering import Rendering, moment, time_of_day, utc_time
from locus.wire.problems import Problem

MOST_STREAMS: Final = 32
MOST_OF_A_TOKEN: Final = 8
"""The most streams of one token, so that nobody takes all of them."""
MOST_AT_ONCE: Final = 200
"""The most checkpoints that a stream reads at once, after the browser was away for a while."""
LIFE_SECONDS: Final = 600.0
RETRY_MS: Final = 2_000
"""The time that a browser waits before it asks again."""

_NAME, _SAID = 30, 80
"""The most columns of a namespace, and of the metadata."""

FollowEvent = dict[str, Any]
_ALIVE: Final = b":\n\n"
"""A comment, which keeps proxies from closing the connection."""


class FollowPages:
    """The streams of an inspector. They are few, because each of them asks the store every few seconds."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._authorized = pages.authorized
        self._rendering = pages.rendering
        self._open: Counter[str] = Counter()

    async def follow(self, request: Request) -> Response:
        """Follow a thread: one namespace of it, or all. `after` is the number of the newest checkpoint on the page."""
        thread_id = self._pages.thread(request)
        namespace = request.query_params.get("ns")
        store = self._authorized.store
        newest = await self._authorized.query(store.history(thread_id, 1, None, namespace))
        if not newest:
            raise no_such_thread()
        seen = _number(request.headers.get("last-event-id") or request.query_params.get("after"), newest[0].seq)
        if request.method == "HEAD":
            return Response(media_type=ServerSentEvents.media_type)
        following = Following(store, thread_id, namespace, seen, most=MOST_AT_ONCE)
        token_id = self._authorized.grant(request).token_id
        is_allowed = partial(self._authorized.may_still_see, request, thread_id)
        return ServerSentEvents(lambda: self._place(token_id), lambda ended: self._events(following, ended, is_allowed))

    @contextmanager
    def _place(self, token_id: str) -> Iterator[None]:
        if self._open.total() >= MOST_STREAMS:
            raise _too_many(f"{MOST_STREAMS} pages follow threads already, which is as many as this server has")
        if token_id and self._open[token_id] >= MOST_OF_A_TOKEN:
            raise _too_many(f"{MOST_OF_A_TOKEN} pages follow threads with this token already")
        self._open[token_id] += 1
        try:
            yield
        finally:
            self._open[token_id] -= 1
            self._open += Counter()  # without those that have none any more

    async def _events(
        self, following: Following, ended: asyncio.Event, is_allowed: Callable[[], bool]
    ) -> AsyncGenerator[bytes, None]:
        yield f"retry: {RETRY_MS}\nid: {following.seen}\n\n".encode()
        until, fine = monotonic() + LIFE_SECONDS, True
        while not ended.is_set() and monotonic() < until:
            seen = following.seen
            try:
                fresh = await self._authorized.query(following.look())
                saves = await self._authorized.query(saves_of(self._authorized.store, fresh))
            except (LocusError, Problem):
                following.seen = seen  # what was not told comes again
                following.slower()
                yield event("trouble", {}) if fine else _ALIVE
                fine = False
            else:
                told = await off_loop(partial(self._told, following, saves, fine))
                if not is_allowed():  # since the last look, which may be long ago
                    return
                for part in told:
                    yield part
                fine = True
                if following.missed or following.shortened:
                    return
            await _sleep(following.pause, ended)

    def _told(self, following: Following, fresh: Sequence[Save], fine: bool) -> list[bytes]:
        told = [] if fine else [event("fine", {})]
        if following.missed:
            return [*told, event("missed", {})]
        if following.shortened:
            return [*told, event("shortened", {})]
        read = {save.entry.seq: save for save in fresh}
        page = [read.get(entry.seq, Save(entry)) for entry in following.page]
        rows = [row for row in reversed(rows_of(page, newest=True)) if row.entry.seq in read]
        shown = [event("checkpoint", facts_of(self._rendering, row), row.entry.seq) for row in rows]
        return [*told, *shown] or [_ALIVE]


def _too_many(what: str) -> Problem:
    return Problem(503, "too_many_streams", f"{what}: close one", headers={"Retry-After": "10"})


def facts_of(rendering: Rendering, row: TimelineRow) -> FollowEvent:
    """The row of a new checkpoint in the timeline, as texts that a browser can show as they are."""
    entry = row.entry
    place = ("t", entry.thread_id)
    changes = None
    if entry.parent_id is not None:
        changes = rendering.url(*place, "diff", entry.parent_id, entry.checkpoint_id, ns=entry.namespace)
    chips = [] if row.fork_of is None else [f"fork of #{row.fork_of}"]
    chips += [one_line(entry.namespace, _NAME)] if entry.namespace != DEFAULT_NAMESPACE else []
    return {
        "checkpoint": entry.checkpoint_id,
        "ns": entry.namespace,
        "seq": entry.seq,
        "name": row.name,
        "href": rendering.url(*place, "c", entry.checkpoint_id, ns=entry.namespace),
        "changes": changes,
        "at": moment(entry.created_at),
        "clock": utc_time(entry.created_at),
        "time": time_of_day(entry.created_at),
        "ago": ago(entry.created_at),
        "chips": chips,
        "lines": [["asked" if line.asks else line.kind, line.who, line.text] for line in row.lines],
        "facts": row.facts,
        "said": one_line(row.said, _SAID),
    }


def event(name: str, data: FollowEvent, number: int | None = None) -> bytes:
    """One event. JSON text has no line ends, so it fits on one line."""
    identified = "" if number is None else f"id: {number}\n"
    return f"event: {name}\n{identified}data: {encode_trusted(data)}\n\n".encode()


class ServerSentEvents(Response):
    """An answer that goes on until its events end, or the client or the server does."""

    media_type = "text/event-stream"

    def __init__(
        self,
        place: Callable[[], AbstractContextManager[None]],
        events: Callable[[asyncio.Event], AsyncGenerator[bytes, None]],
    ) -> None:
        super().__init__(headers={"x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._place = place
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._place():
            ended = asyncio.Event()
            scope.get(ON_SHUTDOWN, []).append(ended.set)
            listening = asyncio.create_task(_until_gone(receive, ended))
            try:
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                async with aclosing(self._events(ended)) as events:
                    async for part in events:
                        await send({"type": "http.response.body", "body": part, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
            finally:
                listening.cancel()
                with suppress(asyncio.CancelledError):
                    await listening


async def _until_gone(receive: Receive, ended: asyncio.Event) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    ended.set()


async def _sleep(seconds: float, ended: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await ended.wait()


def _number(text: str | None, otherwise: int) -> int:
    """The number in a text; `otherwise`, if the text is none."""
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) <= 18 else otherwise


def routes(pages: Pages) -> list[Route]:
    return [Route("/t/{thread_id}/follow", FollowPages(pages).follow, methods=["GET"])]
