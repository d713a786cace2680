"""Where the runs of a branch are: found in a few steps, however many there are. Pure functions.

Runs are inside of the records that brought them, so a reader must know which ones to get. Each run has a
*trail*: the places of the runs before it, all of its block of `BLOCK` numbers, and of older blocks only the
last one, which has a trail of its own; and so on for blocks of blocks::

    run 70 (blocks of 32)      31   63   64 65 66 67 68 69
                               |    |
                               0-30 32-62

A thousand runs are two steps away, and a trail has a few dozen entries at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

BLOCK = 32


class Mark(NamedTuple):
    """A run on a trail: its number, the place of its record, and where the list ended after it."""

    number: int
    place: int
    end: int


Trail = tuple[Mark, ...]


def extended(trail: Trail, last: Mark) -> Trail:
    """The trail of the run that follows `last`, whose own trail is given."""
    marks = [*trail, last]
    following, span = last.number + 1, BLOCK
    while following % span == 0:
        marks = [mark for mark in marks if mark.number < following - span or mark is last]
        span *= BLOCK
    return tuple(marks)


def packed(trail: Trail) -> list[int]:
    """A trail as numbers: each mark as what it differs by from the one before, which is mostly the same."""
    numbers: list[int] = []
    before = Mark(0, 0, 0)
    for mark in trail:
        numbers += [mark.number - before.number, mark.place - before.place, mark.end - before.end]
        before = mark
    return numbers


def unpacked(numbers: Sequence[int]) -> Trail:
    """The trail that `packed` was given."""
    if len(numbers) % 3:
        raise ValueError("a trail of threes expected")
    marks: list[Mark] = []
    before = Mark(0, 0, 0)
    for at in range(0, len(numbers), 3):
        number, place, end = numbers[at : at + 3]
        before = Mark(before.number + number, before.place + place, before.end + end)
        marks.append(before)
    return tuple(marks)


def needed(trail: Sequence[Mark], skip: int, floor: int) -> Iterator[tuple[Mark, int]]:
    """The marks that a reader of the list from `skip` on has to follow, each with a floor of its own.

    `floor` is a number: what is not above it is found by another way. After a run the list ended at `end`, so
    what is behind that was brought by newer runs, and nothing older than such a run is needed.
    """
    above = [mark for mark in trail if mark.number > floor]
    for index in range(len(above) - 1, -1, -1):
        if above[index].end <= skip:
            return
        yield above[index], above[index - 1].number if index else floor
