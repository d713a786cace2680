"""The state of an agent: every change is a new state, and nothing is lost on the way to JSON and back."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from locus.core.frozen import FrozenDict, Items, Lineage
from locus.core.messages import Message
from locus.core.state import AgentState, ToolExecution
from locus.memory.model.codec import decode, encode
from locus.testing.data import at, conversation, rich_state
from tests.samples import exact

EXECUTION = ToolExecution(tool_name="search", tool_call_id="1", result="3 hits", timestamp=at(3))
Update = Callable[[AgentState], AgentState]

UPDATES: list[tuple[Update, dict[str, Any]]] = [
    (lambda state: state.with_message(Message.user("a")), {"messages": (Message.user("a"),)}),
    (lambda state: state.with_messages(iter(conversation(3))), {"messages": tuple(conversation(3))}),
    (lambda state: state.with_messages_replaced(conversation(2)), {"messages": tuple(conversation(2))}),
    (lambda state: state.with_iteration(4), {"iteration": 4}),
    (lambda state: state.next_iteration().next_iteration(), {"iteration": 2}),
    (
        lambda state: state.with_tool_execution(EXECUTION),
        {"tool_executions": (EXECUTION,), "tool_history": ("search",)},
    ),
    (lambda state: state.with_confidence(0.4), {"confidence": 0.4, "confidence_history": (0.4,)}),
    (lambda state: state.with_confidence(7), {"confidence": 1.0, "confidence_history": (1.0,)}),
    (lambda state: state.with_confidence(-7), {"confidence": 0.0, "confidence_history": (0.0,)}),
    (lambda state: state.with_error("no"), {"errors": ("no",)}),
    (lambda state: state.with_metadata("k", [1]), {"metadata": {"k": [1]}}),
    (lambda state: state.with_metadata({"k": 1, "l": {}}).with_metadata("k", 2), {"metadata": {"k": 2, "l": {}}}),
    (
        lambda state: state.with_token_usage(3, 4).with_token_usage(10, 20),
        {"prompt_tokens_used": 13, "completion_tokens_used": 24, "total_tokens_used": 37},
    ),
]


@pytest.mark.parametrize(("update", "changes"), UPDATES)
def test_an_update_changes_what_it_says_and_nothing_else(update: Update, changes: dict[str, Any]) -> None:
    before = AgentState(agent_id="a", started_at=at(0), updated_at=at(0))
    kept = before.model_dump()
    after = update(before)
    assert before.model_dump() == kept
    assert after.updated_at > before.updated_at
    for name in AgentState.model_fields:
        if name != "updated_at":
            assert getattr(after, name) == changes.get(name, getattr(before, name)), name
    assert type(after.messages) is Items
    assert type(after.metadata) is FrozenDict


def test_total_tokens_by_either_name() -> None:
    assert AgentState().with_token_usage(1, 2).total_tokens == 3


def test_updates_follow_one_another() -> None:
    state = AgentState()
    for number in range(5):
        state = state.with_message(Message.user(str(number))).with_error(str(number)).with_confidence(number / 10)
    assert [message.content for message in state.messages] == ["0", "1", "2", "3", "4"]
    assert state.errors == ("0", "1", "2", "3", "4")
    assert state.confidence_history == (0.0, 0.1, 0.2, 0.3, 0.4)


@pytest.mark.parametrize(
    "update",
    [
        lambda state: state.with_message("hi"),
        lambda state: state.with_messages([Message.user("a"), {"role": "user"}]),
        lambda state: state.with_messages_replaced(["hi"]),
        lambda state: state.with_messages_replaced(state.messages + ("hi",)),
        lambda state: state.with_messages_replaced(state.errors),
        lambda state: state.with_tool_execution({"tool_name": "x"}),
    ],
)
def test_what_is_no_message_is_refused_at_once(update: Callable[[AgentState], AgentState]) -> None:
    state = AgentState().with_message(Message.user("a")).with_error("e")
    with pytest.raises(TypeError, match=r"expected (Message|ToolExecution), got"):
        update(state)


def test_metadata_is_frozen_and_its_own() -> None:
    given = {"list": [1]}
    state = AgentState(metadata=given).with_metadata("more", given)
    given["list"].append(2)
    assert state.metadata == {"list": [1], "more": {"list": [1]}}
    with pytest.raises(TypeError, match="immutable"):
        state.metadata["x"] = 1


def test_a_state_refuses_to_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        AgentState().iteration = 5  # type: ignore[misc]


def test_equality_is_of_content_and_ignores_the_lineage() -> None:
    state = AgentState(run_id="r", started_at=at(0), updated_at=at(0))
    same = AgentState(run_id="r", started_at=at(0), updated_at=at(0))
    marked = state.model_copy()
    marked._lineage = marked._lineage.after(("store", "thread", "default"), "trace")
    assert state == same == marked
    assert state != state.model_copy(update={"iteration": 1})


def test_the_lineage_is_inherited_and_does_not_travel() -> None:
    place = ("store", "thread", "default")
    state = AgentState()
    state._lineage = state._lineage.after(place, "trace")
    for derived in (
        state.next_iteration(),
        state.with_message(Message.user("a")),
        copy.copy(state),
        copy.deepcopy(state),
    ):
        assert derived._lineage.get(place) == "trace"
    assert pickle.loads(pickle.dumps(state))._lineage.get(place) is None
    assert AgentState.from_checkpoint(state.to_checkpoint())._lineage.get(place) is None


def test_a_lineage_forgets_the_places_it_was_at_longest_ago() -> None:
    lineage = Lineage()
    places = [("store", str(number), "default") for number in range(6)]
    for place in places:
        lineage = lineage.after(place, place[1])
    lineage = lineage.after(places[2], "again")
    assert [lineage.get(place) for place in places] == [None, None, "again", "3", "4", "5"]
    lineage = lineage.after(("another", "1", "default"), "x")
    assert [lineage.get(place) for place in places] == [None, None, "again", None, "4", "5"]


def test_states_that_were_derived_earlier_keep_their_lineage() -> None:
    state = AgentState()
    derived = state.next_iteration()
    state._lineage = state._lineage.after(("s", "t", "n"), 1)
    assert derived._lineage.get(("s", "t", "n")) is None


def types_in(value: Any) -> set[type]:
    inside = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list | tuple) else []
    return {type(value)}.union(*(types_in(item) for item in inside))


def test_a_checkpoint_is_plain_dicts_and_lists_and_comes_back_equal() -> None:
    state = rich_state()
    data = state.to_checkpoint()
    assert types_in(data) <= {dict, list, str, int, float, bool, type(None)}
    again = AgentState.from_checkpoint(data)
    assert again == state
    assert exact(again.to_checkpoint()) == exact(data)


def test_a_checkpoint_is_a_copy() -> None:
    state = rich_state()
    data = state.to_checkpoint()
    data["metadata"]["nested"]["l"].append(1)
    data["messages"].clear()
    assert state.metadata["nested"] == {"l": [[]]}
    assert len(state.messages) == len(rich_state().messages)


def test_a_dump_holds_only_json_values() -> None:
    state = rich_state()
    assert exact(decode(encode(state.model_dump()))) == exact(json.loads(json.dumps(state.to_checkpoint())))
    assert AgentState.model_validate_json(encode(state.model_dump())) == state
    assert AgentState.model_validate_json(state.model_dump_json()) == state


def test_states_travel() -> None:
    state = rich_state()
    for again in (copy.copy(state), copy.deepcopy(state), pickle.loads(pickle.dumps(state)), state.model_copy()):
        assert again == state
        assert encode(again.model_dump()) == encode(state.model_dump())
        assert type(again.messages) is Items
        assert type(again.metadata) is FrozenDict
        assert again.with_message(Message.user("x")).messages[-1] == Message.user("x")


NEWER = {
    "agent_id": "a",
    "mood": {"level": [1, {"x": None}]},
    "messages": [
        {"role": "user", "content": "hi", "reactions": ["+1"]},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "a", "annotations": [{"n": 1}]}],
            "tool_calls": [{"id": "1", "name": "a", "arguments": {}, "origin": "mcp"}],
        },
    ],
    "tool_executions": [{"tool_name": "a", "tool_call_id": "1", "cost": 0.5}],
}


@pytest.mark.parametrize(
    "load",
    [
        AgentState.from_checkpoint,
        AgentState.model_validate,
        lambda data: AgentState.model_validate_json(json.dumps(data)),
    ],
    ids=["from_checkpoint", "model_validate", "model_validate_json"],
)
def test_fields_that_this_version_does_not_know_are_kept(load: Callable[[Any], AgentState]) -> None:
    for state in (load(NEWER), load(NEWER).next_iteration().with_message(Message.user("x"))):
        data = state.to_checkpoint()
        assert data["mood"] == NEWER["mood"]
        assert data["messages"][0]["reactions"] == ["+1"]
        assert data["messages"][1]["content"][0]["annotations"] == [{"n": 1}]
        assert data["messages"][1]["tool_calls"][0]["origin"] == "mcp"
        assert data["tool_executions"][0]["cost"] == 0.5


def test_a_state_written_by_an_older_version_loads() -> None:
    old = {"agent_id": "a", "run_id": "r", "messages": [{"role": "user", "content": "hi"}]}
    fresh = AgentState()
    for state in (AgentState.from_checkpoint(old), AgentState.model_validate_json(json.dumps(old))):
        assert (state.agent_id, state.run_id, state.messages) == ("a", "r", (Message.user("hi"),))
        for name in set(AgentState.model_fields) - {*old, "started_at", "updated_at"}:
            assert getattr(state, name) == getattr(fresh, name)


def test_times_have_a_zone_and_come_back_to_the_microsecond() -> None:
    state = AgentState()
    assert state.started_at.tzinfo is UTC
    exactly = datetime(2024, 5, 17, 8, 0, 0, 1, tzinfo=UTC)
    again = AgentState.from_checkpoint(AgentState(started_at=exactly).to_checkpoint())
    assert again.started_at == exactly


def test_each_run_gets_an_id_of_its_own() -> None:
    assert AgentState().run_id != AgentState().run_id
