"""Lists as extents of branches: what two versions share, and how one is read back. Pure functions."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from locus.errors import CorruptCheckpointError
from locus.memory.model.codec import decode, encode
from locus.memory.model.records import Extent, Run, RunInfo

MAX_MATCHES = 16
"""More pieces than this are never kept (see `deltas`), so looking for them would be wasted."""


_NUMBER = attrgetter("number")


class Match(NamedTuple):
    """`new[at:at + length]` is `old[start:start + length]`."""

    at: int
    start: int
    length: int


def align(old: Sequence[object], new: Sequence[object]) -> list[Match]:
    """What `new` shares with `old`, in order. The keys compare with `==`: object ids, or digests.

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
    """How many items from `old[start]` and `new[at]` on are the same."""
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
    """The same list with neighbouring extents of one version made into one."""
    whole: list[Extent] = []
    for extent in extents:
        last = whole[-1] if whole else None
        if last is not None and last[:2] == extent[:2] and last.skip + last.length == extent.skip:
            whole[-1] = last._replace(length=last.length + extent.length)
        else:
            whole.append(extent)
    return whole


def visible(extent: Extent, runs: Iterable[Run]) -> list[tuple[Run, int, int]]:
    """The pieces of an extent: `(run, from, to)` inside each run, in the order of the list.

    `runs` are at least those of the branch that the extent needs, in any order.
    """
    ordered = sorted(runs, key=_NUMBER)
    if _is_all(extent, ordered):
        return [(run, 0, run.length) for run in ordered]
    pieces: list[tuple[Run, int, int]] = []
    limit = extent.skip + extent.length
    for index, low, high in walk(extent, ordered):
        run = ordered[index]
        if run.start + high != limit:
            break  # something between this run and the one after it is missing
        pieces.append((run, low, high))
        limit = run.start + low
    if limit > extent.skip:
        raise CorruptCheckpointError(
            f"items {extent.skip} to {limit} of branch {extent.branch!r} (run {extent.run}) are missing"
        )
    pieces.reverse()
    return pieces


def _is_all(extent: Extent, runs: Sequence[Run]) -> bool:
    """Whether these are runs that were only ever appended, and the extent is all of them: then there is no doubt."""
    if not runs or runs[-1].number != extent.run or runs[0].start != extent.skip:
        return False
    end = extent.skip
    for run in runs:
        if run.start != end:
            return False
        end += run.length
    return end == extent.skip + extent.length


def walk(
    extent: Extent, runs: Sequence[Run] | Sequence[RunInfo], done: dict[int, int] | None = None
) -> Iterator[tuple[int, int, int]]:
    """What an extent shows, from its end backwards: `(index of the run, from, to)` inside each run.

    `runs` are those of one branch in the order of their numbers. Read from the newest backwards, a run shows
    what no newer one has replaced. `done` remembers where walks have been, by index: where one has gone on as far
    as this one needs, the rest was told already, and is left out. So all walks of a branch together are linear.
    """
    limit = extent.skip + extent.length
    index = bisect_right(runs, extent.run, key=lambda run: run.number) - 1
    while index >= 0 and limit > extent.skip:
        run = runs[index]
        if run.start < limit:
            end = min(limit, run.start + run.length)
            low = max(run.start, extent.skip)
            if low < end:
                yield index, low - run.start, end - run.start
            limit = run.start
            if done is not None:
                before = done.get(index)
                if before is not None and before <= extent.skip:
                    return
                done[index] = extent.skip
        index -= 1


def items_text(extents: Iterable[Extent], runs: Mapping[str, Sequence[Run]]) -> str:
    """The JSON array of a list, put together from the texts of its runs."""
    texts: list[str] = []
    for extent in extents:
        for run, low, high in visible(extent, runs.get(extent.branch, ())):
            if low == 0 and high == run.length:
                texts.append(run.items[1:-1])
            else:
                texts.extend(encode(item) for item in decode(run.items)[low:high])
    return f"[{','.join(texts)}]"
