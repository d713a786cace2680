"""Merging: sixteen events become one object of entries and one of items, sixteen of those a larger one, and so on.

That is how any checkpoint of a long thread is read with few requests. Merged objects only repeat what events say, so
they may be made twice, overlap, or be missing. Merging therefore needs no lock, and what was merged into a larger
object is deleted at once.

Events are not deleted at once: as long as an event exists, nobody can put another one under the same number.
`remove` deletes an event when it is merged and older than anything a handle may remember.

A save calls `merge` when enough events have piled up. The word is not in the vocabulary of other backends, because
no other backend merges.
"""

from __future__ import annotations

from locus.memory.backends.objects.client import ObjectStore
from locus.memory.backends.objects.read import ThreadObjects
from locus.memory.backends.objects.remove import grace_began, remove_merged_events
from locus.memory.backends.objects.schema import (
    BASE_LEVEL,
    FAN,
    MergedObject,
    cover,
    event_key,
    event_texts,
    merged_texts,
)
from locus.memory.backends.objects.texts import ObjectGone

_MAX_BYTES = 32 * 2**20
"""The largest total size of objects that are merged."""


def needs_merging(objects: ThreadObjects) -> bool:
    return len(objects.unmerged) >= FAN


def may_be_merged(objects: ThreadObjects) -> bool:
    """Tell whether others have saved too, and may have merged already."""
    return len(objects.unmerged) > FAN


async def merge(
    store: ObjectStore, thread: str, objects: ThreadObjects, *, since: int, end: int, tip: bytes = b""
) -> None:
    """Merge the objects that have piled up, and update `objects`.

    `since` is the first event that a load of the latest checkpoint needs; `end` is the last number of the last event,
    and `tip` the tip as of that.
    """
    while len(objects.unmerged) >= FAN:
        await _merge_events(store, thread, objects, since, end, tip)
        merged = await _merge_up(store, thread, objects.entries, since)
        await _merge_up(store, thread, objects.items, 0)
        if merged:
            await remove_merged_events(store, thread, objects, await grace_began(store))


async def _merge_events(
    store: ObjectStore, thread: str, objects: ThreadObjects, since: int, end: int, tip: bytes
) -> None:
    numbers, rest = objects.unmerged[:FAN], objects.unmerged[FAN:]
    events = await store.get_many([event_key(thread, number) for number in numbers])
    bodies = [body for body in events.values() if body is not None]
    if len(bodies) < len(numbers):
        raise ObjectGone(f"events {numbers[0]} to {numbers[-1]}")
    high = rest[0] - 1 if rest else end
    lines = [body.partition(b"\n")[0] for body in bodies]
    entries = b"\n".join([*lines, tip] if tip and high == end else lines)
    items = merged_texts(event_texts(body, number) for number, body in zip(numbers, bodies, strict=True))
    of_entries = MergedObject("entries", numbers[0], high, 1, since, len(entries))
    of_items = MergedObject("items", numbers[0], high, 1, 0, len(items))
    # In this order: where there are entries, there are items, and the events may go.
    await store.put(of_items.key(thread), items, if_absent=True)
    await store.put(of_entries.key(thread), entries, if_absent=True)
    objects.entries.append(of_entries)
    objects.items.append(of_items)
    objects.unmerged = rest


async def _merge_up(store: ObjectStore, thread: str, merged: list[MergedObject], since: int) -> bool:
    """Merge the first sixteen neighbours of one level, if there are any."""
    group = _neighbours(cover(merged))
    if not group or sum(member.size for member in group) > _MAX_BYTES:
        return False
    keys = [member.key(thread) for member in group]
    bodies = list((await store.get_many(keys)).values())
    if None in bodies:
        raise ObjectGone(f"merged objects from {keys[0]} on")
    body = b"\n".join(body for body in bodies if body)
    note = since if group[0].kind == "entries" else 0
    larger = MergedObject(group[0].kind, group[0].low, group[-1].high, group[0].level + 1, note, len(body))
    await store.put(larger.key(thread), body, if_absent=True)
    merged[:] = [*(member for member in merged if member not in group), larger]
    await store.delete(keys)
    return True


def _neighbours(chosen: list[MergedObject]) -> list[MergedObject]:
    for level in range(1, BASE_LEVEL - 1):
        group = [merged for merged in chosen if merged.level == level]
        if len(group) >= FAN and group[FAN - 1].high - group[0].low + 1 == sum(
            merged.high - merged.low + 1 for merged in group[:FAN]
        ):
            return group[:FAN]
    return []
