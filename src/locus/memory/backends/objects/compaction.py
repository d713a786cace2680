"""Merging: sixteen events become one object of entries and one of items, sixteen of those a larger one, and so on.

Merged objects may be made twice, overlap, or be missing: they only repeat what events say. So nothing here needs
exclusion, and what was merged into a larger object is deleted at once. Events themselves are not: while they are
there, nobody can put another one under the same number. They go when they are merged, and older than any handle's
knowledge may be.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from locus.memory.backends.objects.client import ObjectStore
from locus.memory.backends.objects.object_keys import BASE_LEVEL, Segment, cover, event_key
from locus.memory.backends.objects.read import LEASE, Shelf, Vanished, events_older
from locus.memory.backends.objects.schema import event_texts, merged_texts

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
