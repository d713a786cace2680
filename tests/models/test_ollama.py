"""What Ollama's format alone has."""

from __future__ import annotations

from pathlib import Path

import pytest

from locus.core.messages import ContentBlock, Message, ToolCall, ToolResult
from locus.models.errors import ModelError, ModelRequestError
from locus.models.ollama import OllamaModel
from locus.models.provider import delay_before, retry_after
from locus.tools import tool
from tests.models.server import ModelServer, json_reply, ndjson
from tests.models.wires import KEY, OllamaWire

WIRE = OllamaWire()


@tool
def save_note(content: str, tags: list[str] | None = None) -> str:
    """Save a note."""
    return content


async def test_every_kind_of_message_is_translated(server: ModelServer) -> None:
    call = ToolCall(id="t1", name="save_note", arguments={"content": "a"})
    server.replies = [WIRE.answer("ok")]
    async with WIRE.model(server.url, max_tokens=50, num_ctx=2048, keep_alive="5m") as model:
        await model.complete(
            [
                Message.system("Be brief."),
                Message.user([ContentBlock.of_text("Look"), ContentBlock.image_base64("aGk=")]),
                Message.assistant(None, [call]),
                Message.tool(ToolResult(tool_call_id="t1", name="save_note", error="OSError: full")),
            ],
            [save_note],
            temperature=0.1,
        )
    request = server.requests[0]
    assert request.path == "/api/chat"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    body = request.json
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Look", "images": ["aGk="]},
        {"role": "assistant", "tool_calls": [{"function": {"name": "save_note", "arguments": {"content": "a"}}}]},
        {"role": "tool", "content": "Error: OSError: full", "tool_name": "save_note"},
    ]
    assert (body["options"], body["keep_alive"]) == ({"num_predict": 50, "num_ctx": 2048, "temperature": 0.1}, "5m")
    assert body["tools"][0]["function"]["parameters"]["required"] == ["content"]


async def test_an_image_is_never_taken_for_the_name_of_a_file(
    server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "aGkh").write_text("a secret file, whose name is valid base64")
    monkeypatch.chdir(tmp_path)
    server.replies = [WIRE.answer("ok")]
    async with WIRE.model(server.url) as model:
        await model.complete([Message.user([ContentBlock.image_base64("aGkh")])])
        for block in (ContentBlock.image_base64("/etc/passwd!"), ContentBlock.image_url("https://example.org/a.png")):
            with pytest.raises(ModelRequestError, match="base64"):
                await model.complete([Message.user([block])])
    assert [request.json["messages"][0]["images"] for request in server.requests] == [["aGkh"]]


async def test_the_length_limit_is_a_stop_reason(server: ModelServer) -> None:
    server.replies = [
        json_reply({"message": {"role": "assistant", "content": "a"}, "done": True, "done_reason": "length"})
    ]
    async with WIRE.model(server.url) as model:
        assert (await model.complete([Message.user("Hi")])).stop_reason == "length"


async def test_an_answer_that_is_not_done_is_none(server: ModelServer) -> None:
    server.replies = [json_reply({"message": {"role": "assistant", "content": "a"}, "done": False})]
    async with WIRE.model(server.url) as model:
        with pytest.raises(ModelError, match="not complete"):
            await model.complete([Message.user("Hi")])


async def test_an_error_inside_a_stream(server: ModelServer) -> None:
    server.replies = [ndjson([{"error": "the runner has stopped"}])]
    async with WIRE.model(server.url) as model:
        with pytest.raises(ModelError, match="the runner has stopped"):
            [chunk async for chunk in model.stream([Message.user("Hi")])]


async def test_no_key_is_needed(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", server.url)
    server.replies = [WIRE.answer("ok")]
    async with OllamaModel("llama-test") as model:
        assert (await model.complete([Message.user("Hi")])).message.text == "ok"
    assert "authorization" not in server.requests[0].headers


def test_delays_grow_up_to_a_bound() -> None:
    for retry, longest in ((0, 0.5), (1, 1.0), (4, 8.0), (500, 8.0)):
        assert 0.75 * longest <= delay_before(retry, 0.0) <= longest
    assert delay_before(0, 3.5) == 3.5


def test_retry_after_is_a_number_or_a_date() -> None:
    assert retry_after("1.5") == 1.5
    assert retry_after(None) is None
    assert retry_after("soon") is None
    past = retry_after("Wed, 21 Oct 2015 07:28:00 GMT")
    assert past is not None
    assert past < 0
