"""Chooses the runs of a log that an extent needs. Seals say where runs begin, so most texts are not read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

from locus.memory.model.records import Extent

USELESS, HIDDEN, NEEDED = range(3)
"""The use of a run for an extent: none (too new, or known to the reader), hidden by newer runs, or shown or named."""


class Sought:
    """The search for the runs of an extent, from the end of a log backwards.

    A log has the runs of a branch in their order, with one exception: if a save is sent again after its checkpoint was
    removed, its run 0 comes after those that continue it. So run 0 hides nothing, and it ends the search only if none
    of the others can be missing.
    """

    __slots__ = ("_begins", "_known", "_lacks_first", "_left", "_lowest", "is_open", "run", "skip")

    def __init__(self, extent: Extent, known: int) -> None:
        self.run = extent.run
        self.skip = extent.skip
        # Who has a branch as of a newer run may lack what that hides, and what is in sight as of this one.
        self._known = known if known <= extent.run else -1
        self.is_open = self._known < extent.run
        self._lacks_first = self._known < 0
        self._left = extent.run - max(self._known, 0)
        """The number of runs above 0 that may not have been met yet."""
        self._lowest = extent.run + 1
        self._begins: float = inf
        """The position from which on newer runs hide older ones."""

    def meets(self, number: int, start: int) -> int:
        """Take the next run of the branch backwards, and return its use for this extent."""
        if number > self.run:
            return USELESS
        if number <= self._known:
            self.is_open = self.is_open and number == 0
            return USELESS
        if number == 0:
            self._lacks_first = False
            self.is_open = self._left > 0
            return NEEDED
        if number < self._lowest:
            self._lowest = number
            self._left -= 1
        shows = start < self._begins
        if shows:
            self._begins = start
            self.is_open = start > self.skip and (self._left > 0 or self._lacks_first)
        elif not self._left and not self._lacks_first:
            self.is_open = False
        return NEEDED if shows or number == self.run else HIDDEN


def sought(extents: Iterable[Extent], known: Mapping[str, int]) -> dict[str, list[Sought]]:
    """Begin the searches for extents, by branch; `known` is the newest run that the reader has of a branch."""
    searches: dict[str, list[Sought]] = {}
    for extent in extents:
        search = Sought(extent, known.get(extent.branch, -1))
        if search.is_open:
            searches.setdefault(extent.branch, []).append(search)
    return searches
