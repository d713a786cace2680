"""Sweeping: leaving deleted texts out of a thread's merged objects, and removing objects that nobody needs.

A deletion is an event like any other and removes no object. Deleted content goes with the next sweep.

The objects that a sweep writes are named after the number N of the last event it took into account: first the items, in
parts, then the entries, as one object that stands for all events up to N. Once that exists, nothing older is needed. A
sweep that is interrupted before that has only added objects that say the same again. Two sweeps at once write the same
objects, or the later one wins: nothing is ever deleted in favour of something older.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

from locus.memory.backends.objects.client import ObjectStore
from locus.memory.backends.objects.index import ThreadIndex
from locus.memory.backends.objects.read import (
    CACHE_SECONDS,
    CachedThread,
    ThreadObjects,
    list_events,
    read_thread,
)
from locus.memory.backends.objects.schema import (
    BASE_LEVEL,
    VERSION,
    EventTexts,
    MergedObject,
    TextRef,
    cover,
    merged_texts,
    thread_name,
    to_line,
)
from locus.memory.backends.objects.texts import FetchedObjects, objects_with_texts

GRACE = timedelta(hours=1)
"""The age at which a merged event may go: many times as old as the events that a handle relies on."""
assert timedelta(seconds=CACHE_SECONDS) * 4 <= GRACE

_PART_BYTES = 8 * 2**20
"""The size from which on the items of a swept thread continue in another object."""


async def grace_began(store: ObjectStore, grace: timedelta = GRACE) -> datetime:
    """The time before which events are older than `grace`.

    By the clock of the store, which dates its objects, if it tells the time. A machine whose clock is ahead would take
    every event for an old one, and a handle that still relies on it could put another one in its place.
    """
    return (await store.server_time() or datetime.now(UTC)) - grace


async def sweep_thread(store: ObjectStore, thread_id: str, before: datetime) -> int:
    """Sweep one thread; return how many objects were removed. Events younger than `before` stay."""
    thread = thread_name(thread_id)
    known, _ = await read_thread(store, thread_id)
    if known.index.removal > _swept_to(known.objects):
        await _write_base(store, thread, known)
    leftovers = [merged.key(thread) for merged in _superfluous(known.objects)]
    await store.delete(leftovers)
    return len(leftovers) + await remove_merged_events(store, thread, known.objects, before)


async def remove_merged_events(store: ObjectStore, thread: str, objects: ThreadObjects, before: datetime) -> int:
    """Remove the events that are merged and older than `before`; return how many."""
    items = cover(objects.items)
    done = min(objects.merged_to, items[-1].high if items else 0)
    old = [listed.key for listed in await list_events(store, thread, done) if listed.modified < before]
    await store.delete(old)
    return len(old)


def _swept_to(objects: ThreadObjects) -> int:
    """The number of the last event that the last sweep covered; 0 if there was none."""
    return max((merged.high for merged in objects.entries if merged.level == BASE_LEVEL), default=0)


async def _write_base(store: ObjectStore, thread: str, known: CachedThread) -> None:
    """Write the objects that stand for all events so far, without deleted content."""
    index, objects = known.index, known.objects
    number = index.last_seq
    _, needed = index.needed()
    wanted = objects_with_texts(thread, objects.items, [ref.event for ref in needed])
    fetched = FetchedObjects()
    await fetched.fetch(store, wanted)
    fetched.unpack(wanted)
    for low, high, body in _parts(fetched, needed, number):
        part = MergedObject("items", low, high, BASE_LEVEL, number, len(body))
        await store.put(part.key(thread), body, if_absent=False)
        objects.items.append(part)
    base = MergedObject("entries", 1, number, BASE_LEVEL, index.needed_from())
    await store.put(base.key(thread), _base_body(index), if_absent=False)
    objects.entries.append(base)


def _base_body(index: ThreadIndex) -> bytes:
    facts = index.base_record()
    if index.rows or index.writes:
        facts["thread"] = index.thread_id  # the id of a deleted thread is not kept
    return to_line({"v": VERSION, "n": 1, "kind": "base", **facts})


def _parts(fetched: FetchedObjects, needed: Iterable[TextRef], number: int) -> Iterator[tuple[int, int, bytes]]:
    """Gather the texts that are needed, in objects that together have all events up to a number."""
    by_event: dict[int, set[int]] = {}
    for ref in needed:
        by_event.setdefault(ref.event, set()).add(ref.line)
    low, texts, size = 1, list[EventTexts](), 0
    for event in sorted(by_event):
        if size >= _PART_BYTES:
            yield low, event - 1, merged_texts(texts)
            low, texts, size = event, [], 0
        lines = [b""] * (max(by_event[event]) + 1)
        for line in by_event[event]:
            lines[line] = fetched.line(TextRef(event, line))
        texts.append(EventTexts(event, lines))
        size += sum(map(len, lines))
    yield low, number, merged_texts(texts)


def _superfluous(objects: ThreadObjects) -> Iterator[MergedObject]:
    """Choose merged objects that others replace."""
    swept_to = _swept_to(objects)
    for group in (objects.entries, objects.items):
        for merged in group:
            outdated = merged.kind == "items" and merged.high <= swept_to and merged.note < swept_to
            if outdated or any(_covers(other, merged) for other in group):
                yield merged


def _covers(other: MergedObject, merged: MergedObject) -> bool:
    if other.low > merged.low or other.high < merged.high:
        return False
    if merged.kind == "items" and other.note < merged.note:
        return False
    return (other.high - other.low, other.level, other.note) > (merged.high - merged.low, merged.level, merged.note)
