"""Sweeping: a thread's deleted texts are left out of its merged objects, and its old events removed.

What a sweep writes is named after the number N of the last event it took into account: first the items, in parts,
then the entries, as one object that stands for all events up to N. Once that is there, whatever is older is not
needed; a sweep that is interrupted before has only added objects that say the same again. Two sweeps at once
write the same objects, or the later one wins: nothing is ever deleted in favour of something older.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from locus.memory.backends.objects.client import ObjectStore
from locus.memory.backends.objects.compaction import trim
from locus.memory.backends.objects.index import ThreadIndex
from locus.memory.backends.objects.object_keys import BASE_LEVEL, Segment, thread_name
from locus.memory.backends.objects.read import Fetched, Knowledge, Shelf, homes, look
from locus.memory.backends.objects.schema import VERSION, Place, Texts, merged_texts, to_line

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
