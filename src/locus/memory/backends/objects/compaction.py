"""Merging: sixteen events become one object of entries and one of items, sixteen of those a larger one, and so on.

Merged objects may be made twice, overlap, or be missing: they only repeat what events say. So nothing here needs
exclusion, and what was merged into a larger object is deleted at once. Events themselves are not: while they are
there, nobody can put another one under the same number. They go when they are merged, and older than any handle's
knowledge may be.

Sweeping: a thread's deleted texts are left out of its merged objects, and its old events removed.

What a sweep writes is named after the number N of the last event it took into account: first the items, in parts,
then the entries, as one object that stands for all events up to N. Once that is there, whatever is older is not
needed; a sweep that is interrupted before has only added objects that say the same again. Two sweeps at once
write the same objects, or the later one wins: nothing is ever deleted in favour of something older.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

from locus.memory.backends.objects.client import ObjectStore
from locus.memory.backends.objects.index import ThreadIndex
from locus.memory.backends.objects.read import (
    LEASE,
    Fetched,
    Knowledge,
    Shelf,
    Vanished,
    events_older,
    homes,
    look,
)
from locus.memory.backends.objects.schema import (
    BASE_LEVEL,
    VERSION,
    Place,
    Segment,
    Texts,
    cover,
    event_key,
    event_texts,
    merged_texts,
    thread_name,
    to_line,
)

FAN = 16
"""How many objects are merged into one."""

GRACE = timedelta(hours=1)
"""How old an event must be before it may go, once it is merged: many times as old as what a handle relies on."""
assert timedelta(seconds=LEASE) * 4 <= GRACE

_LARGE = 32 * 2**20
"""Items are not merged into larger objects than this."""


def needs_merging(shelf: Shelf) -> bool:
    return len(shelf.tail) >= FAN


def lags_behind(shelf: Shelf) -> bool:
    """Whether others have saved, too, and may have merged."""
    return len(shelf.tail) > FAN


async def merge(store: ObjectStore, thread: str, shelf: Shelf, *, since: int, end: int) -> None:
    """Merge what has piled up, and note it in `shelf`. `end` is the last number of the last event there."""
    while len(shelf.tail) >= FAN:
        await _merge_events(store, thread, shelf, since, end)
        merged = await _merge_up(store, thread, shelf.entries, since)
        await _merge_up(store, thread, shelf.items, 0)
        if merged:
            await trim(store, thread, shelf, datetime.now(UTC) - GRACE)


async def _merge_events(store: ObjectStore, thread: str, shelf: Shelf, since: int, end: int) -> None:
    numbers, rest = shelf.tail[:FAN], shelf.tail[FAN:]
    found = await store.get_many([event_key(thread, number) for number in numbers])
    bodies = [body for body in found.values() if body is not None]
    if len(bodies) < len(numbers):
        raise Vanished(f"events {numbers[0]} to {numbers[-1]}")
    high = rest[0] - 1 if rest else end
    entries = b"\n".join(body.partition(b"\n")[0] for body in bodies)
    items = merged_texts(event_texts(body, number) for number, body in zip(numbers, bodies, strict=True))
    await _put_both(store, thread, shelf, Segment("entries", numbers[0], high, 1, since), entries, items)
    shelf.tail = rest


async def _put_both(
    store: ObjectStore, thread: str, shelf: Shelf, place: Segment, entries: bytes, items: bytes
) -> None:
    of_entries = place._replace(size=len(entries))
    of_items = place._replace(kind="items", note=0, size=len(items))
    # In this order: where there are entries, there are items, and the events may go.
    await store.put(of_items.key(thread), items, if_absent=True)
    await store.put(of_entries.key(thread), entries, if_absent=True)
    shelf.entries.append(of_entries)
    shelf.items.append(of_items)


async def _merge_up(store: ObjectStore, thread: str, segments: list[Segment], since: int) -> bool:
    """Merge the first sixteen neighbours of one level, if there are any."""
    group = _neighbours(cover(segments))
    if not group or sum(segment.size for segment in group) > _LARGE:
        return False
    keys = [segment.key(thread) for segment in group]
    bodies = list((await store.get_many(keys)).values())
    if None in bodies:
        raise Vanished(f"merged objects from {keys[0]} on")
    body = b"\n".join(body for body in bodies if body)
    note = since if group[0].kind == "entries" else 0
    merged = Segment(group[0].kind, group[0].low, group[-1].high, group[0].level + 1, note, len(body))
    await store.put(merged.key(thread), body, if_absent=True)
    segments[:] = [*(segment for segment in segments if segment not in group), merged]
    await store.delete(keys)
    return True


def _neighbours(chosen: list[Segment]) -> list[Segment]:
    for level in range(1, BASE_LEVEL - 1):
        group = [segment for segment in chosen if segment.level == level]
        if len(group) >= FAN and group[FAN - 1].high - group[0].low + 1 == sum(
            segment.high - segment.low + 1 for segment in group[:FAN]
        ):
            return group[:FAN]
    return []


async def trim(store: ObjectStore, thread: str, shelf: Shelf, before: datetime) -> int:
    """Remove the events that are merged, and older than `before`. Returns how many."""
    items = cover(shelf.items)
    done = min(shelf.merged, items[-1].high if items else 0)
    old = [listed.key for listed in await events_older(store, thread, done) if listed.modified < before]
    await store.delete(old)
    return len(old)


_PART = 8 * 2**20
"""How large, in bytes, the parts become that items are written in."""


async def sweep_thread(store: ObjectStore, thread_id: str, before: datetime) -> int:
    """Sweep one thread; return how many objects were removed. Events younger than `before` stay."""
    thread = thread_name(thread_id)
    known, _ = await look(store, thread_id)
    if known.index.removal > _swept(known.shelf):
        await _compact(store, thread, known)
    leftovers = [segment.key(thread) for segment in _dominated(known.shelf)]
    await store.delete(leftovers)
    return len(leftovers) + await trim(store, thread, known.shelf, before)


def _swept(shelf: Shelf) -> int:
    """Up to which event the thread was swept."""
    return max((segment.high for segment in shelf.entries if segment.level == BASE_LEVEL), default=0)


async def _compact(store: ObjectStore, thread: str, known: Knowledge) -> None:
    index, shelf = known.index, known.shelf
    number = index.last_seq
    _, needed = index.needed()
    wanted = homes(thread, shelf.items, [place.event for place in needed])
    fetched = Fetched()
    await fetched.fetch(store, wanted)
    fetched.unpack(wanted)
    for low, high, body in _parts(fetched, needed, number):
        part = Segment("items", low, high, BASE_LEVEL, number, len(body))
        await store.put(part.key(thread), body, if_absent=False)
        shelf.items.append(part)
    base = Segment("entries", 1, number, BASE_LEVEL, index.needed_from())
    await store.put(base.key(thread), _base_body(index), if_absent=False)
    shelf.entries.append(base)


def _base_body(index: ThreadIndex) -> bytes:
    facts = index.base_record()
    if index.rows or index.writes:
        facts["thread"] = index.thread_id  # an id is not kept for a thread that is no more
    return to_line({"v": VERSION, "n": 1, "kind": "base", **facts}).encode()


def _parts(fetched: Fetched, needed: Iterable[Place], number: int) -> Iterator[tuple[int, int, bytes]]:
    """The texts that are needed, in objects that together have all events up to a number."""
    by_event: dict[int, set[int]] = {}
    for place in needed:
        by_event.setdefault(place.event, set()).add(place.line)
    low, texts, size = 1, list[Texts](), 0
    for event in sorted(by_event):
        if size >= _PART:
            yield low, event - 1, merged_texts(texts)
            low, texts, size = event, [], 0
        lines = [b""] * (max(by_event[event]) + 1)
        for line in by_event[event]:
            lines[line] = fetched.line(Place(event, line))
        texts.append(Texts(event, lines))
        size += sum(map(len, lines))
    yield low, number, merged_texts(texts)


def _dominated(shelf: Shelf) -> Iterator[Segment]:
    """Merged objects that others make superfluous."""
    swept = _swept(shelf)
    for segments in (shelf.entries, shelf.items):
        for segment in segments:
            outdated = segment.kind == "items" and segment.high <= swept and segment.note < swept
            if outdated or any(_covers(other, segment) for other in segments):
                yield segment


def _covers(other: Segment, segment: Segment) -> bool:
    if other.low > segment.low or other.high < segment.high:
        return False
    if segment.kind == "items" and other.note < segment.note:
        return False
    return (other.high - other.low, other.level, other.note) > (segment.high - segment.low, segment.level, segment.note)
