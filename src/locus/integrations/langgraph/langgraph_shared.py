"""Items that several checkpoints of a thread have in common, read once when the checkpoints are read together."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from locus.errors import CorruptCheckpointError
from locus.integrations.langgraph.codec import ReadList, TypedCodec
from locus.memory.model.codec import decode
from locus.memory.model.manifest import visible
from locus.memory.model.records import Extent, Run

Runs = Mapping[str, Sequence[Run]]


@dataclass(frozen=True, slots=True)
class _Known:
    """An extent that was read, and where the runs of its branch start."""

    extent: Extent
    items: list[object]
    starts: Mapping[int, int]

    def begins_with(self, extent: Extent) -> bool:
        """Whether an older extent is the beginning of this one: what came since was added to its end."""
        known = self.extent
        if extent.skip != known.skip or not extent.run <= known.run or extent.length > known.length:
            return False
        end = extent.skip + extent.length
        return all(self.starts.get(number, -1) >= end for number in range(extent.run + 1, known.run + 1))


class SharedItems:
    """Of one thread: copies of a thread have branches of the same names, and may have gone on differently."""

    def __init__(self, codec: TypedCodec) -> None:
        self._codec = codec
        self._runs: dict[tuple[str, int], list[object]] = {}
        self._known: dict[str, _Known] = {}

    def list(self, extents: Collection[Extent], runs: Runs, path: tuple[str, ...]) -> ReadList:
        """The items of a list that was cut out of a payload; `path` is where, for errors."""
        found = ReadList()
        for extent in extents:
            found += self._items(extent, runs.get(extent.branch, ()), path)
        return found

    def large(self, branch: str, runs: Runs) -> object:
        """A single value that was cut out, as JSON."""
        ((run, _, _),) = visible(Extent(branch, 0, 0, 1), runs.get(branch, ()))
        return _parsed(run)[0]

    def _items(self, extent: Extent, runs: Sequence[Run], path: tuple[str, ...]) -> Sequence[object]:
        known = self._known.get(extent.branch)
        if known is not None and known.begins_with(extent):
            return known.items[: extent.length]
        items: list[object] = []
        for run, low, high in visible(extent, runs):
            read = self._runs.get((run.branch, run.number))
            if read is None:
                read = self._runs[run.branch, run.number] = self._codec.decode(_parsed(run), path)
            items += read if (low, high) == (0, len(read)) else read[low:high]
        self._known[extent.branch] = _Known(extent, items, {run.number: run.start for run in runs})
        return items


def _parsed(run: Run) -> list[object]:
    items = decode(run.items)
    if not isinstance(items, list):
        raise CorruptCheckpointError(f"run {run.number} of branch {run.branch!r} is no list")
    return items
