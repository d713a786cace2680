"""Whatever happens to a payload, every version of it reads back as it was."""

from __future__ import annotations

import copy
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.model.payloads import dict_payload
from locus.memory.model.plan import LARGE_VALUE, MAX_EXTENTS
from locus.memory.model.states import anchor, state_payload
from locus.testing.data import budget, json_values, payloads
from tests.model.planned import Plans
from tests.samples import exact

Change = Callable[[dict[str, Any], Random], None]


def _item(chance: Random) -> Any:
    number = chance.randrange(1_000)
    return chance.choice([{"n": number, "text": "x" * chance.randrange(60)}, [number, []], number, str(number), None])


def _list_of(data: dict[str, Any], chance: Random) -> list[Any]:
    """Some list of the payload, made if it is not there."""
    holder = data if chance.random() < 0.6 else data.setdefault("inner", {})
    if not isinstance(holder, dict):
        holder = data["inner"] = {}
    name = chance.choice(["messages", "log"])
    if not isinstance(holder.get(name), list):
        holder[name] = [_item(chance) for _ in range(chance.randrange(12))]
    found: list[Any] = holder[name]
    return found


def append(data: dict[str, Any], chance: Random) -> None:
    _list_of(data, chance).extend(_item(chance) for _ in range(chance.randrange(1, 5)))


def trim(data: dict[str, Any], chance: Random) -> None:
    items = _list_of(data, chance)
    del items[: chance.randrange(len(items) + 1)]


def cut_off(data: dict[str, Any], chance: Random) -> None:
    items = _list_of(data, chance)
    del items[chance.randrange(len(items) + 1) :]


def edit(data: dict[str, Any], chance: Random) -> None:
    items = _list_of(data, chance)
    for _ in range(chance.randrange(1, 4)):
        if items:
            items[chance.randrange(len(items))] = _item(chance)


def drop_every_second(data: dict[str, Any], chance: Random) -> None:
    items = _list_of(data, chance)
    del items[chance.randrange(2) :: 2]


def reverse(data: dict[str, Any], chance: Random) -> None:
    _list_of(data, chance).reverse()


def repeat(data: dict[str, Any], chance: Random) -> None:
    items = _list_of(data, chance)
    items += items[:5]


def dict_to_list_and_back(data: dict[str, Any], chance: Random) -> None:
    data["inner"] = chance.choice(
        [[_item(chance) for _ in range(9)], {"log": [_item(chance) for _ in range(9)]}, 7, None]
    )


def twins(data: dict[str, Any], chance: Random) -> None:
    """Values that are equal in Python, and different in JSON."""
    data["twin"] = [chance.choice([1, True, 1.0, 0, False, 0.0, -0.0]) for _ in range(70)]


def large_value(data: dict[str, Any], chance: Random) -> None:
    text = chance.choice("abc") * (LARGE_VALUE - 3 + chance.randrange(6))
    data["large"] = chance.choice([text, {"deep": {"text": text, "list": [_item(chance)] * 30}}, {"wide": [text] * 2}])


def remove(data: dict[str, Any], chance: Random) -> None:
    if data:
        del data[chance.choice(sorted(data))]


CHANGES: list[Change] = [
    append,
    trim,
    cut_off,
    edit,
    drop_every_second,
    reverse,
    repeat,
    dict_to_list_and_back,
    twins,
    large_value,
    remove,
]
changes = st.lists(st.sampled_from(CHANGES), min_size=1, max_size=14)
chances = st.integers(0, 2**32).map(Random)


@pytest.mark.parametrize("sort_keys", [False, True], ids=["text", "native json"])
@given(changes=changes, chance=chances)
@budget(30)
def test_every_version_of_a_dict_reads_back(changes: list[Change], chance: Random, sort_keys: bool) -> None:
    plans, data, saved = Plans(sort_keys), dict[str, Any](), list[dict[str, Any]]()
    for change in changes:
        change(data, chance)
        base = len(saved) - 1 if saved and chance.random() < 0.9 else None
        plans.save(dict_payload(data), base, cold=chance.random() < 0.3)
        saved.append(copy.deepcopy(data))
    assert [exact(plans.read(version)) for version in range(len(saved))] == [exact(data) for data in saved]
    assert plans.most_extents() <= MAX_EXTENTS
    assert plans.collisions == 0


@given(changes=changes, chance=chances)
@budget(20)
def test_every_version_reads_back_where_histories_fork(changes: list[Change], chance: Random) -> None:
    plans, saved = Plans(), [dict[str, Any]()]
    plans.save(dict_payload({}))
    for change in changes:
        base = chance.randrange(len(saved))
        data = copy.deepcopy(saved[base])
        change(data, chance)
        plans.save(dict_payload(data), base)
        saved.append(data)
    assert [exact(plans.read(version)) for version in range(len(saved))] == [exact(data) for data in saved]


@given(st.lists(payloads, min_size=2, max_size=4))
@budget(30)
def test_payloads_that_have_nothing_to_do_with_each_other_read_back(history: list[dict[str, Any]]) -> None:
    plans = Plans()
    for number, data in enumerate(history):
        plans.save(dict_payload(data), number - 1 if number else None)
    assert [exact(plans.read(number)) for number in range(len(history))] == [exact(data) for data in history]


Step = Callable[[AgentState, Random], AgentState]
STEPS: list[Step] = [
    lambda state, chance: state.with_messages(
        Message.user(str(chance.random())) for _ in range(chance.randrange(1, 4))
    ),
    lambda state, chance: state.with_messages_replaced(state.messages[chance.randrange(len(state.messages) + 1) :]),
    lambda state, chance: state.with_messages_replaced(state.messages[:-1] + (Message.assistant("edited"),)),
    lambda state, chance: state.with_messages_replaced([Message.system("summary"), *state.messages[-2:]]),
    lambda state, chance: state.with_messages_replaced(state.messages[::2]),
    lambda state, chance: state.with_messages_replaced(reversed(state.messages)),
    lambda state, chance: state.with_metadata(chance.choice("ab"), [chance.random(), {"x": ["y" * 80]}] * 2),
    lambda state, chance: state.with_metadata("big", "z" * chance.choice([5, LARGE_VALUE])),
    lambda state, chance: state.with_error("e" * chance.randrange(70)).with_confidence(chance.random()),
    lambda state, chance: state.model_copy(update={"metadata": {"plain": [chance.random()] * 9}}),
    lambda state, chance: state.next_iteration(),
]


@given(steps=st.lists(st.sampled_from(STEPS), min_size=1, max_size=14), chance=chances)
@budget(30)
def test_every_version_of_a_state_reads_back(steps: list[Step], chance: Random) -> None:
    plans, state, saved = Plans(), AgentState(), list[AgentState]()
    for step in steps:
        state = step(state, chance)
        plans.save(state_payload(state), len(saved) - 1 if saved else None, cold=chance.random() < 0.2)
        for items in (state.messages, state.errors, state.confidence_history):
            anchor(items)
        saved.append(state)
    assert [AgentState.from_checkpoint(plans.read(version)) for version in range(len(saved))] == saved
    assert plans.most_extents() <= MAX_EXTENTS


@given(json_values)
@budget(30)
def test_saving_the_same_again_writes_nothing_new(value: Any) -> None:
    plans = Plans()
    plans.save(dict_payload({"value": value, "list": [value] * 70}))
    again = plans.save(dict_payload(copy.deepcopy({"value": value, "list": [value] * 70})), 0)
    assert again.runs == ()
    assert again.values == ()
    assert again.manifest == plans.versions[0].manifest
