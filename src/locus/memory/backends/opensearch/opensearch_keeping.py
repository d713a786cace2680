"""What has to be kept of the records of a thread when checkpoints are removed or copied. Pure functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from locus.memory.backends.opensearch.opensearch_layout import CHECKPOINT
from locus.memory.backends.opensearch.opensearch_trails import Mark
from locus.memory.backends.opensearch.schema import (
    HeldRun,
    Piece,
    Record,
    Removed,
    Tip,
    infos_of,
)
from locus.memory.model.commit_rules import new_parents, unneeded_runs
from locus.memory.model.payloads import wanted
from locus.memory.model.records import Extent, RunInfo

Kept = dict[int, dict[Piece, bool]]
"""By place, the runs of a record that have to stay: with their items, or only as a step on the way to older ones."""


def removal_of(records: Sequence[Record], doomed: Collection[int], *, keep_writes: bool = False) -> Removed:
    """What a removal of these places says."""
    checkpoints = [record for record in records if record.kind == CHECKPOINT]
    seqs = {record.seq for record in checkpoints if record.place in doomed}
    parents = new_parents([record.entry("") for record in checkpoints], seqs)
    places = {record.seq: record.place for record in checkpoints}
    names = () if keep_writes else tuple((r.namespace, r.checkpoint_id) for r in checkpoints if r.place in doomed)
    return Removed(tuple(sorted(doomed)), {places[seq]: parent for seq, parent in parents.items()}, names)


def kept_runs(records: Sequence[Record], removed: Collection[int]) -> Kept:
    """What the checkpoints that are not removed need."""
    staying = [record for record in records if record.kind == CHECKPOINT and record.place not in removed]
    extents = [extent for record in staying for extent in wanted(record.manifest)]
    values = {(piece, tip.place) for record in staying for piece, tip in record.tip_of().items() if piece[0][0] == "#"}
    elsewhere = {piece for record in records if record.place not in removed for piece in _pieces(record)}
    infos = {(info.branch, info.number): info for record in records for info in infos_of(record)}
    unneeded = {(run.branch, run.number) for run in unneeded_runs(extents, infos.values())}
    bounds = _bounds(extents, infos.values())
    kept: Kept = {}
    for record in records:
        for piece in _pieces(record):
            branch, number = piece
            if branch.startswith("#"):
                keep = (piece, record.place) in values
                whole = keep
            else:
                low, high = bounds.get(branch, (0, -1))
                # A number that was used again: the older run is nobody's any more.
                replaced = record.place in removed and piece in elsewhere
                keep = low < number <= high and not replaced
                whole = piece not in unneeded
            if keep:
                kept.setdefault(record.place, {})[piece] = whole
    return kept


def _pieces(record: Record) -> list[Piece]:
    return [(held.run.branch, held.run.number) for held in record.runs]


def _bounds(extents: Iterable[Extent], infos: Iterable[RunInfo]) -> dict[str, tuple[int, int]]:
    """For each branch: the numbers that readers pass on their way are above the first, and up to the second."""
    ends: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for info in infos:
        ends[info.branch][info.number] = info.start + info.length
    bounds: dict[str, tuple[int, int]] = {}
    for branch, number, skip, _ in set(extents):
        low = number
        while skip and low >= 0 and ends[branch].get(low, skip + 1) > skip:
            low -= 1
        low = low if skip else -1
        before = bounds.get(branch, (low, number))
        bounds[branch] = (min(before[0], low), max(before[1], number))
    return bounds


def rest_of(record: Record, removed: Removed, kept: Mapping[Piece, bool]) -> Record:
    """What a record becomes; equal to what it was if nothing changes."""
    runs = tuple(
        _left(held, kept[piece]) for piece, held in zip(_pieces(record), record.runs, strict=True) if piece in kept
    )
    if record.place in removed.places:
        return record.emptied(runs)
    if record.kind == CHECKPOINT:
        return replace(record, runs=runs, parent_id=removed.parents.get(record.place, record.parent_id))
    return replace(record, runs=runs) if runs else record.emptied()


def _left(held: HeldRun, whole: bool) -> HeldRun:
    return held if whole else HeldRun(held.run._replace(items=""), held.trail)


def copied(records: Sequence[Record], chosen: Collection[int], thread: str, batch: str, position: int) -> list[Record]:
    """The records of a copy: checkpoints at these places, and the runs that they need."""
    kept = kept_runs(records, [record.place for record in records if record.place not in chosen])
    left = [record for record in records if record.place in chosen or record.place in kept]
    places = {record.place: -number for number, record in enumerate(left, 1)}
    made: list[Record] = []
    for record in left:
        own = kept.get(record.place, {})
        runs = tuple(
            _moved(_left(held, own[piece]), places)
            for piece, held in zip(_pieces(record), record.runs, strict=True)
            if piece in own
        )
        base = record if record.place in chosen else record.emptied(runs)
        made.append(
            replace(
                base,
                thread=thread,
                batch=batch,
                place=places[record.place],
                position=position,
                runs=runs,
                tips=tuple(Tip(places[tip.place], tip.newest) for tip in base.tips),
                removed=None,
                state=None,
            )
        )
    return made


def _moved(held: HeldRun, places: Mapping[int, int]) -> HeldRun:
    """The same run with the new places on its trail; those that nobody passes any more are left out."""
    trail = tuple(Mark(mark.number, places[mark.place], mark.end) for mark in held.trail if mark.place in places)
    return HeldRun(held.run, trail)
