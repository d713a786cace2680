"""What Anthropic's format alone has."""

from __future__ import annotations

import pytest

from locus.core.messages import ContentBlock, Message, ToolCall, ToolResult
from locus.errors import ConfigurationError
from locus.models.anthropic import AnthropicModel
from locus.models.errors import ModelUnavailableError
from locus.tools import tool
from locus.tools.calls import raw_arguments
from tests.models.server import ModelServer, json_reply, sse
from tests.models.wires import KEY, AnthropicWire

WIRE = AnthropicWire()


@tool
def save_note(content: str) -> str:
    """Save a note."""
    return content


async def test_every_kind_of_message_is_translated(server: ModelServer) -> None:
    calls = [ToolCall(id=f"t{n}", name="save_note", arguments={"content": str(n)}) for n in (1, 2)]
    server.replies = [WIRE.answer("ok")]
    async with WIRE.model(server.url) as model:
        await model.complete(
            [
                Message.system("Be brief."),
                Message.user([ContentBlock.of_text("Look"), ContentBlock.image_url("https://example.org/a.png")]),
                Message.user([ContentBlock.image_base64("aGk=", "image/jpeg")]),
                Message.assistant("", calls),
                Message.tool(ToolResult(tool_call_id="t1", name="save_note", content="saved")),
                Message.tool(ToolResult(tool_call_id="t2", name="save_note", error="OSError: full")),
                Message.system("A summary."),
                Message.user("Well?"),
                Message.assistant(None),
            ],
            [save_note],
        )
    request = server.requests[0]
    assert request.path == "/v1/messages"
    # Which of the two it is depends on the client's version.
    assert KEY in (request.headers.get("x-api-key"), request.headers.get("authorization", "").removeprefix("Bearer "))
    body = request.json
    assert (body["system"], body["max_tokens"]) == ("Be brief.\n\nA summary.", 4096)
    assert [spec["name"] for spec in body["tools"]] == ["save_note"]
    assert body["tools"][0]["input_schema"]["required"] == ["content"]
    assert body["messages"] == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look"},
                {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
                {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "aGk="}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": f"t{n}", "name": "save_note", "input": {"content": str(n)}} for n in (1, 2)
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "saved"}]},
                {
                    "type": "tool_result",
                    "tool_use_id": "t2",
                    "content": [{"type": "text", "text": "Error: OSError: full"}],
                    "is_error": True,
                },
                {"type": "text", "text": "Well?"},
            ],
        },
    ]


async def test_thoughts_are_kept_and_sent_back(server: ModelServer) -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "s1"}
    content = [thought, {"type": "text", "text": "Saving."}, {"type": "tool_use", "id": "t1", "name": "x", "input": {}}]
    server.replies = [json_reply(WIRE.message(content, "tool_use")), WIRE.answer("ok")]
    async with WIRE.model(server.url) as model:
        answer = (await model.complete([Message.user("Hi")])).message
        assert answer.text == "Saving."
        kept = Message.model_validate(answer.model_dump())
        await model.complete(
            [Message.user("Hi"), kept, Message.tool(ToolResult(tool_call_id="t1", name="x", content="1"))]
        )
    assert server.requests[1].json["messages"][1] == {"role": "assistant", "content": content}


async def test_streamed_thoughts_are_put_together(server: ModelServer) -> None:
    server.replies = [
        sse(
            [
                {"type": "message_start", "message": WIRE.message([], None)},
                {"type": "ping"},
                *WIRE._block(
                    0,
                    {"type": "thinking", "thinking": "", "signature": ""},
                    [
                        {"type": "thinking_delta", "thinking": "h"},
                        {"type": "thinking_delta", "thinking": "m"},
                        {"type": "signature_delta", "signature": "s1"},
                    ],
                ),
                *WIRE._block(1, {"type": "text", "text": ""}, [{"type": "text_delta", "text": "Yes."}]),
                {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 9}},
                {"type": "message_stop"},
            ],
            named=True,
        )
    ]
    async with WIRE.model(server.url) as model:
        chunks = [chunk async for chunk in model.stream([Message.user("Hi")])]
    response = chunks[-1].response
    assert response is not None
    assert response.stop_reason == "length"
    assert response.usage == {"prompt_tokens": 11, "completion_tokens": 9, "total_tokens": 20}
    assert isinstance(response.message.content, tuple)
    thinking, text = response.message.content
    assert thinking.model_extra == {"thinking": "hm", "signature": "s1"}
    assert text == ContentBlock.of_text("Yes.")


async def test_malformed_streamed_arguments_are_kept(server: ModelServer) -> None:
    server.replies = [WIRE.stream([], [("t1", "save_note", '{"content": "a')])]
    async with WIRE.model(server.url) as model:
        *_, last = [chunk async for chunk in model.stream([Message.user("Hi")])]
    assert last.response is not None
    (call,) = last.response.message.tool_calls
    assert (call.id, call.arguments, raw_arguments(call)) == ("t1", {}, '{"content": "a')


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("end_turn", "stop"), ("stop_sequence", "stop"), ("refusal", "content_filter"), ("pause_turn", "pause_turn")],
)
async def test_stop_reasons(server: ModelServer, reason: str, expected: str) -> None:
    server.replies = [json_reply(WIRE.message([{"type": "text", "text": "a"}], reason))]
    async with WIRE.model(server.url) as model:
        assert (await model.complete([Message.user("Hi")])).stop_reason == expected


async def test_an_overload_inside_a_stream(server: ModelServer) -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    server.replies = [sse([{"type": "message_start", "message": WIRE.message([], None)}, error], named=True)]
    async with WIRE.model(server.url) as model:
        with pytest.raises(ModelUnavailableError, match="Overloaded") as caught:
            [chunk async for chunk in model.stream([Message.user("Hi")])]
    assert caught.value.status is None


def test_a_missing_key_is_said_at_once() -> None:
    with pytest.raises(ConfigurationError, match="ANTHROPIC_API_KEY"):
        AnthropicModel("claude-test")
