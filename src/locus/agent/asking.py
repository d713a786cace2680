"""Asking a model, whether it streams or not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

from locus.core.frozen import Items
from locus.core.messages import Message, Role, ToolCall
from locus.models import ModelError
from locus.models.base import Model, ModelResponse, StreamingModel, ToolSpec

MAX_CALL_ID = 200
"""Beyond this an id could not name a record, or a thread of its own."""


async def ask(
    model: Model,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec] | None,
    on_text: Callable[[str], Awaitable[None]],
) -> ModelResponse:
    """The model's response. `on_text` gets the text as it comes."""
    response: ModelResponse | None = None
    if isinstance(model, StreamingModel):
        async for chunk in model.stream(messages, tools=tools):
            if chunk.text:
                await on_text(chunk.text)
            response = chunk.response or response
    if response is None:
        response = await model.complete(messages, tools=tools)
    message = getattr(response, "message", None)
    if not isinstance(message, Message) or message.role is not Role.ASSISTANT:
        raise ModelError(f"{type(model).__name__} gave no message of an assistant, but {response!r:.80}")
    return response


def is_empty(message: Message) -> bool:
    """Whether a model said nothing at all: no call, no picture, no word."""
    blocks = message.content if not isinstance(message.content, str) else None
    return not (message.tool_calls or message.text.strip() or any(block.type != "text" for block in blocks or ()))


def usage_of(response: ModelResponse) -> dict[str, int]:
    return {key: int(value) for key, value in (response.usage or {}).items() if isinstance(value, int | float)}


def with_unique_ids(message: Message, used: Iterable[str]) -> Message:
    """The message with calls that their ids tell apart: some models give none, or the same ones every time."""
    if not message.tool_calls:
        return message
    seen = set(used)
    unique: list[ToolCall] = []
    for call in message.tool_calls:
        if not call.id or len(call.id) > MAX_CALL_ID or call.id in seen:
            call = call.model_copy(update={"id": ToolCall(name=call.name).id})
        seen.add(call.id)
        unique.append(call)
    return message.model_copy(update={"tool_calls": Items(unique)})
