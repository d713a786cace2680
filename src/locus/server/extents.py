"""Checks what a client's commit names against the thread.

A manifest says which runs a checkpoint consists of. Locus itself plans a commit so that it names only what it brings,
and what its base has. Another client could name anything else, such as a run with the number 2**53 - 1, and whoever
reads the checkpoint would look for it. So each extent that a commit did not write itself must lie inside those of its
base, and a run continues a branch where the base's version of it ends.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from locus.memory.engine import Engine
from locus.memory.model.manifest import decode_manifest, wanted
from locus.memory.model.records import Base, Commit, Extent, Outcome, Run
from locus.server.requests import invalid

MOST_REMEMBERED = 1_024
LONGEST_REMEMBERED = 16_384
"""In characters. A manifest has some hundred, so that all together rarely take a megabyte."""

LARGE_MANIFEST = 250_000
"""In characters: such ones are compared by a worker thread, because the event loop has others to serve."""

_NEVER = "?"
"""A rev that no checkpoint has."""

_Key = tuple[str, str, str, str]
_Version = tuple[str, int]
"""A branch as of one of its runs."""
_Span = tuple[int, int]


class ExtentCheck:
    """Checks commits for one store. It remembers the manifests of recent ones: those are the next bases."""

    def __init__(self) -> None:
        self._manifests: OrderedDict[_Key, str] = OrderedDict()

    async def checked(self, commit: Commit, engine: Engine) -> Commit:
        """The commit, if it names nothing else than what it may."""
        if engine.checks_extents:
            return commit
        manifest = "[]" if commit.base is None else await self._manifest(commit, commit.base, engine)
        if manifest is None:
            # The engine answers, because it may know the commit already. If the base comes back meanwhile, that must
            # not count: nobody has looked at its manifest.
            assert commit.base is not None
            return replace(commit, base=Base(commit.base.checkpoint_id, _NEVER))
        if len(commit.manifest) + len(manifest) < LARGE_MANIFEST:
            _check(commit, manifest)
        else:
            await asyncio.to_thread(_check, commit, manifest)
        return commit

    async def _manifest(self, commit: Commit, base: Base, engine: Engine) -> str | None:
        known = self._manifests.get(_key(commit, base))
        if known is not None:
            return known
        found = await engine.manifest(commit.thread_id, commit.namespace, base.checkpoint_id)
        if found is None or found[0] != base.rev:
            return None
        self._remember(_key(commit, base), found[1])
        return found[1]

    def committed(self, commit: Commit, outcome: Outcome) -> None:
        """Remember what was written."""
        if outcome.is_written:
            self._remember(_key(commit, Base(commit.checkpoint_id, commit.rev)), commit.manifest)

    def _remember(self, key: _Key, manifest: str) -> None:
        self._manifests.pop(key, None)
        if len(manifest) <= LONGEST_REMEMBERED:
            self._manifests[key] = manifest
        if len(self._manifests) > MOST_REMEMBERED:
            self._manifests.popitem(last=False)


def _key(commit: Commit, base: Base) -> _Key:
    return commit.thread_id, commit.namespace, base.checkpoint_id, base.rev


def _check(commit: Commit, base_manifest: str) -> None:
    values = {run.branch for run in commit.values}
    there: dict[_Version, list[_Span]] = {}
    for cut in decode_manifest(base_manifest).values():
        if isinstance(cut, str):
            values.add(cut)
            continue
        for extent in cut:
            there.setdefault((extent.branch, extent.run), []).append((extent.skip, extent.skip + extent.length))
    for spans in there.values():
        spans.sort()
    grown = _grown_branches(commit.runs, there)
    for extent in commit.extents or wanted(commit.manifest):
        if extent.branch.startswith("#"):  # so does the name of a large value, and of nothing else
            if extent.branch not in values:
                raise invalid("a value in the manifest", "one that the commit brings, or that its base has")
        elif not (_is_there(extent, there) or _is_grown(extent, grown, there)):
            raise invalid("an extent in the manifest", "of the commit's own runs, or inside those of its base")


@dataclass(slots=True)
class _Grown:
    """A branch that a commit opens or continues."""

    before: int
    """The run that it continues; -1 for none."""
    newest: int
    start: int
    """Up to here it shows what was there before."""
    end: int


def _grown_branches(runs: Iterable[Run], there: Mapping[_Version, object]) -> dict[str, _Grown]:
    newest: dict[str, int] = {}
    for branch, number in there:
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


def _is_there(extent: Extent, there: Mapping[_Version, list[_Span]]) -> bool:
    spans = there.get((extent.branch, extent.run))
    return spans is not None and _covers(spans, extent.skip, extent.skip + extent.length)


def _is_grown(extent: Extent, grown: Mapping[str, _Grown], there: Mapping[_Version, list[_Span]]) -> bool:
    branch = grown.get(extent.branch)
    if branch is None or extent.run != branch.newest or extent.skip + extent.length > branch.end:
        return False
    return _covers(there.get((extent.branch, branch.before), []), extent.skip, branch.start)


def _covers(spans: Iterable[_Span], low: int, high: int) -> bool:
    """Whether these spans, in order, leave out nothing from `low` to `high`."""
    for start, end in spans:
        if start <= low < end:
            low = end
    return low >= high
