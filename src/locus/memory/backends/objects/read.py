"""What is known of the objects of a thread, and how they are read: nothing here decides anything."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from locus.errors import CorruptCheckpointError
from locus.memory.backends.objects.client import PAGE, Listed, ObjectStore
from locus.memory.backends.objects.index import ThreadIndex
from locus.memory.backends.objects.schema import (
    Place,
    Record,
    Segment,
    cover,
    event_folder,
    event_key,
    event_record,
    event_texts,
    parse_event,
    parse_segment,
    read_record,
    split_texts,
    thread_folder,
    thread_name,
)

LEASE = 300.0
"""For how many seconds a handle may rely on what it saw. A sweep waits far longer before it removes events."""


class Vanished(Exception):
    """An object that should be there is not: a merge or a sweep was faster, and one has to look again."""


class Moment(NamedTuple):
    """An instant, by two clocks: one that nobody sets, and one that goes on while a machine sleeps."""

    monotonic: float
    wall: float

    @classmethod
    def now(cls) -> Moment:
        return cls(time.monotonic(), time.time())

    @property
    def age(self) -> float:
        now = Moment.now()
        return max(now.monotonic - self.monotonic, now.wall - self.wall)


@dataclass
class Shelf:
    """The objects of a thread: merged ones, and the events beyond those."""

    entries: list[Segment] = field(default_factory=list)
    items: list[Segment] = field(default_factory=list)
    tail: list[int] = field(default_factory=list)
    """The numbers of the events that are not merged yet, in order."""

    @property
    def merged(self) -> int:
        """Up to which event the entries are merged."""
        chosen = cover(self.entries)
        return chosen[-1].high if chosen else 0


@dataclass
class Knowledge:
    """What a handle knows of a thread, and when it was right."""

    index: ThreadIndex
    shelf: Shelf
    seen: Moment

    @property
    def trusted(self) -> bool:
        return self.seen.age < LEASE

    def take(self, record: Record) -> bool:
        """Apply an event, unless it was applied already. Returns whether it fits on."""
        number = record["n"]
        if number > self.index.next:
            return False
        if number == self.index.next:
            check_owner(record, self.index.thread_id)
            self.index.apply(record)
            self.shelf.tail.append(number)
        return True


def check_owner(record: Record, thread_id: str) -> None:
    """An object that was copied to another thread's folder is not that thread's."""
    if record.get("thread", thread_id) != thread_id:
        raise CorruptCheckpointError(f"thread {thread_id!r}: event {record['n']} belongs to another thread")


async def list_shelf(store: ObjectStore, thread: str) -> Shelf:
    """One page in the usual case: merged objects come first, and then events, the newest first."""
    shelf = Shelf()
    after: str | None = None
    while True:
        page = await store.list(thread_folder(thread), start_after=after, limit=PAGE)
        _sort_in(shelf, page)
        reached = shelf.tail and shelf.tail[-1] <= shelf.merged
        if len(page) < PAGE or reached:
            merged = shelf.merged
            shelf.tail = sorted(number for number in shelf.tail if number > merged)
            return shelf
        after = page[-1].key


def _sort_in(shelf: Shelf, page: Iterable[Listed]) -> None:
    for listed in page:
        segment = parse_segment(listed.key, listed.size)
        if segment is not None:
            (shelf.entries if segment.kind == "entries" else shelf.items).append(segment)
            continue
        number = parse_event(listed.key)
        if number is not None:
            shelf.tail.append(number)


class Fetched:
    """Objects that were read, and the texts in them."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}
        self._texts: dict[int, list[bytes]] = {}

    async def fetch(self, store: ObjectStore, keys: Collection[str]) -> None:
        """Read what was not read before, at once. Nothing may be missing."""
        for key, body in (await store.get_many([key for key in keys if key not in self.bodies])).items():
            if body is None:
                raise Vanished(key)
            self.bodies[key] = body

    def line(self, place: Place) -> bytes:
        lines = self._texts.get(place.event)
        if lines is None or place.line >= len(lines) or not lines[place.line]:
            raise Vanished(f"line {place.line} of event {place.event}")
        return lines[place.line]

    def text(self, place: Place) -> str:
        try:
            return self.line(place).decode().replace("\r", "\n")
        except UnicodeDecodeError as error:
            raise CorruptCheckpointError(f"a text of event {place.event} is damaged: {error}") from error

    def unpack(self, keys: Mapping[str, Segment | int]) -> None:
        for key, what in keys.items():
            body = self.bodies[key]
            found = [event_texts(body, what)] if isinstance(what, int) else split_texts(body)
            self._texts.update({part.event: part.lines for part in found})


def homes(thread: str, items: Collection[Segment], events: Collection[int]) -> dict[str, Segment | int]:
    """The objects that have the texts of these events: merged ones where there are any."""
    found: dict[str, Segment | int] = {}
    done = 0
    for event in sorted(set(events)):
        if event <= done:
            continue
        fitting = [segment for segment in items if segment.low <= event <= segment.high]
        if fitting:
            best = max(fitting, key=lambda segment: (segment.high, segment.note))
            found[best.key(thread)] = best
            done = best.high
        else:
            found[event_key(thread, event)] = event
    return found


async def look(store: ObjectStore, thread_id: str, *, payload: bool = False) -> tuple[Knowledge, Fetched]:
    """Read a thread that nothing is known of: one list, and then everything at once.

    With `payload` also the items that the latest checkpoint needs, as far as they can be guessed.
    """
    thread = thread_name(thread_id)
    begun = Moment.now()
    shelf = await list_shelf(store, thread)
    fetched = Fetched()
    chosen = cover(shelf.entries)
    keys = [segment.key(thread) for segment in chosen] + [event_key(thread, number) for number in shelf.tail]
    if payload:
        start = chosen[-1].note if chosen else 1
        keys += [s.key(thread) for s in cover([s for s in shelf.items if s.high >= start], start)]
    await fetched.fetch(store, keys)
    index = _folded(
        thread_id,
        [fetched.bodies[segment.key(thread)] for segment in chosen],
        [fetched.bodies[event_key(thread, number)] for number in shelf.tail],
    )
    return Knowledge(index, shelf, begun), fetched


def _folded(thread_id: str, merged: Iterable[bytes], events: Iterable[bytes]) -> ThreadIndex:
    """The index that events make. What comes before a `reset` may be damaged."""
    index = ThreadIndex(thread_id)
    damage: CorruptCheckpointError | None = None
    lines = [line for body in merged for line in body.split(b"\n")]
    for read, source in [*((read_record, line) for line in lines), *((event_record, body) for body in events)]:
        try:
            record = read(source)
            if damage is None and record["n"] > index.next:
                raise Vanished(f"event {index.next}")
            if damage is not None and record["kind"] == "reset":
                index, damage = ThreadIndex(thread_id, next=record["n"]), None
            if damage is None and record["n"] == index.next:
                check_owner(record, thread_id)
                index.apply(record)
        except CorruptCheckpointError as error:
            damage = error
    if damage is not None:
        raise damage
    return index


async def events_older(store: ObjectStore, thread: str, number: int) -> list[Listed]:
    """The events up to a number, the newest first."""
    return await store.list(event_folder(thread), start_after=event_key(thread, number + 1))
