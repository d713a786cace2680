"""Converts conversations to and from the format of OpenAI's chat completions. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from locus.core.messages import ContentBlock, Message, Role, ToolCall
from locus.memory.model.codec import encode
from locus.models.base import CONTENT_FILTER, LENGTH, STOP, TOOL_CALLS, ModelResponse, ToolSpec, clean, usage_of
from locus.models.errors import ModelError, ModelRequestError
from locus.tools.calls import tool_call

# Kinds of blocks with the thoughts of other providers' models. OpenAI does not know them, so they are not sent.
THOUGHTS = frozenset({"thinking", "redacted_thinking"})
_AUDIO = {"mpeg": "mp3", "wave": "wav"}
_STOP_REASONS = {"function_call": TOOL_CALLS, "tool_calls": TOOL_CALLS, "stop": STOP, "length": LENGTH}


def to_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    return [_message(message) for message in messages]


def to_tools(tools: Iterable[ToolSpec]) -> list[dict[str, Any]]:
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.parameters),
            },
        }
        for tool in tools
    ]


def tool_text(message: Message) -> str:
    """A tool's result as text. An error is spelled out in it, because the format has no flag for one."""
    if any(block.type != "text" for block in _blocks(message)):
        raise ModelRequestError("this provider takes tool results as text only")
    error = message.metadata.get("error")
    return message.text if error is None or error in message.text else f"Error: {error}\n{message.text}".rstrip()


def _message(message: Message) -> dict[str, Any]:
    if message.role is Role.TOOL:
        return {"role": "tool", "tool_call_id": message.tool_call_id or "", "content": tool_text(message)}
    if message.role is Role.ASSISTANT:
        return _assistant(message)
    if message.role is Role.SYSTEM:
        return {"role": "system", "content": message.text}
    if isinstance(message.content, str) or not message.content:
        return {"role": "user", "content": message.text}
    return {"role": "user", "content": [_part(block) for block in message.content if block.type not in THOUGHTS]}


def _assistant(message: Message) -> dict[str, Any]:
    if not message.tool_calls:
        return {"role": "assistant", "content": message.text}
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": encode(call.arguments)}}
        for call in message.tool_calls
    ]
    return {"role": "assistant", "content": message.text or None, "tool_calls": calls}


def _part(block: ContentBlock) -> dict[str, Any]:
    if block.type == "text":
        return {"type": "text", "text": block.text or ""}
    if block.type == "image":
        url = block.url or f"data:{block.media_type or 'image/png'};base64,{block.data or ''}"
        return {"type": "image_url", "image_url": {"url": url}}
    if block.type == "audio" and block.data is not None:
        form = (block.media_type or "audio/wav").rpartition("/")[2].removeprefix("x-")
        return {"type": "input_audio", "input_audio": {"data": block.data, "format": _AUDIO.get(form, form)}}
    if block.type == "file" and block.data is not None:
        name = (block.model_extra or {}).get("name") or "file"
        url = f"data:{block.media_type or 'application/pdf'};base64,{block.data}"
        return {"type": "file", "file": {"filename": name, "file_data": url}}
    return block.model_dump(exclude_none=True)


def _blocks(message: Message) -> Sequence[ContentBlock]:
    return () if message.content is None or isinstance(message.content, str) else message.content


def from_completion(completion: Mapping[str, Any]) -> ModelResponse:
    """Read the response in a chat completion."""
    choices = completion.get("choices")
    if not choices:
        raise ModelError("the provider answered without a choice")
    message = choices[0]["message"]
    calls = [
        (call.get("id"), call["function"]["name"], call["function"].get("arguments"))
        for call in message.get("tool_calls") or ()
        if call.get("function")
    ]
    return response(
        message.get("content") or "",
        calls,
        choices[0].get("finish_reason"),
        completion.get("usage"),
        message.get("refusal"),
    )


def response(
    text: str,
    calls: Iterable[tuple[str | None, str, Any]],
    finish_reason: str | None,
    usage: Mapping[str, Any] | None,
    refusal: str | None = None,
) -> ModelResponse:
    made = unique_calls(calls)
    reason = _STOP_REASONS.get(finish_reason or STOP, finish_reason or STOP)
    if refusal:
        text, reason = text or refusal, CONTENT_FILTER
    if made and reason == STOP:
        reason = TOOL_CALLS
    counts = usage or {}
    return ModelResponse(
        message=Message.assistant(clean(text) or None, made),
        usage=usage_of(counts.get("prompt_tokens"), counts.get("completion_tokens")),
        stop_reason=reason,
    )


def unique_calls(calls: Iterable[tuple[str | None, str, Any]]) -> list[ToolCall]:
    """Tool calls, each with an id of its own, because some servers send none, or the same one twice."""
    made: dict[str, ToolCall] = {}
    for call_id, name, arguments in calls:
        call = tool_call(name, arguments, None if call_id in made else call_id)
        made[call.id] = call
    return list(made.values())


class StreamedCompletion:
    """Assembles a completion from the chunks of a stream."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._calls: dict[int, dict[str, str]] = {}
        self._finish_reason: str | None = None
        self._usage: Mapping[str, Any] | None = None

    def add(self, chunk: Mapping[str, Any]) -> str:
        """Add a chunk, and return the text in it."""
        self._usage = chunk.get("usage") or self._usage
        choices = chunk.get("choices")
        if not choices:
            return ""
        self._finish_reason = choices[0].get("finish_reason") or self._finish_reason
        delta = choices[0].get("delta") or {}
        for call in delta.get("tool_calls") or ():
            self._add_call(call)
        self._refusal.append(delta.get("refusal") or "")
        text: str = delta.get("content") or ""
        self._text.append(text)
        return text

    def _add_call(self, call: Mapping[str, Any]) -> None:
        index = call.get("index")
        made = self._calls.setdefault(
            len(self._calls) if index is None else index, {"id": "", "name": "", "arguments": ""}
        )
        function = call.get("function") or {}
        made["id"] = made["id"] or call.get("id") or ""
        made["name"] = made["name"] or function.get("name") or ""
        made["arguments"] += function.get("arguments") or ""

    def finished(self) -> ModelResponse | None:
        """The whole response, or None if the stream ended before the completion did."""
        if self._finish_reason is None:
            return None
        calls = [(call["id"] or None, call["name"], call["arguments"]) for _, call in sorted(self._calls.items())]
        return response("".join(self._text), calls, self._finish_reason, self._usage, "".join(self._refusal) or None)
