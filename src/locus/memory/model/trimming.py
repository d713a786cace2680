"""Removing many checkpoints of a thread in portions, so that no step takes long. No I/O.

A `Trimming` is planned once, from the thread as it was at one instant. After each portion the thread is whole: what
is left can be loaded, its parents are there, and no run is left that nothing needs. So whoever is interrupted can stop
after any of them, and others may save between two. What they have saved is told to `removal`, which spares what that
needs. If others remove something meanwhile, the plan is void: `left` tells how many of the planned checkpoints must
still be there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from locus.memory.model.manifest import walk
from locus.memory.model.records import Entry, Extent, RunInfo
from locus.memory.model.retention import Removal, new_parents

MOST_ROWS = 500
"""About how many checkpoints and runs one portion removes. A single checkpoint may free more runs."""


@dataclass(frozen=True, slots=True)
class Portion:
    """Some checkpoints to remove in one step, oldest first."""

    entries: Sequence[Entry]
    runs: Sequence[RunInfo]
    """What none of those that stay longer needs."""
    children: Sequence[Entry]
    """Checkpoints that stay longer, and came from one of these."""

    @property
    def seqs(self) -> list[int]:
        return [entry.seq for entry in self.entries]


class Trimming:
    """The removal of the checkpoints `doomed` (sequence numbers) from a thread that keeps others.

    `extents` has those of every checkpoint, by sequence number, and `runs` are all runs.
    """

    def __init__(
        self,
        entries: Iterable[Entry],
        extents: Mapping[int, Collection[Extent]],
        runs: Iterable[RunInfo],
        doomed: Collection[int],
        most: int,
    ) -> None:
        self._entries = {entry.seq: entry for entry in entries}
        self._children: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for entry in self._entries.values():
            self._add_child(entry)
        self._branches: defaultdict[str, list[RunInfo]] = defaultdict(list)
        for run in runs:
            self._branches[run.branch].append(run)
        for members in self._branches.values():
            members.sort(key=_number)
        self.last_seq = max(self._entries, default=0)
        """The newest checkpoint that was there when this was planned."""
        self.left = len(self._entries)
        """How many of those are still there."""
        self._portions = list(self._planned(extents, sorted(doomed), most))
        self._portions.reverse()

    def _add_child(self, entry: Entry) -> None:
        if entry.parent_id is not None:
            self._children[entry.namespace, entry.parent_id].append(entry.seq)

    def _planned(
        self, extents: Mapping[int, Collection[Extent]], doomed: Sequence[int], most: int
    ) -> Iterable[tuple[list[int], list[RunInfo]]]:
        """The checkpoints and the runs of each portion, oldest first.

        A run goes with the newest checkpoint that needs it: whoever claims it first, from the end.
        """
        claims, chosen = _Claims(self._branches), set(doomed)
        for seq in self._entries:
            if seq not in chosen:
                claims.claim(extents[seq])
        freed = {seq: claims.claim(extents[seq]) for seq in reversed(doomed)}
        together: list[int] = []
        runs = claims.unclaimed()
        for seq in doomed:
            together.append(seq)
            runs += freed[seq]
            if len(together) + len(runs) >= most:
                yield together, runs
                together, runs = [], []
        if together:
            yield together, runs

    def next(self) -> Portion | None:
        """The next portion to remove; None at the end."""
        if not self._portions:
            return None
        seqs, runs = self._portions[-1]
        entries, going = [self._entries[seq] for seq in seqs], set(seqs)
        children = {
            child for entry in entries for child in self._children.get((entry.namespace, entry.checkpoint_id), ())
        }
        return Portion(entries, runs, [self._entries[seq] for seq in sorted(children - going)])

    def contested(self, portion: Portion, newer: Iterable[Collection[Extent]]) -> dict[str, int]:
        """The branches of this portion's runs that newer checkpoints name too, with their newest known runs."""
        freed = {run.branch for run in portion.runs}
        named = {extent.branch for extents in newer for extent in extents}
        return {branch: self._branches[branch][-1].number for branch in sorted(freed & named)}

    def removal(
        self,
        portion: Portion,
        newer: Sequence[tuple[Entry, Collection[Extent]]] = (),
        runs: Iterable[RunInfo] = (),
    ) -> Removal:
        """The consequences of removing a portion, given the checkpoints saved since the plan.

        `runs` are the newer ones of the `contested` branches.
        """
        parents = new_parents([*portion.entries, *portion.children, *(entry for entry, _ in newer)], set(portion.seqs))
        return Removal(self._unneeded(portion, [extents for _, extents in newer], runs), parents)

    def _unneeded(
        self, portion: Portion, newer: Sequence[Collection[Extent]], runs: Iterable[RunInfo]
    ) -> list[RunInfo]:
        contested = self.contested(portion, newer)
        branches = {branch: list(self._branches[branch]) for branch in contested}
        for run in runs:
            branches[run.branch].append(run)
        claims = _Claims(branches)
        for extents in newer:
            claims.claim([extent for extent in extents if extent.branch in contested])
        return [run for run in portion.runs if run not in claims.claimed]

    def done(self, portion: Portion) -> None:
        """Note that a portion was removed."""
        self._portions.pop()
        parents = new_parents([*portion.entries, *portion.children], set(portion.seqs))
        for entry in portion.entries:
            del self._entries[entry.seq]
            self._children.pop((entry.namespace, entry.checkpoint_id), None)
        for seq, parent_id in parents.items():
            self._entries[seq] = replace(self._entries[seq], parent_id=parent_id)
            self._add_child(self._entries[seq])
        self.left -= len(portion.entries)


class _Claims:
    """The runs that checkpoints need. Each run belongs to the first checkpoint that claims it."""

    def __init__(self, branches: Mapping[str, Sequence[RunInfo]]) -> None:
        self._branches = branches
        self._walked: defaultdict[str, dict[int, int]] = defaultdict(dict)
        self._seen: set[Extent] = set()
        self.claimed: set[RunInfo] = set()

    def claim(self, extents: Iterable[Extent]) -> list[RunInfo]:
        """The runs that a checkpoint with these extents needs, and that no checkpoint before it has claimed."""
        fresh: list[RunInfo] = []
        for extent in extents:
            if extent in self._seen:
                continue
            self._seen.add(extent)
            members = self._branches.get(extent.branch, ())
            needed = [members[index] for index, _, _ in walk(extent, members, self._walked[extent.branch])]
            at = bisect_left(members, extent.run, key=_number)
            if at < len(members) and members[at].number == extent.run:
                needed.append(members[at])
            for run in needed:
                if run not in self.claimed:
                    self.claimed.add(run)
                    fresh.append(run)
        return fresh

    def unclaimed(self) -> list[RunInfo]:
        return [run for members in self._branches.values() for run in members if run not in self.claimed]


def _number(run: RunInfo) -> int:
    return run.number
