"""Checks that what a client's commit names exists, and that it costs no reader more than it may.

A manifest names the runs that a checkpoint consists of. The client of Locus names only runs of the commit itself and of
its base. Another client could name any other, such as number 2**53 - 1, and every reader of the checkpoint would look
for it. Each extent must therefore be of the commit's own runs, or inside those of its base, and a new run must
continue a branch where the base's version of it ends.

A manifest may also name the same items many times, or a place inside a large value of the base. The client of Locus
does the first never and the second seldom; only then, the content of the base is read to see what comes of it.

What a commit says of the items that precede its runs is compared as well (see `preceding`).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeVar

from locus.memory.engine import Engine
from locus.memory.model.manifest import by_branch, decode_manifest, extents_at, extents_in, list_items, wanted
from locus.memory.model.parts import Ends
from locus.memory.model.price import (
    Amount,
    PriceLimits,
    amount,
    check_amount,
    check_cuts,
    check_empty,
    inside,
    repeats,
)
from locus.memory.model.records import Base, Commit, Cuts, Extent, Outcome, Path, Run, Stored
from locus.server.preceding import Chains, chains_of, ends_before, proved, unproved
from locus.server.requests import invalid

T = TypeVar("T")

MOST_REMEMBERED = 1_024
LONGEST_REMEMBERED = 16_384
"""The longest manifest that is remembered, in characters. Most have a few hundred, so all together take little."""

LARGE_MANIFEST = 65_536
"""Manifests of this many characters together are compared by a worker thread, to keep the event loop free."""
LARGE_RUNS, MANY_RUNS = 250_000, 500
"""Runs of this many characters, and so many runs, are digested by a worker thread."""

_NEVER = "?"
"""A rev that no checkpoint has."""

_Key = tuple[str, str, str, str]
_Version = tuple[str, int]
"""A version of a branch: its name, and the number of the version's newest run."""
_Span = tuple[int, int]


class _Checkpoint(NamedTuple):
    """What is remembered of a checkpoint."""

    manifest: str
    chains: Chains


class ExtentCheck:
    """Checks the commits for one store. It remembers the manifests of recent commits, which are the next bases."""

    def __init__(self, limits: PriceLimits) -> None:
        self._limits = limits
        self._known: OrderedDict[_Key, _Checkpoint] = OrderedDict()

    async def checked(self, commit: Commit, engine: Engine, admit: Callable[[Amount], None]) -> tuple[Commit, Chains]:
        """Return the commit, or raise a problem if something that it names does not exist, or comes to too much.

        If the base of the commit is gone, it is replaced by one that never matches, so that the commit cannot be
        written. `admit` may refuse to look at content of the base. With the commit comes what `committed` remembers.
        """
        if engine.checks_extents:
            return commit, {}
        base = _Checkpoint("[]", {}) if commit.base is None else await self._base(commit, commit.base, engine)
        if base is None:
            return _without_base(commit), {}
        is_large = len(commit.manifest) + len(base.manifest) >= LARGE_MANIFEST
        if await _done(is_large, partial(_check, commit, base.manifest, self._limits)):
            assert commit.base is not None
            stored = await engine.read(commit.thread_id, commit.namespace, commit.base.checkpoint_id)
            if stored is None or stored.entry.rev != commit.base.rev:
                return _without_base(commit), {}
            admit(amount((), stored.runs))
            await _done(True, partial(_check_content, commit, stored, self._limits))
        return await self._proved(commit, base, engine, admit)

    async def _proved(
        self, commit: Commit, base: _Checkpoint, engine: Engine, admit: Callable[[Amount], None]
    ) -> tuple[Commit, Chains]:
        """The commit with those digests of what precedes its runs that are known to be true."""
        sort_keys, chains = not engine.dialect.exact, base.chains
        if commit.base is not None and (far := unproved(commit.runs, chains, sort_keys=sort_keys)):
            last = ends_before(far, wanted(base.manifest))
            stored = await self._read(commit, commit.base, engine, max(1, last))
            if stored is None:
                return _without_base(commit), {}
            admit(amount((), stored.runs))
            chains = {**chains, **chains_of(stored)}
        tips = [chain.tip for chain in chains.values() if chain.tip is not None]
        size = sum(len(run.items) for run in (*commit.runs, *tips))
        is_large = size >= LARGE_RUNS or len(commit.runs) >= MANY_RUNS
        runs, known = await _done(is_large, partial(proved, commit, chains, sort_keys=sort_keys))
        return replace(commit, runs=runs), known

    async def _base(self, commit: Commit, base: Base, engine: Engine) -> _Checkpoint | None:
        known = self._known.get(_key(commit, base))
        if known is not None:
            return known
        if any(run.before and run.number for run in commit.runs):
            stored = await self._read(commit, base, engine, 1)
            if stored is None:
                return None
            known = _Checkpoint(stored.manifest, chains_of(stored))
        else:
            found = await engine.manifest(commit.thread_id, commit.namespace, base.checkpoint_id)
            if found is None or found[0] != base.rev:
                return None
            known = _Checkpoint(found[1], {})
        self._remember(_key(commit, base), _Checkpoint(known.manifest, {}))
        return known

    async def _read(self, commit: Commit, base: Base, engine: Engine, last: int) -> Stored | None:
        """The base with the last items of its lists, or None if it is gone."""
        stored = await engine.read_part(commit.thread_id, commit.namespace, base.checkpoint_id, Ends(last))
        return stored if stored is not None and stored.entry.rev == base.rev else None

    def committed(self, commit: Commit, outcome: Outcome, chains: Chains) -> None:
        """Remember the manifest of a commit that was written, and what is known of its branches."""
        if outcome.is_written:
            known = _Checkpoint(commit.manifest, chains)
            self._remember(_key(commit, Base(commit.checkpoint_id, commit.rev)), known)

    def _remember(self, key: _Key, known: _Checkpoint) -> None:
        self._known.pop(key, None)
        if len(known.manifest) <= LONGEST_REMEMBERED:
            self._known[key] = known
        if len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)


