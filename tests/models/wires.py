"""What each provider's server says on the wire, for the tests that all providers share."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from locus.models.provider import Provider
from tests.models.server import Reply, json_reply, ndjson, sse

KEY = "sk-test-a-secret-that-nobody-may-see"
Call = tuple[str, str, str]
"""(id, name, arguments as JSON text)"""


class Wire(ABC):
    """One provider: how to make its model, and how its server answers."""

    name: str

    @abstractmethod
    def model(self, url: str, **options: Any) -> Provider: ...

    @abstractmethod
    def answer(self, text: str, calls: Sequence[Call] = ()) -> Reply: ...

    @abstractmethod
    def stream(
        self, pieces: Sequence[str], calls: Sequence[Call] = (), *, cut: bool = False, early_end: bool = False
    ) -> Reply: ...

    def refusal(self, status: int, message: str, **headers: str) -> Reply:
        return json_reply({"error": {"type": "refused", "message": message}}, status, **headers)

    def sent_messages(self, body: Mapping[str, Any]) -> Any:
        return body["messages"]


class OpenAIWire(Wire):
    name = "openai"

    def model(self, url: str, **options: Any) -> Provider:
        from locus.models.openai import OpenAIModel

        return OpenAIModel("gpt-test", base_url=f"{url}/v1", api_key=KEY, **options)

    def answer(self, text: str, calls: Sequence[Call] = ()) -> Reply:
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        if calls:
            message["tool_calls"] = [
                {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
                for call_id, name, arguments in calls
            ]
        reason = "tool_calls" if calls else "stop"
        return json_reply(
            {
                "id": "c1",
                "object": "chat.completion",
                "created": 1,
                "model": "gpt-test",
                "choices": [{"index": 0, "message": message, "finish_reason": reason}],
                "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
            }
        )

    def stream(
        self, pieces: Sequence[str], calls: Sequence[Call] = (), *, cut: bool = False, early_end: bool = False
    ) -> Reply:
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += [{"content": piece} for piece in pieces]
        for index, (call_id, name, arguments) in enumerate(calls):
            middle = len(arguments) // 2
            function = {"name": name, "arguments": arguments[:middle]}
            deltas.append({"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]})
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": arguments[middle:]}}]})
        events: list[Any] = [self._chunk(delta) for delta in deltas]
        if not cut and not early_end:
            events.append(self._chunk({}, "tool_calls" if calls else "stop"))
            events.append({**self._chunk({}), "choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 7}})
            events.append("[DONE]")
        return sse(events, cut=cut)

    def _chunk(self, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-test", "choices": [choice]}


class AnthropicWire(Wire):
    name = "anthropic"

    def model(self, url: str, **options: Any) -> Provider:
        from locus.models.anthropic import AnthropicModel

        return AnthropicModel("claude-test", base_url=url, api_key=KEY, **options)

    def message(self, content: list[Any], reason: str | None, output_tokens: int = 7) -> dict[str, Any]:
        return {
            "id": "m1",
            "type": "message",
            "role": "assistant",
            "model": "claude-test",
            "content": content,
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": {"input_tokens": 8, "cache_read_input_tokens": 3, "output_tokens": output_tokens},
        }

    def answer(self, text: str, calls: Sequence[Call] = ()) -> Reply:
        content: list[Any] = [{"type": "text", "text": text}] if text else []
        content += [
            {"type": "tool_use", "id": call_id, "name": name, "input": json.loads(arguments)}
            for call_id, name, arguments in calls
        ]
        return json_reply(self.message(content, "tool_use" if calls else "end_turn"))

    def stream(
        self, pieces: Sequence[str], calls: Sequence[Call] = (), *, cut: bool = False, early_end: bool = False
    ) -> Reply:
        events: list[Any] = [{"type": "message_start", "message": self.message([], None, 1)}]
        texts = [{"type": "text_delta", "text": piece} for piece in pieces]
        if texts:
            events += self._block(0, {"type": "text", "text": ""}, texts)
        for index, (call_id, name, arguments) in enumerate(calls, start=1):
            middle = len(arguments) // 2
            halves = [
                {"type": "input_json_delta", "partial_json": part} for part in (arguments[:middle], arguments[middle:])
            ]
            events += self._block(index, {"type": "tool_use", "id": call_id, "name": name, "input": {}}, halves)
        if not cut and not early_end:
            delta = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
            events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7}})
            events.append({"type": "message_stop"})
        return sse(events, named=True, cut=cut)

    def _block(self, index: int, block: dict[str, Any], deltas: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {"type": "content_block_start", "index": index, "content_block": block},
            *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
            {"type": "content_block_stop", "index": index},
        ]

    def refusal(self, status: int, message: str, **headers: str) -> Reply:
        return json_reply({"type": "error", "error": {"type": "refused", "message": message}}, status, **headers)


class OllamaWire(Wire):
    name = "ollama"

    def model(self, url: str, **options: Any) -> Provider:
        from locus.models.ollama import OllamaModel

        return OllamaModel("llama-test", base_url=url, api_key=KEY, **options)

    def answer(self, text: str, calls: Sequence[Call] = ()) -> Reply:
        return json_reply(self._part(text, calls, done=True))

    def stream(
        self, pieces: Sequence[str], calls: Sequence[Call] = (), *, cut: bool = False, early_end: bool = False
    ) -> Reply:
        parts = [self._part(piece) for piece in pieces]
        if calls:
            parts.append(self._part("", calls))
        if not cut and not early_end:
            parts.append(self._part("", done=True))
        return ndjson(parts, cut=cut)

    def _part(self, text: str, calls: Sequence[Call] = (), *, done: bool = False) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if calls:
            message["tool_calls"] = [
                {"function": {"name": name, "arguments": json.loads(arguments)}} for _, name, arguments in calls
            ]
        counts = {"done_reason": "stop", "prompt_eval_count": 11, "eval_count": 7} if done else {}
        return {"model": "llama-test", "created_at": "2025-01-01T00:00:00Z", "message": message, "done": done, **counts}

    def refusal(self, status: int, message: str, **headers: str) -> Reply:
        return json_reply({"error": message}, status, **headers)
