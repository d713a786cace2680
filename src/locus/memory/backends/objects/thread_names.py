"""Which threads there are: marks, whose keys hold the ids, so that listing them reads no object.

A thread begins or ends with an event. Before that event is put, a mark `maybe` with its number is put, and
some time afterwards one that knows: `sure` or `gone`. The mark with the highest number is right, for nothing
begins or ends without one; where that is a `maybe`, the thread itself is asked. So a crash between any two of
these steps costs a look, and is never seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TypeVar, cast

from locus.errors import CorruptCheckpointError, UnsupportedFormatError
from locus.memory.backends.objects.client import PAGE, Listed, ObjectStore, together
from locus.memory.backends.objects.schema import (
    FORMAT,
    LONGEST_NAME,
    VERSION,
    Life,
    Mark,
    decoded,
    encoded,
    in_segments,
    mark,
    parse_mark,
)
from locus.memory.model.codec import decode
from locus.memory.model.ids import Pattern

T = TypeVar("T")


@dataclass
class Named:
    """What the marks say of one thread."""

    thread_id: str
    life: Life
    number: int
    listed: list[Listed] = field(default_factory=list)


Ask = Callable[[Named], Awaitable[tuple[bool, int]]]
"""Asks a thread whether it has checkpoints, and as of which number."""


class Names:
    """The marks of all threads of a store."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._checked = False
        self._formatted = False

    async def check_format(self) -> None:
        """Refuse a store that a newer version has begun."""
        body = await self._store.get(FORMAT)
        if body is None:
            self._checked = True
            return
        found = decode(body)
        version = found.get("format") if isinstance(found, dict) else None
        if not isinstance(version, int):
            raise CorruptCheckpointError(f"{FORMAT} of the store is damaged")
        if version > VERSION:
            raise UnsupportedFormatError(
                f"the objects here are in format {version}, and this Locus knows {VERSION}: upgrade locus-sdk"
            )
        self._checked = self._formatted = True

    async def alongside(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do some work; the first time check the format meanwhile, which has the last word."""
        if self._checked:
            return await work()
        checked, answer = await asyncio.gather(self.check_format(), work(), return_exceptions=True)
        for failed in (checked, answer):
            if isinstance(failed, BaseException):
                raise failed
        return cast(T, answer)

    async def put(self, thread_id: str, number: int, life: Life) -> None:
        if not self._formatted:
            await self._store.put(FORMAT, b'{"format":%d}\n' % VERSION, if_absent=True)
            await self.check_format()
        await self._store.put(mark(thread_id, number, life).key, thread_id.encode(), if_absent=False)

    async def end(self, thread_id: str, number: int) -> None:
        """The event with this number has removed the last checkpoint."""
        gone = mark(thread_id, number, Life.GONE)
        await self._store.put(gone.key, thread_id.encode(), if_absent=False)
        beginning = gone.key.rpartition("-")[0]
        found = [listed.key for listed in await self._store.list(f"{beginning}-")]
        await self._store.delete([key for key in found if key < gone.key])

    async def all(self, pattern: Pattern) -> AsyncIterator[list[Named]]:
        """What is known of each thread, a page at a time, in the order of their ids."""
        prefix = encoded(pattern.prefix)
        if len(prefix) <= LONGEST_NAME:
            async for page in self._pages(f"n/{in_segments(prefix)}"):
                yield [named for named in page if pattern.matches(named.thread_id)]

    async def long(self, pattern: Pattern) -> list[Named]:
        """The same for all threads whose ids are too long for a key, in any order."""
        return [named async for page in self._pages("l/") for named in page if pattern.matches(named.thread_id)]

    async def _pages(self, prefix: str) -> AsyncIterator[list[Named]]:
        after: str | None = None
        groups: dict[tuple[bool, str], list[tuple[Mark, Listed]]] = {}
        while True:
            page = await self.alongside(partial(self._store.list, prefix, start_after=after, limit=PAGE))
            for listed in page:
                found = parse_mark(listed.key)
                if found is not None:
                    groups.setdefault((found.long, found.name), []).append((found, listed))
            last = len(page) < PAGE
            # The marks of one thread may go on in the next page.
            ready = list(groups) if last else list(groups)[:-1]
            yield await self._named([groups.pop(name) for name in ready])
            if last:
                return
            after = page[-1].key

    async def _named(self, groups: list[list[tuple[Mark, Listed]]]) -> list[Named]:
        bodies = await self._store.get_many([group[-1][1].key for group in groups if group[0][0].long])
        named = []
        for group in groups:
            # Of equal numbers, `maybe` knows least.
            newest = max((found for found, _ in group), key=lambda m: (m.number, m.life is not Life.MAYBE))
            body = bodies.get(group[-1][1].key)
            if newest.long and body is None:
                continue
            thread_id = decoded(newest.name) if body is None else body.decode()
            named.append(Named(thread_id, newest.life, newest.number, [listed for _, listed in group]))
        return named

    async def alive(self, pattern: Pattern, limit: int | None, ask: Ask) -> list[str]:
        """The ids of threads that have checkpoints, in code point order."""
        long = await self._asked(await self.long(pattern), ask)
        found: list[str] = []
        async for page in self.all(pattern):
            found += await self._asked(page, ask)
            if limit is not None and len(found) >= limit:
                break
        return sorted([*long, *found])[:limit]

    async def _asked(self, page: list[Named], ask: Ask) -> list[str]:
        known = [named for named in page if named.life is not Life.GONE]

        async def lives(named: Named) -> bool:
            return named.life is Life.SURE or (await ask(named))[0]

        answers = await together([partial(lives, named) for named in known])
        return [named.thread_id for named, answer in zip(known, answers, strict=True) if answer]

    async def settle(self, ask: Ask, before: datetime) -> None:
        """Let no mark be in doubt, and remove those that say nothing any more.

        The last mark of a thread that is gone stays until it is older than `before`: somebody may be about to
        put one that was true before that.
        """
        for named in await self.long(Pattern()):
            await self._settle_one(named, ask, before)
        async for page in self.all(Pattern()):
            for named in page:
                await self._settle_one(named, ask, before)

    async def _settle_one(self, named: Named, ask: Ask, before: datetime) -> None:
        number, life = named.number, named.life
        if life is Life.MAYBE:
            alive, number = await ask(named)
            if number < named.number:
                return  # the event may still be on its way
            life = Life.SURE if alive else Life.GONE
            await self.put(named.thread_id, number, life)
        newest = mark(named.thread_id, number, life).key
        old = [listed.key for listed in named.listed if listed.key != newest]
        # Not together with the others: whatever is left of them must not have the last word.
        if life is Life.GONE and not old and named.listed[-1].modified < before:
            old = [newest]
        await self._store.delete(old)