async def _done(is_large: bool, work: Callable[[], T]) -> T:
    return await asyncio.to_thread(work) if is_large else work()


def _without_base(commit: Commit) -> Commit:
    """The commit with a base that never matches.

    The engine still gets it, because it may have committed it already. If the base comes back meanwhile, it must not
    match, because its manifest was not checked.
    """
    assert commit.base is not None
    return replace(commit, base=Base(commit.base.checkpoint_id, _NEVER))


def _key(commit: Commit, base: Base) -> _Key:
    return commit.thread_id, commit.namespace, base.checkpoint_id, base.rev


def _check(commit: Commit, base_manifest: str, limits: PriceLimits) -> bool:
    """Check a commit by its manifest and that of its base. True if the content of the base has to be looked at, too."""
    cuts, base_cuts = decode_manifest(commit.manifest), decode_manifest(base_manifest)
    check_cuts(cuts, commit.manifest, limits, base_cuts)
    values = {run.branch for run in commit.values}
    base_spans: dict[_Version, list[_Span]] = {}
    for cut in base_cuts.values():
        if isinstance(cut, str):
            values.add(cut)
            continue
        for extent in cut:
            base_spans.setdefault((extent.branch, extent.run), []).append((extent.skip, extent.skip + extent.length))
    for spans in base_spans.values():
        spans.sort()
    grown = _grown_branches(commit.runs, base_spans)
    extents = extents_in(cuts)
    for extent in extents:
        if extent.branch.startswith("#"):  # so does the name of a large value, and of nothing else
            if extent.branch not in values:
                raise invalid("a value in the manifest", "one that the commit brings, or that its base has")
        elif not (_is_in_base(extent, base_spans) or _is_grown(extent, grown, base_spans)):
            raise invalid("an extent in the manifest", "of the commit's own runs, or inside those of its base")
    brought = by_branch((*commit.runs, *commit.values))
    if times := repeats(extents):
        if _is_priced_by_base(times, base_cuts, brought):
            return True
        check_amount(amount(extents, brought), limits)
    return any(_places_in_base(cuts, brought, base_cuts))


