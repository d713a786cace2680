"""Locating and reading texts: in whole objects, or only in those bytes of a large object that hold them.

Merged items may be many megabytes, of which the last messages are a few kilobytes. If the lengths of texts are known
(see `places`), only their bytes are read. Each text that is read like that has a checksum; if it does not fit, the
whole object is read, and tells what is wrong.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from zlib import crc32

from locus.errors import CorruptCheckpointError
from locus.memory.backends.objects.client import ByteSpan, ObjectStore
from locus.memory.backends.objects.places import TextPlaces
from locus.memory.backends.objects.schema import MergedObject, TextRef, event_key, event_texts, split_texts

_GAP = 32 * 1024
"""The number of bytes between two texts that are read with them: a request costs as much as reading that many."""

_MOST_SPANS = 64
"""The number of parts of one object that are read one by one; for more, it is read as a whole."""


class ObjectGone(Exception):
    """An object that should exist does not: a merge or a sweep was faster, and the thread has to be read again."""


@dataclass
class Located:
    """The places of texts: objects to be read as a whole, and parts of others."""

    whole: dict[str, MergedObject | int] = field(default_factory=dict)
    """The merged objects, or the numbers of events, by key."""
    places: dict[str, dict[TextRef, ByteSpan]] = field(default_factory=dict)
    merged: dict[str, MergedObject] = field(default_factory=dict)
    """The objects that have the texts of `places`."""


def located(thread: str, items: Collection[MergedObject], places: TextPlaces, refs: Iterable[TextRef]) -> Located:
    """Locate texts."""
    refs = list(refs)
    result = Located(objects_with_texts(thread, items, {ref.event for ref in refs}))
    events = sorted({ref.event for ref in refs})
    for key, what in list(result.whole.items()):
        if isinstance(what, int):
            continue
        count = bisect_right(events, what.high) - bisect_left(events, what.low)
        if 2 * count > what.high - what.low + 1 or what.size <= _GAP:
            continue  # most of it is wanted
        spans = _spans(places, what, [ref for ref in refs if what.low <= ref.event <= what.high])
        if spans is not None:
            del result.whole[key]
            result.places[key], result.merged[key] = spans, what
    return result


def _spans(places: TextPlaces, merged: MergedObject, refs: Iterable[TextRef]) -> dict[TextRef, ByteSpan] | None:
    spans: dict[TextRef, ByteSpan] = {}
    for ref in refs:
        place = places.place(ref, merged)
        if place is None:
            return None
        spans[ref] = ByteSpan(*place)
    return spans if len(_joined(spans.values())) <= _MOST_SPANS else None


def _joined(spans: Iterable[ByteSpan]) -> list[ByteSpan]:
    """Join spans to as few as possible that cover all of these, without long gaps between them."""
    joined: list[ByteSpan] = []
    for span in sorted(spans):
        if joined and span.start - joined[-1].end <= _GAP:
            joined[-1] = ByteSpan(joined[-1].start, max(joined[-1].end, span.end))
        else:
            joined.append(span)
    return joined


def objects_with_texts(
    thread: str, items: Collection[MergedObject], events: Collection[int]
) -> dict[str, MergedObject | int]:
    """The keys of the objects that hold the texts of these events: merged objects where there are any.

    The value is the merged object, or the number of the event.
    """
    objects: dict[str, MergedObject | int] = {}
    done = 0
    for event in sorted(set(events)):
        if event <= done:
            continue
        fitting = [merged for merged in items if merged.low <= event <= merged.high]
        if fitting:
            best = max(fitting, key=lambda merged: (merged.high, merged.note))
            objects[best.key(thread)] = best
            done = best.high
        else:
            objects[event_key(thread, event)] = event
    return objects


class FetchedObjects:
    """Objects that were read, or parts of them, and the texts in them."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}
        self._parts: dict[str, list[tuple[ByteSpan, bytes]]] = {}
        self._texts: dict[int, list[bytes]] = {}
        self._placed: dict[TextRef, bytes] = {}

    async def fetch_located(self, store: ObjectStore, wanted: Located) -> None:
        """Read the objects and parts that texts need, without looking into them."""
        missing = [
            (key, span)
            for key, places in wanted.places.items()
            for span in _joined(span for span in places.values() if self._bytes(key, span) is None)
        ]
        await self.fetch(store, wanted.whole, missing)

    async def fetch(self, store: ObjectStore, keys: Iterable[str], parts: Iterable[tuple[str, ByteSpan]] = ()) -> None:
        """Read the objects that were not read before, all at once. Raises `ObjectGone` if one is missing."""
        wanted: list[tuple[str, ByteSpan | None]] = [(key, None) for key in keys if key not in self.bodies]
        wanted += [(key, span) for key, span in parts if key not in self.bodies]
        for (key, span), body in (await store.get_parts(wanted)).items():
            if body is None:
                raise ObjectGone(key)
            if span is None:
                self.bodies[key] = body
            else:
                self._parts.setdefault(key, []).append((span, body))

    def part(self, key: str, span: ByteSpan | None) -> bytes:
        """The bytes of an object that were read."""
        found = self.bodies.get(key) if span is None else self._bytes(key, span)
        assert found is not None
        return found

    async def fetch_texts(self, store: ObjectStore, wanted: Located) -> None:
        """Read texts, and find them in the objects that were read."""
        await self.fetch_located(store, wanted)
        self.unpack(wanted.whole)
        elsewhere = {key: wanted.merged[key] for key, places in wanted.places.items() if not self._take(key, places)}
        if elsewhere:
            await self.fetch(store, elsewhere)
            self.unpack(elsewhere)

    def _take(self, key: str, places: Mapping[TextRef, ByteSpan]) -> bool:
        """Take texts from their places. Return False if something else is there."""
        taken = {ref: self._bytes(key, span) for ref, span in places.items()}
        fitting = {ref: text for ref, text in taken.items() if text is not None and crc32(text) == ref.sum}
        if len(fitting) < len(taken):
            return False
        self._placed |= fitting
        return True

    def _bytes(self, key: str, span: ByteSpan) -> bytes | None:
        """Some bytes of an object, if they were read."""
        if key in self.bodies:
            return span.of(self.bodies[key])
        for part, body in self._parts.get(key, ()):
            if part.start <= span.start and span.end <= part.end:
                return body[span.start - part.start : span.end - part.start]
        return None

    def unpack(self, keys: Mapping[str, MergedObject | int]) -> None:
        """Find the texts in these objects, which were fetched as a whole before."""
        for key, what in keys.items():
            body = self.bodies[key]
            found = [event_texts(body, what)] if isinstance(what, int) else split_texts(body)
            self._texts.update({part.event: part.lines for part in found})

    def check(self, refs: Iterable[TextRef]) -> None:
        """Raise `ObjectGone` if one of these texts was not found."""
        for ref in refs:
            lines = self._texts.get(ref.event)
            if lines is None or ref.line >= len(lines) or not lines[ref.line]:
                self.line(ref)

    def line(self, ref: TextRef) -> bytes:
        if self._placed and ref in self._placed:
            return self._placed[ref]
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
