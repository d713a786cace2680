"""What holds for every provider, with its real client against a server that speaks its format."""

from __future__ import annotations

import asyncio
import logging
import traceback

import pytest

from locus.core.messages import Message, ToolCall, ToolResult
from locus.models import (
    Model,
    ModelAuthenticationError,
    ModelError,
    ModelRequestError,
    ModelUnavailableError,
    StreamingModel,
)
from locus.models.base import ModelChunk, ModelResponse
from locus.models.provider import Provider
from locus.tools import tool
from tests.models.server import ModelServer, Reply
from tests.models.wires import KEY, Wire

HELLO = [Message.system("Be brief."), Message.user("Hello")]
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}


@tool
def save_note(content: str) -> str:
    """Save a note."""
    return content


async def streamed(model: Provider) -> tuple[list[str], ModelResponse | None]:
    chunks: list[ModelChunk] = [chunk async for chunk in model.stream(HELLO, [save_note])]
    assert [chunk.response is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    return [chunk.text for chunk in chunks[:-1]], chunks[-1].response


async def test_an_answer_comes_back_with_its_usage(wire: Wire, server: ModelServer) -> None:
    server.replies = [wire.answer("Hi there 🌍")]
    async with wire.model(server.url) as model:
        assert isinstance(model, Model)
        assert isinstance(model, StreamingModel)
        response = await model.complete(HELLO)
    assert response.message == Message.assistant("Hi there 🌍")
    assert (response.usage, response.stop_reason) == (USAGE, "stop")
    assert "tools" not in server.requests[0].json or not server.requests[0].json["tools"]


async def test_tool_calls_come_back(wire: Wire, server: ModelServer) -> None:
    server.replies = [wire.answer("", [("t1", "save_note", '{"content": "a"}'), ("t2", "save_note", "{}")])]
    async with wire.model(server.url) as model:
        response = await model.complete(HELLO, [save_note])
    first, second = response.message.tool_calls
    assert (first.name, first.arguments, second.arguments) == ("save_note", {"content": "a"}, {})
    assert first.id != second.id
    assert (response.message.content, response.stop_reason) == (None, "tool_calls")
    assert "save_note" in server.requests[0].body.decode()


async def test_text_is_streamed_and_the_whole_response_comes_last(wire: Wire, server: ModelServer) -> None:
    server.replies = [wire.stream(["Hel", "lo ", "🌍"])]
    async with wire.model(server.url) as model:
        pieces, response = await streamed(model)
    assert pieces == ["Hel", "lo ", "🌍"]
    assert response == ModelResponse(message=Message.assistant("Hello 🌍"), usage=USAGE, stop_reason="stop")
    assert server.requests[0].json["stream"] is True


async def test_streamed_tool_calls_are_put_together(wire: Wire, server: ModelServer) -> None:
    calls = [("t1", "save_note", '{"content": "one"}'), ("t2", "save_note", '{"content": "two"}')]
    server.replies = [wire.stream(["Saving."], calls)]
    async with wire.model(server.url) as model:
        _, response = await streamed(model)
    assert response is not None
    assert [call.arguments for call in response.message.tool_calls] == [{"content": "one"}, {"content": "two"}]
    assert (response.message.content, response.stop_reason) == ("Saving.", "tool_calls")


async def test_a_conversation_with_tools_is_accepted_again(wire: Wire, server: ModelServer) -> None:
    call = ToolCall(id="t1", name="save_note", arguments={"content": "a"})
    failed = ToolResult(tool_call_id="t1", name="save_note", error="OSError: disk full")
    server.replies = [wire.answer("I could not save it.")]
    async with wire.model(server.url) as model:
        history = [*HELLO, Message.assistant(None, [call]), Message.tool(failed), Message.user("And?")]
        response = await model.complete(history, [save_note])
    assert response.message.text == "I could not save it."
    sent = server.requests[0].body.decode()
    assert "disk full" in sent
    assert "save_note" in sent


async def test_the_server_says_when_to_come_back(wire: Wire, server: ModelServer) -> None:
    server.replies = [wire.refusal(429, "slow down", retry_after="1"), wire.answer("Here I am.")]
    async with wire.model(server.url) as model:
        assert (await model.complete(HELLO)).message.text == "Here I am."
    first, second = server.requests
    # Without the header the first retry comes within half a second.
    assert second.at - first.at >= 1.0
    assert first.json == second.json


async def test_a_wait_that_is_too_long_is_not_waited_for(wire: Wire, server: ModelServer) -> None:
    server.replies = [wire.refusal(429, "tomorrow", retry_after="86400")]
    async with wire.model(server.url) as model:
        with pytest.raises(ModelUnavailableError, match="tomorrow"):
            await model.complete(HELLO)
    assert len(server.requests) == 1


async def test_a_stream_is_opened_again_when_the_server_was_busy(wire: Wire, server: ModelServer) -> None:
    server.replies = [wire.refusal(503, "busy"), wire.stream(["Hello"])]
    async with wire.model(server.url) as model:
        pieces, _ = await streamed(model)
    assert pieces == ["Hello"]
    assert len(server.requests) == 2


async def test_retries_are_bounded(wire: Wire, server: ModelServer) -> None:
    server.replies = [wire.refusal(500, "down") for _ in range(5)]
    async with wire.model(server.url, max_retries=1) as model:
        with pytest.raises(ModelUnavailableError, match="down") as caught:
            await model.complete(HELLO)
    assert caught.value.status == 500
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ModelRequestError),
        (401, ModelAuthenticationError),
        (403, ModelAuthenticationError),
        (404, ModelRequestError),
    ],
)
async def test_refusals_are_not_retried(wire: Wire, server: ModelServer, status: int, kind: type[ModelError]) -> None:
    server.replies = [wire.refusal(status, "no, because")]
    async with wire.model(server.url) as model:
        with pytest.raises(kind, match="no, because") as caught:
            await model.complete(HELLO)
        assert type(caught.value) is kind
        server.replies = [wire.refusal(status, "no, because")]
        with pytest.raises(kind, match="no, because"):
            await streamed(model)
    assert caught.value.status == status
    assert caught.value.__cause__ is not None
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    "reply",
    [
        Reply(body=b'{"choices": [', content_type="application/json"),
        Reply(body=b"[]", content_type="application/json"),
        Reply(body=b"{}", content_type="application/json"),
        Reply(body=b"<html>gateway</html>", content_type="text/html"),
        Reply(body=b"", content_type="application/json"),
    ],
    ids=["cut JSON", "a list", "an empty object", "HTML", "nothing"],
)
async def test_an_answer_that_cannot_be_read_is_an_error_of_ours(wire: Wire, server: ModelServer, reply: Reply) -> None:
    server.replies = [reply]
    async with wire.model(server.url, max_retries=0) as model:
        with pytest.raises(ModelError):
            await model.complete(HELLO)


