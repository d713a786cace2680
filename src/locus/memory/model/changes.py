"""The result of comparing two checkpoints, whatever they hold; and how two versions of a list are aligned.

`comparison` works it out from what is stored. Pure functions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from locus.errors import ConfigurationError
from locus.memory.model.alignment import Match, align
from locus.memory.model.records import Path

ChangeKind = Literal["added", "removed", "changed"]

PAGE = 200
"""How many changes are given at once, unless the caller says otherwise."""
MOST_ON_A_PAGE = 10_000


def checked_page(start: int, limit: int) -> tuple[int, int]:
    """Check which changes of a diff a caller asks for. A page has a largest size."""
    for value, what in ((start, "start"), (limit, "limit")):
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ConfigurationError(f"{what} must be a number from 0 on, got {value!r:.40}")
    return start, min(limit, MOST_ON_A_PAGE)


@dataclass(frozen=True, slots=True)
class ItemChange:
    """A change of one item of a list. `before` and `after` are the items as they are stored, plain JSON values.

    An added item has no old index and nothing before it, a removed one no new index and nothing after it. Items are
    *changed* if as many others stand in their places.
    """

    kind: ChangeKind
    old_index: int | None
    new_index: int | None
    before: Any = None
    after: Any = None


@dataclass(frozen=True, slots=True)
class ListDiff:
    """A list that differs: how long it was and is, how many of its items changed, and the changes of this page.

    A length is None if that checkpoint has no such list.
    """

    path: Path
    old_length: int | None
    new_length: int | None
    added: int
    removed: int
    changed: int
    changes: tuple[ItemChange, ...] = ()


@dataclass(frozen=True, slots=True)
class ValueChange:
    """A value that differs, and is not a list in both. What was added has nothing before it, what was removed nothing
    after it: `None` there is no value, and `kind` tells it from a stored null.
    """

    path: Path
    kind: ChangeKind
    before: Any = None
    after: Any = None


@dataclass(frozen=True, slots=True)
class PayloadDiff:
    """The changes from one checkpoint to another: exactly the values stored in either, and nothing else.

    Objects are compared name by name, lists item by item. `values` has each value that differs, by its path, and
    `lists` each list. An item of a list is compared as a whole. The order of an object's names counts for nothing;
    `1`, `1.0` and `true` are different values.

    Changes come in pages: `total` is how many there are, `start` the number of the first one here, and `next` what to
    ask for as `start` to go on, or None. Every page names all lists that differ, with their counts.
    """

    values: tuple[ValueChange, ...] = ()
    lists: tuple[ListDiff, ...] = ()
    total: int = 0
    start: int = 0
    next: int | None = None

    def __bool__(self) -> bool:
        """Whether anything differs, on this page or another."""
        return self.total > 0


class Segment(NamedTuple):
    """`length` changes of one kind in a row: of old items, of new ones, or of both."""

    kind: ChangeKind
    old: int
    new: int
    length: int


class Gap(NamedTuple):
    """The part of a list between two matches, as positions in the old list and in the new one."""

    old: int
    old_end: int
    new: int
    new_end: int


def gaps(matches: Sequence[Match], old_length: int, new_length: int) -> Iterator[Gap]:
    """The parts of two lists between their matches, which are in order."""
    at = start = 0
    for match in [*matches, Match(new_length, old_length, 0)]:
        if match.start > start or match.at > at:
            yield Gap(start, match.start, at, match.at)
        at, start = match.at + match.length, match.start + match.length


def segments(gap: Gap) -> Iterator[Segment]:
    """The changes in a gap: as many new items replace old ones, or some are removed and others added."""
    removed, added = gap.old_end - gap.old, gap.new_end - gap.new
    if removed == added:
        yield Segment("changed", gap.old, gap.new, removed)
        return
    if removed:
        yield Segment("removed", gap.old, gap.new, removed)
    if added:
        yield Segment("added", gap.old_end, gap.new, added)


_DEPTH = 8
"""How often a part is taken apart by items that occur once in it. Each time costs a pass over all of it."""


def aligned(old: Sequence[object], new: Sequence[object]) -> list[Match]:
    """The parts that two lists share, in order, as a person would see them. Keys are compared with `==`.

    The common beginning and end are found first, then the items that occur once in either list and stand in the same
    order in both; the parts between those are treated alike. So the time is that of sorting, whatever the lists hold.
    """
    matches: list[Match] = []
    todo = [(0, len(old), 0, len(new), _DEPTH)]
    while todo:
        start, end, at, until, depth = todo.pop()
        first = at
        while start < end and at < until and old[start] == new[at]:
            start, at = start + 1, at + 1
        if at > first:
            matches.append(Match(first, start - (at - first), at - first))
        last = until
        while start < end and at < until and old[end - 1] == new[until - 1]:
            end, until = end - 1, until - 1
        if last > until:
            matches.append(Match(until, end, last - until))
        if start == end or at == until or not depth:
            continue
        anchors = _anchors(old, start, end, new, at, until)
        if not anchors:  # what they share occurs again and again
            rest = align(old[start:end], new[at:until])
            matches += [Match(match.at + at, match.start + start, match.length) for match in rest]
            continue
        for x, y in [*anchors, (end, until)]:
            todo.append((start, x, at, y, depth - 1))
            start, at = x, y
    return _joined(sorted(matches))


def _anchors(
    old: Sequence[object], start: int, end: int, new: Sequence[object], at: int, until: int
) -> list[tuple[int, int]]:
    """The longest series of items that occur once in either part, and in the same order in both."""
    before, after = Counter(old[start:end]), Counter(new[at:until])
    places = {old[index]: index for index in range(start, end) if before[old[index]] == 1}
    pairs = [
        (places[new[index]], index) for index in range(at, until) if after[new[index]] == 1 and new[index] in places
    ]
    ends: list[int] = []  # by length: the smallest old position that an increasing sequence ends with
    chosen: list[int] = []
    previous: list[int] = []
    for number, (place, _) in enumerate(pairs):
        length = bisect_left(ends, place)
        previous.append(chosen[length - 1] if length else -1)
        ends[length : length + 1] = [place]
        chosen[length : length + 1] = [number]
    line: list[tuple[int, int]] = []
    number = chosen[-1] if chosen else -1
    while number >= 0:
        line.append(pairs[number])
        number = previous[number]
    return line[::-1]


def _joined(matches: Sequence[Match]) -> list[Match]:
    joined: list[Match] = []
    for match in matches:
        last = joined[-1] if joined else None
        if last is not None and last.at + last.length == match.at and last.start + last.length == match.start:
            joined[-1] = last._replace(length=last.length + match.length)
        else:
            joined.append(match)
    return joined
