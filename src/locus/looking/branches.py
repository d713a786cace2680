"""The items of a thread as any of its checkpoints shows them, while the thread is read only once.

A checkpoint shows a list as of a run: the items of that run, and before them the part of older runs that it does not
hide, for a run hides everything from its start on. Each run is linked with the run whose items come before its own. The
links tell how far back the items as of a run are complete, and where the last match before a position is. Most
questions take a few steps, however many runs there are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Final

from locus.errors import CorruptCheckpointError
from locus.memory.model.codec import canonical, decode
from locus.memory.model.manifest import fits
from locus.memory.model.records import Extent, Run

_NUMBER = attrgetter("number")
_NONE: Final = -1
_MOST_DECODED: Final = 16 * 1024 * 1024
"""Characters of the runs whose items are kept decoded."""


class Branches:
    """The branches of a thread, as far as it was read.

    `matches` tells which items are looked for. Unless `named`, an extent may name a run that is not there, as long as
    nothing tells that it was lost: older versions dropped runs that show nothing.
    """

    def __init__(self, matches: Callable[[Any], bool] | None = None, *, named: bool = True) -> None:
        self._matches = matches
        self._named = named
        self._branches: dict[str, _Branch] = {}
        self._decoded: OrderedDict[tuple[str, int], list[Any]] = OrderedDict()
        self._weights: dict[tuple[str, int], int] = {}
        self._weight = 0

    def add(self, run: Run) -> None:
        """Add a run. A known one is ignored."""
        branch = self._branches.setdefault(run.branch, _Branch())
        if branch.has(run.number):
            return
        hits: list[int] = []
        if self._matches is not None:
            hits = [run.start + at for at, item in enumerate(_items(run)) if self._matches(item)]
        branch.add(run, hits)

    def _branch(self, extent: Extent) -> _Branch:
        return self._branches.get(extent.branch) or _Branch()

    def check(self, extents: Sequence[Extent]) -> None:
        """Refuse a list that is not complete."""
        for extent in extents:
            if not self._branch(extent).shows(extent, self._named):
                raise CorruptCheckpointError(f"items of branch {extent.branch!r} (run {extent.run}) are missing")

    def has_match(self, extent: Extent) -> bool:
        """True if an extent has an item that is looked for."""
        return self.last_match(extent) is not None

    def last_match(self, extent: Extent) -> int | None:
        """The position in an extent of its last item that is looked for; None if it has none."""
        self.check([extent])
        hit = self._branch(extent).last_hit(extent)
        return hit - extent.skip if hit >= extent.skip else None

    def first_match(self, extent: Extent) -> int | None:
        """The position in an extent of its first item that is looked for; None if it has none."""
        first, at = None, self.last_match(extent)
        while at is not None:
            first = at
            at = self.last_match(extent._replace(length=at))
        return first

    def value(self, name: str) -> Any:
        """The large value with this name."""
        return self.item([Extent(name, 0, 0, 1)], 0)

    def item(self, extents: Sequence[Extent], position: int) -> Any:
        """The item at a position of a list, which has to be that long."""
        for extent in extents:
            if position < extent.length:
                self.check([extent])
                at = Extent(extent.branch, extent.run, extent.skip + position, 1)
                run, low, _ = next(self._branch(extent).backwards(at))
                return self._items(run)[low]
            position -= extent.length
        raise IndexError

    def equal(self, extents: Sequence[Extent], wanted: Sequence[Any]) -> bool:
        """True if a list has exactly these items. They are compared from the end, where lists are changed."""
        self.check(extents)
        at = sum(extent.length for extent in extents)
        if at != len(wanted):
            return False
        for extent in reversed(extents):
            for run, low, high in self._branch(extent).backwards(extent):
                items = self._items(run)
                for index in range(high - 1, low - 1, -1):
                    at -= 1
                    if canonical(items[index]) != canonical(wanted[at]):
                        return False
        return True

    def _items(self, run: Run) -> list[Any]:
        key = (run.branch, run.number)
        if key in self._decoded:
            self._decoded.move_to_end(key)
            return self._decoded[key]
        items = self._decoded[key] = _items(run)
        self._weights[key] = len(run.items)
        self._weight += len(run.items)
        while self._weight > _MOST_DECODED and len(self._decoded) > 1:
            oldest, _ = self._decoded.popitem(last=False)
            self._weight -= self._weights.pop(oldest)
        return items


def _items(run: Run) -> list[Any]:
    items = decode(run.items)
    if not isinstance(items, list) or len(items) != run.length:
        raise CorruptCheckpointError(f"run {run.number} of branch {run.branch!r} is damaged")
    return items


class _Branch:
    """The runs of one branch, in the order of their numbers."""

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._hits: list[list[int]] = []
        """The positions in each run of the items that are looked for."""
        self._below: list[int] = []
        """For each run, the one whose items come before its own."""
        self._depth: list[int] = []
        self._jump: list[int] = []
        """For each run, a skew-binary jump pointer: one further below, so that any run is reached in few steps."""
        self._complete: list[int] = []
        """For each run, the position from which on no item is missing up to its own."""
        self._last_hit: list[int] = []
        """For each run, the position of the last match before its own items."""
        self._digested: int | None = None
        """The number of the first run that has a digest of the items before its own."""

    def has(self, number: int) -> bool:
        at = self._index(number)
        return at >= 0 and self._runs[at].number == number

    def _index(self, number: int) -> int:
        return bisect_right(self._runs, number, key=_NUMBER) - 1

    def add(self, run: Run, hits: list[int]) -> None:
        at = self._index(run.number) + 1
        self._runs.insert(at, run)
        self._hits.insert(at, hits)
        if run.before is not None and (self._digested is None or run.number < self._digested):
            self._digested = run.number
        # Nearly all runs come in order. What was linked over the place of this one is linked anew.
        for links in (self._below, self._depth, self._jump, self._complete, self._last_hit):
            del links[at:]
        for index in range(at, len(self._runs)):
            self._link(index)

    def _link(self, index: int) -> None:
        run = self._runs[index]
        below = self._under(index - 1, run.start)
        complete, last_hit = run.start, _NONE
        if below != _NONE:
            older = self._runs[below]
            none_between = run.number - older.number == index - below
            if older.start + older.length >= run.start and (none_between or fits(older, run)):
                complete = self._complete[below]
            last_hit = self._hit_before(below, run.start)
        self._below.append(below)
        self._depth.append(self._depth[below] + 1 if below != _NONE else 0)
        self._jump.append(self._jump_over(below))
        self._complete.append(complete)
        self._last_hit.append(last_hit)

    def _under(self, index: int, position: int) -> int:
        """The run that shows the item right before a position, for a list as of the run with this index."""
        while index != _NONE and self._runs[index].start >= position:
            far = self._jump[index]
            # Those below start earlier, so where the far one starts too late, all between do.
            index = far if far != _NONE and self._runs[far].start >= position else self._below[index]
        return index

    def _jump_over(self, below: int) -> int:
        """The jump pointer of a run on top of this one."""
        near = self._jump[below] if below != _NONE else _NONE
        far = self._jump[near] if near != _NONE else _NONE
        even = far != _NONE and self._depth[below] - self._depth[near] == self._depth[near] - self._depth[far]
        return far if even else below

    def _hit_before(self, index: int, position: int) -> int:
        """The last match before a position, in the run with this index or in one below."""
        hits = self._hits[index]
        at = bisect_left(hits, position)
        return hits[at - 1] if at else self._last_hit[index]

    def shows(self, extent: Extent, named: bool) -> bool:
        """True if the run that an extent names is there, and all items of the extent are."""
        index = self._index(extent.run)
        lost = named or (self._digested is not None and self._digested < extent.run)
        if lost and (index == _NONE or self._runs[index].number != extent.run):
            return False
        if not extent.length:
            return True
        end = extent.skip + extent.length
        index = self._under(index, end)
        if index == _NONE:
            return False
        run = self._runs[index]
        return run.start + run.length >= end and self._complete[index] <= extent.skip

    def last_hit(self, extent: Extent) -> int:
        """The position of the last match before the end of an extent; it may lie before the extent."""
        end = extent.skip + extent.length
        index = self._under(self._index(extent.run), end)
        return _NONE if index == _NONE else self._hit_before(index, end)

    def backwards(self, extent: Extent) -> Iterator[tuple[Run, int, int]]:
        """The parts of runs that a complete extent shows, from its end: `(run, from, to)` inside each run."""
        end = extent.skip + extent.length
        index = self._index(extent.run)
        while end > extent.skip:
            index = self._under(index, end)
            run = self._runs[index]
            low = max(run.start, extent.skip)
            yield run, low - run.start, end - run.start
            end = low
