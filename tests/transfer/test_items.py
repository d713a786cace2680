"""Spans and the items of a thread, compared with plain lists."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locus.errors import CorruptCheckpointError
from locus.memory.model.manifest import items_text
from locus.memory.model.records import Extent, Run
from locus.testing.data import budget, json_values, payloads
from locus.transfer.digests import value_digest
from locus.transfer.items import Span, SpanMatcher, ThreadItems, merge_spans, slice_spans, spans_length

numbers = st.lists(st.integers(0, 30), unique=True, max_size=30)


def spans_of(items: list[int]) -> list[Span]:
    return merge_spans(Span(item, item + 1) for item in items)


def items_of(spans: list[Span]) -> list[int]:
    return [item for span in spans for item in range(*span)]


@given(numbers, st.integers(0, 32), st.integers(0, 32))
@budget(60)
def test_spans_are_the_list_that_they_stand_for(items: list[int], start: int, length: int) -> None:
    spans = spans_of(items)
    assert items_of(spans) == items
    assert spans_length(spans) == len(items)
    assert all(one.end != next_one.first for one, next_one in pairwise(spans))
    assert items_of(list(slice_spans(spans, start, length))) == items[start : start + length]


@given(numbers, numbers)
@budget(150)
def test_what_two_lists_share_is_shared(old: list[int], new: list[int]) -> None:
    matches = SpanMatcher(spans_of(old)).matches(spans_of(new))
    at = start = 0
    for match in matches:
        assert match.length > 0
        assert match.at >= at
        assert match.start >= start
        assert old[match.start : match.start + match.length] == new[match.at : match.at + match.length]
        at, start = match.at + match.length, match.start + match.length
    if set(old) & set(new):
        assert matches


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ([1, 2, 3], [1, 2, 3, 4], [(0, 0, 3)]),
        ([1, 2, 3, 4], [3, 4, 5], [(0, 2, 2)]),
        ([1, 2, 3, 4], [1, 9, 3, 4], [(0, 0, 1), (2, 2, 2)]),
        ([1, 2, 3, 4], [1, 3, 4], [(0, 0, 1), (1, 2, 2)]),
        ([5, 1], [1, 5], [(0, 1, 1)]),
        ([], [1], []),
    ],
)
def test_usual_changes_give_few_matches(old: list[int], new: list[int], expected: list[tuple[int, ...]]) -> None:
    assert [tuple(match) for match in SpanMatcher(spans_of(old)).matches(spans_of(new))] == expected


def _branch(changes: list[tuple[int, int]]) -> tuple[list[Run], list[list[str]]]:
    """The runs of a branch, and each of its versions: a change keeps so many items and adds so many."""
    runs: list[Run] = []
    versions: list[list[str]] = []
    for number, (kept, added) in enumerate(changes):
        before = versions[-1] if versions else []
        start = min(kept, len(before))
        items = [f"{number}.{index}" for index in range(added)]
        runs.append(Run("b", number, start, added, json.dumps(items)))
        versions.append([*before[:start], *items])
    return runs, versions


def _shown(items: ThreadItems, extent: Extent) -> list[str]:
    return [json.loads(items.text(item)) for span in items.spans([extent]) for item in range(*span)]


changes = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 4)), min_size=1, max_size=10)


@given(changes, st.data())
@budget(120)
def test_every_version_of_a_branch_is_shown_as_it_was(steps: list[tuple[int, int]], data: st.DataObject) -> None:
    runs, versions = _branch(steps)
    items = ThreadItems()
    for upto in data.draw(st.lists(st.integers(0, len(runs)), max_size=3)):
        items.add(runs[:upto])
    for number in data.draw(st.permutations(range(len(runs)))):
        items.add(runs[: number + 1])
        version = versions[number]
        skip = data.draw(st.integers(0, len(version) - 1))
        length = data.draw(st.integers(1, len(version) - skip))
        assert _shown(items, Extent("b", number, skip, length)) == version[skip : skip + length]
    assert items.known == {"b": len(runs) - 1}


def _read(runs: list[Run], extent: Extent) -> list[str] | None:
    """What reading the checkpoint alone would give; None if that finds it damaged."""
    try:
        return list(json.loads(items_text([extent], {"b": runs})))
    except CorruptCheckpointError:
        return None


@given(changes, st.data())
@budget(120)
def test_where_runs_are_missing_it_is_as_if_the_checkpoint_were_read_alone(
    steps: list[tuple[int, int]], data: st.DataObject
) -> None:
    runs, versions = _branch(steps)
    gone = data.draw(st.sets(st.integers(0, len(runs) - 1), min_size=1, max_size=3))
    left = [run for run in runs if run.number not in gone]
    items = ThreadItems()
    items.add([*left, Run("other", 0, 0, 1, "[0]")])
    for number, version in enumerate(versions):
        skip = data.draw(st.integers(0, len(version) - 1))
        extent = Extent("b", number, skip, len(version) - skip)
        expected = _read(left, extent)
        if expected is not None:
            assert _shown(items, extent) == expected
        else:
            with pytest.raises(CorruptCheckpointError, match="missing"):
                items.spans([extent])


def test_runs_that_come_late_are_taken() -> None:
    runs, versions = _branch([(0, 3), (3, 2), (1, 4), (5, 1)])
    items = ThreadItems()
    items.add([runs[0], runs[2], runs[3]])
    assert _shown(items, Extent("b", 3, 0, 6)) == versions[3]
    items.add([runs[1]])
    assert _shown(items, Extent("b", 1, 0, 5)) == versions[1]
    assert _shown(items, Extent("b", 3, 0, 6)) == versions[3]


@pytest.mark.parametrize("items", ["[1", "[1]", "{}", '"x"', ""], ids=repr)
def test_damaged_runs_are_noticed(items: str) -> None:
    with pytest.raises(CorruptCheckpointError):
        ThreadItems().add([Run("b", 0, 0, 2, items)])


def test_a_branch_that_is_missing_is_noticed() -> None:
    with pytest.raises(CorruptCheckpointError, match="'b' is missing"):
        ThreadItems().spans([Extent("b", 0, 0, 1)])


@given(json_values, json_values)
@budget(150)
def test_digests_are_equal_if_and_only_if_the_values_are(one: Any, other: Any) -> None:
    exactly = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (value_digest(one) == value_digest(other)) is exactly
    assert value_digest(json.loads(json.dumps(one))) == value_digest(one)


@given(payloads)
@budget(40)
def test_the_order_of_keys_does_not_count(payload: dict[str, Any]) -> None:
    assert value_digest(dict(reversed(payload.items()))) == value_digest(payload)


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, 1.0), (1, True), (0.0, -0.0), ("1", 1), ([], {}), ([[]], []), ({"a": None}, {}), (None, "null"), ("", [])],
    ids=repr,
)
def test_values_that_look_alike_have_other_digests(one: Any, other: Any) -> None:
    assert value_digest({"v": one}) != value_digest({"v": other})
    assert value_digest({"v": [one]}) != value_digest({"v": [other]})
