"""Messages, and what they are made of."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from pydantic import ValidationError

from locus.core.frozen import FrozenDict, FrozenList, Items
from locus.core.messages import ContentBlock, Message, Role, ToolCall, ToolResult
from locus.memory.model.codec import encode
from locus.testing.data import rich_state

EVERY_MESSAGE = list(rich_state().messages)


def test_constructors_set_the_role() -> None:
    assert Message.system("be brief") == Message(role=Role.SYSTEM, content="be brief")
    assert Message.user("hi") == Message(role=Role.USER, content="hi")
    assert Message.assistant("hello") == Message(role=Role.ASSISTANT, content="hello")
    assert Message.assistant().content is None
    assert [role.value for role in Role] == ["system", "user", "assistant", "tool"]


def test_an_assistant_message_keeps_its_tool_calls() -> None:
    calls = [ToolCall(id="1", name="a"), ToolCall(id="2", name="b", arguments={"x": 1})]
    message = Message.assistant(None, iter(calls))
    assert message.tool_calls == tuple(calls)
    assert type(message.tool_calls) is Items


def test_a_tool_message_answers_a_call() -> None:
    result = ToolResult(tool_call_id="1", name="search", content="3 hits", duration_ms=1.5, structured_content=[1])
    message = Message.tool(result)
    assert (message.role, message.tool_call_id, message.name) == (Role.TOOL, "1", "search")
    assert message.content == "3 hits"
    assert message.metadata == {"duration_ms": 1.5, "structured_content": [1]}
    assert result.success


@pytest.mark.parametrize(("content", "shown"), [("", "Error: timed out"), ("half of it", "half of it")])
def test_a_failed_call_says_why(content: str, shown: str) -> None:
    result = ToolResult(tool_call_id="1", name="search", content=content, error="timed out")
    message = Message.tool(result)
    assert not result.success
    assert message.content == shown
    assert message.metadata == {"error": "timed out"}


def test_content_blocks() -> None:
    assert ContentBlock.of_text("a").model_dump(exclude_defaults=True) == {"type": "text", "text": "a"}
    assert ContentBlock.image_url("u", "image/png").model_dump(exclude_defaults=True) == {
        "type": "image",
        "url": "u",
        "media_type": "image/png",
    }
    assert ContentBlock.image_base64("aGk=").model_dump(exclude_defaults=True) == {
        "type": "image",
        "data": "aGk=",
        "media_type": "image/png",
    }
    strange = ContentBlock.model_validate({"type": "thinking", "signature": "s", "steps": [1]})
    assert strange.model_dump(exclude_defaults=True) == {"type": "thinking", "signature": "s", "steps": [1]}


def test_the_text_of_a_message_whatever_its_form() -> None:
    blocks = [
        ContentBlock.of_text("a"),
        ContentBlock.image_url("u"),
        ContentBlock.of_text(""),
        ContentBlock.of_text("b"),
    ]
    assert Message.user(blocks).text == "a\nb"
    assert Message.user("a").text == "a"
    assert Message.assistant().text == ""
    assert type(Message.user(blocks).content) is Items
    assert Message.user(blocks).content == tuple(blocks)


def test_a_call_says_args_or_arguments() -> None:
    expected = ToolCall(id="1", name="a", arguments={"x": [1]})
    assert ToolCall.model_validate({"id": "1", "name": "a", "args": {"x": [1]}}) == expected
    assert ToolCall.model_validate_json('{"id":"1","name":"a","args":{"x":[1]}}') == expected
    both = ToolCall.model_validate({"id": "1", "name": "a", "arguments": {"x": [1]}, "args": {"y": 2}})
    assert both.arguments == {"x": [1]}
    assert both.model_dump()["args"] == {"y": 2}


def test_calls_get_ids_of_their_own() -> None:
    ids = {ToolCall(name="a").id for _ in range(20)}
    assert len(ids) == 20
    assert all(found.startswith("call_") for found in ids)


def test_what_a_message_is_given_is_frozen_and_its_own() -> None:
    given: dict[str, Any] = {"list": [1]}
    message = Message.model_validate({"role": "user", "metadata": given, "extra": given})
    call = ToolCall(name="a", arguments=given)
    result = ToolResult(tool_call_id="1", name="a", structured_content=given)
    given["list"].append(2)
    for found in (message.metadata, message.model_dump()["extra"], call.arguments, result.structured_content):
        assert found == {"list": [1]}
    assert type(message.metadata) is FrozenDict
    assert type(call.arguments["list"]) is FrozenList
    with pytest.raises(ValidationError, match="frozen"):
        message.content = "x"  # type: ignore[misc]


def test_a_changed_copy_leaves_the_original() -> None:
    message = Message.user("a")
    changed = message.model_copy(update={"content": "b"})
    assert (message.content, changed.content) == ("a", "b")
    assert changed != message


@pytest.mark.parametrize("message", EVERY_MESSAGE, ids=[message.role for message in EVERY_MESSAGE])
def test_messages_travel(message: Message) -> None:
    for again in (
        copy.copy(message),
        copy.deepcopy(message),
        pickle.loads(pickle.dumps(message)),
        Message.model_validate(message.model_dump()),
        Message.model_validate_json(message.model_dump_json()),
        Message.model_validate_json(encode(message.model_dump(exclude_defaults=True))),
    ):
        assert again == message
        assert encode(again.model_dump()) == encode(message.model_dump())
        assert type(again.tool_calls) is Items
        assert type(again.metadata) is FrozenDict
        assert hash(again) == hash(message)


@pytest.mark.parametrize(
    "data",
    [
        {"role": "robot", "content": "a"},
        {"content": "a"},
        {"role": "user", "content": 5},
        {"role": "user", "tool_calls": [{"id": "1"}]},
        {"role": "user", "metadata": [1]},
    ],
)
def test_what_is_no_message_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Message.model_validate(data)
