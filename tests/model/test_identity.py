"""Identity stands for equality only where nothing can change behind the planner's back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field

from locus.core.frozen import Items, trusted
from locus.core.messages import ContentBlock, Message, Role, ToolCall
from locus.core.state import AgentState
from locus.errors import SerializationError
from locus.memory.model.codec import decode
from locus.memory.model.states import anchor, state_payload
from locus.testing.data import conversation, rich_state
from tests.model.planned import Plans


class Annotated(Message):
    """A message of a user's own, with something in it that can change."""

    model_config = ConfigDict(frozen=False)
    notes: list[str] = Field(default_factory=list)


class Score(BaseModel):
    value: int = 1


@dataclass
class Point:
    x: int = 1


def messages_after(state: AgentState, change: Any) -> list[dict[str, Any]]:
    """The messages of a second save, after something changed that the state holds on to."""
    plans = Plans()
    plans.save(state_payload(state))
    anchor(state.messages)
    change()
    plans.save(state_payload(state), 0)
    found: list[dict[str, Any]] = plans.read(1)["messages"]
    return found


def test_a_subclass_that_can_change_is_compared_by_content() -> None:
    message = Annotated(role=Role.USER, content="a", notes=["first"])
    state = AgentState().with_messages([*conversation(3), message])
    found = messages_after(state, lambda: message.notes.append("second"))
    assert found[-1]["notes"] == ["first", "second"]


def test_a_copy_with_a_plain_dict_in_it_cannot_change_unseen() -> None:
    message = Message.user("a").model_copy(update={"metadata": {"n": 1}})
    state = AgentState().with_messages([*conversation(3), message])

    def change() -> None:
        try:
            message.metadata["n"] = 2
        except TypeError:
            return  # frozen, and so the question does not arise

    assert messages_after(state, change)[-1]["metadata"] == message.metadata


def test_a_copy_with_a_plain_list_in_it_cannot_change_unseen() -> None:
    calls: list[ToolCall] = [ToolCall(id="1", name="a")]
    message = Message.assistant("a").model_copy(update={"tool_calls": calls})
    state = AgentState().with_message(message)
    found = messages_after(state, lambda: calls.append(ToolCall(id="2", name="b")))
    assert [call["id"] for call in found[-1]["tool_calls"]] == [call.id for call in message.tool_calls]


def test_a_copy_with_a_list_of_blocks_in_it_cannot_change_unseen() -> None:
    blocks = [ContentBlock.of_text("a")]
    message = Message.user("a").model_copy(update={"content": blocks})
    state = AgentState().with_message(message)
    found = messages_after(state, lambda: blocks.append(ContentBlock.of_text("b")))
    assert "\n".join(block["text"] for block in found[-1]["content"]) == message.text


def test_a_message_built_without_validation_cannot_change_unseen() -> None:
    metadata: dict[str, Any] = {"n": 1}
    message = Message.model_construct(role=Role.USER, content="a", metadata=metadata)
    state = AgentState().with_message(message)
    found = messages_after(state, lambda: metadata.update(n=2))
    assert found[-1]["metadata"] == message.metadata


def test_metadata_of_a_state_put_in_by_a_copy_cannot_change_unseen() -> None:
    metadata: dict[str, Any] = {"n": 1, "list": [{"x": "y" * 70}]}
    state = AgentState().model_copy(update={"metadata": metadata})
    plans = Plans()
    plans.save(state_payload(state))
    metadata["list"].append("more")
    plans.save(state_payload(state), 0)
    assert plans.read(1)["metadata"] == state.metadata


@pytest.mark.parametrize("value", [Score(), Point()], ids=["model", "dataclass"])
def test_an_object_inside_a_message_is_refused_and_not_turned_into_something_else(value: Any) -> None:
    state = AgentState().with_messages([Message.user("a"), Message(role=Role.USER, metadata={"deep": [value]})])
    with pytest.raises(SerializationError) as caught:
        Plans().save(state_payload(state))
    assert caught.value.path == "messages[1].metadata.deep[0]"


@pytest.mark.parametrize("value", [Score(), Point()], ids=["model", "dataclass"])
def test_an_object_in_an_unknown_field_is_refused_and_not_turned_into_something_else(value: Any) -> None:
    message = Message.model_validate({"role": "user", "extra": value})
    with pytest.raises(SerializationError) as caught:
        Plans().save(state_payload(AgentState().with_message(message)))
    assert caught.value.path == "messages[0].extra"


class OwnCall(ToolCall):
    """A call of a user's own."""


def test_only_exact_types_are_trusted() -> None:
    for item in (*rich_state().messages, *rich_state().tool_executions, ContentBlock.of_text("a"), 1, 1.5, "x", None):
        assert trusted(item)
    for changeable in ([], {}, (), Score(), Annotated(role=Role.USER), OwnCall(name="a"), Message, object()):
        assert not trusted(changeable)
    assert not trusted(Message.assistant(None, [OwnCall(name="a")]))


def test_a_list_is_as_stable_as_its_items() -> None:
    assert Items(conversation(2)).stable
    assert not Items([Annotated(role=Role.USER)]).stable
    assert not Items([*conversation(2), Annotated(role=Role.USER)]).stable
    assert not (Items(conversation(2)) + (Annotated(role=Role.USER),)).stable
    assert not Items([Message.assistant(None, [OwnCall(name="a")])]).stable


def test_a_list_that_becomes_changeable_is_compared_by_content() -> None:
    """The base was saved while every message was frozen."""
    state = AgentState().with_messages(conversation(3))
    plans = Plans()
    plans.save(state_payload(state))
    anchor(state.messages)
    message = Annotated(role=Role.USER, content="a")
    longer = state.with_message(message)
    plan = plans.save(state_payload(longer), 0)
    assert [len(decode(run.items)) for run in plan.runs] == [1]
    message.notes.append("later")
    plans.save(state_payload(longer), 1)
    assert plans.read(2)["messages"][-1]["notes"] == ["later"]
    assert plans.read(1)["messages"][-1].get("notes", []) == []
