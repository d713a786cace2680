"""Effects for Pydantic AI: `Agent(toolsets=[effect_tools(FunctionToolset([charge]), effects)])`.

A call is named by its id, in its conversation. A run that goes on with the messages of an earlier one repeats the calls
that have no result, under the same ids. `ModelRetry` means that nothing has happened, and a deferred call is called
again.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Unpack

from pydantic import TypeAdapter
from pydantic_ai import ApprovalRequired, CallDeferred, ModelRetry, RunContext, ToolReturn
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset
from pydantic_core import to_jsonable_python

from locus.effects import Effects, Terms
from locus.effects.tools import Key, ToolCalls

_RETURN = TypeAdapter[Any](ToolReturn)
_TAG = "locus:tool_return"


@dataclass
class EffectToolset(WrapperToolset[Any]):
    """A toolset of which each call is an effect: of all its tools, or of those in `only`."""

    calls: ToolCalls
    only: Collection[str] | None = None

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        if self.only is not None and name not in self.only:
            return await super().call_tool(name, tool_args, ctx, tool)
        return await self.calls.once(
            lambda: self.wrapped.call_tool(name, tool_args, ctx, tool),
            name,
            to_jsonable_python(tool_args),
            ctx.tool_call_id,
            thread_id=ctx.conversation_id,
        )


def effect_tools(
    toolset: AbstractToolset[Any],
    effects: Effects,
    *,
    only: Collection[str] | None = None,
    key: Key = None,
    **terms: Unpack[Terms],
) -> EffectToolset:
    """The toolset, with each call an effect of its conversation, or with a `key` such as "charge/{order_id}" of that.

    `only` names the tools of which it is so; `terms` say what happens to a call whose outcome is unknown.
    """
    calls = ToolCalls(
        effects,
        key,
        terms,
        clean_errors=(ModelRetry,),
        pauses=(CallDeferred, ApprovalRequired),
        dump=_dumped,
        load=_loaded,
    )
    return EffectToolset(toolset, calls, only)


def _dumped(result: Any) -> Any:
    if isinstance(result, ToolReturn):
        return {_TAG: _RETURN.dump_python(result, mode="json")}
    return to_jsonable_python(result)


def _loaded(kept: Any) -> Any:
    if isinstance(kept, dict) and kept.keys() == {_TAG}:
        return _RETURN.validate_python(kept[_TAG])
    return kept
