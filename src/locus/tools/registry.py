"""The tools of one agent, by name."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from locus.core.messages import ToolCall, ToolResult
from locus.errors import ConfigurationError
from locus.memory.model.codec import encode
from locus.tools.calls import raw_arguments
from locus.tools.definition import Tool
from locus.tools.results import ToolOutcome, failure


class ToolRegistry:
    """A collection of tools in which every name occurs once. Plain functions are made into tools."""

    def __init__(self, tools: Iterable[Tool[..., Any] | Callable[..., Any]] = ()) -> None:
        self._tools: dict[str, Tool[..., Any]] = {}
        for given in tools:
            tool = given if isinstance(given, Tool) else Tool(given)
            if tool.name in self._tools:
                raise ConfigurationError(f"two tools are named {tool.name!r}: tool(name=…) gives one another name")
            self._tools[tool.name] = tool

    def __iter__(self) -> Iterator[Tool[..., Any]]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    @property
    def names(self) -> list[str]:
        return list(self._tools)

    def find(self, name: str) -> Tool[..., Any] | None:
        """The tool of that name, or None."""
        return self._tools.get(name)

    async def run(self, call: ToolCall, *, timeout: float | None = None) -> ToolResult:
        """Carry out a call. The result holds any error; only cancellation is raised.

        `timeout` is for tools that have none of their own.
        """
        started = time.perf_counter()
        outcome = await self._outcome(call, timeout)
        return outcome.answer(call, round((time.perf_counter() - started) * 1000, 3))

    async def _outcome(self, call: ToolCall, timeout: float | None) -> ToolOutcome:
        tool = self.find(call.name)
        if tool is None:
            return failure(f"there is no tool {call.name!r}; there are: {', '.join(self._tools) or 'none'}")
        raw = raw_arguments(call)
        if raw is not None:
            return failure(
                f"invalid arguments for {call.name}: no JSON object: {raw:.200}. Expected: {encode(tool.parameters)}"
            )
        return await tool.run(call.arguments, timeout=timeout)
