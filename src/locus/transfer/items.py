"""The items of one thread while it is moved. Each item is decoded once, and then known by a number.

Checkpoints share items, so this module works on spans of numbers. A thread of a thousand checkpoints costs as much as
its items, rather than a thousand times as much as its state. Comparing the spans of two lists finds their common items
without reading them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from locus.errors import CorruptCheckpointError
from locus.memory.model.alignment import Match
from locus.memory.model.codec import decode, encode
from locus.memory.model.manifest import fits, visible
from locus.memory.model.records import Extent, Run
from locus.transfer.digests import SIZE, item_digest, list_digest


class Span(NamedTuple):
    """The items with the numbers from `first` up to, but not including, `end`."""

    first: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.first


def spans_length(spans: Iterable[Span]) -> int:
    return sum(span.length for span in spans)


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """The spans of a list, with adjacent ones merged."""
    whole: list[Span] = []
    for span in spans:
        if whole and whole[-1].end == span.first:
            whole[-1] = Span(whole[-1].first, span.end)
        else:
            whole.append(span)
    return whole


def slice_spans(spans: Iterable[Span], start: int, length: int) -> Iterator[Span]:
    """The spans of `list[start:start + length]`."""
    for span in spans:
        if length <= 0:
            return
        if start >= span.length:
            start -= span.length
            continue
        taken = min(span.length - start, length)
        yield Span(span.first + start, span.first + start + taken)
        start, length = 0, length - taken


_BRANCH_STRIDE = 1 << 40
"""The first numbers of branches are multiples of this, which is more than any branch has items."""


class ThreadItems:
    """All items of one thread, by number."""

    def __init__(self) -> None:
        self._branches: dict[str, _BranchItems] = {}
        self._by_origin: list[_BranchItems] = []
        self.count = 0
        """The number of items that have been added."""
        self.value_digests: dict[str, bytes] = {}
        """Digests of large values, by name. `StoredContent` adds those that it has computed."""

    @property
    def known(self) -> dict[str, int]:
        """The number of the newest known run of each branch."""
        return {name: branch.newest for name, branch in self._branches.items()}

    def add(self, runs: Iterable[Run]) -> None:
        """Add the items of runs. Runs that are known already are ignored."""
        for run in sorted(runs, key=lambda run: run[:2]):
            branch = self._branches.get(run.branch)
            if branch is None:
                branch = self._branches[run.branch] = _BranchItems(len(self._by_origin) * _BRANCH_STRIDE)
                self._by_origin.append(branch)
            if not branch.has(run.number):
                branch.add(run)
                self.count += run.length

    def spans(self, extents: Iterable[Extent]) -> list[Span]:
        """The spans of a list that is stored as extents."""
        spans: list[Span] = []
        for extent in extents:
            branch = self._branches.get(extent.branch)
            if branch is None:
                raise CorruptCheckpointError(f"branch {extent.branch!r} is missing")
            spans += branch.spans(extent)
        return merge_spans(spans)

    def text(self, number: int) -> str:
        """The JSON of an item."""
        origin, index = divmod(number, _BRANCH_STRIDE)
        return self._by_origin[origin].texts[index]

    def value(self, name: str) -> str:
        """The JSON of a large value."""
        return self.text(self.spans([Extent(name, 0, 0, 1)])[0].first)

    def digest(self, spans: Sequence[Span]) -> bytes:
        """A digest of the items of a list."""
        return list_digest(map(self._digests, spans))

    def _digests(self, span: Span) -> bytearray:
        origin, first = divmod(span.first, _BRANCH_STRIDE)
        return self._by_origin[origin].digests[first * SIZE : (first + span.length) * SIZE]


class _BranchItems:
    """The items of one branch, in the order in which they were added."""

    def __init__(self, origin: int) -> None:
        self._origin = origin
        self.texts: list[str] = []
        self.digests = bytearray()
        self._numbers: list[int] = []
        self._runs: list[Run] = []
        self._spans: list[Span] = []
        self._version = _BranchVersion()
        self._applied = 0
        self._fitting: dict[tuple[int, int], bool] = {}

    @property
    def newest(self) -> int:
        return self._numbers[-1] if self._numbers else -1

    def has(self, number: int) -> bool:
        at = bisect_left(self._numbers, number)
        return at < len(self._numbers) and self._numbers[at] == number

    def add(self, run: Run) -> None:
        items = decode(run.items)
        if not isinstance(items, list) or len(items) != run.length:
            raise CorruptCheckpointError(f"run {run.number} of branch {run.branch!r} is damaged")
        first = self._origin + len(self.texts)
        self.texts += [encode(item) for item in items]
        self.digests += b"".join(map(item_digest, items))
        at = bisect_left(self._numbers, run.number)
        self._numbers.insert(at, run.number)
        self._runs.insert(at, run._replace(items=""))
        self._spans.insert(at, Span(first, first + len(items)))
        # The version was assembled without this run, and has a gap there.
        self._applied += at < self._applied

    def spans(self, extent: Extent) -> list[Span]:
        """The spans of the items that an extent covers."""
        count = bisect_right(self._numbers, extent.run)
        for index in range(self._applied, count):
            self._version.apply(self._runs[index], self._spans[index])
        self._applied = max(self._applied, count)
        if count == self._applied:
            spans = self._version.slice(extent)
            if spans is not None:
                return spans
        pieces = visible(extent, self._runs, self._fits)  # raises if something is missing
        firsts = [(self._spans[bisect_left(self._numbers, run.number)].first, low, high) for run, low, high in pieces]
        return merge_spans(Span(first + low, first + high) for first, low, high in firsts)

    def _fits(self, older: Run, newer: Run) -> bool:
        """Whether a run continues an older one. Answers are remembered, because many checkpoints share both runs."""
        place = older.number, newer.number
        if place not in self._fitting:
            span = self._spans[bisect_left(self._numbers, older.number)]
            texts = self.texts[span.first - self._origin : span.end - self._origin]
            self._fitting[place] = fits(older._replace(items=f"[{','.join(texts)}]"), newer)
        return self._fitting[place]


class _BranchVersion:
    """The newest version of a branch: the spans of its items, from the last gap between runs on."""

    def __init__(self) -> None:
        self.number = -1
        self._spans: list[Span] = []
        self._from = self._end = 0

    def apply(self, run: Run, span: Span) -> None:
        """Apply the next run. If there is a gap before it, drop all earlier items: `visible` has to find them."""
        if run.number != self.number + 1 or not self._from <= run.start <= self._end:
            self._spans, self._from, self._end = [], run.start, run.start
        while self._end > run.start:
            last = self._spans.pop()
            self._end -= last.length
            if self._end < run.start:
                self._add(Span(last.first, last.first + run.start - self._end))
        self._add(span)
        self.number = run.number

    def _add(self, span: Span) -> None:
        self._end += span.length
        self._spans[-1:] = merge_spans([*self._spans[-1:], span])

    def slice(self, extent: Extent) -> list[Span] | None:
        if not self._from <= extent.skip <= extent.skip + extent.length <= self._end:
            return None
        return list(slice_spans(self._spans, extent.skip - self._from, extent.length))


class SpanMatcher:
    """Finds the items that other lists share with an old list, in order, each at most once."""

    def __init__(self, old: Sequence[Span]) -> None:
        at, positions = 0, []
        for span in old:
            positions.append((span.first, span.end, at))
            at += span.length
        self._positions = sorted(positions)

    def matches(self, new: Iterable[Span]) -> list[Match]:
        matches: list[Match] = []
        at = 0
        for span in new:
            for first, end, start in self._known(span):
                if start < (matches[-1].start + matches[-1].length if matches else 0):
                    continue  # this match comes before an earlier one in the old list
                match = Match(at + first - span.first, start, end - first)
                last = matches[-1] if matches else None
                if last and (last.at + last.length, last.start + last.length) == (match.at, match.start):
                    matches[-1] = last._replace(length=last.length + match.length)
                else:
                    matches.append(match)
            at += span.length
        return matches

    def _known(self, span: Span) -> Iterator[tuple[int, int, int]]:
        """The parts of a span that are in the old list: `(first, end, position in it)`."""
        index = max(0, bisect_right(self._positions, (span.first, float("inf"), 0)) - 1)
        for first, end, at in self._positions[index:]:
            if first >= span.end:
                return
            low, high = max(first, span.first), min(end, span.end)
            if low < high:
                yield low, high, at + low - first
