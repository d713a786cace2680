"""The checkpoint that a handle holds in memory, so that a later load gets only the runs that are new.

`HeldCheckpoint` is what a handle keeps of the newest checkpoint of a thread that it has loaded or saved: texts of runs,
or the lists that were decoded from them, or decoded lists and the texts of what was saved since. A load tells the
engine which checkpoint that is (`Engine.read_since`), and gets only the runs that are newer. Everything held came from
the store or went to it as text, so that a load gives the same whether or not something was held.

A `LoadForm` puts a checkpoint together. `TEXTS` does so for dicts, and `states.STATES` for states. Pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Final, TypeVar

from locus.errors import CorruptCheckpointError
from locus.memory.model.digests import MOST_MARKS
from locus.memory.model.manifest import (
    by_branch,
    decode_manifest,
    extents_at,
    extents_in,
    has_run,
    newest_in,
    pieces_text,
    visible,
)
from locus.memory.model.records import Base, Cuts, Extent, Path, Run, Stored
from locus.memory.model.trace import Trace

R = TypeVar("R")

MANY_RUNS: Final = 256
SEPARATE_RUNS: Final = MOST_MARKS
"""From how many runs of a branch on its texts are gathered, and how many of the newest stay as they are."""

_NUMBER = attrgetter("number")

RunsByBranch = Mapping[str, list[Run]]


@dataclass(frozen=True, slots=True)
class HeldCheckpoint:
    """The content of the checkpoint `base` in memory: texts of `runs`, decoded lists of `trace`, or both.

    `runs` are none but those that belong to the checkpoint: of the branches that its manifest names, up to the newest
    that it names. Others may be gone by now, and their numbers given out again.
    """

    base: Base
    cuts: Cuts
    runs: RunsByBranch
    trace: Trace | None = None
    """What is decoded: this checkpoint, or one that it was made from."""
    decoded: Mapping[str, int] = field(default_factory=dict)
    """The newest run of each branch that the trace names, as far as this checkpoint has that run, too."""
    sizes: Mapping[Path, int] = field(default_factory=dict)
    """Of each list and each large value of the trace: how many characters it has as text."""


LoadForm = Callable[[Stored, HeldCheckpoint | None], tuple[R, HeldCheckpoint | None]]
"""Puts a checkpoint together from what the store has sent, and what is held beside it (None: all of it was sent).

Gives what the caller wants, and what is held from then on. If the two do not give all of it, or something is damaged,
it raises `CorruptCheckpointError`.
"""


def followed(held: HeldCheckpoint | None, base: Base, cuts: Cuts, added: Iterable[Run]) -> HeldCheckpoint | None:
    """The checkpoint to hold after a save: the one held before (None: none), with the runs that the save added."""
    more = by_branch(added)
    newest = newest_in(extents_in(cuts))
    if held is None:
        return HeldCheckpoint(base, cuts, _named(newest, more))
    runs = _named(newest, held.runs, more)
    if held.trace is None:
        return HeldCheckpoint(base, cuts, runs) if _covers(held, cuts, runs) else None
    decoded = {branch: number for branch, number in held.decoded.items() if number <= newest.get(branch, -1)}
    return HeldCheckpoint(base, cuts, runs, held.trace, decoded, held.sizes)


def _named(newest: Mapping[str, int], *sources: RunsByBranch) -> dict[str, list[Run]]:
    """The runs of these branches up to the newest that is named, each once, in order."""
    named: dict[str, list[Run]] = {}
    for branch, number in newest.items():
        runs: list[Run] = []
        for source in sources:
            more = sorted(source.get(branch, ()), key=_NUMBER)
            if runs and more and more[0].number <= runs[-1].number:
                more = sorted({run.number: run for run in (*runs, *more)}.values(), key=_NUMBER)
                runs = []
            runs = runs + more if runs else more
        if runs and runs[-1].number > number:
            runs = [run for run in runs if run.number <= number]
        if runs:
            named[branch] = runs
    return named


# Dicts and graphs can be changed by whoever gets them, so their texts are held, and parsed anew for every load.


def _whole(sent: Stored, held: HeldCheckpoint | None) -> tuple[Stored, HeldCheckpoint]:
    """Complete a checkpoint from the runs that were sent and those that are held."""
    cuts = decode_manifest(sent.manifest)
    sources = [sent.runs] if held is None else [held.runs, sent.runs]
    runs: RunsByBranch = _named(newest_in(extents_in(cuts)), *sources)
    if held is not None and not (held.trace is None and _covers(held, cuts, runs)):
        raise CorruptCheckpointError("what is held and what was sent do not give all of a checkpoint")
    runs = _gathered(cuts, runs)
    base = Base(sent.entry.checkpoint_id, sent.entry.rev)
    return replace(sent, runs=runs, since=None), HeldCheckpoint(base, cuts, runs)


def _covers(held: HeldCheckpoint, cuts: Cuts, runs: RunsByBranch) -> bool:
    """Whether these runs show everything that the checkpoint needs, except for unchanged parts of the held one."""
    for path, cut in cuts.items():
        if held.cuts.get(path) == cut:
            continue
        for extent in extents_at(cut):
            of_branch = runs.get(extent.branch, ())
            if not has_run(of_branch, extent.run):
                return False
            try:
                visible(extent, of_branch)
            except CorruptCheckpointError:
                return False
    return True


def _gathered(cuts: Cuts, runs: RunsByBranch) -> RunsByBranch:
    """Merge the runs of a branch that has very many, because each run costs a load some time.

    A branch up to a run is made one run of that number. That serves for what names this run or a later one.
    """
    if all(len(of_branch) < MANY_RUNS for of_branch in runs.values()):
        return runs
    gathered = dict(runs)
    firsts: dict[str, tuple[int, int]] = {}
    for extent in extents_in(cuts):
        run, skip = firsts.get(extent.branch, (extent.run, extent.skip))
        firsts[extent.branch] = min(run, extent.run), min(skip, extent.skip)
    for branch, (named, skip) in firsts.items():
        of_branch = runs.get(branch, [])
        is_long = len(of_branch) >= MANY_RUNS
        older = [run for run in of_branch[:-SEPARATE_RUNS] if run.number <= named] if is_long else []
        if len(older) < SEPARATE_RUNS:
            continue
        last = older[-1]
        length = last.start + last.length - skip
        if length <= 0:  # nothing shows them any more; the last one is kept, because it may be named
            gathered[branch] = of_branch[len(older) - 1 :]
            continue
        try:
            text = pieces_text(visible(Extent(branch, last.number, skip, length), older))
        except CorruptCheckpointError:
            continue  # it shows less than it has: more was trimmed since than what is kept here
        gathered[branch] = [Run(branch, last.number, skip, length, text), *of_branch[len(older) :]]
    return gathered


TEXTS: Final[LoadForm[Stored]] = _whole
