"""Two stored checkpoints, compared without reading what they share. Pure functions: generators that ask for parts.

The manifests say what is shared. In one thread, two extents of the same version of a branch (its name and its run) show
the same items. If one is of a newer version, it shows what the older one shows, up to the first position that it has
from a run which the older one does not have; that run is found from the end backwards (see `manifest.walk`).

In two threads that is no proof: a copy has the names of the branches, and numbers of runs are given out again after
deletions. There the digests tell (`chain`): if what precedes a position on a branch has the same digest in both, it is
the same. Where there is no digest, the items are read and compared.

What is left, the gaps, is read, and compared item by item. What only one side has need not be compared, so it is read
when it is asked for.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from locus.errors import CorruptCheckpointError
from locus.memory.model.alignment import Match
from locus.memory.model.changes import (
    ChangeKind,
    Gap,
    ItemChange,
    ListDiff,
    PayloadDiff,
    Segment,
    ValueChange,
    aligned,
    gaps,
    segments,
)
from locus.memory.model.codec import canonical, decode, decode_head
from locus.memory.model.digests import extended, fingerprint, texts_of
from locus.memory.model.manifest import decode_manifest, digest_before, has_named, items_text, visible, wanted
from locus.memory.model.parts import Part, Range, Window, between, total_of
from locus.memory.model.records import Cuts, Extent, Path, Run, Stored

T = TypeVar("T")

PartRequests = Generator[tuple[int, Part], Stored, T]
"""Asks for a part of the old checkpoint (0) or the new one (1), gets it, and returns a result."""

HEAD_ONLY: Final = Range(("messages",), 0, 0)
"""A part that has no items: head and manifest come with every part."""
EVERYTHING: Final = Window(1, frozenset())
"""A window of no list: all of every list."""

MISSING: Final = object()
"""Stands for a value that a payload does not have."""

MANY_CUTS = 32
"""If more lists and large values than this differ, both checkpoints are read whole, and not one by one."""
MOST_PAIRS = 1_024
"""How many pairs of extents of a list are looked at: a list has 8, or 18 with a window."""
MOST_LOOKS = 64
"""How often a list is read to find out where two versions part."""
MOST_COMPARED = 100_000
MOST_TEXT = 64_000_000
"""How many items are compared in all, and how many characters they have. Beyond that, what is not known to be the same
counts as removed and added."""
AT_ONCE = 64
"""How many items are read at once where it is not known how large they are."""
LARGEST_PAGE = 4_000_000
"""In characters: a page ends with the change that makes it longer."""


class TooMuchText(Exception):
    """A comparison would have to put together more text than its caller allows."""


class Side:
    """One of the two checkpoints of a comparison, as far as it was read."""

    def __init__(self, index: int, stored: Stored, most: int | None = None) -> None:
        """`stored` is an answer to `HEAD_ONLY`; `most` is how many characters may be put together of it.

        A few runs can make a very long list, because items are stored once.
        """
        self._index = index
        self._left = most
        self.head = decode_head(stored.head)
        self.cuts: Cuts = decode_manifest(stored.manifest)
        self._runs: dict[str, dict[int, Run]] = {}
        self._has: dict[Path, list[tuple[int, int]]] = {}
        self._add(stored)
        # Some stores give everything, whatever part was asked for.
        self._is_whole = bool(stored.runs) and _shows_all(stored)

    def _add(self, stored: Stored) -> None:
        for branch, runs in stored.runs.items():
            self._runs.setdefault(branch, {}).update((run.number, run) for run in runs)

    def read_whole(self) -> PartRequests[None]:
        if not self._is_whole:
            self._add((yield self._index, EVERYTHING))
            self._is_whole = True

    def read(self, path: Path, low: int, high: int) -> PartRequests[None]:
        """Read some items of a list, unless they are here."""
        here = self._has.setdefault(path, [])
        if low >= high or self._is_whole or any(first <= low and high <= last for first, last in here):
            return
        self._add((yield self._index, Range(path, low, high - low)))
        here.append((low, high))

    def items_of(self, path: Path, low: int, high: int) -> PartRequests[str]:
        """Some items of a list that was cut out, as a JSON array."""
        yield from self.read(path, low, high)
        return self._text(between(self.extents(path), low, high))

    def extents(self, path: Path) -> tuple[Extent, ...]:
        cut = self.cuts[path]
        assert isinstance(cut, tuple)
        return cut

    def pieces(self, extent: Extent) -> list[tuple[Run, int, int]]:
        """The pieces of runs that an extent shows. All of the extent was read."""
        return visible(extent, self._runs.get(extent.branch, {}).values())

    def value(self, path: Path) -> PartRequests[Any]:
        """A large value that was cut out, without the parts that were cut out of it in turn."""
        cut = self.cuts[path]
        assert isinstance(cut, str)
        if cut not in self._runs:
            self._add((yield self._index, Range(path, 0, 0)))
        (value,) = decode(self._text([Extent(cut, 0, 0, 1)]))
        return value

    def size_of(self, path: Path, low: int, high: int) -> PartRequests[int]:
        """About how many characters some items of a list have."""
        yield from self.read(path, low, high)
        return self._size(between(self.extents(path), low, high))

    def _size(self, extents: Iterable[Extent]) -> int:
        pieces = (piece for extent in extents for piece in self.pieces(extent))
        return sum(len(run.items) * (last - first) // max(run.length, 1) for run, first, last in pieces)

    def _text(self, extents: Sequence[Extent]) -> str:
        if self._left is not None:
            self._left -= self._size(extents)
            if self._left < 0:
                raise TooMuchText
        branches = {extent.branch for extent in extents}
        return items_text(extents, {branch: [*self._runs.get(branch, {}).values()] for branch in branches})

    def whole(self, node: Any, path: Path) -> PartRequests[Any]:
        """A value with everything that was cut out of it."""
        cut = self.cuts.get(path)
        if isinstance(cut, tuple):
            return decode((yield from self.items_of(path, 0, total_of(cut))))
        if cut is not None:
            node = yield from self.value(path)
        if not isinstance(node, dict):
            return node
        filled: dict[str, Any] = {}
        for key, value in node.items():
            filled[key] = yield from self.whole(value, (*path, key))
        return filled

    def length_of(self, node: Any, path: Path) -> int | None:
        """How many items a list has; None if this is none."""
        cut = self.cuts.get(path)
        if isinstance(cut, tuple):
            return total_of(cut)
        return len(node) if isinstance(node, list) else None


def _shows_all(stored: Stored) -> bool:
    """Whether the runs of a checkpoint are all that it needs."""
    extents = wanted(stored.manifest)
    if not has_named(extents, stored.runs):
        return False
    try:
        for extent in extents:
            visible(extent, stored.runs.get(extent.branch, ()))
    except CorruptCheckpointError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _List:
    """A list that differs between the two checkpoints."""

    path: Path
    old: Any
    new: Any
    old_length: int | None
    new_length: int | None
    segments: tuple[Segment, ...]

    @property
    def count(self) -> int:
        """The number of changes that the list counts as: 1 if it only comes or goes, and has no items."""
        return max(1, sum(segment.length for segment in self.segments))

    def counted(self, kind: ChangeKind) -> int:
        return sum(segment.length for segment in self.segments if segment.kind == kind)


@dataclass(frozen=True, slots=True)
class _Value:
    """A value that differs between the two checkpoints."""

    path: Path
    old: Any
    new: Any
    count: int = 1


class Comparison:
    """Compares two checkpoints. `same_thread` says that both are of one; `sort_keys`, that its digests are of texts
    with sorted keys."""

    def __init__(self, old: Side, new: Side, *, same_thread: bool, sort_keys: bool) -> None:
        self.old, self.new = old, new
        self._same_thread = same_thread
        self._sort_keys = sort_keys
        self._left, self._text_left = MOST_COMPARED, MOST_TEXT
        self._inner = _paths_in_values(old.cuts, new.cuts)

    def read_ahead(self) -> PartRequests[None]:
        """Read both checkpoints whole, if so many parts differ that asking for each would take longer."""
        old, new = self.old.cuts, self.new.cuts
        if sum(old.get(path) != new.get(path) for path in {**old, **new}) > MANY_CUTS:
            yield from self.old.read_whole()
            yield from self.new.read_whole()

    def differing(self, old: Any, new: Any, path: Path) -> PartRequests[list[_Value | _List]]:
        """The differences at a path and below it. `old` and `new` are the values that the heads have there."""
        cut, other = self.old.cuts.get(path), self.new.cuts.get(path)
        if isinstance(cut, str) and cut == other:  # its name is a digest of it
            return (yield from self._inside(path))
        if isinstance(cut, str):
            old = yield from self.old.value(path)
        if isinstance(other, str):
            new = yield from self.new.value(path)
        lengths = self.old.length_of(old, path), self.new.length_of(new, path)
        is_list = [length is not None for length in lengths]
        if all(is_list) or (is_list[0] and new is MISSING) or (is_list[1] and old is MISSING):
            return (yield from self._list(old, new, path, *lengths))
        if isinstance(old, dict) and isinstance(new, dict):
            differences: list[_Value | _List] = []
            for key in {**new, **old}:
                differences += yield from self.differing(old.get(key, MISSING), new.get(key, MISSING), (*path, key))
            return differences
        simple = not any(is_list) and not isinstance(old, dict) and not isinstance(new, dict)
        if simple and MISSING not in (old, new) and canonical(old) == canonical(new):
            return []
        return [_Value(path, old, new)]

    def _inside(self, path: Path) -> PartRequests[list[_Value | _List]]:
        """The differences in the parts cut out of a large value that both checkpoints have. It is not read itself."""
        differences: list[_Value | _List] = []
        done: set[Path] = set()
        for inner in self._inner.get(path, ()):
            if any(inner[:length] in done for length in range(len(path) + 1, len(inner))):
                continue
            cut, other = self.old.cuts.get(inner), self.new.cuts.get(inner)
            # What was not cut out is in the value, and the same in both: nothing but an empty list, or null.
            nothing: Any = [] if isinstance(other if cut is None else cut, tuple) else None
            if isinstance(cut, str) or isinstance(other, str):
                done.add(inner)
            differences += yield from self.differing(nothing, nothing, inner)
        return differences

    def _list(
        self, old: Any, new: Any, path: Path, old_length: int | None, new_length: int | None
    ) -> PartRequests[list[_Value | _List]]:
        matches = yield from self.shared(path)
        found: list[Segment] = []
        for gap in gaps(matches, old_length or 0, new_length or 0):
            found += yield from self._in_gap(old, new, path, gap)
        if not found and old_length is not None and new_length is not None:
            return []
        return [_List(path, old, new, old_length, new_length, tuple(found))]

    def _in_gap(self, old: Any, new: Any, path: Path, gap: Gap) -> PartRequests[list[Segment]]:
        removed, added = gap.old_end - gap.old, gap.new_end - gap.new
        if not removed or not added:
            return [*segments(gap)]
        size = yield from self._size_of(path, gap)
        if removed + added > self._left or size > self._text_left:
            return [Segment("removed", gap.old, gap.new, removed), Segment("added", gap.old_end, gap.new, added)]
        self._left, self._text_left = self._left - removed - added, self._text_left - size
        before = yield from items(self.old, old, path, gap.old, gap.old_end)
        after = yield from items(self.new, new, path, gap.new, gap.new_end)
        matches = aligned([_key(item) for item in before], [_key(item) for item in after])
        return [
            segment._replace(old=segment.old + gap.old, new=segment.new + gap.new)
            for inner in gaps(matches, removed, added)
            for segment in segments(inner)
        ]

    def _size_of(self, path: Path, gap: Gap) -> PartRequests[int]:
        """About how many characters a comparison of a gap has to read. Items in a head count as none."""
        size = 0
        for side, low, high in ((self.old, gap.old, gap.old_end), (self.new, gap.new, gap.new_end)):
            if isinstance(side.cuts.get(path), tuple) and high - low <= self._left:
                size += yield from side.size_of(path, low, high)
        return size

    def shared(self, path: Path) -> PartRequests[list[Match]]:
        """The parts that two versions of a list certainly share, in order."""
        cut, other = self.old.cuts.get(path), self.new.cuts.get(path)
        if not isinstance(cut, tuple) or not isinstance(other, tuple):
            return []
        length = total_of(cut)
        if self._same_thread and cut == other:
            return [Match(0, 0, length)]
        matches = yield from self._in_same_places(path, cut, other)
        # Of equal items some may have been dropped, and as many added again.
        is_doubtful = length == total_of(other) and any(match.at != match.start for match in matches)
        return [Match(0, 0, length)] if is_doubtful and (yield from self._is_equal(path, length)) else matches

    def _is_equal(self, path: Path, length: int) -> PartRequests[bool]:
        """Whether two lists of the same length are equal. They are read up to the first difference."""
        for low in range(0, length, AT_ONCE):
            high = min(low + AT_ONCE, length)
            self._text_left -= yield from self._size_of(path, Gap(low, high, low, high))
            if self._text_left < 0:
                return False
            before = yield from items(self.old, None, path, low, high)
            after = yield from items(self.new, None, path, low, high)
            if canonical(before) != canonical(after):
                return False
        return True

    def _in_same_places(
        self, path: Path, cut: tuple[Extent, ...], other: tuple[Extent, ...]
    ) -> PartRequests[list[Match]]:
        """The parts of two versions of a list that are stored in the same places."""
        places: dict[str, list[tuple[Extent, int]]] = {}
        for extent, place in _placed(cut):
            places.setdefault(extent.branch, []).append((extent, place))
        matches: list[Match] = []
        done = reached = pairs = 0
        looks = _Looks()
        for new, at in _placed(other):
            for old, start in places.get(new.branch, ()):
                pairs += 1
                if pairs > MOST_PAIRS:
                    return matches
                low = max(old.skip + max(0, done - start), new.skip + max(0, reached - at))
                high = min(old.skip + old.length, new.skip + new.length)
                if low < high:
                    high = yield from self._common(path, (old, start), (new, at), low, high, looks)
                if low < high:
                    match = Match(at + low - new.skip, start + low - old.skip, high - low)
                    matches.append(match)
                    done, reached = match.start + match.length, match.at + match.length
        return matches

    def _common(
        self, path: Path, old: tuple[Extent, int], new: tuple[Extent, int], low: int, high: int, looks: _Looks
    ) -> PartRequests[int]:
        """The position up to which two extents of a branch show the same items, looking from `low` to `high`."""
        if not self._same_thread:
            return (yield from self._proved(path, old, new, low, high, looks))
        if old[0].run == new[0].run:
            return high
        side, newer, known = (self.new, new, old[0].run) if new[0].run > old[0].run else (self.old, old, new[0].run)
        return (yield from _parting(side, path, newer, known, low, high, looks))

    def _proved(
        self, path: Path, old: tuple[Extent, int], new: tuple[Extent, int], low: int, high: int, looks: _Looks
    ) -> PartRequests[int]:
        """The position up to which digests prove two extents equal, for checkpoints of different threads."""
        at, step = high, 1
        while at > low and looks.another():
            before = yield from self._digest(self.old, path, old, at)
            if before is not None and before == (yield from self._digest(self.new, path, new, at)):
                return at
            at, step = at - step, step * 2
        return low

    def _digest(self, side: Side, path: Path, place: tuple[Extent, int], at: int) -> PartRequests[bytes | None]:
        """The digest of what precedes a position of a branch; None if it is not known."""
        extent, start = place
        index = start + at - 1 - extent.skip
        yield from side.read(path, index, index + 1)
        run, _, last = next(
            piece for piece in side.pieces(extent._replace(skip=at - 1, length=1)) if piece[1] < piece[2]
        )
        found = digest_before(run)
        if found is not None:
            for text in texts_of(run, self._sort_keys)[:last]:
                found = extended(found, text)
        return found


class _Looks:
    """Counts the reads that search for the position from which two versions of a list differ."""

    def __init__(self) -> None:
        self._left = MOST_LOOKS

    def another(self) -> bool:
        self._left -= 1
        return self._left >= 0


def _placed(extents: Sequence[Extent]) -> Iterator[tuple[Extent, int]]:
    """Extents, each with its position in the list."""
    at = 0
    for extent in extents:
        yield extent, at
        at += extent.length


def _parting(
    side: Side, path: Path, place: tuple[Extent, int], known: int, low: int, high: int, looks: _Looks
) -> PartRequests[int]:
    """The position up to which a version of a branch shows nothing from runs newer than `known`.

    A run that shows a position shows everything from its start up to there. And what is not shown by a newer run is
    shown by the same one as before, so this is where the two versions part.
    """
    extent, start = place
    end, step = high, 1
    more = min(extent.skip + extent.length, high + AT_ONCE)  # what follows is most likely needed, too
    while end > low:
        if not looks.another():
            return low
        first = max(low, end - step)
        yield from side.read(path, start + first - extent.skip, start + max(end, more) - extent.skip)
        newer = next(
            (
                piece
                for piece in side.pieces(extent._replace(skip=first, length=end - first))
                if piece[0].number > known
            ),
            None,
        )
        if newer is None:
            return end
        begins = newer[0].start + newer[1]
        if begins > first:
            return begins
        end, step, more = max(low, newer[0].start), step * 2, 0
    return low


def _paths_in_values(old: Cuts, new: Cuts) -> Mapping[Path, list[Path]]:
    """The paths that were cut out of large values, by the path of each value, outer ones first."""
    values = {path for cuts in (old, new) for path, cut in cuts.items() if isinstance(cut, str)}
    found: dict[Path, list[Path]] = {}
    if values:
        for path in sorted({**old, **new}, key=len):
            for length in range(1, len(path)):
                if path[:length] in values:
                    found.setdefault(path[:length], []).append(path)
    return found


def _key(item: Any) -> bytes:
    return fingerprint(canonical(item))


def items(side: Side, node: Any, path: Path, low: int, high: int) -> PartRequests[list[Any]]:
    """Some items of a list, whether they are in the head or were cut out."""
    if low >= high:
        return []
    if not isinstance(side.cuts.get(path), tuple):
        found: list[Any] = node[low:high]
    else:
        found = decode((yield from side.items_of(path, low, high)))
    if len(found) != high - low:
        raise CorruptCheckpointError(f"{high - low} items of a list were to be read, and {len(found)} are there")
    return found


def payload_diff(comparison: Comparison, start: int, limit: int) -> PartRequests[PayloadDiff]:
    """One page of the differences between two checkpoints."""
    yield from comparison.read_ahead()
    differences = yield from comparison.differing(comparison.old.head, comparison.new.head, ())
    total = sum(entry.count for entry in differences)
    page = _DiffPage(comparison, start, limit)
    for entry in differences:
        yield from page.add(entry)
    return page.result(total)


class _DiffPage:
    """Puts a page together: the changes from a number on, up to a limit, and to a size."""

    def __init__(self, comparison: Comparison, start: int, limit: int) -> None:
        self._old, self._new = comparison.old, comparison.new
        self._start = start
        self._skip, self._limit, self._room = start, limit, LARGEST_PAGE
        self._shown = 0
        self._values: list[ValueChange] = []
        self._lists: list[ListDiff] = []

    @property
    def _is_full(self) -> bool:
        return self._shown >= self._limit or self._room <= 0

    def add(self, entry: _Value | _List) -> PartRequests[None]:
        if isinstance(entry, _List):
            changes = yield from self._list_changes(entry)
            self._lists.append(
                ListDiff(
                    path=entry.path,
                    old_length=entry.old_length,
                    new_length=entry.new_length,
                    added=entry.counted("added"),
                    removed=entry.counted("removed"),
                    changed=entry.counted("changed"),
                    changes=tuple(changes),
                )
            )
        elif self._skip:
            self._skip -= 1
        elif not self._is_full:
            yield from self._add_value(entry)

    def _add_value(self, entry: _Value) -> PartRequests[None]:
        kind: ChangeKind = "added" if entry.old is MISSING else "removed" if entry.new is MISSING else "changed"
        old = new = None
        if kind != "added":
            old = yield from self._old.whole(entry.old, entry.path)
        if kind != "removed":
            new = yield from self._new.whole(entry.new, entry.path)
        self._room -= _size(old) + _size(new)
        self._values.append(ValueChange(entry.path, kind, old, new))
        self._shown += 1

    def _list_changes(self, entry: _List) -> PartRequests[list[ItemChange]]:
        """The changes of a list that are on this page."""
        changes: list[ItemChange] = []
        for segment in entry.segments:
            first, self._skip = min(self._skip, segment.length), max(0, self._skip - segment.length)
            while first < segment.length and not self._is_full:
                count = min(AT_ONCE, segment.length - first, self._limit - self._shown)
                count = yield from self._fitting(entry, segment, first, count)
                more = yield from self._changes(entry, segment, first, count)
                changes += more
                first, self._shown = first + len(more), self._shown + len(more)
        if not entry.segments:
            if self._skip:
                self._skip -= 1
            elif not self._is_full:
                self._shown += 1
        return changes

    def _fitting(self, entry: _List, segment: Segment, first: int, count: int) -> PartRequests[int]:
        """How many of some changes to put together at once: at least one, and not too much text."""
        size = 1
        for side, at, other in ((self._old, segment.old, "added"), (self._new, segment.new, "removed")):
            if segment.kind != other and isinstance(side.cuts.get(entry.path), tuple):
                size += yield from side.size_of(entry.path, at + first, at + first + count)
        return max(1, min(count, count * LARGEST_PAGE // size))

    def _changes(self, entry: _List, segment: Segment, first: int, count: int) -> PartRequests[list[ItemChange]]:
        """Some changes of one kind, as many as the page has room for."""
        old, new = segment.old + first, segment.new + first
        before: Sequence[Any] = [None] * count
        after: Sequence[Any] = before
        if segment.kind != "added":
            before = yield from items(self._old, entry.old, entry.path, old, old + count)
        if segment.kind != "removed":
            after = yield from items(self._new, entry.new, entry.path, new, new + count)
        changes: list[ItemChange] = []
        for index in range(count):
            if self._room <= 0:
                break
            self._room -= _size(before[index]) + _size(after[index])
            old_index = None if segment.kind == "added" else old + index
            new_index = None if segment.kind == "removed" else new + index
            changes.append(ItemChange(segment.kind, old_index, new_index, before[index], after[index]))
        return changes

    def result(self, total: int) -> PayloadDiff:
        following = self._start + self._shown
        return PayloadDiff(
            tuple(self._values), tuple(self._lists), total, self._start, following if following < total else None
        )


def _size(value: Any) -> int:
    return 0 if value is None else len(canonical(value))
