"""The log of one thread: numbered events, each an object that is put only if no object has its name yet.

That condition is the only exclusion between writers. Whoever puts event n knew all events before it, and those never
change. So what was decided on them holds at the instant when event n appears. Whoever comes second is told that the
object exists, reads it, and decides again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Generic, TypeVar

from locus.errors import ConflictError, CorruptCheckpointError
from locus.memory.backends.objects.client import ObjectStore, together
from locus.memory.backends.objects.index import ThreadIndex
from locus.memory.backends.objects.markers import ThreadMarkers
from locus.memory.backends.objects.merge import may_be_merged, merge, needs_merging
from locus.memory.backends.objects.read import (
    CachedThread,
    FetchedObjects,
    Instant,
    ObjectGone,
    ThreadObjects,
    list_objects,
    objects_with_texts,
    read_thread,
)
from locus.memory.backends.objects.schema import (
    Draft,
    MarkerState,
    MergedObject,
    TextRef,
    event_key,
    event_record,
    thread_name,
)
from locus.memory.model.ids import new_id, shown_thread
from locus.memory.runtime.per_loop import LoopLocks
from locus.memory.runtime.retry import Backoff

T = TypeVar("T")
Find = Callable[[ThreadIndex], tuple[T, Iterable[TextRef]] | None]
"""Finds something in the index, and the texts it needs."""

_READ_ATTEMPTS = 6
_BETWEEN_READS = Backoff(0.005, 0.1, random_part=0.0)
_PUT_ATTEMPTS = 200
_BETWEEN_PUTS = Backoff(0.002, 0.04, factor=1.2, random_part=1.0)
_MANY_EVENTS = 32
"""More events than this are not read one by one before checking whether they were merged."""

_log = logging.getLogger(__name__)


class Transition(Enum):
    """Whether an event makes a thread begin or end."""

    NONE = auto()
    BEGINS = auto()
    ENDS = auto()


@dataclass(frozen=True, slots=True)
class Proposal(Generic[T]):
    """What to answer, and the event that has to be put before, if any."""

    answer: T
    draft: Draft | None = None
    transition: Transition = Transition.NONE


class ThreadLog:
    """A thread as one handle sees it. What it knows is remembered, and need not be read again."""

    def __init__(self, store: ObjectStore, markers: ThreadMarkers, thread_id: str, lock: threading.Lock) -> None:
        self.thread_id = thread_id
        self.thread = thread_name(thread_id)
        self._store = store
        self._markers = markers
        self._known: CachedThread | None = None
        self._lock = lock
        self._saving = LoopLocks()

    @property
    def size(self) -> int:
        """How much memory this takes, roughly, in checkpoints."""
        return 1 + (len(self._known.index.rows) if self._known else 0)

    async def current(self) -> ThreadIndex:
        """The index as of now."""
        known = self._fresh()
        if known is None:
            return (await self._reload()).index
        return (await self._catch_up(known)).index

    async def ask(self, question: Callable[[ThreadIndex], T]) -> T:
        """Something that the index knows, as of now."""
        index = await self.current()
        with self._lock:
            return question(index)

    async def read(self, find: Find[T]) -> tuple[T, FetchedObjects] | None:
        """Something of the thread, with the texts that it needs."""
        for attempt in range(_READ_ATTEMPTS):
            try:
                return await self._read(find, cold=attempt > 0)
            except ObjectGone as error:
                # A merge or a sweep has moved it, or a deletion has removed it; the events tell which.
                gone = error
                self._known = None
                await _BETWEEN_READS.pause(attempt)
        raise CorruptCheckpointError(f"{shown_thread(self.thread_id)} is incomplete: {gone} is missing")

    async def _read(self, find: Find[T], cold: bool) -> tuple[T, FetchedObjects] | None:
        remembered = None if cold else self._fresh()
        if remembered is None:
            read = partial(read_thread, self._store, self.thread_id, payload=True)
            known, fetched = await self._markers.with_format_check(read)
            self._remember(known)
        else:
            # Usually nothing has changed, and what is needed is read at the same time.
            guessed = self._found(remembered, find)
            keys = self._objects_with(remembered, guessed[1]) if guessed else {}
            fetched = FetchedObjects()
            known = await self._catch_up_and_fetch(remembered, fetched, keys)
        found = self._found(known, find)
        if found is None:
            return None
        wanted = self._objects_with(known, found[1])
        if sum(isinstance(what, int) for what in wanted.values()) > _MANY_EVENTS:
            objects = await list_objects(self._store, self.thread)
            with self._lock:
                known.objects.entries, known.objects.items = objects.entries, objects.items
            wanted = self._objects_with(known, found[1])
        await fetched.fetch(self._store, wanted)
        fetched.unpack(wanted)
        for ref in found[1]:
            fetched.line(ref)
        return found[0], fetched

    async def _catch_up_and_fetch(
        self, known: CachedThread, fetched: FetchedObjects, keys: Collection[str]
    ) -> CachedThread:
        """Look for new events and read some objects at the same time."""
        caught_up: list[CachedThread] = []

        async def catch_up() -> None:
            caught_up.append(await self._catch_up(known))

        async def read_objects() -> None:
            await fetched.fetch(self._store, keys)

        await together([catch_up, read_objects])
        return caught_up[0]

    def _found(self, known: CachedThread, find: Find[T]) -> tuple[T, list[TextRef]] | None:
        with self._lock:
            found = find(known.index)
        return None if found is None else (found[0], list(found[1]))

    def _objects_with(self, known: CachedThread, refs: Iterable[TextRef]) -> dict[str, MergedObject | int]:
        with self._lock:
            return objects_with_texts(self.thread, known.objects.items, [ref.event for ref in refs])

    def _fresh(self) -> CachedThread | None:
        known = self._known
        return known if known is not None and known.fresh else None

    def _remember(self, known: CachedThread) -> None:
        with self._lock:
            if self._known is None or self._known.index.next <= known.index.next:
                self._known = known

    async def _reload(self) -> CachedThread:
        for attempt in range(_READ_ATTEMPTS):
            try:
                read = partial(read_thread, self._store, self.thread_id)
                known, _ = await self._markers.with_format_check(read)
            except ObjectGone as error:
                gone = error
                await _BETWEEN_READS.pause(attempt)
            else:
                self._remember(known)
                return known
        raise CorruptCheckpointError(f"{shown_thread(self.thread_id)} is incomplete: {gone} is missing")

    async def _catch_up(self, known: CachedThread, count: int = 1) -> CachedThread:
        """Apply what others have put since. If there is nothing new, one request tells."""
        while True:
            begun = Instant.now()
            start = known.index.next
            bodies = await self._store.get_many([event_key(self.thread, start + n) for n in range(count)])
            for number, body in enumerate(bodies.values(), start):
                if number < known.index.next:
                    continue  # a copy takes several numbers, and has only one object
                if body is None:
                    known.seen = max(known.seen, begun)
                    return known
                if not self._apply(known, body):
                    return await self._reload()
            if count >= 16:
                return await self._reload()
            count *= 4

    def _apply(self, known: CachedThread, body: bytes) -> bool:
        try:
            with self._lock:
                return known.apply(event_record(body))
        except CorruptCheckpointError:
            return False  # reading the whole thread tells whether this matters

    async def change(self, propose: Callable[[ThreadIndex], Proposal[T]]) -> T:
        """Put the event that `propose` asks for. What needs no event is answered as of now."""
        # Those who save through one handle wait for each other, instead of racing for a number.
        async with self._saving.current(self.thread):
            answer = await self._change(propose)
            await self._merge_if_due()
            return answer

    async def _change(self, propose: Callable[[ThreadIndex], Proposal[T]]) -> T:
        known = self._fresh()
        up_to_date = known is None
        known = known or await self._reload()
        by = new_id()
        for attempt in range(_PUT_ATTEMPTS):
            with self._lock:
                number, after = known.index.next, known.index.by
                proposal = propose(known.index)
                just_begun = known.index.born == number - 1 and bool(known.index.rows)
                put_sure_marker = just_begun and proposal.transition is Transition.NONE
            if proposal.draft is None:
                if up_to_date:
                    return proposal.answer
                known, up_to_date = await self._catch_up(known), True
                continue
            begun = Instant.now()
            body = proposal.draft.body(self.thread_id, number, by, after)
            if await self._put(number, body, by, proposal.transition, put_sure_marker=put_sure_marker):
                with self._lock:
                    known.apply(event_record(body))
                    known.seen = max(known.seen, begun)
                if proposal.transition is Transition.ENDS:
                    await self._best_effort(self._markers.end(self.thread_id, number))
                return proposal.answer
            known, up_to_date = await self._catch_up(known, 1 if attempt == 0 else 4), True
            await _BETWEEN_PUTS.pause(attempt)
        raise ConflictError(
            f"thread {self.thread_id!r} is changed by others faster than this save can follow; try again"
        )

    async def _put(self, number: int, body: bytes, by: str, transition: Transition, *, put_sure_marker: bool) -> bool:
        """Put an event if its number is free. Returns whether the event with this number is now this one."""
        if transition is not Transition.NONE:
            await self._markers.put(self.thread_id, number, MarkerState.MAYBE)
        if not put_sure_marker:
            return await self._put_event(number, body, by)
        put, _ = await together([partial(self._put_event, number, body, by), partial(self._put_sure, number - 1)])
        return put

    async def _put_sure(self, number: int) -> bool:
        return await self._best_effort(self._markers.put(self.thread_id, number, MarkerState.SURE))

    async def _best_effort(self, work: Awaitable[None]) -> bool:
        """Do something that only saves others a request. If it fails, the caller's work is done all the same."""
        try:
            await work
        except self._store.driver_errors as error:
            _log.warning("a marker could not be put, which a sweep will make good: %s", self._kinds(error))
            return False
        return True

    def _kinds(self, error: BaseException) -> str:
        """What kind of error this is. Its text may have keys of objects in it, and they have ids of threads."""
        return f"{type(self._store.translate(error)).__name__}, {type(error).__name__}"

    async def _put_event(self, number: int, body: bytes, by: str) -> bool:
        key = event_key(self.thread, number)
        try:
            if await self._store.put(key, body, if_absent=True):
                return True
        except self._store.driver_errors:
            # Perhaps only the answer was lost.
            if not await self._was_put_by(by, key):
                raise
            return True
        return await self._was_put_by(by, key)

    async def _was_put_by(self, by: str, key: str) -> bool:
        found = await self._store.get(key)
        try:
            return found is not None and event_record(found).get("by") == by
        except CorruptCheckpointError:
            return False

    async def _merge_if_due(self) -> None:
        """Merge what has piled up. The save is done: if this fails, a later save tries again."""
        known = self._known
        if known is None or not needs_merging(known.objects):
            return
        with self._lock:
            since, end = known.index.needed_from(), known.index.last_seq
            objects = ThreadObjects(
                list(known.objects.entries), list(known.objects.items), list(known.objects.unmerged)
            )
        try:
            if may_be_merged(objects):
                objects = await list_objects(self._store, self.thread)
                objects.unmerged = [number for number in objects.unmerged if number <= end]
            await merge(self._store, self.thread, objects, since=since, end=end)
        except ObjectGone:
            self._known = None  # somebody else is merging just now
        except self._store.driver_errors as error:
            _log.warning("events could not be merged, which will be tried again: %s", self._kinds(error))
        else:
            with self._lock:
                merged_to = objects.merged_to
                known.objects.entries, known.objects.items = objects.entries, objects.items
                known.objects.unmerged = [number for number in known.objects.unmerged if number > merged_to]

    async def take_number(self, number: int) -> None:
        """Use up this number if it is the next one: a save that wanted it and never came will not get it."""

        def propose(index: ThreadIndex) -> Proposal[None]:
            return Proposal(None, Draft("none", {}) if index.next == number else None)

        await self.change(propose)

    async def reset(self) -> None:
        """Make everything that was put before count for nothing, even what cannot be read."""
        objects = await list_objects(self._store, self.thread)
        number = max([objects.merged_to, *objects.unmerged]) + 1
        by = new_id()
        await self._markers.put(self.thread_id, number, MarkerState.MAYBE)
        while not await self._put_event(number, Draft("reset", {}).body(self.thread_id, number, by), by):
            number += 1
            await self._markers.put(self.thread_id, number, MarkerState.MAYBE)
        self._known = None
        await self._best_effort(self._markers.end(self.thread_id, number))
