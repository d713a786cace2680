"""Reads manifests: which extents and large values a checkpoint has, and the items that runs show of them.

`records` describes the format, and `plan` writes it. Pure functions.
"""

from __future__ import annotations

from base64 import b64decode
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from locus.errors import CorruptCheckpointError
from locus.memory.model.codec import MAX_DEPTH, decode, encode
from locus.memory.model.digests import (
    BEGINNING,
    DIGEST_LENGTH,
    MOST_MARKS,
    UNKNOWN_CHAIN,
    DigestChain,
    Mark,
    extended,
    texts_of,
)
from locus.memory.model.records import Cuts, Extent, Path, Run, RunInfo

_NUMBER = attrgetter("number")
MOST = 2**53 - 1
"""The largest number of an extent or a run: the largest integer that every JSON parser reads exactly."""
DEEPEST = MAX_DEPTH + 10
"""In steps. No path that leads to something cut out has as many."""
LONGEST_REMEMBERED = 65_536
"""In characters. A manifest has some hundred."""
LONG_TEXT = 65_536
"""In characters. From here on the text of a run is parsed without being copied first."""
LARGEST_TIP = 65_536
"""In characters. A longer text is not kept in memory only to be digested later."""


def decode_manifest(manifest: str) -> Cuts:
    """The content of a manifest: for each path that was cut out of the head, the extents or the large value."""
    return _remembered(manifest) if len(manifest) <= LONGEST_REMEMBERED else _decoded(manifest)


@lru_cache(maxsize=16)
def _remembered(manifest: str) -> Cuts:
    return _decoded(manifest)


def _decoded(manifest: str) -> Cuts:
    try:
        return MappingProxyType(
            {
                _checked_path(path): cut if isinstance(cut, str) else tuple([checked_extent(*extent) for extent in cut])
                for path, cut in decode(manifest)
            }
        )
    except (TypeError, ValueError) as error:
        raise CorruptCheckpointError(f"stored manifest cannot be read ({type(error).__name__})") from None


def _checked_path(path: object) -> Path:
    """Make a path of stored values. A longer one leads to nothing that was ever saved, however far one followed it."""
    if type(path) is list and 0 < len(path) <= DEEPEST and set(map(type, path)) == {str}:
        return tuple(path)
    raise ValueError("a path has something else where its names should be, or too many of them")


def checked_extent(branch: object, run: object, skip: object, length: object) -> Extent:
    """Make an extent of stored values. Others than a text and three numbers are refused, since they bound loops."""
    if type(branch) is str and type(run) is type(skip) is type(length) is int:
        extent = Extent(branch, run, skip, length)
        if min(extent[1:]) >= 0 and max(extent[1:]) <= MOST:
            return extent
    raise ValueError("an extent has something else where its branch and its numbers should be")


def extents_in(cuts: Cuts) -> list[Extent]:
    """The extents of everything that was cut out of a head."""
    extents: list[Extent] = []
    for cut in cuts.values():
        extents += [Extent(cut, 0, 0, 1)] if isinstance(cut, str) else cut
    return extents


def extents_at(cut: tuple[Extent, ...] | str) -> tuple[Extent, ...]:
    """The extents of one thing that was cut out. A large value is the only item of a branch of its own."""
    return (Extent(cut, 0, 0, 1),) if isinstance(cut, str) else cut


def wanted(manifest: str) -> list[Extent]:
    """The extents that a reader of a checkpoint needs, by its manifest."""
    return extents_in(decode_manifest(manifest))


def newest_in(named: Iterable[Extent | RunInfo | tuple[str, int]]) -> dict[str, int]:
    """The branches that extents, or branches with numbers, name, and the newest run that they name of each."""
    newest: dict[str, int] = {}
    for one in named:
        newest[one[0]] = max(one[1], newest.get(one[0], 0))
    return newest


def newest_runs(manifests: Iterable[str]) -> dict[str, int]:
    """The branches that manifests name, and the newest run that they name of each."""
    return newest_in(extent for manifest in manifests for extent in wanted(manifest))


