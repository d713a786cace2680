"""Lists as spans of numbered items: what two lists share is found without looking at their items. Pure functions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from locus.memory.model.manifest import Match


class Span(NamedTuple):
    """The items with the numbers from `first` on, up to `end`, which is not one of them."""

    first: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.first


def length_of(spans: Iterable[Span]) -> int:
    return sum(span.length for span in spans)


def joined(spans: Iterable[Span]) -> list[Span]:
    """The same list in as few spans as possible."""
    whole: list[Span] = []
    for span in spans:
        if whole and whole[-1].end == span.first:
            whole[-1] = Span(whole[-1].first, span.end)
        else:
            whole.append(span)
    return whole


def part(spans: Iterable[Span], start: int, length: int) -> Iterator[Span]:
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


class Shared:
    """Finds what lists share with an old one: in order, and each item once."""

    def __init__(self, old: Sequence[Span]) -> None:
        at, places = 0, []
        for span in old:
            places.append((span.first, span.end, at))
            at += span.length
        self._places = sorted(places)

    def matches(self, new: Iterable[Span]) -> list[Match]:
        found: list[Match] = []
        at = 0
        for span in new:
            for first, end, start in self._known(span):
                if start < (found[-1].start + found[-1].length if found else 0):
                    continue  # it stands before what was found already
                match = Match(at + first - span.first, start, end - first)
                last = found[-1] if found else None
                if last and (last.at + last.length, last.start + last.length) == (match.at, match.start):
                    found[-1] = last._replace(length=last.length + match.length)
                else:
                    found.append(match)
            at += span.length
        return found

    def _known(self, span: Span) -> Iterator[tuple[int, int, int]]:
        """The parts of a span that the old list has: `(first, end, position there)`."""
        index = max(0, bisect_right(self._places, (span.first, float("inf"), 0)) - 1)
        for first, end, at in self._places[index:]:
            if first >= span.end:
                return
            low, high = max(first, span.first), min(end, span.end)
            if low < high:
                yield low, high, at + low - first
