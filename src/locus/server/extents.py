"""Checks that the extents in a client's commit exist.

A manifest names the runs that a checkpoint consists of. The client of Locus names only runs of the commit itself and of
its base. Another client could name any other, such as number 2**53 - 1, and every reader of the checkpoint would look
for it. Each extent must therefore be of the commit's own runs, or inside those of its base, and a new run must
continue a branch where the base's version of it ends.
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
"""The longest manifest that is remembered, in characters. Most have a few hundred, so all together take little."""

LARGE_MANIFEST = 250_000
"""Manifests of this many characters together are compared by a worker thread, to keep the event loop free."""

_NEVER = "?"
"""A rev that no checkpoint has."""

_Key = tuple[str, str, str, str]
_Version = tuple[str, int]
"""A version of a branch: its name, and the number of the version's newest run."""
_Span = tuple[int, int]


class ExtentCheck:
    """Checks the commits for one store. It remembers the manifests of recent commits, which are the next bases."""

    def __init__(self) -> None:
        self._manifests: OrderedDict[_Key, str] = OrderedDict()

    async def checked(self, commit: Commit, engine: Engine) -> Commit:
        """Return the commit, or raise a problem if an extent does not exist.

        If the base of the commit is gone, it is replaced by one that never matches, so that the commit cannot be
        written.
        """
        if engine.checks_extents:
            return commit
        manifest = "[]" if commit.base is None else await self._manifest(commit, commit.base, engine)
        if manifest is None:
            # The engine still gets the commit, because it may have committed it already. If the base comes back
            # meanwhile, it must not match, because its manifest was not checked.
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
        stored = await engine.manifest(commit.thread_id, commit.namespace, base.checkpoint_id)
        if stored is None or stored[0] != base.rev:
            return None
        self._remember(_key(commit, base), stored[1])
        return stored[1]

    def committed(self, commit: Commit, outcome: Outcome) -> None:
        """Remember the manifest of a commit that was written."""
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
    base_spans: dict[_Version, list[_Span]] = {}
    for cut in decode_manifest(base_manifest).values():
        if isinstance(cut, str):
            values.add(cut)
            continue
        for extent in cut:
            base_spans.setdefault((extent.branch, extent.run), []).append((extent.skip, extent.skip + extent.length))
    for spans in base_spans.values():
        spans.sort()
    grown = _grown_branches(commit.runs, base_spans)
    for extent in commit.extents or wanted(commit.manifest):
        if extent.branch.startswith("#"):  # so does the name of a large value, and of nothing else
            if extent.branch not in values:
                raise invalid("a value in the manifest", "one that the commit brings, or that its base has")
        elif not (_is_in_base(extent, base_spans) or _is_grown(extent, grown, base_spans)):
            raise invalid("an extent in the manifest", "of the commit's own runs, or inside those of its base")


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
    spans = base_spans.get((extent.branch, extent.run))
    return spans is not None and _covers(spans, extent.skip, extent.skip + extent.length)


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
