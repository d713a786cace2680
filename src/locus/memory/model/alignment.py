"""Aligns two versions of a list: finds the parts they share, and the extents of a part of one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from locus.memory.model.records import Extent

MAX_MATCHES = 16
"""More pieces than this are never kept (see `MAX_EXTENTS`), so looking for them would be wasted."""


class Match(NamedTuple):
    """`new[at:at + length]` is `old[start:start + length]`."""

    at: int
    start: int
    length: int


def align(old: Sequence[object], new: Sequence[object]) -> list[Match]:
    """The parts that `new` shares with `old`, in order. Keys are compared with `==`: object ids, or digests.

    Appending, trimming, editing and summarising each give one or two matches; these are found by comparing
    slices, which runs in C.
    """
    matches: list[Match] = []
    at = start = 0
    positions: dict[object, int] | None = None
    while at < len(new) and start < len(old) and len(matches) < MAX_MATCHES:
        length = _common(old, start, new, at)
        if length:
            matches.append(Match(at, start, length))
            at, start = at + length, start + length
            continue
        if positions is None:
            positions = {key: index for index, key in reversed(list(enumerate(old)))}
        # The next item of `new` that is found further on in `old`; those before it are fresh.
        while at < len(new):
            found = positions.get(new[at], -1)
            if found >= start:
                start = found
                break
            at += 1
    return matches


def _common(old: Sequence[object], start: int, new: Sequence[object], at: int) -> int:
    """The number of items that are equal, one by one, from `old[start]` and `new[at]` on."""
    length = min(len(old) - start, len(new) - at)
    if old[start : start + length] == new[at : at + length]:
        return length
    return bisect_left(range(1, length + 1), True, key=lambda n: old[start : start + n] != new[at : at + n])


def part(extents: Iterable[Extent], start: int, length: int) -> list[Extent]:
    """The extents of `list[start:start + length]`."""
    parts: list[Extent] = []
    for extent in extents:
        if length <= 0:
            break
        if start >= extent.length:
            start -= extent.length
            continue
        taken = min(extent.length - start, length)
        parts.append(extent._replace(skip=extent.skip + start, length=taken))
        start, length = 0, length - taken
    return parts


def joined(extents: Iterable[Extent]) -> list[Extent]:
    """Merge neighbouring extents of one version of a branch. The list that they name stays the same."""
    whole: list[Extent] = []
    for extent in extents:
        last = whole[-1] if whole else None
        if last is not None and last[:2] == extent[:2] and last.skip + last.length == extent.skip:
            whole[-1] = last._replace(length=last.length + extent.length)
        else:
            whole.append(extent)
    return whole
