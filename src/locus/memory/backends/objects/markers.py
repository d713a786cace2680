"""Markers of the existing threads. Their keys hold the ids of threads, so that listing threads reads no object.

A thread begins or ends with an event. Before that event, a marker `maybe` with its number is put; some time after it, a
marker that is certain: `sure` or `gone`. The marker with the highest number counts, because nothing begins or ends
without one. Where that is a `maybe`, the thread itself is read. So a crash between any two of these steps costs a
request, and has no other effect.

This module also checks the format of the store, before anything in it is believed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TypeVar, cast

from locus.errors import CorruptCheckpointError
from locus.memory.backends.objects.client import PAGE, ListedObject, ObjectStore, together
from locus.memory.backends.objects.schema import (
    FORMAT,
    MAX_ENCODED_ID,
    VERSION,
    Marker,
    MarkerState,
    decoded,
    encoded,
    marker_of,
    parse_marker,
    thread_name,
    with_slashes,
)
from locus.memory.model.codec import decode
from locus.memory.model.formats import check_format, oldest
from locus.memory.model.ids import Pattern

T = TypeVar("T")

_FORMAT_BODY = b'{"format":%d}\n' % VERSION


@dataclass
class MarkedThread:
    """The facts about one thread that its markers tell."""

    thread_id: str
    state: MarkerState
    number: int
    listed: list[ListedObject] = field(default_factory=list)


HasCheckpoints = Callable[[MarkedThread], Awaitable[tuple[bool, int]]]
"""Reads whether a thread has checkpoints, and as of which number."""


class ThreadMarkers:
    """The markers of all threads of a store."""

    def __init__(self, store: ObjectStore, reading_only: Callable[[], bool] = lambda: False) -> None:
        self._store = store
        self._reading_only = reading_only
        self._found = VERSION
        self._checked = False
        self._formatted = False

    async def check_format(self) -> None:
        """Refuse a store that a newer version has begun."""
        body = await self._store.get(FORMAT)
        if body is None:
            self._checked = True
            return
        stored = decode(body)
        version = stored.get("format") if isinstance(stored, dict) else None
        if not isinstance(version, int):
            raise CorruptCheckpointError(f"{FORMAT} of the store is damaged")
        check_format(version, VERSION, stored.get(oldest(self._reading_only())), "the objects here are in")
        self._found = version
        self._checked = self._formatted = True

    async def with_format_check(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do some work. The first time, check the format meanwhile, and raise its error rather than the work's."""
        if self._checked:
            return await work()
        checked, answer = await asyncio.gather(self.check_format(), work(), return_exceptions=True)
        for failed in (checked, answer):
            if isinstance(failed, BaseException):
                raise failed
        return cast(T, answer)

    async def put(self, thread_id: str, number: int, state: MarkerState) -> None:
        if not self._formatted:
            await self._store.put(FORMAT, _FORMAT_BODY, if_absent=True)
            await self.check_format()
        if self._found < VERSION:
            # Events say in which format they are. This keeps older versions from beginning threads here.
            await self._store.put(FORMAT, _FORMAT_BODY, if_absent=False)
            self._found = VERSION
        await self._store.put(marker_of(thread_id, number, state).key, thread_id.encode(), if_absent=False)

    async def end(self, thread_id: str, number: int) -> None:
        """Put the marker of a thread whose last checkpoint was removed by the event with this number."""
        gone = marker_of(thread_id, number, MarkerState.GONE)
        await self._store.put(gone.key, thread_id.encode(), if_absent=False)
        beginning = gone.key.rpartition("-")[0]
        found = [listed.key for listed in await self._store.list(f"{beginning}-")]
        await self._store.delete([key for key in found if key < gone.key])

    async def all(self, pattern: Pattern) -> AsyncIterator[list[MarkedThread]]:
        """Yield the threads that have markers, a page at a time, in the order of their ids."""
        prefix = encoded(pattern.prefix)
        if len(prefix) <= MAX_ENCODED_ID and not pattern.matches_none:
            after = _behind(pattern.after) if pattern.from_after else None
            async for page in self._pages(f"n/{with_slashes(prefix)}", after):
                yield [thread for thread in page if pattern.matches(thread.thread_id)]
                if pattern.end is not None and page and page[-1].thread_id >= pattern.end:
                    return

    async def long(self, pattern: Pattern) -> list[MarkedThread]:
        """Yield the threads that have markers and ids too long for a key, in any order."""
        return [thread async for page in self._pages("l/") for thread in page if pattern.matches(thread.thread_id)]

    async def _pages(self, prefix: str, after: str | None = None) -> AsyncIterator[list[MarkedThread]]:
        groups: dict[tuple[bool, str], list[tuple[Marker, ListedObject]]] = {}
        while True:
            page = await self.with_format_check(partial(self._store.list, prefix, start_after=after, limit=PAGE))
            for listed in page:
                marker = parse_marker(listed.key)
                if marker is not None:
                    groups.setdefault((marker.long, marker.name), []).append((marker, listed))
            last = len(page) < PAGE
            # The markers of one thread may go on in the next page.
            ready = list(groups) if last else list(groups)[:-1]
            yield await self._grouped([groups.pop(name) for name in ready])
            if last:
                return
            after = page[-1].key

    async def _grouped(self, groups: list[list[tuple[Marker, ListedObject]]]) -> list[MarkedThread]:
        bodies = await self._store.get_many([group[-1][1].key for group in groups if group[0][0].long])
        threads = []
        for group in groups:
            # Of equal numbers, `maybe` knows least.
            newest = max((marker for marker, _ in group), key=lambda m: (m.number, m.state is not MarkerState.MAYBE))
            body = bodies.get(group[-1][1].key)
            if newest.long and body is None:
                continue
            thread_id = decoded(newest.name) if body is None else _long_id(newest.name, body)
            threads.append(MarkedThread(thread_id, newest.state, newest.number, [listed for _, listed in group]))
        return threads

    async def existing(self, pattern: Pattern, limit: int | None, has_checkpoints: HasCheckpoints) -> list[str]:
        """List the ids of threads that have checkpoints, in code point order."""
        long = await self._existing(await self.long(pattern), has_checkpoints)
        ids: list[str] = []
        async for page in self.all(pattern):
            while page and (limit is None or len(ids) < limit):
                wanted = len(page) if limit is None else limit - len(ids)
                ids += await self._existing(page[:wanted], has_checkpoints)
                page = page[wanted:]
            if limit is not None and len(ids) >= limit:
                break
        return sorted([*long, *ids])[:limit]

    async def _existing(self, page: list[MarkedThread], has_checkpoints: HasCheckpoints) -> list[str]:
        known = [thread for thread in page if thread.state is not MarkerState.GONE]

        async def exists(thread: MarkedThread) -> bool:
            return thread.state is MarkerState.SURE or (await has_checkpoints(thread))[0]

        answers = await together([partial(exists, thread) for thread in known])
        return [thread.thread_id for thread, answer in zip(known, answers, strict=True) if answer]

    async def settle(self, has_checkpoints: HasCheckpoints, before: datetime) -> None:
        """Replace every `maybe` by a certain marker, and remove markers that no longer say anything.

        The last marker of a thread that is gone stays until it is older than `before`: somebody may be about to put one
        that was true earlier.
        """
        for thread in await self.long(Pattern()):
            await self._settle_one(thread, has_checkpoints, before)
        async for page in self.all(Pattern()):
            for thread in page:
                await self._settle_one(thread, has_checkpoints, before)

    async def _settle_one(self, thread: MarkedThread, has_checkpoints: HasCheckpoints, before: datetime) -> None:
        number, state = thread.number, thread.state
        if state is MarkerState.MAYBE:
            exists, number = await has_checkpoints(thread)
            if number < thread.number:
                return  # the event may still be on its way
            state = MarkerState.SURE if exists else MarkerState.GONE
            await self.put(thread.thread_id, number, state)
        newest = marker_of(thread.thread_id, number, state).key
        old = [listed.key for listed in thread.listed if listed.key != newest]
        # Not together with the others: whatever is left of them must not have the last word.
        if state is MarkerState.GONE and not old and thread.listed[-1].modified < before:
            old = [newest]
        await self._store.delete(old)


def _long_id(name: str, body: bytes) -> str:
    """Read an id that is too long for a key from the marker with its digest."""
    try:
        thread_id = body.decode()
    except UnicodeDecodeError:
        thread_id = ""
    if thread_name(thread_id) != name:
        raise CorruptCheckpointError("a marker of a thread is damaged: it holds another id than its name says")
    return thread_id


def _behind(thread_id: str) -> str:
    """A key behind the markers of a thread, and before those of all threads that follow it."""
    name = encoded(thread_id)
    if len(name) > MAX_ENCODED_ID:  # no marker has this name; those that follow it follow its beginning, too
        return f"n/{with_slashes(name[:MAX_ENCODED_ID])}"
    return f"n/{with_slashes(name)}-~"
