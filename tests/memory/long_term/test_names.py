"""The ids of items: every namespace and key has one of its own, which a thread may have."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locus.errors import ConfigurationError, InvalidIdError
from locus.memory.long_term.names import behind_keys, item_id, keys_of, path_of, place_of, within
from locus.memory.model.ids import MAX_ID_LENGTH, check_id

LABELS = st.lists(st.text("ab/~!#\0 é😀\x01", max_size=4), max_size=4).map(tuple)
KEYS = st.text("ab/~!#01\0 é😀", max_size=5)


@given(LABELS, KEYS, LABELS, KEYS)
def test_an_id_belongs_to_one_item_and_sorts_by_path_and_key(
    one: tuple[str, ...], key: str, other: tuple[str, ...], other_key: str
) -> None:
    first, second = item_id(one, key), item_id(other, other_key)
    assert (first == second) == ((one, key) == (other, other_key))
    assert (first < second) == ((path_of(one), key) < (path_of(other), other_key))
    assert first.startswith(path_of(other)) == (one[: len(other)] == other)
    assert first.startswith(keys_of(other)) == (one == other)
    assert place_of(first) == (one, key)
    assert (first < behind_keys(path_of(other))) == (path_of(one) <= path_of(other))


@pytest.mark.parametrize(("namespace", "key"), [(("a" * 1023,), "k" * 1024), (("é" * 250, "😀" * 100), "~" * 1024)])
def test_a_long_name_is_cut_and_stays_one_of_its_own(namespace: tuple[str, ...], key: str) -> None:
    names = {item_id(namespace, key), item_id(namespace, key[:-1]), item_id((*namespace[:-1], "b"), key)}
    assert len(names) == 3
    for name in names:
        assert len(check_id(name)) == MAX_ID_LENGTH
    assert item_id(namespace, key).startswith(within(path_of(namespace)))
    assert {place_of(name) for name in names} == {None}


@pytest.mark.parametrize(
    "name", ["", "a", "a/", "a/k", "a!k", "~/!k", "a/!~", "a/!~1", "~2a/!k", "~0~2/!~", "a/\x01/!k"]
)
def test_what_is_no_id_of_an_item_stands_for_none(name: str) -> None:
    with pytest.raises(ValueError, match="no id of an item"):
        place_of(name)


def test_no_key_can_take_the_place_of_a_cut_name() -> None:
    cut = item_id(("a",), "k" * 300)
    imitated = cut.partition("!")[2]
    assert item_id(("a",), imitated) != cut
    assert item_id(("a",), imitated.replace("~#", "~0#")) != cut


def test_names_that_cannot_be_are_refused() -> None:
    with pytest.raises(InvalidIdError, match="1,024 bytes"):
        item_id(("a",), "é" * 513)
    with pytest.raises(InvalidIdError, match="1,024 bytes"):
        item_id(("é" * 512,), "k")
    with pytest.raises(InvalidIdError, match="surrogate"):
        item_id(("a",), "\ud800")
    with pytest.raises(ConfigurationError, match="tuple of texts"):
        item_id("users", "k")
    with pytest.raises(InvalidIdError, match="label"):
        item_id(("a", 1), "k")  # type: ignore[arg-type]


def test_every_shared_beginning_comes_before_what_it_begins() -> None:
    for short, long in pairwise(["", "a", "ab"]):
        assert item_id((), short) < item_id((), long)
