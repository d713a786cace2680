"""A model of Strands that says what it is told to say."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from typing import Any

from strands.models import Model
from strands.types.content import Messages
from strands.types.streaming import StreamEvent

Reply = str | tuple[str, dict[str, Any]]
"""A text, or the name of a tool and its input."""


class FakeModel(Model):
    """`answer` gets all messages that the agent sends."""

    def __init__(self, answer: Callable[[Messages], Reply]) -> None:
        self._answer = answer

    def update_config(self, **model_config: Any) -> None:
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        return {"context_window_limit": 100_000}

    def structured_output(self, *args: Any, **kwargs: Any) -> AsyncGenerator[dict[str, Any], None]:
        raise NotImplementedError

    async def _stream(self, messages: Messages) -> AsyncIterable[StreamEvent]:
        reply = self._answer(messages)
        yield {"messageStart": {"role": "assistant"}}
        if isinstance(reply, str):
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": reply}}}
        else:
            name, given = reply
            yield {"contentBlockStart": {"start": {"toolUse": {"name": name, "toolUseId": f"call-{len(messages)}"}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(given)}}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if isinstance(reply, str) else "tool_use"}}

    def stream(self, messages: Messages, *args: Any, **kwargs: Any) -> AsyncIterable[StreamEvent]:
        return self._stream(messages)


def counting(messages: Messages) -> Reply:
    return f"I see {len(messages)} messages."


def texts(messages: Any) -> list[str]:
    """What is said in messages, those of tools left out."""
    return [block["text"] for message in messages for block in message["content"] if "text" in block]
