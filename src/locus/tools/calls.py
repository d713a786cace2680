"""Reads the tool calls that providers send. Their arguments are text, and need not be valid JSON."""

from __future__ import annotations

import json
from typing import Any

from locus.core.messages import ToolCall
from locus.errors import SerializationError
from locus.memory.model.codec import encode

RAW = "raw_arguments"


def tool_call(name: str, arguments: Any, call_id: str | None = None) -> ToolCall:
    """Make a tool call from the arguments that a provider sent.

    If they are no JSON object, or hold values that a state cannot keep, the call has no arguments, and their text is in
    the extra field `raw_arguments`. The model gets an error as the result, and the run goes on.
    """
    fields: dict[str, Any] = {"name": name, **({"id": call_id} if call_id else {})}
    parsed = _parsed(arguments)
    if parsed is None:
        raw = arguments if isinstance(arguments, str) else json.dumps(arguments, default=str)
        return ToolCall.model_validate({**fields, RAW: raw.encode("utf-8", "backslashreplace").decode()})
    return ToolCall.model_validate({**fields, "arguments": parsed})


def raw_arguments(call: ToolCall) -> str | None:
    """The text that `tool_call` could not read as arguments; None if it could."""
    raw = (call.model_extra or {}).get(RAW)
    return raw if isinstance(raw, str) else None


def _parsed(arguments: Any) -> dict[str, Any] | None:
    if arguments is None or arguments == "":
        return {}
    try:
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
        encode(value)
    except (ValueError, RecursionError, SerializationError):
        return None
    return value if isinstance(value, dict) else None
