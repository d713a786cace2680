"""What OpenAI's format alone has."""

from __future__ import annotations

from typing import Any

import pytest

from locus.core.messages import ContentBlock, Message, ToolCall, ToolResult
from locus.errors import ConfigurationError
from locus.models.errors import ModelError, ModelRequestError, ModelUnavailableError
from locus.models.openai import OpenAIModel
from locus.tools import tool
from locus.tools.calls import raw_arguments, tool_call
from tests.models.server import ModelServer, json_reply, sse
from tests.models.wires import KEY, OpenAIWire

WIRE = OpenAIWire()


@tool
def save_note(content: str) -> str:
    """Save a note.

    Args:
        content: What to save.
    """
    return content


async def sent(server: ModelServer, messages: list[Message], **options: Any) -> Any:
    server.replies = [WIRE.answer("ok")]
    async with WIRE.model(server.url, **options) as model:
        await model.complete(messages)
    return server.requests[-1].json


async def test_every_kind_of_message_is_translated(server: ModelServer) -> None:
    calls = [ToolCall(id="t1", name="save_note", arguments={"content": "é"}), tool_call("save_note", "{oops", "t2")]
    body = await sent(
        server,
        [
            Message.system("Be brief."),
            Message.user(
                [
                    ContentBlock.of_text("What is this?"),
                    ContentBlock.image_url("https://example.org/a.png"),
                    ContentBlock.image_base64("aGk=", "image/jpeg"),
                    ContentBlock.model_validate({"type": "file", "file": {"file_id": "f1"}}),
                ]
            ),
            Message.assistant([ContentBlock.of_text("Let me see."), ContentBlock(type="thinking")], calls),
            Message.tool(ToolResult(tool_call_id="t1", name="save_note", content="saved")),
            Message.tool(ToolResult(tool_call_id="t2", name="save_note", content="half of it", error="OSError: full")),
            Message.assistant(None),
        ],
    )
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
                {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,aGk="}},
                {"type": "file", "file": {"file_id": "f1"}},
            ],
        },
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                {"id": "t1", "type": "function", "function": {"name": "save_note", "arguments": '{"content":"é"}'}},
                {"id": "t2", "type": "function", "function": {"name": "save_note", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "saved"},
        {"role": "tool", "tool_call_id": "t2", "content": "Error: OSError: full\nhalf of it"},
        {"role": "assistant", "content": ""},
    ]


async def test_tools_and_options_are_sent(server: ModelServer) -> None:
    server.replies = [WIRE.answer("ok")]
    async with WIRE.model(server.url, max_tokens=100, temperature=0.5) as model:
        await model.complete([Message.user("Hi")], [save_note], temperature=0.1, tool_choice="required")
    request = server.requests[0]
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert (request.json["max_tokens"], request.json["temperature"]) == (100, 0.1)
    assert request.json["tool_choice"] == "required"
    assert request.json["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "save_note",
                "description": "Save a note.",
                "parameters": {
                    "type": "object",
                    "properties": {"content": {"type": "string", "description": "What to save."}},
                    "required": ["content"],
                    "additionalProperties": False,
                },
            },
        }
    ]


async def test_openai_itself_wants_another_name_for_the_limit(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
    server.replies = [WIRE.answer("ok"), WIRE.answer("ok")]
    async with OpenAIModel("gpt-test", api_key=KEY, max_tokens=5) as model:
        await model.complete([Message.user("Hi")])
        await model.complete([Message.user("Hi")], max_tokens=9)
    assert [request.json["max_completion_tokens"] for request in server.requests] == [5, 9]
    assert "max_tokens" not in server.requests[1].json


@pytest.mark.parametrize("arguments", ['{"content": ', '["a"]', '"a"', '{"a": NaN}', '{"a": "\\ud800"}'])
@pytest.mark.parametrize("streaming", [False, True])
async def test_malformed_arguments_are_kept_and_not_raised(
    server: ModelServer, arguments: str, streaming: bool
) -> None:
    calls = [("t1", "save_note", arguments)]
    server.replies = [WIRE.stream([], calls) if streaming else WIRE.answer("", calls)]
    async with WIRE.model(server.url) as model:
        if streaming:
            *_, last = [chunk async for chunk in model.stream([Message.user("Hi")])]
            assert last.response is not None
            response = last.response
        else:
            response = await model.complete([Message.user("Hi")])
    (call,) = response.message.tool_calls
    assert (call.id, call.arguments, raw_arguments(call)) == ("t1", {}, arguments)
    assert Message.model_validate(response.message.model_dump()) == response.message


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("stop", "stop"), ("length", "length"), ("content_filter", "content_filter"), ("odd", "odd")],
)
async def test_stop_reasons(server: ModelServer, reason: str, expected: str) -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": reason}
    server.replies = [json_reply({"id": "c", "choices": [choice]})]
    async with WIRE.model(server.url) as model:
        response = await model.complete([Message.user("Hi")])
    assert (response.stop_reason, response.usage) == (expected, {})


async def test_a_refusal_is_an_answer(server: ModelServer) -> None:
    message = {"role": "assistant", "content": None, "refusal": "I won't."}
    server.replies = [json_reply({"id": "c", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})]
    async with WIRE.model(server.url) as model:
        response = await model.complete([Message.user("Hi")])
    assert (response.message.content, response.stop_reason) == ("I won't.", "content_filter")


async def test_calls_without_ids_or_with_the_same_one_are_told_apart(server: ModelServer) -> None:
    server.replies = [WIRE.answer("", [("", "save_note", "{}"), ("x", "save_note", "{}"), ("x", "save_note", "{}")])]
    async with WIRE.model(server.url) as model:
        response = await model.complete([Message.user("Hi")])
    ids = [call.id for call in response.message.tool_calls]
    assert len(set(ids)) == 3
    assert all(ids)
    assert ids[1] == "x"


async def test_text_that_no_state_could_keep_is_mended(server: ModelServer) -> None:
    server.replies = [WIRE.answer("a\ud83d\ude00b\ud800c")]
    async with WIRE.model(server.url) as model:
        response = await model.complete([Message.user("Hi")])
    assert response.message.content == "a😀b\N{REPLACEMENT CHARACTER}c"


async def test_an_error_inside_a_stream(server: ModelServer) -> None:
    for kind, expected in (("server_error", ModelUnavailableError), ("invalid_request_error", ModelRequestError)):
        server.replies = [sse([{"error": {"type": kind, "message": "it broke"}}])]
        async with WIRE.model(server.url) as model:
            with pytest.raises(expected, match="it broke"):
                [chunk async for chunk in model.stream([Message.user("Hi")])]


async def test_an_option_that_the_client_does_not_know(server: ModelServer) -> None:
    async with WIRE.model(server.url) as model:
        with pytest.raises(ModelError, match="nonsense"):
            await model.complete([Message.user("Hi")], nonsense=1)
    assert server.requests == []


async def test_an_image_as_a_tool_result_is_refused_before_it_is_sent(server: ModelServer) -> None:
    result = Message.tool(ToolResult(tool_call_id="t", name="look"))
    image = result.model_copy(update={"content": (ContentBlock.image_base64("aGk="),)})
    async with WIRE.model(server.url) as model:
        with pytest.raises(ModelRequestError, match="text only"):
            await model.complete([image])
    assert server.requests == []


def test_a_missing_key_is_said_at_once() -> None:
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
        OpenAIModel("gpt-4.1")
    with pytest.raises(ConfigurationError, match="named by text"):
        OpenAIModel("", api_key=KEY)
