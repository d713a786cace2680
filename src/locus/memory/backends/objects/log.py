"""The log of one thread: numbered events, each an object that is put only if no object has its name yet.

That condition is the only exclusion between writers. The writer of event n knew all events before it, and those never
change. So its decision holds at the instant when event n appears. A writer that comes second is told that the object
exists, reads it, and decides again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Generic, TypeVar

from locus.errors import ConflictError, CorruptCheckpointError
from locus.memory.backends.objects.client import ObjectStore, together
from locus.memory.backends.objects.index import EarlierEventsNeeded, ThreadIndex
from locus.memory.backends.objects.markers import ThreadMarkers
from locus.memory.backends.objects.merge import may_be_merged, merge, needs_merging
from locus.memory.backends.objects.read import (
    CachedThread,
    ClockReading,
    Recent,
    ThreadObjects,
    list_objects,
    read_recent,
    read_thread,
)
from locus.memory.backends.objects.schema import Draft, MarkerState, TextRef, event_key, event_record, thread_name
from locus.memory.backends.objects.texts import FetchedObjects, Located, ObjectGone, located
from locus.memory.backends.objects.tip import tip_line
from locus.memory.model.ids import new_id, shown_thread
from locus.memory.runtime.per_loop import LoopLocks
from locus.memory.runtime.retry import Backoff

T = TypeVar("T")
Find = Callable[[ThreadIndex], tuple[T, Iterable[TextRef]] | None]
"""Finds an answer in the index, and the texts that it needs."""

_READ_ATTEMPTS = 6
_BETWEEN_READS = Backoff(0.005, 0.1, random_part=0.0)
_PUT_ATTEMPTS = 200
_BETWEEN_PUTS = Backoff(0.002, 0.04, factor=1.2, random_part=1.0)
_MANY_EVENTS = 32
"""The number of events that are read one by one before checking whether they were merged."""

_log = logging.getLogger(__name__)


class Transition(Enum):
    """An event's effect on the existence of the thread: it begins, ends, or neither."""

    NONE = auto()
    BEGINS = auto()
    ENDS = auto()


@dataclass(frozen=True, slots=True)
class Proposal(Generic[T]):
    """An answer, with the event that has to be put before it is given, if any."""

    answer: T
    draft: Draft | None = None
    transition: Transition = Transition.NONE


@dataclass(frozen=True, slots=True)
class _DueMerge:
    """The facts about a thread that a merge needs, all as of one instant."""

    objects: ThreadObjects
    since: int
    end: int
    tip: bytes | None
    """The line of the tip; None if not enough of the thread is known for one."""

    @classmethod
    def of(cls, known: CachedThread) -> _DueMerge:
        index, objects = known.index, known.objects
        copy = ThreadObjects(list(objects.entries), list(objects.items), list(objects.unmerged))
        since, tip = objects.needed_from, None
        with suppress(EarlierEventsNeeded):
            tip = tip_line(index)
            since = index.needed_from()
        return cls(copy, since, index.last_seq, tip)