def by_branch(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Runs grouped by branch."""
    branches: dict[str, list[Run]] = {}
    for run in runs:
        branches.setdefault(run.branch, []).append(run)
    return branches


def digest_before(run: Run) -> bytes | None:
    """The stored digest of all items that precede a run; None if it has none."""
    if run.start == 0:
        return BEGINNING
    if run.before is None or len(run.before) != DIGEST_LENGTH:
        return None
    try:
        return b64decode(f"{run.before}==", validate=True)
    except ValueError:
        return None


def fits(older: Run, newer: Run) -> bool:
    """Whether `newer`, which is stored now, may have been added to a branch that ended with `older`."""
    start, end = digest_before(older), digest_before(newer)
    if start is None or end is None:
        return True
    count = newer.start - older.start
    for sort_keys in (False, True):
        digest = start
        for text in texts_of(older, sort_keys)[:count]:
            digest = extended(digest, text)
        if digest == end:
            return True
    return False


def chain_of(runs: Sequence[Run], number: int) -> DigestChain:
    """The digest chain of a branch as of the run with this number, from stored digests."""
    marks: list[Mark] = []
    tip: Run | None = None
    for run in sorted(runs, key=_NUMBER, reverse=True):
        if run.number > number or (marks and run.start >= marks[-1].position):
            continue  # newer, or hidden by a newer one
        if tip is None and run.number != number:
            return UNKNOWN_CHAIN
        tip = tip or run
        digest = digest_before(run)
        if digest is None:
            break
        marks.append(Mark(run.start, digest))
        if run.start == 0 or len(marks) >= MOST_MARKS:
            break
    if tip is None or not marks:
        return UNKNOWN_CHAIN
    chain = DigestChain(tuple(reversed(marks)), tip)
    return chain if len(tip.items) <= LARGEST_TIP else chain._replace(tip=None)


def items_text(extents: Iterable[Extent], runs: Mapping[str, Sequence[Run]]) -> str:
    """The JSON array of a list, assembled from the texts of its runs."""
    return "".join(items_texts(extents, runs))


def items_texts(extents: Iterable[Extent], runs: Mapping[str, Sequence[Run]]) -> list[str]:
    """The JSON array of a list as a sequence of texts, so that a caller who joins them copies each only once."""
    texts: list[str] = []
    for extent in extents:
        ordered = sorted(runs.get(extent.branch, ()), key=_NUMBER)
        if _is_all(extent, ordered):
            texts += [run.items[1:-1] for run in ordered if run.length]
        else:
            texts += _texts(_pieces(extent, ordered, fits))
    return _array(texts)


def pieces_text(pieces: Iterable[tuple[Run, int, int]]) -> str:
    """The JSON array of the pieces of runs that `visible` gives."""
    return "".join(_array(list(_texts(pieces))))


def _array(texts: Sequence[str]) -> list[str]:
    """The parts of a JSON array whose items have these texts."""
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
            yield from (encode(item) for item in decoded_items(run)[low:high])


def list_items(extents: Sequence[Extent], runs: Mapping[str, Sequence[Run]]) -> list[Any]:
    """The items that extents show of runs, in order.

    Short texts are parsed together, because each call takes its time; long ones where they are, because copying them
    does.
    """
    items: list[Any] = []
    short: list[str] = []
    for extent in extents:
        for run, low, high in visible(extent, runs.get(extent.branch, ())):
            is_whole = low == 0 and high == run.length
            if is_whole and len(run.items) < LONG_TEXT:
                if run.length:
                    short.append(run.items[1:-1])
                continue
            if short:
                items += decode("".join(_array(short)))
                short = []
            of_run = decoded_items(run) if is_whole else decoded_items(run)[low:high]
            if items:
                items += of_run
            else:
                items = of_run
    if short:
        items += decode("".join(_array(short)))
    expected = sum(extent.length for extent in extents)
    if len(items) != expected:
        raise CorruptCheckpointError(f"a list has {len(items)} items where its manifest says {expected}")
    return items


def decoded_items(run: Run) -> list[Any]:
    """The items of one run."""
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
    """Refuse runs if one is missing that an extent names: an older run would show other items in its place.

    A removal lets no such run go, even if it shows nothing. Older versions did, so this is only for what was stored
    `since`. Where nobody can say when a checkpoint was stored, an older run of the branch can: only later versions
    give a run a digest of what precedes it, and whatever follows it was stored by one of them, too.
    """
    for extent in extents:
        of_branch = runs.get(extent.branch, ())
        if has_run(of_branch, extent.run):
            continue
        if since or any(run.before is not None and run.number < extent.run for run in of_branch):
            raise CorruptCheckpointError(f"the items of run {extent.run} of branch {extent.branch!r} are missing")


def has_named(extents: Iterable[Extent], runs: Mapping[str, Sequence[Run]]) -> bool:
    """Whether the run that each extent names is there."""
    return all(has_run(runs.get(extent.branch, ()), extent.run) for extent in extents)


def has_run(runs: Sequence[Run], number: int) -> bool:
    """Whether the run with this number is there. Looks from the end, where it usually is."""
    for run in reversed(runs):  # noqa: SIM110 - in half the time
        if run.number == number:
            return True
    return False


def _is_all(extent: Extent, runs: Sequence[Run]) -> bool:
    """Whether an extent covers all of these runs, each of which only appended: then every item is visible."""
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
    """The items that an extent shows, from its end backwards: `(index of the run, from, to)` inside each run.

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
