"""Counts the calls of an engine, and the bytes in both directions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, NamedTuple

import pytest

from locus.memory.engine import Engine

_inside: ContextVar[bool] = ContextVar("inside an engine", default=False)


class Traffic(NamedTuple):
    """The calls and bytes of an engine."""

    calls: int
    written: int
    """The bytes of arguments."""
    read: int
    """The bytes of results."""


class TrafficCounter:
    """Counts the traffic of all engines of a class. A method that calls another counts once."""

    def __init__(self, kind: type[Engine], monkeypatch: pytest.MonkeyPatch) -> None:
        self._calls = self._written = self._read = 0
        for name in dir(kind):
            method = getattr(kind, name)
            if not name.startswith("_") and name not in ("setup", "close") and inspect.iscoroutinefunction(method):
                monkeypatch.setattr(kind, name, self._counted(method))

    def take(self) -> Traffic:
        """Return the traffic since the last call."""
        counted = Traffic(self._calls, self._written, self._read)
        self._calls = self._written = self._read = 0
        return counted

    def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        async def counted(engine: Engine, *arguments: Any, **named: Any) -> Any:
            if _inside.get():
                return await method(engine, *arguments, **named)
            token = _inside.set(True)
            try:
                answer = await method(engine, *arguments, **named)
            finally:
                _inside.reset(token)
            self._calls += 1
            self._written += weight(arguments) + weight(named)
            self._read += weight(answer)
            return answer

        return counted


def weight(value: object) -> int:
    """The bytes of all texts in a value."""
    if isinstance(value, str):
        return len(value.encode(errors="surrogatepass"))
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, Mapping):
        return sum(weight(key) + weight(inner) for key, inner in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return sum(map(weight, value))
    if is_dataclass(value) and not isinstance(value, type):
        return sum(weight(getattr(value, field.name)) for field in fields(value))
    return 0
