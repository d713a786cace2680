"""What the adapters make of what their frameworks raise and return."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from locus.effects import Effects
from locus.errors import EffectFailedError


@pytest.fixture
def effects() -> Effects:
    return Effects("memory")


async def _states(effects: Effects) -> list[tuple[str | None, str, str]]:
    return [(effect.thread_id, effect.key, effect.state) for effect in await effects.find()]


async def test_openai_agents_keep_structured_results(effects: Effects) -> None:
    from agents import ToolOutputText, function_tool
    from agents.tool_context import ToolContext

    from locus.integrations.effects.openai_agents import effect_tool

    made: list[str] = []

    @function_tool(failure_error_function=None)
    def charge(order_id: str) -> Any:
        made.append(order_id)
        if order_id == "bad":
            raise ConnectionError
        return ToolOutputText(text=f"paid {order_id}")

    once = effect_tool(charge, effects, thread_id=lambda context: str(context.context))
    results = []
    for user in ("ada", "ada", "bob"):
        text = '{"order_id": "1"}'
        context = ToolContext(user, tool_name="charge", tool_call_id="c1", tool_arguments=text)
        results.append(await once.on_invoke_tool(context, text))
    assert results == [{"type": "text", "text": "paid 1"}] * 3
    assert made == ["1", "1"]
    assert await _states(effects) == [("ada", "/charge/c1", "done"), ("bob", "/charge/c1", "done")]
    text = '{"order_id": "bad"}'
    context = ToolContext("ada", tool_name="charge", tool_call_id="c2", tool_arguments=text)
    with pytest.raises(ConnectionError):
        await once.on_invoke_tool(context, text)
    with pytest.raises(EffectFailedError):
        await once.on_invoke_tool(context, text)


async def test_pydantic_ai_retries_and_deferrals_are_called_again(effects: Effects) -> None:
    from pydantic_ai import CallDeferred, ModelRetry, ToolReturn
    from pydantic_ai.toolsets import FunctionToolset, ToolsetTool

    from locus.integrations.effects.pydantic_ai import effect_tools

    raised: list[Exception] = [CallDeferred(), ModelRetry("give the order")]
    made: list[str] = []

    async def charge(order_id: str) -> Any:
        made.append(order_id)
        if raised:
            raise raised.pop()
        return ToolReturn(f"paid {order_id}", content="a receipt", metadata={"n": 1})

    class Wrapped(FunctionToolset[Any]):
        async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: ToolsetTool[Any]) -> Any:
            return await charge(**tool_args)

    once = effect_tools(Wrapped([charge]), effects, only=["charge"])
    context: Any = SimpleNamespace(tool_call_id="c1", conversation_id="talk")
    tool: Any = None
    for error in (ModelRetry, CallDeferred):
        with pytest.raises(error):
            await once.call_tool("charge", {"order_id": "1"}, context, tool)
    first, again = [await once.call_tool("charge", {"order_id": "1"}, context, tool) for _ in range(2)]
    assert (again.return_value, again.content, again.metadata) == ("paid 1", "a receipt", {"n": 1})
    assert type(first) is type(again) is ToolReturn
    assert len(made) == 3
    assert await _states(effects) == [("talk", "/charge/c1", "done")]


async def test_a_tool_of_adk_that_asks_for_a_confirmation_is_called_again(effects: Effects) -> None:
    from locus.integrations.effects.google_adk import effect_tool

    made: list[str] = []

    def charge(order_id: str, tool_context: Any) -> dict[str, str]:
        """Pay an order."""
        made.append(order_id)
        if len(made) == 1:
            asked: Any = tool_context.actions
            asked.requested_tool_confirmations["c1"] = "sure?"
            return {"status": "asking"}
        return {"status": "paid"}

    once = effect_tool(charge, effects)
    assert present(once._get_declaration()).name == "charge"

    def context() -> Any:
        actions = SimpleNamespace(requested_tool_confirmations={}, requested_auth_configs={})
        return SimpleNamespace(function_call_id="c1", session=SimpleNamespace(id="s"), actions=actions)

    results = [await once.run_async(args={"order_id": "1"}, tool_context=context()) for _ in range(3)]
    assert results == [{"status": "asking"}, {"status": "paid"}, {"status": "paid"}]
    assert len(made) == 2
    assert await _states(effects) == [("s", "/charge/c1", "done")]


async def test_an_error_of_a_tool_of_strands_is_a_failure_and_its_text_is_kept_from_nobody(effects: Effects) -> None:
    from strands import tool
    from strands.types.tools import ToolUse

    from locus.integrations.effects.strands import effect_tool

    made: list[str] = []

    @tool
    def charge(order_id: str) -> str:
        """Pay an order."""
        made.append(order_id)
        if order_id == "bad":
            raise ConnectionError("reset")
        return f"paid {order_id}"

    once = effect_tool(charge, effects, thread_id="t")
    assert (once.tool_name, once.tool_spec["name"]) == ("charge", "charge")

    async def result(order_id: str, call_id: str) -> Any:
        use = ToolUse(toolUseId=call_id, name="charge", input={"order_id": order_id})
        events = [event async for event in once.stream(use, {})]
        return events[-1].tool_result

    for _ in range(2):
        assert (await result("1", "c1"))["content"] == [{"text": "paid 1"}]
    failed = await result("bad", "c2")
    assert (failed["status"], "reset" in failed["content"][0]["text"]) == ("error", True)
    with pytest.raises(EffectFailedError):
        await result("bad", "c2")
    assert made == ["1", "bad"]
    assert await _states(effects) == [("t", "/charge/c1", "done"), ("t", "/charge/c2", "failed")]


def present(value: Any) -> Any:
    assert value is not None
    return value
