"""Converts conversations to and from the format of Anthropic's Messages API. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from locus.core.messages import ContentBlock, Message, Role
from locus.models.base import CONTENT_FILTER, LENGTH, STOP, TOOL_CALLS, ModelResponse, ToolSpec, clean, usage_of
from locus.models.openai_wire import unique_calls

_STOP_REASONS = {
    "end_turn": STOP,
    "stop_sequence": STOP,
    "max_tokens": LENGTH,
    "model_context_window_exceeded": LENGTH,
    "tool_use": TOOL_CALLS,
    "refusal": CONTENT_FILTER,
}


def to_system(messages: Iterable[Message]) -> str:
    """The text of all system messages, which Anthropic takes apart from the conversation."""
    return "\n\n".join(message.text for message in messages if message.role is Role.SYSTEM and message.text)


def to_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """The conversation as alternating turns of user and assistant. The results of several calls are one turn."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if message.role is Role.ASSISTANT else "user"
        content = _content(message) if message.role is not Role.SYSTEM else []
        if content and turns and turns[-1]["role"] == role:
            turns[-1]["content"] += content
        elif content:
            turns.append({"role": role, "content": content})
    return turns


def to_tools(tools: Iterable[ToolSpec]) -> list[dict[str, Any]]:
    return [
        {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)} for tool in tools
    ]


def _content(message: Message) -> list[dict[str, Any]]:
    if message.role is Role.TOOL:
        error = message.metadata.get("error")
        result = {"type": "tool_result", "tool_use_id": message.tool_call_id or "", "content": _parts(message)}
        return [{**result, "is_error": True} if error is not None else result]
    calls = [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments} for call in message.tool_calls
    ]
    return [*_parts(message), *calls]


def _parts(message: Message) -> list[dict[str, Any]]:
    content = message.content
    blocks: Sequence[ContentBlock] = (ContentBlock.of_text(content),) if isinstance(content, str) else content or ()
    # Empty text is refused.
    return [_part(block) for block in blocks if block.type != "text" or (block.text or "").strip()]


_KINDS = {"image": ("image", "image/png"), "file": ("document", "application/pdf")}
"""What Anthropic calls a kind of block, and the media type of one that names none."""


def _part(block: ContentBlock) -> dict[str, Any]:
    kind = _KINDS.get(block.type)
    if kind is None:
        return block.model_dump(exclude_none=True)
    name, usual = kind
    if block.url is not None:
        return {"type": name, "source": {"type": "url", "url": block.url}}
    source = {"type": "base64", "media_type": block.media_type or usual, "data": block.data or ""}
    return {"type": name, "source": source}


def from_message(message: Mapping[str, Any]) -> ModelResponse:
    """Read the response in a message from Anthropic."""
    blocks: list[Mapping[str, Any]] = message["content"]
    calls = unique_calls(
        (block.get("id"), block["name"], block.get("input")) for block in blocks if block["type"] == "tool_use"
    )
    content = [block for block in blocks if block["type"] != "tool_use"]
    reason = message.get("stop_reason") or STOP
    return ModelResponse(
        message=Message.assistant(_content_of(content), calls),
        usage=_usage(message.get("usage") or {}),
        stop_reason=_STOP_REASONS.get(reason, reason),
    )


def _content_of(blocks: Sequence[Mapping[str, Any]]) -> str | list[ContentBlock] | None:
    """The content of blocks: text if there is nothing else. Thoughts stay, since they must be sent back unchanged."""
    if all(block["type"] == "text" for block in blocks):
        return clean("".join(block["text"] for block in blocks)) or None
    present = ({key: value for key, value in block.items() if value is not None} for block in blocks)
    return [
        ContentBlock.model_validate({**block, **({"text": clean(block["text"])} if "text" in block else {})})
        for block in present
    ]


def _usage(usage: Mapping[str, Any]) -> dict[str, int]:
    cached = (usage.get("cache_creation_input_tokens") or 0) + (usage.get("cache_read_input_tokens") or 0)
    prompt = usage.get("input_tokens")
    return usage_of(None if prompt is None else prompt + cached, usage.get("output_tokens"))


class StreamedMessage:
    """Assembles a message from the events of a stream."""

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._complete = False

    def add(self, event: Mapping[str, Any]) -> str:
        """Add an event, and return the text in it."""
        kind = event["type"]
        if kind == "message_start":
            self._message = dict(event["message"])
        elif kind == "content_block_start":
            self._blocks[event["index"]] = _opened(event["content_block"])
        elif kind == "content_block_delta":
            return self._add_delta(self._blocks[event["index"]], event["delta"])
        elif kind == "message_delta":
            self._message["stop_reason"] = event["delta"].get("stop_reason")
            counted = {key: value for key, value in (event.get("usage") or {}).items() if value is not None}
            self._message["usage"] = {**(self._message.get("usage") or {}), **counted}
        elif kind == "message_stop":
            self._complete = True
        return ""

    def _add_delta(self, block: dict[str, Any], delta: Mapping[str, Any]) -> str:
        if delta["type"] == "text_delta":
            block["text"] += delta["text"]
            text: str = delta["text"]
            return text
        if delta["type"] == "input_json_delta":
            block["input"] += delta["partial_json"]
        elif delta["type"] == "thinking_delta":
            block["thinking"] += delta["thinking"]
        elif delta["type"] == "signature_delta":
            block["signature"] = delta["signature"]
        return ""

    def finished(self) -> ModelResponse | None:
        """The whole response, or None if the stream ended before the message did."""
        if not self._complete:
            return None
        blocks = [block for _, block in sorted(self._blocks.items())]
        return from_message({**self._message, "content": blocks})


def _opened(block: Mapping[str, Any]) -> dict[str, Any]:
    # A tool's input starts as an empty object, and comes as pieces of JSON text.
    return {**block, "input": ""} if block["type"] == "tool_use" else dict(block)
