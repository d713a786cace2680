"""The Responses API as the SDK's runner sees it: replies to give, and the rule that providers hold it to."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

from tests.models.server import Reply, Request, json_reply, sse

_numbers = count(1)


def response(*output: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"resp_{next(_numbers)}",
        "object": "response",
        "created_at": 1_700_000_000,
        "status": "completed",
        "model": "gpt-test",
        "output": list(output),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 15,
        },
    }


def message(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {
        "type": "message",
        "id": f"msg_{next(_numbers)}",
        "role": "assistant",
        "status": "completed",
        "content": content,
    }


def function_call(name: str, call_id: str, **arguments: Any) -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": f"fc_{next(_numbers)}",
        "call_id": call_id,
        "name": name,
        "arguments": json.dumps(arguments),
        "status": "completed",
    }


def says(text: str) -> Reply:
    return json_reply(response(message(text)))


def calls(name: str, call_id: str, **arguments: Any) -> Reply:
    return json_reply(response(function_call(name, call_id, **arguments)))


def streams(text: str) -> Reply:
    done = {"type": "response.completed", "sequence_number": 1, "response": response(message(text))}
    return sse([done], named=True)


def compacts(text: str) -> Reply:
    """What `/responses/compact` answers."""
    compacted = {**response(), "object": "response.compaction", "output": [summary(text)]}
    return json_reply(compacted)


def summary(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def no_orphans(request: Request) -> int | None:
    """Providers refuse a call without its output, and an output without its call."""
    sent = request.json["input"]
    items = sent if isinstance(sent, list) else []
    called = {item["call_id"] for item in items if item.get("type") == "function_call"}
    answered = {item["call_id"] for item in items if item.get("type") == "function_call_output"}
    return 400 if called != answered else None


def texts(items: list[Any]) -> list[str]:
    """The items of a session or of a request, in short."""
    return [_text(item) for item in items]


def _text(item: Any) -> str:
    if item.get("type") == "function_call":
        return f"call {item['name']}"
    if item.get("type") == "function_call_output":
        return f"output {item['output']}"
    content = item["content"]
    return content if isinstance(content, str) else " ".join(part["text"] for part in content)
