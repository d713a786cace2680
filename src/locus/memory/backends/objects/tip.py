"""Tips: facts from long ago that the latest checkpoints need, repeated among the newest events.

The latest checkpoint mostly consists of items that the last events have added. But a long text may have been stored
with the first one, and a list may not have grown for a thousand turns. A tip tells the places of these, and the number
that a run was last given on each branch, so that nobody has to read a thousand entries for that.

A tip is only ever true: it tells of events that never change, as of the event that it follows. It need not tell
everything, and may be missing. Then more of the thread is read.
"""

from __future__ import annotations

from typing import Any

from locus.errors import CorruptCheckpointError
from locus.memory.backends.objects.index import EarlierEventsNeeded, ExtentRuns, ThreadIndex
from locus.memory.backends.objects.places import FarText
from locus.memory.backends.objects.schema import VERSION, Record, TextRef, to_line
from locus.memory.model.manifest import MOST, checked_extent
from locus.memory.model.records import Extent, RunInfo

KIND = "tip"

_MOST_NAMESPACES = 8
_MOST_RUNS = 64


def tip_line(index: ThreadIndex) -> bytes:
    """Write the tip as of the last event of an index. Raises an error if the index knows less than a tip should."""
    rows = [index.rows[seqs[-1]] for seqs in index.newest.values() if seqs]
    rows = sorted(rows, key=lambda row: row.seq)[-_MOST_NAMESPACES:]
    tops: dict[str, int] = {}
    versions: dict[Extent, list[list[Any]]] = {}
    for extents in (extents for row in rows for extents in index.lists(row)):
        for extent in extents:
            if not extent.branch.startswith("#"):
                tops[extent.branch] = _top(index, extent.branch)
        if not index.is_far(extents):
            continue
        for extent in extents:
            runs = index.holding([extent])
            if sum(map(len, versions.values())) + len(runs) <= _MOST_RUNS:
                versions[extent] = [[*run[1:], *ref, *_place(index, ref)] for run, ref in runs.items()]
    facts = {"tops": tops, "versions": [[*extent, runs] for extent, runs in versions.items()]}
    return to_line({"v": VERSION, "n": index.last_seq, "kind": KIND, "thread": index.thread_id, **facts})


def _top(index: ThreadIndex, branch: str) -> int:
    top = index.tops.get(branch)
    if top is None:
        raise EarlierEventsNeeded
    return top


def _place(index: ThreadIndex, ref: TextRef) -> list[Any]:
    told = index.places.far.get(ref)
    if told is None and not index.is_whole:
        raise EarlierEventsNeeded  # it was recent until now, and is not known from the beginning of its objects on
    size, starts = told or index.places.far_text(ref)
    return [size, list(starts.items())]


def learn(index: ThreadIndex, tip: Record) -> None:
    """Add the facts of a tip about earlier events to an index that begins in the middle."""
    try:
        tops = {str(branch): _number(top) for branch, top in tip["tops"].items()}
        versions: dict[tuple[str, int], list[ExtentRuns]] = {}
        far: dict[TextRef, FarText] = {}
        for *facts, runs in tip["versions"]:
            extent = checked_extent(*facts)
            shown: dict[RunInfo, TextRef] = {}
            for number, start, length, event, line, checksum, before, size, starts in runs:
                ref = TextRef(_number(event), _number(line), checksum, before)
                shown[RunInfo(extent.branch, _number(number), _number(start), _number(length))] = ref
                far[ref] = FarText(_number(size), {_number(low): _number(place) for low, place in starts})
            versions.setdefault((extent.branch, extent.run), []).append(ExtentRuns(extent, shown))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptCheckpointError(f"a tip of the thread is damaged ({type(error).__name__})") from None
    index.tops = tops | index.tops
    index.versions |= versions
    index.places.far |= far


def _number(value: object) -> int:
    """Check that a stored value is a number: it bounds how much is read."""
    if type(value) is int and 0 <= value <= MOST:
        return value
    raise ValueError("a tip has something else where a number should be")