def _is_priced_by_base(times: Mapping[str, int], base_cuts: Cuts, brought: Mapping[str, list[Run]]) -> bool:
    """Whether a commit that shows branches so many times repeats more of its base than the base itself does."""
    base_times, of_base = repeats(extents_in(base_cuts)), {extent.branch for extent in extents_in(base_cuts)}
    return any(
        branch in of_base and (branch in brought or count > base_times.get(branch, 1))
        for branch, count in times.items()
    )


def _places_in_base(
    cuts: Cuts, brought: Mapping[str, list[Run]], base_cuts: Cuts
) -> Iterable[tuple[Path, str, tuple[str, ...]]]:
    """The paths that lead into a large value of the base, to a place of which the base does not say that it is empty.

    With each, the name of the value, and the rest of the path inside of it.
    """
    if not any(isinstance(cut, str) for cut in cuts.values()):
        return
    for path in cuts:
        depth, name = next(((at, cut) for at in range(len(path) - 1, 0, -1) if (cut := cuts.get(path[:at]))), (0, None))
        if not isinstance(name, str) or name in brought:
            continue
        if base_cuts.get(path[:depth]) != name or path not in base_cuts:
            yield path, name, path[depth:]


def _check_content(commit: Commit, base: Stored, limits: PriceLimits) -> None:
    """Check a commit with the content of its base at hand."""
    cuts, base_cuts = decode_manifest(commit.manifest), decode_manifest(base.manifest)
    brought = by_branch((*commit.runs, *commit.values))
    runs = {branch: [*base.runs.get(branch, ()), *brought.get(branch, ())] for branch in {*base.runs, *brought}}
    extents = extents_in(cuts)
    if repeats(extents):
        check_amount(amount(extents, {extent.branch: runs[extent.branch] for extent in extents}), limits)
    for path, name, steps in _places_in_base(cuts, brought, base_cuts):
        (value,) = list_items(extents_at(name), base.runs)
        for step in steps:
            value = inside(value, step, path)
        check_empty(value, path)


@dataclass(slots=True)
class _Grown:
    """A branch that a commit opens or extends."""

    before: int
    """The number of the run that it continues; -1 for none."""
    newest: int
    start: int
    """The position up to which the branch shows items of the base."""
    end: int


def _grown_branches(runs: Iterable[Run], base_spans: Mapping[_Version, object]) -> dict[str, _Grown]:
    newest: dict[str, int] = {}
    for branch, number in base_spans:
        newest[branch] = max(number, newest.get(branch, -1))
    grown: dict[str, _Grown] = {}
    for run in runs:
        known = grown.get(run.branch)
        if known is None:
            if run.number != (newest.get(run.branch, -1) + 1):
                raise invalid("the number of a run", "the one after the newest that the base has of its branch")
            grown[run.branch] = _Grown(run.number - 1, run.number, run.start, run.start + run.length)
        elif run.number != known.newest + 1 or run.start > known.end:
            raise invalid("a run", "the next one of its branch")
        else:
            known.newest, known.start, known.end = run.number, min(known.start, run.start), run.start + run.length
    return grown


def _is_in_base(extent: Extent, base_spans: Mapping[_Version, list[_Span]]) -> bool:
    spans = base_spans.get((extent.branch, extent.run), [])
    if not extent.length:
        return any(start <= extent.skip <= end for start, end in spans)
    return _covers(spans, extent.skip, extent.skip + extent.length)


def _is_grown(extent: Extent, grown: Mapping[str, _Grown], base_spans: Mapping[_Version, list[_Span]]) -> bool:
    branch = grown.get(extent.branch)
    if branch is None or extent.run != branch.newest or extent.skip + extent.length > branch.end:
        return False
    return _covers(base_spans.get((extent.branch, branch.before), []), extent.skip, branch.start)


def _covers(spans: Iterable[_Span], low: int, high: int) -> bool:
    """Whether spans, in order, cover every position from `low` to `high`."""
    for start, end in spans:
        if start <= low < end:
            low = end
    return low >= high
