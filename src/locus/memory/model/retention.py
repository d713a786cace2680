"""Which checkpoints are removed, and what else changes when they are. Pure functions.

- `outlived`: what a vacuum removes.
- `plan_removal`: the runs that a removal frees, and the new parents of the checkpoints that stay.
- `ancestors`: the line of checkpoints that a copy takes along.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from locus.memory.model.manifest import walk
from locus.memory.model.records import Entry, Extent, RunInfo


@dataclass(frozen=True, slots=True)
class Removal:
    """What else changes when checkpoints of a thread are removed."""

    runs: list[RunInfo]
    parents: dict[int, str | None]
    """The new parents of those that stay, by sequence number."""


def plan_removal(
    stay: Mapping[int, Collection[Extent]],
    entries: Sequence[Entry],
    doomed: Collection[int],
    runs: Iterable[RunInfo],
) -> Removal:
    """Work out what the removal of `doomed` (sequence numbers) frees.

    `stay` has the extents of every checkpoint that is left, `entries` all entries, `runs` all runs.
    """
    return Removal(
        runs=unneeded_runs([extent for extents in stay.values() for extent in extents], runs),
        parents=new_parents(entries, doomed),
    )


def new_parents(entries: Iterable[Entry], doomed: Collection[int]) -> dict[int, str | None]:
    """For each checkpoint that stays and whose parent goes: its nearest ancestor that stays."""
    gone = {(entry.namespace, entry.checkpoint_id): entry for entry in entries if entry.seq in doomed}
    changed: dict[int, str | None] = {}
    for entry in entries:
        if entry.seq in doomed:
            continue
        parent = entry.parent_id
        passed = {entry.checkpoint_id}
        # Parents that were named before they were there may lead in a circle.
        while parent is not None and (entry.namespace, parent) in gone:
            passed.add(parent)
            parent = gone[entry.namespace, parent].parent_id
            parent = None if parent in passed else parent
        if parent != entry.parent_id:
            changed[entry.seq] = parent
    return changed


def unneeded_runs(extents: Iterable[Extent], runs: Iterable[RunInfo]) -> list[RunInfo]:
    """The runs that no extent shows anything of.

    The run that an extent names stays even so. Its number must not be used again, or the extent would show what
    another writer stored under it; and a reader who does not find it has to know that it is lost.
    """
    needs: defaultdict[str, list[Extent]] = defaultdict(list)
    for extent in set(extents):
        needs[extent.branch].append(extent)
    branches: defaultdict[str, list[RunInfo]] = defaultdict(list)
    for run in runs:
        branches[run.branch].append(run)
    unneeded: list[RunInfo] = []
    for branch, members in branches.items():
        members.sort(key=lambda run: run.number)
        done: dict[int, int] = {}
        shown = {index for extent in needs[branch] for index, _, _ in walk(extent, members, done)}
        named = {extent.run for extent in needs[branch]}
        unneeded += [run for index, run in enumerate(members) if index not in shown and run.number not in named]
    return unneeded


def ancestors(entries: Iterable[Entry], checkpoint_id: str) -> list[Entry]:
    """A checkpoint and those it came from, newest first; `entries` are of one namespace."""
    by_id = {entry.checkpoint_id: entry for entry in entries}
    line: list[Entry] = []
    at: str | None = checkpoint_id
    while at is not None and at in by_id:
        entry = by_id.pop(at)
        line.append(entry)
        at = entry.parent_id
    return line


def outlived(entries: Sequence[Entry], cutoff: datetime | None, keep_last: int | None) -> set[int]:
    """The sequence numbers that a vacuum removes from the entries of one thread.

    By age: what is older than `cutoff`. By number: what is not among the last `keep_last` of any line; each
    fork is a line of its own, so a fork stays whole however busy the others are. If both are given, both hold.
    The newest of a namespace always ends a line, even if an older one names it as its parent.
    """
    doomed = {entry.seq for entry in entries if cutoff is None or entry.created_at < cutoff}
    if keep_last is None:
        return doomed
    by_id = {(entry.namespace, entry.checkpoint_id): entry for entry in entries}
    parents = {(entry.namespace, entry.parent_id) for entry in entries}
    newest: dict[str, int] = {}
    kept: dict[int, int] = {}
    for entry in entries:
        newest[entry.namespace] = max(entry.seq, newest.get(entry.namespace, 0))
    for entry in entries:
        if (entry.namespace, entry.checkpoint_id) in parents and entry.seq != newest[entry.namespace]:
            continue
        at: Entry | None = entry
        left = keep_last
        # Where another line has kept as many from here on, the rest is kept. That also ends a circle of parents.
        while at is not None and left > kept.get(at.seq, 0):
            kept[at.seq] = left
            left -= 1
            at = by_id.get((at.namespace, at.parent_id)) if at.parent_id is not None else None
    return doomed - kept.keys()
