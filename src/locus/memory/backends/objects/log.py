"""One thread of an object store: a log of numbered events, each an object that is put only if it is not there.

That condition is the whole exclusion between writers. Who puts event n knew all events before it, which never
change; so what was decided on them holds at the instant when event n appears. Whoever comes second is told that
the object exists, reads it, and decides again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Generic, TypeVar

from locus.errors import ConflictError, CorruptCheckpointError
from locus.memory.backends.objects.client import ObjectStore, together
from locus.memory.backends.objects.compaction import lags_behind, merge, needs_merging
from locus.memory.backends.objects.index import ThreadIndex
from locus.memory.backends.objects.read import (
    Fetched,
    Knowledge,
    Moment,
    Shelf,
    Vanished,
    homes,
    list_shelf,
    look,
)
from locus.memory.backends.objects.schema import Draft, Life, Place, Segment, event_key, event_record, thread_name
from locus.memory.backends.objects.thread_names import Names
from locus.memory.model.ids import new_id

T = TypeVar("T")

_LOOKS = 6
_MANY = 32
"""More events than this are not read one by one, without looking whether they were merged."""
_LOST = 200

_log = logging.getLogger(__name__)


class Turn(Enum):
    """Whether an event makes a thread begin or end."""

    NEITHER = auto()
    BEGINS = auto()
    ENDS = auto()


@dataclass(frozen=True, slots=True)
class Step(Generic[T]):
    """What is to be answered, and the event that has to be put before."""

    answer: T
    draft: Draft | None = None
    turn: Turn = Turn.NEITHER


class ThreadLog:
    """A thread as one handle sees it. What it knows is kept, and need not be read again."""

    def __init__(self, store: ObjectStore, names: Names, thread_id: str) -> None:
        self.thread_id = thread_id
        self.thread = thread_name(thread_id)
        self._store = store
        self._names = names
        self._known: Knowledge | None = None
        self._lock = threading.Lock()
        self._turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()

    @property
    def size(self) -> int:
        """How much memory is taken, roughly, in checkpoints."""
        return 1 + (len(self._known.index.rows) if self._known else 0)

    async def current(self) -> ThreadIndex:
        """The index as of now."""
        known = self._trusted()
        if known is None:
            return (await self._look()).index
        return (await self._caught_up(known)).index

    async def ask(self, question: Callable[[ThreadIndex], T]) -> T:
        """Something that the index knows, as of now."""
        index = await self.current()
        with self._lock:
            return question(index)

    async def read(self, find: Callable[[ThreadIndex], tuple[T, Iterable[Place]] | None]) -> tuple[T, Fetched] | None:
        """Something of the thread, with the texts that it needs."""
        for attempt in range(_LOOKS):
            try:
                return await self._read(find, cold=attempt > 0)
            except Vanished as error:
                # A merge or a sweep has moved it, or a deletion has removed it; the events tell which.
                vanished = error
                self._known = None
                await asyncio.sleep(0.02 * attempt)
        raise CorruptCheckpointError(f"thread {self.thread_id!r} is incomplete: {vanished} is missing")

    async def _read(
        self, find: Callable[[ThreadIndex], tuple[T, Iterable[Place]] | None], cold: bool
    ) -> tuple[T, Fetched] | None:
        trusted = None if cold else self._trusted()
        if trusted is None:
            known, fetched = await self._names.alongside(partial(look, self._store, self.thread_id, payload=True))
            self._install(known)
        else:
            # In the usual case nothing has changed, and what is needed is read at the same time.
            guessed = self._found(trusted, find)
            keys = self._homes(trusted, guessed[1]) if guessed else {}
            fetched = Fetched()
            known = await self._both(trusted, fetched, keys)
        found = self._found(known, find)
        if found is None:
            return None
        wanted = self._homes(known, found[1])
        if sum(isinstance(what, int) for what in wanted.values()) > _MANY:
            shelf = await list_shelf(self._store, self.thread)
            with self._lock:
                known.shelf.entries, known.shelf.items = shelf.entries, shelf.items
            wanted = self._homes(known, found[1])
        await fetched.fetch(self._store, wanted)
        fetched.unpack(wanted)
        for place in found[1]:
            fetched.line(place)
        return found[0], fetched

    async def _both(self, known: Knowledge, fetched: Fetched, keys: Collection[str]) -> Knowledge:
        """Look for news, and read some objects, at the same time."""
        news: list[Knowledge] = []

        async def look_for_news() -> None:
            news.append(await self._caught_up(known))

        async def read_objects() -> None:
            await fetched.fetch(self._store, keys)

        await together([look_for_news, read_objects])
        return news[0]

    def _found(
        self, known: Knowledge, find: Callable[[ThreadIndex], tuple[T, Iterable[Place]] | None]
    ) -> tuple[T, list[Place]] | None:
        with self._lock:
            found = find(known.index)
        return None if found is None else (found[0], list(found[1]))

    def _homes(self, known: Knowledge, places: Iterable[Place]) -> dict[str, Segment | int]:
        with self._lock:
            return homes(self.thread, known.shelf.items, [place.event for place in places])

    def _trusted(self) -> Knowledge | None:
        known = self._known
        return known if known is not None and known.trusted else None

    def _install(self, known: Knowledge) -> None:
        with self._lock:
            if self._known is None or self._known.index.next <= known.index.next:
                self._known = known

    async def _look(self) -> Knowledge:
        for attempt in range(_LOOKS):
            try:
                known, _ = await self._names.alongside(partial(look, self._store, self.thread_id))
            except Vanished as error:
                vanished = error
                await asyncio.sleep(0.02 * attempt)
            else:
                self._install(known)
                return known
        raise CorruptCheckpointError(f"thread {self.thread_id!r} is incomplete: {vanished} is missing")

    async def _caught_up(self, known: Knowledge, count: int = 1) -> Knowledge:
        """Take in what others have put since; one request says that there is nothing."""
        while True:
            begun = Moment.now()
            start = known.index.next
            bodies = await self._store.get_many([event_key(self.thread, start + n) for n in range(count)])
            for number, body in enumerate(bodies.values(), start):
                if number < known.index.next:
                    continue  # a copy takes several numbers, and has only one object
                if body is None:
                    known.seen = max(known.seen, begun)
                    return known
                if not self._take(known, body):
                    return await self._look()
            if count >= 16:
                return await self._look()
            count *= 4

    def _take(self, known: Knowledge, body: bytes) -> bool:
        try:
            with self._lock:
                return known.take(event_record(body))
        except CorruptCheckpointError:
            return False  # a look at the whole thread says whether this matters

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Those who save through one handle take turns, and do not race each other."""
        loop = asyncio.get_running_loop()
        with self._lock:
            lock = self._turns.setdefault(loop, asyncio.Lock())
        async with lock:
            yield

    async def change(self, propose: Callable[[ThreadIndex], Step[T]]) -> T:
        """Put the event that `propose` asks for. What needs no event is answered as of now."""
        async with self._turn():
            answer = await self._change(propose)
            await self._tidy()
            return answer

    async def _change(self, propose: Callable[[ThreadIndex], Step[T]]) -> T:
        known = self._trusted()
        checked = known is None
        known = known or await self._look()
        by = new_id()
        for lost in range(_LOST):
            with self._lock:
                number = known.index.next
                step = propose(known.index)
                confirmed = known.index.born == number - 1 and step.turn is Turn.NEITHER and bool(known.index.rows)
            if step.draft is None:
                if checked:
                    return step.answer
                known, checked = await self._caught_up(known), True
                continue
            begun = Moment.now()
            if await self._put(number, step, by, confirm=confirmed):
                with self._lock:
                    known.take(event_record(step.draft.body(self.thread_id, number, by)))
                    known.seen = max(known.seen, begun)
                if step.turn is Turn.ENDS:
                    await self._noted(self._names.end(self.thread_id, number))
                return step.answer
            known, checked = await self._caught_up(known, 1 if lost == 0 else 4), True
            await asyncio.sleep(random.random() * min(lost, 20) * 0.002)
        raise ConflictError(
            f"thread {self.thread_id!r} is changed by others faster than this save can follow; try again"
        )

    async def _put(self, number: int, step: Step[T], by: str, *, confirm: bool) -> bool:
        """Put an event, if its number is free. Returns whether it is there now, and ours."""
        assert step.draft is not None
        body = step.draft.body(self.thread_id, number, by)
        if step.turn is not Turn.NEITHER:
            await self._names.put(self.thread_id, number, Life.MAYBE)
        if not confirm:
            return await self._put_event(number, body, by)
        ours, _ = await together([partial(self._put_event, number, body, by), partial(self._confirmed, number - 1)])
        return ours

    async def _confirmed(self, number: int) -> bool:
        return await self._noted(self._names.put(self.thread_id, number, Life.SURE))

    async def _noted(self, work: Awaitable[None]) -> bool:
        """Something that only spares others a look: what was asked for is done without it."""
        try:
            await work
        except self._store.driver_errors as error:
            _log.warning("a mark could not be put, which a sweep will make good: %s", self._store.translate(error))
            return False
        return True

    async def _put_event(self, number: int, body: bytes, by: str) -> bool:
        key = event_key(self.thread, number)
        try:
            if await self._store.put(key, body, if_absent=True):
                return True
        except self._store.driver_errors:
            # Perhaps only the answer was lost.
            if not await self._is_ours(key, by):
                raise
            return True
        return await self._is_ours(key, by)

    async def _is_ours(self, key: str, by: str) -> bool:
        found = await self._store.get(key)
        try:
            return found is not None and event_record(found).get("by") == by
        except CorruptCheckpointError:
            return False

    async def _tidy(self) -> None:
        """Merge what has piled up. The save is done: if this fails, a later one will try again."""
        known = self._known
        if known is None or not needs_merging(known.shelf):
            return
        with self._lock:
            since, end = known.index.needed_from(), known.index.last_seq
            shelf = Shelf(list(known.shelf.entries), list(known.shelf.items), list(known.shelf.tail))
        try:
            if lags_behind(shelf):
                shelf = await list_shelf(self._store, self.thread)
                shelf.tail = [number for number in shelf.tail if number <= end]
            await merge(self._store, self.thread, shelf, since=since, end=end)
        except Vanished:
            self._known = None  # somebody else is merging just now
        except self._store.driver_errors as error:
            _log.warning("events could not be merged, which will be tried again: %s", self._store.translate(error))
        else:
            with self._lock:
                done = shelf.merged
                known.shelf.entries, known.shelf.items = shelf.entries, shelf.items
                known.shelf.tail = [number for number in known.shelf.tail if number > done]

    async def take_number(self, number: int) -> None:
        """Let this number be taken, if it is the next: whoever wanted it, and has not come, will not get it."""

        def propose(index: ThreadIndex) -> Step[None]:
            return Step(None, Draft("none", {}) if index.next == number else None)

        await self.change(propose)

    async def reset(self) -> None:
        """Let nothing count that was put before, also where it cannot be read."""
        shelf = await list_shelf(self._store, self.thread)
        number = max([shelf.merged, *shelf.tail]) + 1
        by = new_id()
        await self._names.put(self.thread_id, number, Life.MAYBE)
        while not await self._put_event(number, Draft("reset", {}).body(self.thread_id, number, by), by):
            number += 1
            await self._names.put(self.thread_id, number, Life.MAYBE)
        self._known = None
        await self._noted(self._names.end(self.thread_id, number))
