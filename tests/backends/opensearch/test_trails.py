"""Trails: every run is found, in few steps, and nothing is looked at that is not needed."""

from __future__ import annotations

import random

import pytest

from locus.memory.backends.opensearch.schema import (
    BLOCK,
    Mark,
    Trail,
    extended,
    needed,
    packed,
    unpacked,
)


def _chain(ends: list[int]) -> tuple[list[Mark], list[Trail]]:
    """The marks and trails of a branch whose list ended there after each run."""
    marks: list[Mark] = []
    trails: list[Trail] = []
    trail: Trail = ()
    for number, end in enumerate(ends):
        trails.append(trail)
        marks.append(Mark(number, 1_000 + number, end))
        trail = extended(trail, marks[-1])
    return marks, trails


def _read(trails: list[Trail], number: int, skip: int) -> tuple[set[int], int]:
    """The numbers that a reader passes, and in how many steps."""
    ways, passed, steps = [(number, -1)], {number}, 0
    while ways:
        steps += 1
        ways = [(mark.number, floor) for at, low in ways for mark, floor in needed(trails[at], skip, low)]
        for at, _ in ways:
            assert at not in passed, "nothing is read twice"
            passed.add(at)
    return passed, steps


@pytest.mark.parametrize("count", [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, BLOCK**2, BLOCK**2 + 1, 3_000])
def test_every_run_is_found(count: int) -> None:
    _, trails = _chain([number + 1 for number in range(count)])
    passed, steps = _read(trails, count - 1, 0)
    assert passed == set(range(count))
    assert steps <= (2 if count <= BLOCK else 3 if count <= BLOCK**2 else 4)
    assert max(len(trail) for trail in trails) <= 3 * BLOCK
    assert all(unpacked(packed(trail)) == trail for trail in trails[::7])


def test_the_end_of_a_long_list_needs_only_the_last_runs() -> None:
    _, trails = _chain([number * 4 + 4 for number in range(2_000)])
    passed, steps = _read(trails, 1_999, 4 * 1_990)
    assert passed >= set(range(1_990, 2_000))
    assert len(passed) < 3 * BLOCK
    assert steps <= 3


@pytest.mark.parametrize("seed", range(10))
def test_what_a_run_that_cut_the_list_short_hides_is_not_looked_for(seed: int) -> None:
    """Whatever the ends: from the newest run back to the first after which the list ended before `skip`."""
    rng = random.Random(seed)
    ends = [rng.randint(0, 60) for _ in range(rng.randint(1, 200))]
    _, trails = _chain(ends)
    for _ in range(20):
        number, skip = rng.randrange(len(ends)), rng.randint(0, 60)
        first = max((at for at in range(number) if ends[at] <= skip), default=-1) + 1
        passed, _ = _read(trails, number, skip)
        assert passed >= set(range(first, number + 1))
