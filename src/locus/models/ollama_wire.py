"""Converts conversations to and from the format of Ollama's chat API. No I/O."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any

from locus.core.messages import ContentBlock, Message, Role
from locus.models.base import LENGTH, STOP, TOOL_CALLS, ModelResponse, clean, usage_of
from locus.models.errors import ModelRequestError
from locus.models.openai_wire import to_tools as to_tools
from locus.models.openai_wire import tool_text, unique_calls


def to_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    return [_message(message) for message in messages]


def _message(message: Message) -> dict[str, Any]:
    if message.role is Role.TOOL:
        return {"role": "tool", "content": tool_text(message), "tool_name": message.name or ""}
    sent: dict[str, Any] = {"role": message.role.value, "content": message.text}
    if message.tool_calls:
        sent["tool_calls"] = [
            {"function": {"name": call.name, "arguments": call.arguments}} for call in message.tool_calls
        ]
    blocks = () if message.content is None or isinstance(message.content, str) else message.content
    if images := [_image(block) for block in blocks if block.type == "image"]:
        sent["images"] = images
    return sent


def _image(block: ContentBlock) -> bytes:
    """The bytes of an image. The client would take base64 text for the path of a file, and send that file."""
    if block.data is None:
        raise ModelRequestError("Ollama takes images as base64 only: ContentBlock.image_base64(…)")
    try:
        return base64.b64decode(block.data, validate=True)
    except binascii.Error as error:
        raise ModelRequestError(f"an image is no valid base64: {error}") from error


class OllamaAnswer:
    """Assembles an answer from one part, or from the parts of a stream."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._calls: list[tuple[None, str, Any]] = []
        self._last: Mapping[str, Any] = {}

    def add(self, part: Mapping[str, Any]) -> str:
        """Add a part, and return the text in it."""
        message = part.get("message") or {}
        for call in message.get("tool_calls") or ():
            self._calls.append((None, call["function"]["name"], call["function"].get("arguments")))
        self._last = part
        text: str = message.get("content") or ""
        self._text.append(text)
        return text

    def finished(self) -> ModelResponse | None:
        """The whole response, or None if the last part has not come."""
        if not self._last.get("done"):
            return None
        reason = self._last.get("done_reason") or STOP
        if self._calls and reason != LENGTH:
            reason = TOOL_CALLS
        return ModelResponse(
            message=Message.assistant(clean("".join(self._text)) or None, unique_calls(self._calls)),
            usage=usage_of(self._last.get("prompt_eval_count"), self._last.get("eval_count")),
            stop_reason=reason,
        )
