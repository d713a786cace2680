"""The places of texts in objects of merged items, worked out from the lengths that events tell.

Merging puts the texts of events one after another. So the lengths of all texts from some event on tell the place of
each of them, counted from the end of any object that has them, without reading the object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from locus.memory.backends.objects.schema import BASE_LEVEL, FAN, MergedObject, Record, TextRef, texts_header


class FarText(NamedTuple):
    """A text of an event that is not known: its length, and its place in merged items, by their first event."""

    size: int
    starts: Mapping[int, int]


class _EventPlaces(NamedTuple):
    """The texts of an event: the number of bytes before them, and their lengths."""

    start: int
    sizes: Sequence[int]

    def place(self, ref: TextRef) -> int:
        """The position at which a text of the event begins, counted from `start`."""
        return len(texts_header(ref.event, len(self.sizes))) + sum(self.sizes[: ref.line]) + ref.line + 1


@dataclass
class TextPlaces:
    """The places of the texts of a thread, as if all that are known were merged into one object."""

    last: int = 0
    """The last number of the last event."""
    unsized: int = 0
    """The last event whose texts have unknown lengths."""
    far: dict[TextRef, FarText] = field(default_factory=dict)
    """The texts of unknown events, as tips tell them."""
    _texts: dict[int, _EventPlaces] = field(default_factory=dict)
    _end: int = 0

    def add(self, record: Record) -> None:
        """Note the texts of the next event."""
        number, sizes = record["n"], record.get("sizes")
        self.last = record.get("to", number)
        if sizes is None:
            sizes = ()
            has_none = record["kind"] in ("delete", "reset", "none") or (
                record["kind"] == "writes" and not record["writes"]
            )
            self.unsized = self.unsized if has_none else self.last
        self._texts[number] = _EventPlaces(self._end, sizes)
        self._end += len(texts_header(number, len(sizes))) + sum(sizes) + len(sizes) + 1

    def size(self, ref: TextRef) -> int | None:
        """The number of bytes of a text; None if that is not known."""
        texts = self._texts.get(ref.event)
        return texts.sizes[ref.line] if texts is not None and ref.line < len(texts.sizes) else None

    def place(self, ref: TextRef, merged: MergedObject) -> tuple[int, int] | None:
        """The bytes of an object of merged items that hold a text: from, to. None if that cannot be told."""
        texts = self._texts.get(ref.event)
        if ref.sum is None or merged.level == BASE_LEVEL or not merged.size:
            return None
        if texts is None:
            size, starts = self.far.get(ref, (0, {}))
            return (starts[merged.low], starts[merged.low] + size) if merged.low in starts else None
        end = self._end if merged.high == self.last else self._start(merged.high + 1)
        if ref.event <= self.unsized or end is None:
            return None
        # Counted from the end of the object: of its beginning nothing may be known.
        start = merged.size + 1 - (end - texts.start) + texts.place(ref)
        return (start, start + texts.sizes[ref.line]) if start > 0 else None

    def far_text(self, ref: TextRef) -> FarText:
        """The place and length of a text, as a tip (see `tip`) states them, however its object is merged later."""
        texts = self._texts.get(ref.event)
        if texts is None or ref.event <= self.unsized:
            return FarText(0, {})
        groups = (FAN**level for level in range(1, BASE_LEVEL))
        lows = {(ref.event - 1) // group * group + 1 for group in groups}
        known = {low: self._start(low) for low in lows if low > self.unsized}
        place = texts.start + texts.place(ref)
        return FarText(texts.sizes[ref.line], {low: place - start for low, start in known.items() if start is not None})

    def _start(self, event: int) -> int | None:
        texts = self._texts.get(event)
        return None if texts is None else texts.start
