"""Parts of a checkpoint that can be read without the rest. Pure functions.

A `Range` names some items of one list, a `Window` the last items of several lists, `Ends` what a save of something
unknown is compared with. `needed` says which extents hold them, so that an engine reads the runs of these and no
others; `page_of` takes a range out of what it read, which may be more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from locus.errors import ConfigurationError
from locus.memory.model.codec import MAX_DEPTH, decode_head, path_text
from locus.memory.model.manifest import MOST, decode_manifest, list_items
from locus.memory.model.records import Cuts, Extent, Path, Stored


class ItemPage(NamedTuple):
    """Some items of a stored list, as plain JSON values."""

    items: list[Any]
    total: int
    """How many the list has."""
    start: int
    """The position of the first one, counted from 0; `total` if there is none behind it."""


@dataclass(frozen=True, slots=True)
class Range:
    """`count` items from `start` on of the list at `path`. A negative start counts from the end."""

    path: Path
    start: int
    count: int

    def within(self, total: int) -> tuple[int, int]:
        """The positions of the range in a list of so many items: from, to."""
        start = min(self.start if self.start >= 0 else max(0, total + self.start), total)
        return start, min(start + self.count, total)


@dataclass(frozen=True, slots=True)
class Window:
    """The last items of the lists at these paths, and all of everything else."""

    last: int
    paths: frozenset[Path]

    def start(self, total: int) -> int:
        """The position at which the window of a list of so many items begins."""
        return max(0, total - self.last)


@dataclass(frozen=True, slots=True)
class Ends:
    """The last items of every extent, and no large values: enough for a save to recognise what is stored."""

    last: int


Part = Range | Window | Ends


def checked_last(last: int) -> int:
    """Check the size of a window that a caller gave."""
    if not isinstance(last, int) or isinstance(last, bool) or not 1 <= last <= MOST:
        raise ConfigurationError(f"last is how many items of each list are loaded, from 1 on, got {last!r:.40}")
    return last


def checked_range(path: Sequence[str], start: int, count: int) -> Range:
    """Check the path, the start and the count of a range that a caller gave."""
    names = path if isinstance(path, Sequence) and not isinstance(path, str) else ()
    if not 0 < len(names) <= MAX_DEPTH or not all(isinstance(name, str) for name in names):
        raise ConfigurationError(f'path is the names that lead to a list, such as ("messages",), got {path!r:.80}')
    for value, what, least in ((start, "start", -MOST), (count, "count", 0)):
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST:
            raise ConfigurationError(f"{what} must be a number{' from 0 on' if least == 0 else ''}, got {value!r:.40}")
    return Range(tuple(path), start, count)


def needed(manifest: str, part: Part) -> list[Extent]:
    """The extents that hold a part of a checkpoint. Each is cut to the items that are needed."""
    cuts = decode_manifest(manifest)
    if isinstance(part, Window):
        return _in_window(cuts, part)
    if isinstance(part, Ends):
        lists = [cut for cut in cuts.values() if not isinstance(cut, str)]
        return [_end(extent, part.last) for cut in lists for extent in cut if extent.length]
    cut = cuts.get(part.path)
    if cut is None or isinstance(cut, str):
        return [Extent(value, 0, 0, 1) for value in _values_above(cuts, part.path)]
    low, high = part.within(total_of(cut))
    return between(cut, low, high)


def _in_window(cuts: Cuts, part: Window) -> list[Extent]:
    extents: list[Extent] = []
    for path, cut in cuts.items():
        if isinstance(cut, str):
            extents.append(Extent(cut, 0, 0, 1))
        elif path in part.paths:
            total = total_of(cut)
            extents += between(cut, part.start(total), total)
        else:
            extents += cut
    return extents


def _end(extent: Extent, last: int) -> Extent:
    left = min(last, extent.length)
    return extent._replace(skip=extent.skip + extent.length - left, length=left)


def page_of(stored: Stored, part: Range) -> ItemPage:
    """The items of a range. If the path leads to no list, that is the caller's error."""
    cuts = decode_manifest(stored.manifest)
    cut = cuts.get(part.path)
    if cut is None or isinstance(cut, str):
        items = _list_in_head(stored, cuts, part.path)
        low, high = part.within(len(items))
        return ItemPage(items[low:high], len(items), low)
    total = total_of(cut)
    low, high = part.within(total)
    return ItemPage(list_items(between(cut, low, high), stored.runs), total, low)


def total_of(extents: Iterable[Extent]) -> int:
    """The number of items in these extents."""
    return sum(extent.length for extent in extents)


def between(extents: Iterable[Extent], low: int, high: int) -> list[Extent]:
    """The extents of the items from position `low` of a list up to position `high`."""
    found, at = [], 0
    for extent in extents:
        first, last = max(low - at, 0), min(high - at, extent.length)
        if first < last:
            found.append(extent._replace(skip=extent.skip + first, length=last - first))
        at += extent.length
    return found


def _values_above(cuts: Cuts, path: Path) -> list[str]:
    """The branches of the large values that a path leads through, or to."""
    found = (cuts.get(path[:length]) for length in range(1, len(path) + 1))
    return [cut for cut in found if isinstance(cut, str)]


def page_of_value(value: Any, part: Range) -> ItemPage:
    """The items of a range, taken from a whole payload."""
    for step in part.path:
        value = value.get(step) if isinstance(value, dict) else None
    items = _checked_list(value, part.path)
    low, high = part.within(len(items))
    return ItemPage(items[low:high], len(items), low)


def _list_in_head(stored: Stored, cuts: Cuts, path: Path) -> list[Any]:
    """A list that stands in the head, because it is short."""
    value: Any = decode_head(stored.head)
    for length, step in enumerate(path, 1):
        value = value.get(step) if isinstance(value, dict) else None
        cut = cuts.get(path[:length])
        if isinstance(cut, str):
            (value,) = list_items([Extent(cut, 0, 0, 1)], stored.runs)
    return _checked_list(value, path)


def _checked_list(value: Any, path: Path) -> list[Any]:
    if not isinstance(value, list):
        raise ConfigurationError(f"this checkpoint has no list at {path_text(path):.80}")
    return value
