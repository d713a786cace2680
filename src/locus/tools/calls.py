"""Tool calls as providers send them: the arguments are text, and the text may be anything."""

from __future__ import annotations

import json
from typing import Any

from locus.core.messages import ToolCall
from locus.errors import SerializationError
from locus.memory.model.codec import encode

RAW = "raw_arguments"


def tool_call(name: str, arguments: Any, call_id: str | None = None) -> ToolCall:
    """A call with arguments as a provider gave them.

    Arguments that are no JSON object (or hold what a state cannot keep) are kept as text in the extra field
    `raw_arguments`, beside empty ones: the model is told of its mistake, and the run goes on.
    """
    fields: dict[str, Any] = {"name": name, **({"id": call_id} if call_id else {})}
    parsed = _parsed(arguments)
    if parsed is None:
        raw = arguments if isinstance(arguments, str) else json.dumps(arguments, default=str)
        return ToolCall.model_validate({**fields, RAW: raw.encode("utf-8", "backslashreplace").decode()})
    return ToolCall.model_validate({**fields, "arguments": parsed})


def raw_arguments(call: ToolCall) -> str | None:
    """The text that could not be read as arguments, if that is so."""
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
