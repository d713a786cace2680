"""Effects for Google ADK: `Agent(tools=[effect_tool(charge, effects)])`.

A call is named by its id, in its session. A tool that asks for a confirmation or for credentials is called again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from pydantic_core import to_jsonable_python

from locus.effects import Effects, Terms
from locus.effects.tools import Key, ToolCalls, Unfinished


class EffectTool(BaseTool):
    """A tool of which each call is an effect."""

    def __init__(self, wrapped: BaseTool, calls: ToolCalls) -> None:
        super().__init__(
            name=wrapped.name,
            description=wrapped.description,
            is_long_running=wrapped.is_long_running,
            custom_metadata=wrapped.custom_metadata,
        )
        self._wrapped = wrapped
        self._calls = calls

    def _get_declaration(self) -> Any:
        return self._wrapped._get_declaration()

    async def process_llm_request(self, *, tool_context: ToolContext, llm_request: Any) -> None:
        await super().process_llm_request(tool_context=tool_context, llm_request=llm_request)

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        call_id = tool_context.function_call_id

        async def call() -> Any:
            result = await self._wrapped.run_async(args=args, tool_context=tool_context)
            asked = tool_context.actions
            is_asking = call_id in asked.requested_tool_confirmations or call_id in asked.requested_auth_configs
            return Unfinished(result) if is_asking else result

        said = to_jsonable_python(args)
        return await self._calls.once(call, self.name, said, call_id, thread_id=tool_context.session.id)


def effect_tool(
    tool: BaseTool | Callable[..., Any], effects: Effects, *, key: Key = None, **terms: Unpack[Terms]
) -> BaseTool:
    """The tool, with each call an effect of its session, or with a `key` such as "charge/{order_id}" of that.

    `terms` say what happens to a call whose outcome is unknown.
    """
    wrapped = tool if isinstance(tool, BaseTool) else FunctionTool(tool)
    return EffectTool(wrapped, ToolCalls(effects, key, terms, dump=to_jsonable_python))
