"""Effects for Strands: `Agent(tools=[effect_tool(charge, effects)])`.

A call is named by its id, in the thread that `thread_id` says. An error of the tool is a failure, and its text still
goes to the model. A tool that interrupts the agent is called again.
"""

from __future__ import annotations

import json
from typing import Any, Unpack

from strands.types.events import ToolResultEvent
from strands.types.tools import AgentTool, ToolGenerator, ToolResult, ToolSpec, ToolUse

from locus.effects import Effects, Terms
from locus.effects.tools import Key, ToolCalls, Unfinished

_NONE = object()
"""Stands for a result that is no result: an error, or an interrupt."""


class EffectTool(AgentTool):
    """A tool of which each call is an effect. What it streams arrives when it is done."""

    def __init__(self, wrapped: AgentTool, calls: ToolCalls, thread_id: str | None) -> None:
        super().__init__()
        self._wrapped = wrapped
        self._calls = calls
        self._thread_id = thread_id

    @property
    def tool_name(self) -> str:
        return self._wrapped.tool_name

    @property
    def tool_spec(self) -> ToolSpec:
        return self._wrapped.tool_spec

    @property
    def tool_type(self) -> str:
        return self._wrapped.tool_type

    async def stream(self, tool_use: ToolUse, invocation_state: dict[str, Any], **kwargs: Any) -> ToolGenerator:
        events: list[Any] = []

        async def call() -> Any:
            async for event in self._wrapped.stream(tool_use, invocation_state, **kwargs):
                events.append(event)
            last = events[-1]
            error = last.exception if isinstance(last, ToolResultEvent) else None
            if error is not None or "tool_interrupt_event" in last:
                return Unfinished(_NONE, error)
            return last.tool_result if isinstance(last, ToolResultEvent) else last

        said = tool_use["input"]
        result = await self._calls.once(call, self.tool_name, said, tool_use["toolUseId"], thread_id=self._thread_id)
        for event in events if result is _NONE else events[:-1]:
            yield event
        if result is not _NONE:
            yield ToolResultEvent(_answering(tool_use["toolUseId"], result))


def _answering(call_id: str, result: Any) -> ToolResult:
    """A result as that of this call: the effect may have been made by another one, or its receiver has told of it."""
    if isinstance(result, dict) and isinstance(result.get("content"), list):
        return ToolResult(toolUseId=call_id, status=result.get("status", "success"), content=result["content"])
    text = result if isinstance(result, str) else json.dumps(result)
    return ToolResult(toolUseId=call_id, status="success", content=[{"text": text}])


def effect_tool(
    tool: AgentTool, effects: Effects, *, key: Key = None, thread_id: str | None = None, **terms: Unpack[Terms]
) -> AgentTool:
    """The tool, with each call an effect, or with a `key` such as "charge/{order_id}" of that.

    `terms` say what happens to a call whose outcome is unknown.
    """
    return EffectTool(tool, ToolCalls(effects, key, terms), thread_id)