class ThreadLog:
    """A thread as one handle sees it. It remembers what it has read."""

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
        """The approximate size in memory, in checkpoints."""
        return 1 + (len(self._known.index.rows) if self._known else 0)

    async def ask(self, question: Callable[[ThreadIndex], T], recent: Recent | None = None) -> T:
        """Answer a question about the index, as of now.

        `recent` says that the newest events are enough for it, or else that `question` raises `EarlierEventsNeeded`.
        """
        while True:
            known = self._fresh(recent)
            known = await self._reload(recent) if known is None else await self._catch_up(known)
            try:
                with self._lock:
                    return question(known.index)
            except EarlierEventsNeeded:
                recent = self._further(recent)

    async def read(self, find: Find[T], recent: Recent | None = None) -> tuple[T, FetchedObjects] | None:
        """Answer a question about the thread, and read the texts that it needs. `recent` is explained at `ask`."""
        attempt = 0
        while True:
            try:
                return await self._read(find, recent, cold=attempt > 0)
            except EarlierEventsNeeded:
                recent = self._further(recent)
            except ObjectGone as error:
                # A merge or a sweep has moved it, or a deletion has removed it; the events tell which.
                self._known = None
                await _BETWEEN_READS.pause(attempt)
                attempt += 1
                if attempt == _READ_ATTEMPTS:
                    raise self._incomplete(error) from None

    async def _read(self, find: Find[T], recent: Recent | None, cold: bool) -> tuple[T, FetchedObjects] | None:
        remembered = None if cold else self._fresh(recent)
        if remembered is None:
            whole = partial(read_thread, self._store, self.thread_id, payload=True)
            read = whole if recent is None else partial(read_recent, self._store, self.thread_id, recent)
            known, fetched = await self._markers.with_format_check(read)
            self._remember(known)
        else:
            # Usually nothing has changed, and what is needed is read at the same time.
            guessed = self._found(remembered, find)
            fetched = FetchedObjects()
            known = await self._catch_up_and_fetch(remembered, fetched, guessed[1] if guessed else ())
        answer = self._found(known, find)
        if answer is None:
            return None
        wanted = self._located(known, answer[1])
        if sum(isinstance(what, int) for what in wanted.whole.values()) > _MANY_EVENTS:
            objects = await list_objects(self._store, self.thread)
            with self._lock:
                known.objects.entries, known.objects.items = objects.entries, objects.items
            wanted = self._located(known, answer[1])
        await fetched.fetch_texts(self._store, wanted)
        fetched.check(answer[1])
        return answer[0], fetched

    async def _catch_up_and_fetch(
        self, known: CachedThread, fetched: FetchedObjects, refs: Iterable[TextRef]
    ) -> CachedThread:
        """Look for new events and read some texts at the same time."""
        caught_up: list[CachedThread] = []
        wanted = self._located(known, refs)

        async def catch_up() -> None:
            caught_up.append(await self._catch_up(known, fetched=fetched))

        async def read_texts() -> None:
            await fetched.fetch_located(self._store, wanted)

        await together([catch_up, read_texts])
        return caught_up[0]

    def _found(self, known: CachedThread, find: Find[T]) -> tuple[T, list[TextRef]] | None:
        with self._lock:
            found = find(known.index)
        return None if found is None else (found[0], list(found[1]))

    def _located(self, known: CachedThread, refs: Iterable[TextRef]) -> Located:
        with self._lock:
            return located(self.thread, known.objects.items, known.index.places, refs)

    def _further(self, recent: Recent | None) -> Recent:
        """The events to read if the newest ones were not enough."""
        assert recent is not None, "an index of all events knows what there is to know"
        self._known = None
        return recent.more

    def _incomplete(self, gone: ObjectGone) -> CorruptCheckpointError:
        return CorruptCheckpointError(f"{shown_thread(self.thread_id)} is incomplete: {gone} is missing")

    def _fresh(self, recent: Recent | None = None) -> CachedThread | None:
        """The remembered thread, if it may be relied on: all events must be known, unless recent ones are enough."""
        known = self._known
        if known is None or not known.fresh or (recent is None and not known.index.is_whole):
            return None
        return known

    def _remember(self, known: CachedThread) -> None:
        with self._lock:
            before = self._known
            # Of two that are as new, the one that knows all.
            if (
                before is None
                or not before.fresh
                or (before.index.next, before.index.is_whole) <= (known.index.next, known.index.is_whole)
            ):
                self._known = known

    async def _reload(self, recent: Recent | None = None) -> CachedThread:
        attempt = 0
        while True:
            whole = partial(read_thread, self._store, self.thread_id)
            read = whole if recent is None else partial(read_recent, self._store, self.thread_id, recent)
            try:
                known, _ = await self._markers.with_format_check(read)
            except EarlierEventsNeeded:
                recent = self._further(recent)
            except ObjectGone as error:
                await _BETWEEN_READS.pause(attempt)
                attempt += 1
                if attempt == _READ_ATTEMPTS:
                    raise self._incomplete(error) from None
            else:
                self._remember(known)
                return known

    async def _catch_up(
        self, known: CachedThread, count: int = 1, fetched: FetchedObjects | None = None
    ) -> CachedThread:
        """Apply the events that others have put since. If there is nothing new, one request tells.

        Objects that are read for that are added to `fetched`: their texts are likely to be needed.
        """
        while True:
            begun = ClockReading.now()
            start = known.index.next
            bodies = await self._store.get_many([event_key(self.thread, start + n) for n in range(count)])
            for number, body in enumerate(bodies.values(), start):
                if number < known.index.next:
                    continue  # a copy takes several numbers, and has only one object
                if body is None:
                    known.seen = max(known.seen, begun)
                    return known
                if not self._apply(known, number, body):
                    return await self._reload()
                if fetched is not None:
                    fetched.bodies[event_key(self.thread, number)] = body
            if count >= 16:
                return await self._reload()
            count *= 4

    def _apply(self, known: CachedThread, number: int, body: bytes) -> bool:
        try:
            with self._lock:
                return known.apply(event_record(body, number))
        except (CorruptCheckpointError, EarlierEventsNeeded):
            return False  # reading the whole thread tells whether this matters

    async def change(self, propose: Callable[[ThreadIndex], Proposal[T]], recent: Recent | None = None) -> T:
        """Put the event that `propose` makes, and return its answer. Without an event, the answer is as of now.

        `recent` is explained at `ask`.
        """
        # Those who save through one handle wait for each other, instead of racing for a number.
        async with self._saving.current(self.thread):
            while True:
                try:
                    answer = await self._change(propose, recent)
                except EarlierEventsNeeded:
                    recent = self._further(recent)
                else:
                    await self._merge_if_due()
                    return answer

    async def _change(self, propose: Callable[[ThreadIndex], Proposal[T]], recent: Recent | None) -> T:
        known = self._fresh(recent)
        up_to_date = known is None
        known = known or await self._reload(recent)
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
            begun = ClockReading.now()
            body = proposal.draft.body(self.thread_id, number, by, after)
            if await self._put(number, body, by, proposal.transition, put_sure_marker=put_sure_marker):
                with self._lock:
                    known.apply(event_record(body, number))
                    known.seen = max(known.seen, begun)
                if proposal.transition is Transition.ENDS:
                    await self._best_effort(self._markers.end(self.thread_id, number))
                return proposal.answer
            known, up_to_date = await self._catch_up(known, 1 if attempt == 0 else 4), True
            await _BETWEEN_PUTS.pause(attempt)
        raise ConflictError(f"thread {self.thread_id!r} keeps being changed by other writers; try again")

    async def _put(self, number: int, body: bytes, by: str, transition: Transition, *, put_sure_marker: bool) -> bool:
        """Put an event if its number is free. Return whether the event with this number is now this one."""
        if transition is not Transition.NONE:
            await self._markers.put(self.thread_id, number, MarkerState.MAYBE)
        if not put_sure_marker:
            return await self._put_event(number, body, by)
        put, _ = await together([partial(self._put_event, number, body, by), partial(self._put_sure, number - 1)])
        return put

    async def _put_sure(self, number: int) -> bool:
        return await self._best_effort(self._markers.put(self.thread_id, number, MarkerState.SURE))

    async def _best_effort(self, work: Awaitable[None]) -> bool:
        """A context for work that only saves others a request. If it fails, the caller's work is done all the same."""
        try:
            await work
        except self._store.driver_errors as error:
            _log.warning("a marker could not be put, which a sweep will make good: %s", self._kinds(error))
            return False
        return True

    def _kinds(self, error: BaseException) -> str:
        """The kinds of an error, for the log. Its text may hold keys of objects, and those hold ids of threads."""
        return f"{type(self._store.translate(error)).__name__}, {type(error).__name__}"

    async def _put_event(self, number: int, body: bytes, by: str) -> bool:
        key = event_key(self.thread, number)
        try:
            if await self._store.put(key, body, if_absent=True):
                return True
        except self._store.driver_errors:
            # Perhaps only the answer was lost.
            if not await self._was_put_by(by, number):
                raise
            return True
        return await self._was_put_by(by, number)

    async def _was_put_by(self, by: str, number: int) -> bool:
        found = await self._store.get(event_key(self.thread, number))
        try:
            return found is not None and event_record(found, number).get("by") == by
        except CorruptCheckpointError:
            return False

    async def _merge_if_due(self) -> None:
        """Merge the objects that have piled up. The save is done: if this fails, a later save tries again."""
        known = self._known
        if known is None or not needs_merging(known.objects):
            return
        try:
            with self._lock:
                due = _DueMerge.of(known)
            if due.tip is None:
                known = await self._reload()
                with self._lock:
                    due = _DueMerge.of(known)
            objects = due.objects
            if may_be_merged(objects):
                objects = await list_objects(self._store, self.thread)
                objects.unmerged = [number for number in objects.unmerged if number <= due.end]
            await merge(self._store, self.thread, objects, since=due.since, end=due.end, tip=due.tip or b"")
        except (ObjectGone, CorruptCheckpointError):
            self._known = None  # somebody else is merging just now, or the next one to read the thread is told
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
        """Make everything before count for nothing, even events that cannot be read."""
        objects = await list_objects(self._store, self.thread)
        number = max([objects.merged_to, *objects.unmerged]) + 1
        by = new_id()
        await self._markers.put(self.thread_id, number, MarkerState.MAYBE)
        while not await self._put_event(number, Draft("reset", {}).body(self.thread_id, number, by), by):
            number += 1
            await self._markers.put(self.thread_id, number, MarkerState.MAYBE)
        self._known = None
        await self._best_effort(self._markers.end(self.thread_id, number))
