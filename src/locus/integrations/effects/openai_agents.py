"""Effects for the OpenAI Agents SDK: `Agent(tools=[effect_tool(charge, effects)])`.

A call is named by its id, in the thread that `thread_id` says: a text, or a function of the `ToolContext`. Otherwise it
is the group of the run, if the run has one. A tool made by `function_tool` turns an error into a text for the model,
which is its result; with `failure_error_function=None` it raises.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Unpack

from agents import FunctionTool
from agents.tool_context import ToolContext
from pydantic import BaseModel

from locus.effects import Effects, Terms
from locus.effects.tools import Key, ToolCalls


def effect_tool(
    tool: FunctionTool,
    effects: Effects,
    *,
    key: Key = None,
    thread_id: str | Callable[[ToolContext[Any]], str | None] | None = None,
    **terms: Unpack[Terms],
) -> FunctionTool:
    """The tool, with each call an effect, or with a `key` such as "charge/{order_id}" of that.

    `terms` say what happens to a call whose outcome is unknown.
    """
    calls = ToolCalls(effects, key, terms, dump=_dumped)

    async def on_invoke_tool(context: ToolContext[Any], arguments: str) -> Any:
        return await calls.once(
            lambda: tool.on_invoke_tool(context, arguments),
            tool.name,
            json.loads(arguments or "{}"),
            context.tool_call_id,
            thread_id=thread_id(context) if callable(thread_id) else thread_id or _group(context),
        )

    return replace(tool, on_invoke_tool=on_invoke_tool)


def _group(context: ToolContext[Any]) -> str | None:
    return None if context.run_config is None else context.run_config.group_id


def _dumped(result: Any) -> Any:
    """A result as JSON. The SDK takes dicts for its structured outputs, too."""
    if isinstance(result, list):
        return [_dumped(each) for each in result]
    return result.model_dump(mode="json", exclude_none=True) if isinstance(result, BaseModel) else result
