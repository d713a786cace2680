"""Frozen dicts and lists refuse to change, and are ordinary ones in everything else."""

from __future__ import annotations

import copy
import json
import pickle
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from locus.core.frozen import EMPTY, Frozen, FrozenDict, FrozenList, freeze
from locus.core.messages import Message, Role
from locus.core.state import AgentState
from locus.errors import SerializationError
from locus.testing.data import budget, json_values
from tests.samples import exact

Arguments = list[tuple[Any, ...]]

# Between them these make every method of a dict or a list that can change it do so.
ARGUMENTS: Arguments = [(), ("a",), ("new", 1), ({"new": 1},), (0,), (0, 9), ([9],), (2,), (1,), (slice(0, 1), [9])]
# Filling a new object is no change, and looking behind the class's back cannot be prevented.
NOT_COUNTED = {"__init__", "__setattr__", "__delattr__", "__new__", "__class__"}


def changed_by(make: Callable[[], Any], name: str, arguments: tuple[Any, ...]) -> bool:
    value = make()
    try:
        getattr(value, name)(*arguments)
    except (TypeError, KeyError, IndexError, ValueError, AttributeError):
        return False
    return bool(exact(value) != exact(make()))


def mutators(make: Callable[[], Any]) -> list[tuple[str, tuple[Any, ...]]]:
    """Every method of a type, with arguments that make it change the value."""
    names = [name for name in dir(make()) if name not in NOT_COUNTED and callable(getattr(make(), name))]
    return [(name, args) for name in names for args in ARGUMENTS if changed_by(make, name, args)]


def plain_dict() -> dict[str, Any]:
    return {"a": 1, "b": [2]}


def plain_list() -> list[Any]:
    return [3, 1, 2]


DICT_MUTATORS = mutators(plain_dict)
LIST_MUTATORS = mutators(plain_list)


def test_the_mutators_are_found() -> None:
    """Or the tests below would show nothing."""
    found = {name for name, _ in DICT_MUTATORS}
    assert {"__setitem__", "__delitem__", "__ior__", "clear", "pop", "popitem", "setdefault", "update"} <= found
    found = {name for name, _ in LIST_MUTATORS}
    assert {"__setitem__", "__delitem__", "__iadd__", "__imul__", "append", "clear", "extend"} <= found
    assert {"insert", "pop", "remove", "reverse", "sort"} <= found


@pytest.mark.parametrize(("name", "arguments"), DICT_MUTATORS)
def test_a_frozen_dict_refuses_to_change(name: str, arguments: tuple[Any, ...]) -> None:
    value = FrozenDict(plain_dict())
    with pytest.raises(TypeError, match="immutable state"):
        getattr(value, name)(*arguments)
    assert value == plain_dict()


@pytest.mark.parametrize(("name", "arguments"), LIST_MUTATORS)
def test_a_frozen_list_refuses_to_change(name: str, arguments: tuple[Any, ...]) -> None:
    value = FrozenList(plain_list())
    with pytest.raises(TypeError, match="immutable state"):
        getattr(value, name)(*arguments)
    assert value == plain_list()


@pytest.mark.parametrize(
    "statement",
    ["d['x'] = 1", "del d['a']", "d |= {'x': 1}", "l[0] = 9", "del l[:]", "l += [1]", "l *= 2", "l[:] = []"],
)
def test_statements_that_change_are_refused(statement: str) -> None:
    names = {"d": FrozenDict(plain_dict()), "l": FrozenList(plain_list())}
    with pytest.raises(TypeError):
        exec(statement, {}, names)
    assert names["d"] == plain_dict()
    assert names["l"] == plain_list()


@given(json_values)
@budget(45)
def test_frozen_values_are_equal_to_what_they_were(value: Any) -> None:
    frozen = freeze(value)
    assert exact(frozen) == exact(value)
    assert json.dumps(frozen) == json.dumps(value)
    assert repr(frozen) == repr(value)
    assert freeze(frozen) is frozen or not isinstance(value, dict | list)


@given(json_values)
@budget(20)
def test_frozen_values_travel(value: Any) -> None:
    frozen = freeze({"value": value, "list": [value]})
    assert copy.copy(frozen) is frozen
    assert copy.deepcopy(frozen) is frozen
    again = pickle.loads(pickle.dumps(frozen))
    assert exact(again) == exact(frozen)
    assert type(again) is FrozenDict
    assert type(again["list"]) is FrozenList


def test_freezing_goes_to_the_bottom_and_takes_no_part_along() -> None:
    inner: dict[str, Any] = {"list": [{"x": [1]}], "tuple": ([2],)}
    frozen = freeze(OrderedDict(inner=inner))
    inner["list"][0]["x"].append(2)
    inner["new"] = 1
    assert frozen == {"inner": {"list": [{"x": [1]}], "tuple": [[2]]}}
    assert type(frozen["inner"]["list"][0]["x"]) is FrozenList
    assert type(frozen["inner"]["tuple"]) is FrozenList


def test_equal_frozen_values_have_equal_hashes() -> None:
    assert hash(freeze({"a": 1, "b": [1]})) == hash(freeze({"b": [1], "a": 1}))
    assert hash(freeze([1, 2])) == hash(freeze((1, 2)))
    assert len({freeze({"a": 1}), freeze({"a": 1}), freeze({"a": 2})}) == 2


def test_a_copy_that_can_change_is_easy_to_make() -> None:
    frozen = freeze({"a": [1]})
    changeable = dict(frozen)
    changeable["b"] = [*frozen["a"], 2]
    assert changeable == {"a": [1], "b": [1, 2]}
    assert frozen == {"a": [1]}


def test_the_empty_dict_is_one_object() -> None:
    assert freeze({}) is EMPTY
    assert EMPTY == {}


class Model(Frozen):
    name: str = "x"


def test_models_refuse_to_change_and_freeze_what_they_do_not_know() -> None:
    model = Model.model_validate({"name": "a", "extra": {"list": [1]}})
    with pytest.raises(ValueError, match="frozen"):
        model.name = "b"  # type: ignore[misc]
    extra = model.__pydantic_extra__
    assert extra is not None
    assert type(extra["extra"]) is FrozenDict
    with pytest.raises(TypeError, match="immutable state"):
        extra["extra"]["list"].append(2)
    assert model.model_dump() == {"name": "a", "extra": {"list": [1]}}


def test_a_value_that_holds_itself_or_is_too_deep_is_refused() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    circle: list[Any] = []
    circle.append(circle)
    for value in (circle, deep):
        with pytest.raises(SerializationError, match="holds itself, or is nested too deeply"):
            freeze(value)
        with pytest.raises(SerializationError):
            AgentState().with_metadata("key", value)
        with pytest.raises(ValueError, match="nested too deeply"):
            Message(role=Role.USER, content="", metadata={"key": value})
