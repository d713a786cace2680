"""What two versions of a list share."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locus.memory.model.alignment import MAX_MATCHES, Match, align
from locus.testing.data import budget

few_keys = st.lists(st.integers(0, 5), max_size=25)
distinct = st.lists(st.integers(), unique=True, min_size=1, max_size=40)


def check_matches(old: Sequence[object], new: Sequence[object], matches: list[Match]) -> None:
    at = start = 0
    for match in matches:
        assert match.length > 0
        assert match.at >= at
        assert match.start >= start
        at, start = match.at + match.length, match.start + match.length
        assert at <= len(new)
        assert start <= len(old)
        assert list(new[match.at : at]) == list(old[match.start : start])


@given(few_keys, few_keys)
@budget(120)
def test_matches_are_true_in_order_and_do_not_overlap(old: list[int], new: list[int]) -> None:
    check_matches(old, new, align(old, new))
    check_matches(tuple(old), tuple(new), align(tuple(old), tuple(new)))


@given(distinct, st.data())
@budget(60)
def test_everything_that_stayed_in_order_is_found(old: list[int], data: st.DataObject) -> None:
    kept = [key for key in old if data.draw(st.booleans())]
    new: list[object] = []
    for key in kept:
        new += [object()] * data.draw(st.integers(0, 2)) + [key]
    matches = align(old, new)
    check_matches(old, new, matches)
    if len(matches) < MAX_MATCHES:
        assert sum(match.length for match in matches) == len(kept)


@given(distinct)
@budget(20)
def test_an_equal_list_is_one_match(keys: list[int]) -> None:
    assert align(keys, list(keys)) == [Match(0, 0, len(keys))]


@given(distinct, st.integers(1, 5))
@budget(20)
def test_an_append_is_one_match(old: list[int], count: int) -> None:
    assert align(old, [*old, *(object() for _ in range(count))]) == [Match(0, 0, len(old))]


@given(distinct, st.data())
@budget(20)
def test_a_trim_at_the_front_is_one_match(old: list[int], data: st.DataObject) -> None:
    gone = data.draw(st.integers(0, len(old) - 1))
    assert align(old, [*old[gone:], "new"]) == [Match(0, gone, len(old) - gone)]


@given(distinct)
@budget(20)
def test_an_edit_of_the_last_item_keeps_the_rest(old: list[int]) -> None:
    expected = [Match(0, 0, len(old) - 1)] if len(old) > 1 else []
    assert align(old, [*old[:-1], "edited", "new"]) == expected


@given(distinct, st.data())
@budget(20)
def test_an_edit_in_the_middle_is_two_matches(old: list[int], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(old) - 1))
    edited: list[object] = [*old]
    edited[place] = "edited"
    around = [Match(0, 0, place), Match(place + 1, place + 1, len(old) - place - 1)]
    assert align(old, edited) == [match for match in around if match.length]


@given(distinct, st.data())
@budget(20)
def test_a_summary_keeps_the_system_message_and_the_tail(old: list[int], data: st.DataObject) -> None:
    place = data.draw(st.integers(1, len(old)))
    matches = align(old, [old[0], "summary", *old[place:]])
    tail = [Match(2, place, len(old) - place)] if place < len(old) else []
    assert matches == [Match(0, 0, 1), *tail]


def test_lists_with_nothing_in_common_have_no_match() -> None:
    assert align([1, 2, 3], [4, 5, 6]) == []
    assert align([], [1]) == []
    assert align([1], []) == []


def test_no_more_pieces_are_looked_for_than_are_kept() -> None:
    old = list(range(100))
    new = [key for key in old if key % 2]
    assert len(align(old, new)) == MAX_MATCHES


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 1_000])
def test_the_first_difference_is_found_wherever_it_is(size: int) -> None:
    old = list(range(size))
    for place in {0, 1, size // 2, size - 1} & set(old):
        matches = align(old, [*old[:place], -1])
        assert matches == ([Match(0, 0, place)] if place else [])
