"""What a sequence says of its origin is always true."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locus.core.frozen import Items, as_items
from locus.core.messages import Message
from locus.testing.data import budget, conversation


def check_claim(items: Items[Any], older: Items[Any]) -> None:
    claim = items.shared_with(older)
    if claim is None:
        return
    skip, kept = claim
    assert skip >= 0
    assert 0 <= kept <= len(items)
    assert skip + kept <= len(older)
    assert all(items[index] is older[skip + index] for index in range(kept))


@st.composite
def families(draw: st.DrawFn) -> list[Items[Any]]:
    """Sequences derived from one another by sums and slices; some were anchored on the way."""
    # Few different objects, so that a wrong claim could look right by luck only at a few places.
    family: list[Items[Any]] = [Items([object() for _ in range(draw(st.integers(0, 6)))])]
    for _ in range(draw(st.integers(1, 12))):
        source = draw(st.sampled_from(family))
        bound = st.none() | st.integers(-8, 8)
        kind = draw(st.sampled_from(["add", "add", "slice", "slice", "step", "anchor", "sum"]))
        if kind == "anchor":
            source.anchor()
            continue
        if kind == "add":
            made = source + tuple(object() for _ in range(draw(st.integers(0, 3))))
        elif kind == "sum":
            made = source + draw(st.sampled_from(family))
        elif kind == "slice":
            made = source[draw(bound) : draw(bound)]
        else:
            made = source[draw(bound) : draw(bound) : draw(st.sampled_from([-2, -1, 1, 2]))]
        family.append(made)
    return family


@given(families())
@budget(80)
def test_every_claim_of_every_sequence_holds(family: list[Items[Any]]) -> None:
    for items in family:
        for older in family:
            check_claim(items, older)


@given(st.lists(st.integers(), max_size=8), st.data())
@budget(20)
def test_items_are_a_tuple_in_every_other_way(values: list[int], data: st.DataObject) -> None:
    items, plain = Items(values), tuple(values)
    start, stop = (data.draw(st.none() | st.integers(-9, 9)) for _ in range(2))
    part = slice(start, stop, data.draw(st.sampled_from([None, 2, -1])))
    assert items == plain
    assert hash(items) == hash(plain)
    assert items[part] == plain[part]
    assert items + (1, 2) == plain + (1, 2)
    assert [items[index] for index in range(-len(values), len(values))] == [*plain, *plain]
    with pytest.raises(IndexError):
        items[len(values)]


def test_a_sum_and_a_trim_know_their_origin() -> None:
    root = Items(conversation(10))
    assert root.shared_with(root) == (0, 10)
    assert (root + (Message.user("x"),)).shared_with(root) == (0, 10)
    assert root[4:].shared_with(root) == (4, 6)
    assert (root[:-1] + (Message.user("x"),)).shared_with(root) == (0, 9)
    assert (root[4:] + (Message.user("x"),))[2:].shared_with(root) == (6, 4)
    assert root[::2].shared_with(root) is None
    assert root[::-1].shared_with(root) is None
    assert root.shared_with(root[4:]) is None
    assert Items(root).shared_with(root) is None


def test_what_is_derived_after_an_anchor_is_compared_with_that() -> None:
    root = Items(conversation(4))
    saved = root + (Message.user("x"),)
    before = saved + (Message.user("y"),)
    saved.anchor()
    after = saved + (Message.user("z"),)
    assert after.shared_with(saved) == (0, 5)
    assert after.shared_with(root) is None
    assert before.shared_with(root) == (0, 4)
    assert saved.shared_with(root) is None


def test_a_long_chain_keeps_only_its_root_alive() -> None:
    root: Items[Any] = Items([object()])
    items = root
    for _ in range(50):
        items = items + (object(),)
    assert items.shared_with(root) == (0, 1)
    assert items._root is root


def test_the_types_inside_decide_whether_identity_may_be_trusted() -> None:
    stable = Items(conversation(3))
    assert stable.stable
    assert (stable + (Message.user("x"),)).stable
    assert stable[1:].stable
    assert not (stable + ({"role": "user"},)).stable
    assert not Items([[]]).stable
    assert not (Items([{}]) + ("x",)).stable
    assert Items([1, 1.5, "x", None, True]).stable
    assert Items().stable


def test_items_travel() -> None:
    items = Items(conversation(3)) + (Message.user("x"),)
    assert copy.copy(items) is items
    for again in (copy.deepcopy(items), pickle.loads(pickle.dumps(items))):
        assert again == items
        assert type(again) is Items
        assert again[0] is not items[0]


def test_a_list_becomes_items_and_items_stay_what_they_are() -> None:
    items = Items([1, 2])
    assert as_items(items) is items
    assert as_items([1, 2]) == items
    assert type(as_items((1, 2))) is Items
