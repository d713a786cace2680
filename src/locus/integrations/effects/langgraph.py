"""Effects for LangGraph and LangChain: `ToolNode([effect_tool(charge, effects)])`.

A call is named by its thread, its task and its id. A task keeps its name when it is repeated after a kill or by a retry
policy, and has another one after a fork. It needs the checkpoint that it began with, so run the graph with
`durability="sync"`. A tool that calls `interrupt` is called again when the run is resumed, as LangGraph does it; that
is no failure, and nothing is recorded of what it did before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Unpack

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config
from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command

from locus.effects import Effects, Terms
from locus.effects.tools import Key, ToolCalls
from locus.integrations.langgraph.classes import typed_codec


class EffectTool(BaseTool):
    """A tool of which each call is an effect."""

    wrapped: BaseTool
    calls: Any

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        config = ensure_config(config)
        result = self.calls.once_blocking(
            lambda: self.wrapped.invoke(input, config, **kwargs), *self._said(input), **_place(config)
        )
        return _answering(input, result)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        config = ensure_config(config)
        result = await self.calls.once(
            lambda: self.wrapped.ainvoke(input, config, **kwargs), *self._said(input), **_place(config)
        )
        return _answering(input, result)

    def _said(self, given: Any) -> tuple[str, Mapping[str, Any], str | None]:
        """The tool, what the model has said, and the id of the call. The rest comes from the graph."""
        is_call = isinstance(given, Mapping) and given.get("type") == "tool_call"
        arguments = given["args"] if is_call else given if isinstance(given, Mapping) else {"input": given}
        said = {name: value for name, value in arguments.items() if name in self.wrapped.args} if is_call else arguments
        return self.name, said, given.get("id") if is_call else None

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("`invoke` and `ainvoke` call it")


def _answering(call: Any, result: Any) -> Any:
    """A result as that of this call: the effect may have been made by another one, or its receiver has told of it."""
    if not isinstance(call, Mapping) or call.get("type") != "tool_call":
        return result
    if isinstance(result, list) and any(isinstance(each, ToolMessage | Command) for each in result):
        return [_answering(call, each) for each in result]
    if isinstance(result, ToolMessage):
        return result.model_copy(update={"tool_call_id": call["id"]})
    if isinstance(result, Command):
        update = result.update
        messages = update.get("messages") if isinstance(update, dict) else None
        if isinstance(update, dict) and isinstance(messages, list):
            ours = [_answering(call, each) if isinstance(each, ToolMessage) else each for each in messages]
            return replace(result, update={**update, "messages": ours})
        return result
    content = result if isinstance(result, str) else json.dumps(result)
    return ToolMessage(content, name=call["name"], tool_call_id=call["id"])


def _place(config: RunnableConfig) -> dict[str, Any]:
    facts = config.get("configurable", {})
    return {"thread_id": facts.get("thread_id"), "run": facts.get("checkpoint_ns")}


def effect_tool(tool: BaseTool, effects: Effects, *, key: Key = None, **terms: Unpack[Terms]) -> BaseTool:
    """The tool, with each call an effect of its thread, or with a `key` such as "charge/{order_id}" of that.

    `terms` say what happens to a call whose outcome is unknown.
    """
    codec = typed_codec()
    calls = ToolCalls(effects, key, terms, pauses=(GraphBubbleUp,), dump=codec.encode, load=codec.decode)
    return EffectTool(
        name=tool.name,
        description=tool.description,
        args_schema=tool.get_input_schema() if tool.args_schema is None else tool.args_schema,
        return_direct=tool.return_direct,
        wrapped=tool,
        calls=calls,
    )
