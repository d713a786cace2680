"""Lists as extents of branches, against a model that copies every version."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locus.errors import CorruptCheckpointError
from locus.memory.model import manifest
from locus.memory.model.alignment import joined, part
from locus.memory.model.codec import decode
from locus.memory.model.manifest import items_text, list_items, visible
from locus.memory.model.records import Extent, Run
from locus.testing.data import budget
from tests.model.branches import Branches, lists


@given(lists(), st.randoms(use_true_random=False))
@budget(60)
def test_a_list_reads_as_the_model_has_it(made: tuple[Branches, list[Extent]], chance: Any) -> None:
    model, extents = made
    for runs in model.runs.values():
        chance.shuffle(runs)
    assert decode(items_text(extents, model.runs)) == model.read(extents)


@pytest.mark.parametrize("long", [1, 60, 10**6])
def test_items_are_the_same_whether_runs_are_parsed_alone_or_together(
    long: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "LONG_TEXT", long)

    @given(lists(), st.randoms(use_true_random=False))
    @budget(30)
    def holds(made: tuple[Branches, list[Extent]], chance: Any) -> None:
        model, extents = made
        for runs in model.runs.values():
            chance.shuffle(runs)
        assert list_items(extents, model.runs) == model.read(extents)

    holds()


@given(lists())
@budget(40)
def test_the_pieces_of_an_extent_are_all_that_it_needs(made: tuple[Branches, list[Extent]]) -> None:
    model, extents = made
    for extent in extents:
        pieces = visible(extent, model.runs[extent.branch])
        assert sum(high - low for _, low, high in pieces) == extent.length
        assert all(0 <= low < high <= run.length for run, low, high in pieces)
        shown = {extent.branch: [run for run, _, _ in pieces]}
        assert decode(items_text([extent], shown)) == model.read([extent])


@given(lists(append_only=True), st.data())
@budget(40)
def test_a_missing_run_is_an_error_and_no_shorter_list(
    made: tuple[Branches, list[Extent]], data: st.DataObject
) -> None:
    model, extents = made
    extent = extents[0]
    lost = data.draw(st.sampled_from([run for run, _, _ in visible(extent, model.runs[extent.branch])]))
    left = {extent.branch: [run for run in model.runs[extent.branch] if run != lost]}
    with pytest.raises(CorruptCheckpointError, match=f"of branch '{extent.branch}' .* are missing"):
        items_text([extent], left)


@given(lists())
@budget(20)
def test_a_missing_branch_is_an_error(made: tuple[Branches, list[Extent]]) -> None:
    model, extents = made
    del model.runs[extents[-1].branch]
    with pytest.raises(CorruptCheckpointError, match="are missing"):
        items_text(extents, model.runs)


def test_an_extent_longer_than_its_version_is_an_error() -> None:
    model = Branches()
    model.add("a", 0, [1, 2, 3])
    model.add("a", 1, [4])
    with pytest.raises(CorruptCheckpointError, match="items 0 to 3 of branch 'a'"):
        items_text([Extent("a", 1, 0, 3)], model.runs)


@given(lists(), st.data())
@budget(60)
def test_a_part_of_a_list_is_a_slice(made: tuple[Branches, list[Extent]], data: st.DataObject) -> None:
    model, extents = made
    whole = model.read(extents)
    start = data.draw(st.integers(0, len(whole)))
    length = data.draw(st.integers(0, len(whole) + 2))
    parts = part(extents, start, length)
    assert model.read(parts) == whole[start : start + length]
    assert all(piece.length > 0 for piece in parts)


@given(lists())
@budget(40)
def test_joining_changes_nothing_and_leaves_no_neighbours(made: tuple[Branches, list[Extent]]) -> None:
    model, extents = made
    torn = [piece for extent in extents for at in range(extent.length) for piece in part([extent], at, 1)]
    for pieces in (extents, torn):
        whole = joined(pieces)
        assert model.read(whole) == model.read(pieces)
        assert joined(whole) == whole
    assert joined(torn) == joined(extents)


def test_only_neighbours_of_one_version_are_joined() -> None:
    apart = [
        Extent("a", 0, 0, 2),
        Extent("a", 1, 2, 2),
        Extent("b", 1, 4, 1),
        Extent("a", 1, 4, 1),
        Extent("a", 1, 6, 1),
    ]
    assert joined(apart) == apart
    assert joined([Extent("a", 1, 0, 2), Extent("a", 1, 2, 2)]) == [Extent("a", 1, 0, 4)]
    assert joined([]) == []


def test_an_empty_list_is_an_empty_array() -> None:
    assert items_text([], {}) == "[]"


def test_texts_of_whole_runs_are_taken_as_they_are() -> None:
    runs = {"a": [Run("a", 0, 0, 2, "[ 1 ,\n2]"), Run("a", 1, 2, 1, "[3]")]}
    assert items_text([Extent("a", 1, 0, 3)], runs) == "[ 1 ,\n2,3]"
    assert items_text([Extent("a", 1, 1, 2)], runs) == "[2,3]"


def test_items_of_several_runs_do_not_end_up_in_each_other() -> None:
    """The list that parsing a long text gave is the one that more is added to, and no other."""
    long = [str(number).zfill(9) for number in range(10_000)]
    model = Branches()
    model.add("a", 0, long)
    model.add("a", len(long), ["more"])
    assert list_items([Extent("a", 0, 0, len(long))], model.runs) == long
    assert list_items([Extent("a", 1, 0, len(long) + 1), Extent("a", 0, 0, 1)], model.runs) == [*long, "more", long[0]]


@pytest.mark.parametrize("items", ['{"a":1}', '"ab"', "12", "[1,2]", "[]"])
def test_a_run_that_holds_something_else_than_its_items_is_an_error(items: str) -> None:
    whole = {"a": [Run("a", 0, 0, 3, items)]}
    for extent in (Extent("a", 0, 0, 3), Extent("a", 0, 1, 2)):
        with pytest.raises(CorruptCheckpointError):
            list_items([extent], whole)
