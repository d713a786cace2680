"""References to earlier runs: every run is found in few steps, and nothing is read that is not needed."""

from __future__ import annotations

import random

import pytest

from locus.memory.backends.opensearch.schema import (
    BLOCK,
    EarlierRuns,
    RunRef,
    extend_earlier_runs,
    pack_earlier_runs,
    pack_starts,
    refs_to_follow,
    unpack_earlier_runs,
)


def _chain(ends: list[int]) -> tuple[list[RunRef], list[EarlierRuns]]:
    """References to the runs of a branch whose list has these lengths after each run, and what each run refers to."""
    refs: list[RunRef] = []
    references: list[EarlierRuns] = []
    earlier: EarlierRuns = ()
    for number, end in enumerate(ends):
        references.append(earlier)
        refs.append(RunRef(number, 1_000 + number, end))
        earlier = extend_earlier_runs(earlier, refs[-1])
    return refs, references


def _read(references: list[EarlierRuns], number: int, skip: int) -> tuple[set[int], int]:
    """The numbers of the runs that a reader gets, and in how many steps."""
    pending, passed, steps = [(number, -1)], {number}, 0
    while pending:
        steps += 1
        pending = [
            (ref.number, floor) for at, low in pending for ref, floor in refs_to_follow(references[at], skip, low)
        ]
        for at, _ in pending:
            assert at not in passed, "nothing is read twice"
            passed.add(at)
    return passed, steps


@pytest.mark.parametrize("count", [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, BLOCK**2, BLOCK**2 + 1, 3_000])
def test_every_run_is_found(count: int) -> None:
    _, references = _chain([number + 1 for number in range(count)])
    passed, steps = _read(references, count - 1, 0)
    assert passed == set(range(count))
    assert steps <= (2 if count <= BLOCK else 3 if count <= BLOCK**2 else 4)
    assert max(len(earlier) for earlier in references) <= 3 * BLOCK
    assert all(unpack_earlier_runs(pack_earlier_runs(earlier)) == earlier for earlier in references[::7])


def test_the_end_of_a_long_list_needs_only_the_last_runs() -> None:
    _, references = _chain([number * 4 + 4 for number in range(2_000)])
    passed, steps = _read(references, 1_999, 4 * 1_990)
    assert passed >= set(range(1_990, 2_000))
    assert len(passed) < 3 * BLOCK
    assert steps <= 3


@pytest.mark.parametrize("seed", range(10))
def test_what_a_run_that_cut_the_list_short_hides_is_not_looked_for(seed: int) -> None:
    """Whatever the ends: from the newest run back to the first after which the list ended before `skip`."""
    rng = random.Random(seed)
    ends = [rng.randint(0, 60) for _ in range(rng.randint(1, 200))]
    _, references = _chain(ends)
    for _ in range(20):
        number, skip = rng.randrange(len(ends)), rng.randint(0, 60)
        first = max((at for at in range(number) if ends[at] <= skip), default=-1) + 1
        passed, _ = _read(references, number, skip)
        assert passed >= set(range(first, number + 1))


@pytest.mark.parametrize("seed", range(20))
def test_a_part_is_found_without_what_is_behind_it_or_hidden(seed: int) -> None:
    """Whatever was appended, edited and cut off: what a part shows is among the runs that its reader gets."""
    rng = random.Random(seed)
    runs: list[tuple[int, int]] = []  # from, to
    references: list[EarlierRuns] = []
    earlier: EarlierRuns = ()
    for number in range(rng.randint(1, 200) if seed < 18 else 2 * BLOCK**2 + 300):
        end = runs[-1][1] if runs else 0
        start = end if rng.random() < 0.7 else rng.randint(max(0, end - 20), end)
        runs.append((start, start + rng.randint(1, 6)))
        references.append(earlier)
        if number < 200:
            assert unpack_earlier_runs(pack_earlier_runs(earlier), pack_starts(earlier)) == earlier
        earlier = extend_earlier_runs(earlier, RunRef(number, 1_000 + number, runs[-1][1], start))
    for _ in range(20):
        newest = rng.randrange(len(runs))
        skip = rng.randint(0, runs[newest][1])
        limit = rng.randint(skip, runs[newest][1])
        passed = _read_part(references, runs, newest, skip, limit)
        assert passed >= _shown(runs, newest, skip, limit)
        assert len(passed) <= len(_shown(runs, newest, skip, limit)) + 3 * len({at // BLOCK for at in passed})


def _shown(runs: list[tuple[int, int]], newest: int, skip: int, limit: int) -> set[int]:
    """The runs that show something of a part."""
    shown: set[int] = set()
    for number in range(newest, -1, -1):
        start, end = runs[number]
        if max(start, skip) < min(end, limit):
            shown.add(number)
        limit = min(limit, start)
    return shown


def _read_part(
    references: list[EarlierRuns], runs: list[tuple[int, int]], newest: int, skip: int, limit: int
) -> set[int]:
    """The numbers of the runs that a reader gets."""
    pending, passed = [(newest, -1, limit)], {newest}
    while pending:
        number, floor, limit = pending.pop()
        limit = min(limit, runs[number][0])
        for ref, above in refs_to_follow(references[number], skip, floor, limit):
            passed.add(ref.number)
            pending.append((ref.number, above, limit))
            assert ref.start is not None
            limit = min(limit, ref.start)
    return passed


def test_starts_take_no_room_where_items_are_only_appended() -> None:
    earlier: EarlierRuns = ()
    for number in range(100):
        earlier = extend_earlier_runs(earlier, RunRef(number, number + 1, number * 2 + 2, number * 2))
        assert pack_starts(earlier) == []
    unknown = extend_earlier_runs(earlier, RunRef(100, 101, 202))
    assert pack_starts(unknown) is None
