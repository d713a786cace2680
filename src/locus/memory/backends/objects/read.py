"""Reading a thread: its objects, their content, and the part that a handle remembers.

A thread is listed once. Then everything needed is fetched at the same time: the merged entries, and the events that are
not merged yet. Of a long thread the newest entries are mostly enough: they are at the end of the merged ones, and only
that end is fetched. A handle remembers the result for `CACHE_SECONDS` and afterwards reads only newer events. Nothing
here decides anything; `log` does.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from locus.errors import CorruptCheckpointError
from locus.memory.backends.objects import tip
from locus.memory.backends.objects.client import PAGE, ByteSpan, ListedObject, ObjectStore
from locus.memory.backends.objects.index import EarlierEventsNeeded, ThreadIndex
from locus.memory.backends.objects.schema import (
    BASE_LEVEL,
    MergedObject,
    Record,
    cover,
    event_folder,
    event_key,
    event_record,
    parse_event,
    parse_merged,
    read_record,
    read_records,
    thread_folder,
    thread_name,
)
from locus.memory.backends.objects.texts import FetchedObjects, ObjectGone
from locus.memory.model.ids import shown_thread

CACHE_SECONDS = 300.0
"""The seconds for which a handle may rely on what it has read. A sweep waits far longer before it removes events."""

_FIRST_PAGE = 128
"""The number of keys that are listed first: the merged objects of any thread, and the events that are not merged yet.

