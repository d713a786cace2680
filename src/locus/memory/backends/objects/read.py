"""Reading a thread: which objects it has, what is in them, and what a handle remembers of it.

A thread is listed once. Then everything needed is fetched at the same time: the merged entries, and the events that
are not merged yet. A handle remembers the result for `CACHE_SECONDS` and afterwards reads only newer events.
Nothing here decides anything; `log` does.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from zlib import crc32

from locus.errors import CorruptCheckpointError
from locus.memory.backends.objects.client import PAGE, Listed, ObjectStore
from locus.memory.backends.objects.index import ThreadIndex
from locus.memory.backends.objects.schema import (
    MergedObject,
    Record,
    TextRef,
    cover,
    event_folder,
    event_key,
    event_record,
    event_texts,
    parse_event,
    parse_merged,
    read_record,
    split_texts,
    thread_folder,
    thread_name,
)
from locus.memory.model.ids import shown_thread

CACHE_SECONDS = 300.0
"""How long a handle may rely on what it saw. A sweep waits far longer before it removes events."""


class ObjectGone(Exception):
    """An object that should exist does not: a merge or a sweep was faster. Read the thread again."""


class Instant(NamedTuple):
    """A point in time by two clocks: one that nobody can set, and one that goes on while the machine sleeps."""

    monotonic: float
    wall: float

    @classmethod
    def now(cls) -> Instant:
        return cls(time.monotonic(), time.time())

    @property
    def age(self) -> float:
        now = Instant.now()
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


@dataclass
class CachedThread:
    """What a handle remembers of a thread, and when that was true."""

    index: ThreadIndex
    objects: ThreadObjects
    seen: Instant

    @property
    def fresh(self) -> bool:
        return self.seen.age < CACHE_SECONDS

    def apply(self, record: Record) -> bool:
        """Apply an event, unless it was applied already. Returns False if events before it are missing."""
        number = record["n"]
        if number > self.index.next:
            return False
        if number == self.index.next:
            _check_owner(record, self.index.thread_id)
            self.index.apply(record)
            self.objects.unmerged.append(number)
        return True


class FetchedObjects:
    """Objects that were read, and the texts in them."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}
        self._texts: dict[int, list[bytes]] = {}

    async def fetch(self, store: ObjectStore, keys: Collection[str]) -> None:
        """Read those that were not read before, all at once. Raises `ObjectGone` if one is missing."""
        for key, body in (await store.get_many([key for key in keys if key not in self.bodies])).items():
            if body is None:
                raise ObjectGone(key)
            self.bodies[key] = body

    def unpack(self, keys: Mapping[str, MergedObject | int]) -> None:
        """Find the texts in these objects, which were fetched before."""
        for key, what in keys.items():
            body = self.bodies[key]
            found = [event_texts(body, what)] if isinstance(what, int) else split_texts(body)
            self._texts.update({part.event: part.lines for part in found})

    def line(self, ref: TextRef) -> bytes:
        lines = self._texts.get(ref.event)
        if lines is None or ref.line >= len(lines) or not lines[ref.line]:
            raise ObjectGone(f"line {ref.line} of event {ref.event}")
        return lines[ref.line]

    def text(self, ref: TextRef) -> str:
        line = self.line(ref)
        if ref.sum is not None and crc32(line) != ref.sum:
            raise CorruptCheckpointError(f"a text of event {ref.event} does not fit its checksum")
        try:
            return line.decode().replace("\r", "\n")
        except UnicodeDecodeError:
            raise CorruptCheckpointError(f"a text of event {ref.event} is damaged") from None


async def read_thread(
    store: ObjectStore, thread_id: str, *, payload: bool = False
) -> tuple[CachedThread, FetchedObjects]:
    """Read a thread of which nothing is known: one list, and then everything at once.

    With `payload`, also fetch the items that the latest checkpoint needs, as far as they can be guessed.
    """
    thread = thread_name(thread_id)
    begun = Instant.now()
    objects = await list_objects(store, thread)
    fetched = FetchedObjects()
    chosen = cover(objects.entries)
    keys = [merged.key(thread) for merged in chosen] + [event_key(thread, number) for number in objects.unmerged]
    if payload:
        start = chosen[-1].note if chosen else 1
        items = [merged for merged in objects.items if merged.high >= start]
        keys += [merged.key(thread) for merged in cover(items, start)]
    await fetched.fetch(store, keys)
    index = _index_of(
        thread_id,
        [fetched.bodies[merged.key(thread)] for merged in chosen],
        [fetched.bodies[event_key(thread, number)] for number in objects.unmerged],
    )
    return CachedThread(index, objects, begun), fetched


def _index_of(thread_id: str, merged: Iterable[bytes], events: Iterable[bytes]) -> ThreadIndex:
    """The index that events make. What comes before a `reset` may be damaged."""
    index = ThreadIndex(thread_id)
    damage: CorruptCheckpointError | None = None
    lines = [line for body in merged for line in body.split(b"\n")]
    for read, source in [*((read_record, line) for line in lines), *((event_record, body) for body in events)]:
        try:
            record = read(source)
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
    """An object that was copied into another thread's folder is not that thread's."""
    if record.get("thread", thread_id) != thread_id:
        raise CorruptCheckpointError(f"{shown_thread(thread_id)}: event {record['n']} belongs to another thread")


async def list_objects(store: ObjectStore, thread: str) -> ThreadObjects:
    """Usually one page: merged objects come first, and then events, the newest first."""
    objects = ThreadObjects()
    after: str | None = None
    while True:
        page = await store.list(thread_folder(thread), start_after=after, limit=PAGE)
        _add_page(objects, page)
        reached = objects.unmerged and objects.unmerged[-1] <= objects.merged_to
        if len(page) < PAGE or reached:
            merged_to = objects.merged_to
            objects.unmerged = sorted(number for number in objects.unmerged if number > merged_to)
            return objects
        after = page[-1].key


def _add_page(objects: ThreadObjects, page: Iterable[Listed]) -> None:
    for listed in page:
        merged = parse_merged(listed.key, listed.size)
        if merged is not None:
            (objects.entries if merged.kind == "entries" else objects.items).append(merged)
            continue
        number = parse_event(listed.key)
        if number is not None:
            objects.unmerged.append(number)


async def list_events(store: ObjectStore, thread: str, number: int) -> list[Listed]:
    """The objects of the events up to a number, the newest first."""
    return await store.list(event_folder(thread), start_after=event_key(thread, number + 1))


def objects_with_texts(
    thread: str, items: Collection[MergedObject], events: Collection[int]
) -> dict[str, MergedObject | int]:
    """The keys of the objects that hold the texts of these events: merged objects where there are any.

    The value is the merged object, or the number of the event.
    """
    found: dict[str, MergedObject | int] = {}
    done = 0
    for event in sorted(set(events)):
        if event <= done:
            continue
        fitting = [merged for merged in items if merged.low <= event <= merged.high]
        if fitting:
            best = max(fitting, key=lambda merged: (merged.high, merged.note))
            found[best.key(thread)] = best
            done = best.high
        else:
            found[event_key(thread, event)] = event
    return found
