"""The manifest of a checkpoint, and how its lists are read back from the runs that it names. Pure functions.

`records` describes the format. `plan.encode_manifest` writes it, because a save needs nothing else of this module.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from locus.errors import CorruptCheckpointError
from locus.memory.model.codec import decode, encode
from locus.memory.model.digests import fits
from locus.memory.model.records import Extent, Path, Run, RunInfo

_NUMBER = attrgetter("number")
MOST = 2**53 - 1
"""The largest number of an extent or a run: the largest integer that every JSON parser reads exactly."""


Cuts = Mapping[Path, tuple[Extent, ...] | str]
"""What was cut out of the head, by path: the extents of a list, or the branch of a large value."""


LONGEST_REMEMBERED = 65_536
"""In characters. A manifest has some hundred."""
LONG_TEXT = 65_536
"""In characters. From here on the text of a run is parsed without being copied first."""


def decode_manifest(manifest: str) -> Cuts:
    """What a manifest says. A load asks several times: the engine for the runs, then whoever puts them together."""
    return _remembered(manifest) if len(manifest) <= LONGEST_REMEMBERED else _decoded(manifest)


@lru_cache(maxsize=16)
def _remembered(manifest: str) -> Cuts:
    return _decoded(manifest)


def _decoded(manifest: str) -> Cuts:
    try:
        return MappingProxyType(
            {
                tuple(path): cut if isinstance(cut, str) else tuple(checked_extent(*extent) for extent in cut)
                for path, cut in decode(manifest)
            }
        )
    except (TypeError, ValueError) as error:
        raise CorruptCheckpointError(f"stored manifest cannot be read ({type(error).__name__})") from None


def checked_extent(branch: object, run: object, skip: object, length: object) -> Extent:
    """An extent, if that is what was stored: its numbers bound queries and loops."""
    if type(branch) is str and type(run) is type(skip) is type(length) is int:
        extent = Extent(branch, run, skip, length)
        if min(extent[1:]) >= 0 and max(extent[1:]) <= MOST:
            return extent
    raise ValueError("an extent has something else where its branch and its numbers should be")


def wanted(manifest: str) -> list[Extent]:
    """Everything that has to be read to put a checkpoint together."""
    extents: list[Extent] = []
    for cut in decode_manifest(manifest).values():
        extents += [Extent(cut, 0, 0, 1)] if isinstance(cut, str) else cut
    return extents


def newest_runs(manifests: Iterable[str]) -> dict[str, int]:
    """The branches that manifests name, and the newest run that they name of each."""
    newest: dict[str, int] = {}
    for manifest in manifests:
        for extent in wanted(manifest):
            newest[extent.branch] = max(extent.run, newest.get(extent.branch, 0))
    return newest


def by_branch(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Runs as `Stored` has them."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.branch, []).append(run)
    return found


def items_text(extents: Iterable[Extent], runs: Mapping[str, Sequence[Run]]) -> str:
    """The JSON array of a list, put together from the texts of its runs."""
    return "".join(items_texts(extents, runs))


def items_texts(extents: Iterable[Extent], runs: Mapping[str, Sequence[Run]]) -> list[str]:
    """The same in parts: whoever puts them into a larger text copies each once."""
    texts: list[str] = []
    for extent in extents:
        ordered = sorted(runs.get(extent.branch, ()), key=_NUMBER)
        if _is_all(extent, ordered):
            texts += [run.items[1:-1] for run in ordered if run.length]
        else:
            texts += _texts(_pieces(extent, ordered, fits))
    return _array(texts)


def pieces_text(pieces: Iterable[tuple[Run, int, int]]) -> str:
    """The JSON array of parts of runs, as `visible` gives them."""
    return "".join(_array(list(_texts(pieces))))


def _array(texts: Sequence[str]) -> list[str]:
    """The parts of a JSON array with these texts in it. In C, because there may be many."""
    if not texts:
        return ["[]"]
    parts = [","] * (2 * len(texts) + 1)
    parts[0], parts[1::2], parts[-1] = "[", texts, "]"
    return parts


def _texts(pieces: Iterable[tuple[Run, int, int]]) -> Iterator[str]:
    for run, low, high in pieces:
        if low == high:
            continue
        if low == 0 and high == run.length:
            yield run.items[1:-1]
        else:
            yield from (encode(item) for item in _decoded_items(run)[low:high])


def list_items(extents: Sequence[Extent], runs: Mapping[str, Sequence[Run]]) -> list[Any]:
    """The items of a list.

    Short texts are parsed together, because each call takes its time; long ones where they are, because copying them
    does.
    """
    found: list[Any] = []
    short: list[str] = []
    for extent in extents:
        for run, low, high in visible(extent, runs.get(extent.branch, ())):
            whole = low == 0 and high == run.length
            if whole and len(run.items) < LONG_TEXT:
                if run.length:
                    short.append(run.items[1:-1])
                continue
            if short:
                found += decode("".join(_array(short)))
                short = []
            items = _decoded_items(run) if whole else _decoded_items(run)[low:high]
            if found:
                found += items
            else:
                found = items
    if short:
        found += decode("".join(_array(short)))
    expected = sum(extent.length for extent in extents)
    if len(found) != expected:
        raise CorruptCheckpointError(f"a list has {len(found)} items where its manifest says {expected}")
    return found


def _decoded_items(run: Run) -> list[Any]:
    items = decode(run.items)
    if not isinstance(items, list):
        raise CorruptCheckpointError(f"run {run.number} of branch {run.branch!r} is no list")
    return items


def visible(extent: Extent, runs: Iterable[Run], fits: Callable[[Run, Run], bool] = fits) -> list[tuple[Run, int, int]]:
    """The pieces of an extent: `(run, from, to)` inside each run, in the order of the list.

    `runs` are at least those of the branch that the extent needs, in any order. A caller that does not keep their
    items gives a `fits` that has them.
    """
    ordered = sorted(runs, key=_NUMBER)
    if _is_all(extent, ordered):
        return [(run, 0, run.length) for run in ordered]
    return _pieces(extent, ordered, fits)


def _pieces(extent: Extent, ordered: Sequence[Run], fits: Callable[[Run, Run], bool]) -> list[tuple[Run, int, int]]:
    pieces: list[tuple[Run, int, int]] = []
    limit = extent.skip + extent.length
    later: int | None = None
    for index, low, high in walk(extent, ordered):
        run = ordered[index]
        if later is not None and ordered[later].number - run.number != later - index and not fits(run, ordered[later]):
            raise CorruptCheckpointError(
                f"run {run.number} of branch {extent.branch!r} is not what run {ordered[later].number} was added to"
            )
        later = index
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


def check_named(extents: Iterable[Extent], runs: Mapping[str, Sequence[Run]], *, since: bool = True) -> None:
    """Refuse runs that lack one which an extent names: older ones would pass for what it said.

    A removal lets no such run go, even if it shows nothing. Older versions did, so this is only for what was stored
    `since`. Where nobody can say when a checkpoint was stored, an older run of the branch can: only later versions
    give a run a digest of what precedes it, and whatever follows it was stored by one of them, too.
    """
    for extent in extents:
        found = runs.get(extent.branch, ())
        if any(run.number == extent.run for run in reversed(found)):
            continue
        if since or any(run.before is not None and run.number < extent.run for run in found):
            raise CorruptCheckpointError(f"the items of run {extent.run} of branch {extent.branch!r} are missing")


def has_named(extents: Iterable[Extent], runs: Mapping[str, Sequence[Run]]) -> bool:
    """Whether every run is there that an extent names."""
    return all(any(run.number == extent.run for run in reversed(runs.get(extent.branch, ()))) for extent in extents)


def _is_all(extent: Extent, runs: Sequence[Run]) -> bool:
    """Whether these are all runs, only ever appended, and the extent is all of them: then there is no doubt."""
    if not runs or runs[-1].number != extent.run or runs[0].start != extent.skip:
        return False
    if runs[-1].number - runs[0].number != len(runs) - 1:
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