Behind these are events that are merged, which may be a thousand.
"""

_SLACK = 4_096
"""The number of bytes to read beyond those that so many events take on average. A tip takes some hundred."""

_MOST_GUESSED = 4 * 2**20
"""The largest number of bytes of items that are read before it is known which ones are needed."""


class Recent(NamedTuple):
    """The amount of a thread that is probably enough: the entries of the newest events, and the texts of some.

    Without numbers, it is as much as the latest checkpoints need, which the names of objects tell.
    """

    events: int = 0
    texts: int = 0

    def of(self, objects: ThreadObjects) -> Recent:
        """This amount with its numbers filled in: if it has none, they follow from the names of its objects."""
        if self.events:
            return self
        events = objects.last - objects.needed_from + 1
        return Recent(max(events, 1), events)

    @property
    def more(self) -> Recent:
        """A much larger amount, if this was not enough. Sooner or later that is everything."""
        return Recent(8 * self.events, self.texts) if self.events else Recent(2**53, 2**53)


class ClockReading(NamedTuple):
    """A point in time by two clocks: one that nobody can set, and one that goes on while the machine sleeps."""

    monotonic: float
    wall: float

    @classmethod
    def now(cls) -> ClockReading:
        return cls(time.monotonic(), time.time())

    @property
    def age(self) -> float:
        now = ClockReading.now()
        return max(now.monotonic - self.monotonic, now.wall - self.wall)


@dataclass
class ThreadObjects:
    """The objects of a thread: the merged ones, and the events after those."""

    entries: list[MergedObject] = field(default_factory=list)
    items: list[MergedObject] = field(default_factory=list)
    unmerged: list[int] = field(default_factory=list)
    """The numbers of the events that are not merged yet, in order."""

    @property
    def merged_to(self) -> int:
        """The last event whose entry is merged."""
        chosen = cover(self.entries)
        return chosen[-1].high if chosen else 0

    @property
    def last(self) -> int:
        """The last event."""
        return self.unmerged[-1] if self.unmerged else self.merged_to

    @property
    def needed_from(self) -> int:
        """The first event that a load of the latest checkpoint needs, as far as the names of objects tell."""
        chosen = cover(self.entries)
        return chosen[-1].note if chosen else 1


@dataclass
class CachedThread:
    """The part of a thread that a handle remembers, and when that was true."""

    index: ThreadIndex
    objects: ThreadObjects
    seen: ClockReading

    @property
    def fresh(self) -> bool:
        return self.seen.age < CACHE_SECONDS

    def apply(self, record: Record) -> bool:
        """Apply an event, unless it was applied already. Return False if events before it are missing."""
        number = record["n"]
        if number > self.index.next:
            return False
        if number == self.index.next:
            _check_owner(record, self.index.thread_id)
            self.index.apply(record)
            self.objects.unmerged.append(number)
        return True


async def read_thread(
    store: ObjectStore, thread_id: str, *, payload: bool = False
) -> tuple[CachedThread, FetchedObjects]:
    """Read a thread of which nothing is known: one list, and then everything at once.

    With `payload`, the items that the latest checkpoint needs are fetched, too, as far as they can be guessed.
    """
    begun = ClockReading.now()
    objects = await list_objects(store, thread_name(thread_id))
    fetched = FetchedObjects()
    return CachedThread(await _whole_index(store, thread_id, objects, fetched, payload), objects, begun), fetched


async def read_recent(store: ObjectStore, thread_id: str, recent: Recent) -> tuple[CachedThread, FetchedObjects]:
    """Read the newest events of a thread of which nothing is known: the index may begin in the middle."""
    thread = thread_name(thread_id)
    begun = ClockReading.now()
    objects = await list_objects(store, thread)
    recent = recent.of(objects)
    chosen = cover(objects.entries)
    unmerged = len(objects.unmerged)
    entries = _ends(chosen, max(recent.events - unmerged, 1))
    fetched = FetchedObjects()
    if len(entries) == len(chosen) and all(span is None for _, span in entries):
        payload = recent.texts > objects.last - objects.needed_from
        index = await _whole_index(store, thread_id, objects, fetched, payload)
        return CachedThread(index, objects, begun), fetched
    items = _ends(cover(objects.items), recent.texts - unmerged)
    if sum(merged.size if span is None else span.end - span.start for merged, span in items) > _MOST_GUESSED:
        items = []
    parts = [(merged.key(thread), span) for merged, span in [*entries, *items]]
    events = {number: event_key(thread, number) for number in objects.unmerged}
    await fetched.fetch(
        store,
        [*(key for key, span in parts if span is None), *events.values()],
        [(key, span) for key, span in parts if span is not None],
    )
    lines: list[bytes] = []
    for merged, span in entries:
        some = fetched.part(merged.key(thread), span).split(b"\n")
        lines += some if span is None else some[1:]  # the first one is cut through
    index = _recent_index(thread_id, lines, {number: fetched.bodies[key] for number, key in events.items()})
    return CachedThread(index, objects, begun), fetched


def _ends(merged: Sequence[MergedObject], events: int) -> list[tuple[MergedObject, ByteSpan | None]]:
    """Choose the last of these objects, and the end of the first of those: together they have about so many events."""
    ends: list[tuple[MergedObject, ByteSpan | None]] = []
    for larger in reversed(merged):
        if events <= 0:
            break
        count = larger.high - larger.low + 1
        start = larger.size - events * larger.size * 5 // (count * 4) - _SLACK
        # What a sweep has written is one line, or has texts left out.
        ends.append((larger, ByteSpan(start, larger.size) if start > 0 and larger.level != BASE_LEVEL else None))
        events -= count
    return ends[::-1]


async def _whole_index(
    store: ObjectStore, thread_id: str, objects: ThreadObjects, fetched: FetchedObjects, payload: bool
) -> ThreadIndex:
    thread = thread_name(thread_id)
    chosen = cover(objects.entries)
    keys = [merged.key(thread) for merged in chosen] + [event_key(thread, number) for number in objects.unmerged]
    if payload:
        start = objects.needed_from
        items = [merged for merged in objects.items if merged.high >= start]
        keys += [merged.key(thread) for merged in cover(items, start)]
    await fetched.fetch(store, keys)
    return _index_of(
        thread_id,
        [fetched.bodies[merged.key(thread)] for merged in chosen],
        {number: fetched.bodies[event_key(thread, number)] for number in objects.unmerged},
    )


def _recent_index(thread_id: str, lines: Sequence[bytes], events: Mapping[int, bytes]) -> ThreadIndex:
    """Make the index of the newest events. Raises `EarlierEventsNeeded` if they are not enough for one."""
    index: ThreadIndex | None = None
    merged = read_records(lines)
    if merged is None:
        raise EarlierEventsNeeded
    try:
        for record in [*merged, *(event_record(body, number) for number, body in events.items())]:
            _check_owner(record, thread_id)
            is_tip = record["kind"] == tip.KIND
            if index is None:
                index = ThreadIndex.beginning_at(thread_id, record["n"] + is_tip)
            if record["n"] > index.next:
                raise ObjectGone(f"event {index.next}")
            if is_tip and record["n"] == index.last_seq:
                tip.learn(index, record)
            elif record["n"] == index.next:
                index.apply(record)
    except CorruptCheckpointError:
        raise EarlierEventsNeeded from None  # reading the whole thread tells whether this matters
    if index is None or not index.rows:
        raise EarlierEventsNeeded
    return index


def _index_of(thread_id: str, merged: Iterable[bytes], events: Mapping[int, bytes]) -> ThreadIndex:
    """Make the index of events, by their numbers. Those before a `reset` may be damaged."""
    index = ThreadIndex(thread_id)
    damage: CorruptCheckpointError | None = None
    sources: list[tuple[Record | bytes, int | None]] = []
    for body in merged:
        lines = body.split(b"\n")
        sources += [(source, None) for source in read_records(lines) or lines]
    sources += [(body, number) for number, body in events.items()]
    for source, number in sources:
        try:
            if not isinstance(source, bytes):
                record = source
            else:
                record = read_record(source) if number is None else event_record(source, number)
            if damage is None and record["n"] > index.next:
                raise ObjectGone(f"event {index.next}")
            if damage is not None and record["kind"] == "reset":
                index, damage = ThreadIndex(thread_id, next=record["n"]), None
            if damage is None and record["n"] == index.next:
                _check_owner(record, thread_id)
                index.apply(record)
        except CorruptCheckpointError as error:
            damage = error
    if damage is not None:
        raise damage
    return index


def _check_owner(record: Record, thread_id: str) -> None:
    """Refuse an object of another thread, which somebody has copied into this thread's folder."""
    if record.get("thread", thread_id) != thread_id:
        raise CorruptCheckpointError(f"{shown_thread(thread_id)}: event {record['n']} belongs to another thread")


async def list_objects(store: ObjectStore, thread: str) -> ThreadObjects:
    """List the objects of a thread, usually on one page: merged objects first, then events, the newest first."""
    objects = ThreadObjects()
    after: str | None = None
    limit = _FIRST_PAGE
    while True:
        page = await store.list(thread_folder(thread), start_after=after, limit=limit)
        _add_page(objects, page)
        reached = objects.unmerged and objects.unmerged[-1] <= objects.merged_to
        if len(page) < limit or reached:
            merged_to = objects.merged_to
            objects.unmerged = sorted(number for number in objects.unmerged if number > merged_to)
            return objects
        after, limit = page[-1].key, PAGE


def _add_page(objects: ThreadObjects, page: Iterable[ListedObject]) -> None:
    for listed in page:
        merged = parse_merged(listed.key, listed.size)
        if merged is not None:
            (objects.entries if merged.kind == "entries" else objects.items).append(merged)
            continue
        number = parse_event(listed.key)
        if number is not None:
            objects.unmerged.append(number)


async def list_events(store: ObjectStore, thread: str, number: int) -> list[ListedObject]:
    """List the objects of the events up to a number, the newest first."""
    return await store.list(event_folder(thread), start_after=event_key(thread, number + 1))