@pytest.mark.parametrize("how", ["cut", "early_end"])
async def test_a_stream_that_breaks_off_is_no_answer(wire: Wire, server: ModelServer, how: str) -> None:
    server.replies = [wire.stream(["Hel"], cut=how == "cut", early_end=how == "early_end")]
    texts = []
    async with wire.model(server.url) as model:
        with pytest.raises(ModelUnavailableError):
            async for chunk in model.stream(HELLO):
                assert chunk.response is None
                texts.append(chunk.text)
    assert texts == ["Hel"]
    assert len(server.requests) == 1


async def test_garbage_in_a_stream_is_an_error_of_ours(wire: Wire, server: ModelServer) -> None:
    good = wire.stream(["Hel"])
    assert good.chunks is not None
    garbage = b"{not json\n" if wire.name == "ollama" else b"event: content_block_delta\ndata: {not json\n\n"
    server.replies = [Reply(content_type=good.content_type, chunks=(*good.chunks[:2], garbage, *good.chunks[2:]))]
    async with wire.model(server.url) as model:
        with pytest.raises(ModelError):
            await streamed(model)


async def test_nobody_there_is_unavailable(wire: Wire, server: ModelServer) -> None:
    gone = ModelServer()
    gone.close()
    async with wire.model(gone.url, max_retries=0) as model:
        with pytest.raises(ModelUnavailableError):
            await model.complete(HELLO)
        with pytest.raises(ModelUnavailableError):
            await streamed(model)


async def test_a_slow_server_runs_into_the_timeout(wire: Wire, server: ModelServer) -> None:
    release = asyncio.Event()
    loop = asyncio.get_running_loop()
    check = server.check

    def hold(request: object) -> int | None:
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result()
        return check(request)  # type: ignore[arg-type]

    server.check = hold
    async with wire.model(server.url, max_retries=0, timeout=0.2) as model:
        with pytest.raises(ModelUnavailableError):
            await model.complete(HELLO)
    release.set()


@pytest.mark.parametrize("wire", ["openai", "anthropic", "ollama"], indirect=True)
async def test_the_key_is_sent_and_never_shown(
    wire: Wire, server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.replies = [wire.refusal(401, f"the key {KEY} is wrong")]
    async with wire.model(server.url) as model:
        with pytest.raises(ModelAuthenticationError, match=r"the key \*\*\* is wrong") as caught:
            await model.complete(HELLO)
        assert KEY not in repr(model)
        assert KEY not in repr(vars(model))
    sent = server.requests[0].headers
    assert KEY in (sent.get("authorization", "") + sent.get("x-api-key", ""))
    assert KEY not in "".join(traceback.format_exception(caught.value))
    assert KEY not in "".join(record.getMessage() for record in caplog.records if record.name.startswith("locus"))


def test_one_model_serves_several_loops(wire: Wire, server: ModelServer) -> None:
    model = wire.model(server.url)

    async def once() -> str:
        async with model:
            return (await model.complete(HELLO)).message.text

    server.replies = [wire.answer("one"), wire.answer("two")]
    assert [asyncio.run(once()), asyncio.run(once())] == ["one", "two"]
