"""Turns the value that a tool returned into text for the model, and never by `repr`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from datetime import date, datetime, time
from enum import Enum
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from locus.core.messages import ToolCall, ToolResult
from locus.errors import SerializationError
from locus.memory.model.codec import MAX_DEPTH, encode, path_text


@dataclasses.dataclass(frozen=True)
class ToolOutcome:
    """The outcome of a tool: the text of its result, or an error."""

    content: str = ""
    error: str | None = None

    @property
    def success(self) -> bool:
        return self.error is None

    def answer(self, call: ToolCall, duration_ms: float | None = None) -> ToolResult:
        """The result of a call, for the conversation."""
        return ToolResult(
            tool_call_id=call.id, name=call.name, content=self.content, error=self.error, duration_ms=duration_ms
        )


def failure(text: str) -> ToolOutcome:
    """An outcome with an error. Escapes replace characters that UTF-8 cannot encode, such as those in file names."""
    return ToolOutcome(error=text.encode("utf-8", "backslashreplace").decode())


def explained(error: BaseException) -> str:
    """Type and message of an exception, without its traceback."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def as_text(value: Any) -> str:
    """A value as text: a string unchanged, anything else as JSON. Raises SerializationError if JSON cannot hold it."""
    plain = plain_value(value)
    text = encode(plain, ("result",))
    return plain if isinstance(plain, str) else text


def plain_value(value: Any, path: tuple[str | int, ...] = ("result",)) -> Any:
    """A value in which pydantic models, dataclasses, enums, dates and UUIDs are replaced by plain JSON values."""
    if isinstance(value, Enum):
        value = value.value
    if value is None or isinstance(value, str | int | float):
        return value
    if len(path) > MAX_DEPTH:
        raise SerializationError(f"{path_text(path[:3])}… is nested more than {MAX_DEPTH} levels deep", path_text(path))
    if isinstance(value, BaseModel):
        return plain_value(_dumped(value, path), path)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        # A key that is no text is left for the encoder to refuse.
        return {key: plain_value(item, (*path, str(key))) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(item, (*path, number)) for number, item in enumerate(value)]
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise SerializationError(
        f"{path_text(path)} is of type {type(value).__name__}, which JSON does not have: return text, numbers, "
        "lists, dicts, dataclasses or pydantic models",
        path_text(path),
    )


def _dumped(value: BaseModel, path: tuple[str | int, ...]) -> Any:
    """A pydantic model as JSON values, in the form that the model declares."""
    try:
        _refuse_infinities(value.model_dump(), path)
        return value.model_dump(mode="json")
    except SerializationError:
        raise
    except ValueError as error:
        raise SerializationError(f"{path_text(path)} cannot be written as JSON: {error}", path_text(path)) from error


def _refuse_infinities(value: Any, path: tuple[str | int, ...]) -> None:
    """Raise SerializationError for NaN and infinity, which pydantic writes as null where it does not know the type."""
    if isinstance(value, float) and not math.isfinite(value):
        raise SerializationError(f"{path_text(path)} is {value}, which JSON does not have", path_text(path))
    if isinstance(value, dict):
        for key, item in value.items():
            _refuse_infinities(item, (*path, str(key)))
    elif isinstance(value, list | tuple | set | frozenset):
        for number, item in enumerate(value):
            _refuse_infinities(item, (*path, number))
