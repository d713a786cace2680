"""Effects in graphs: parallel calls, interrupts, retries, forks and sub-graphs."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, RetryPolicy, interrupt

from locus.effects import CleanFailure, Effects
from locus.errors import ConfigurationError, EffectFailedError
from locus.integrations.effects.langgraph import effect_tool
from locus.integrations.langgraph import LocusSaver

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}


class Shop:
    """Tools, and what they have done."""

    def __init__(self) -> None:
        self.effects = Effects("memory")
        self.charged: list[str] = []
        self.errors: list[Exception] = []

        @tool
        async def charge(order_id: str) -> str:
            """Pay an order."""
            self.charged.append(order_id)
            if self.errors:
                raise self.errors.pop()
            return f"paid {order_id}"

        @tool
        def confirm(question: str) -> str:
            """Ask a person."""
            return str(interrupt(question))

        self.tools: list[BaseTool] = [effect_tool(charge, self.effects), effect_tool(confirm, self.effects)]

    def graph(self, *calls: tuple[str, dict[str, Any]], retry: RetryPolicy | None = None) -> Any:
        """A graph whose model makes these calls at once."""

        def model(state: MessagesState) -> dict[str, Any]:
            made = [
                {"name": name, "args": given, "id": f"c{n}", "type": "tool_call"}
                for n, (name, given) in enumerate(calls)
            ]
            return {"messages": [AIMessage("", tool_calls=made)]}

        builder = StateGraph(MessagesState)
        builder.add_node("model", model)
        builder.add_node("tools", ToolNode(self.tools), retry_policy=retry)
        builder.add_edge(START, "model")
        builder.add_edge("model", "tools")
        builder.add_edge("tools", END)
        return builder

    async def states(self) -> list[tuple[str, str, int]]:
        return sorted((each.key.split("/")[-2], each.state, each.attempt) for each in await self.effects.find())


@pytest.fixture
def shop() -> Shop:
    return Shop()


def said(result: Any) -> list[str]:
    return [message.content for message in result["messages"]]


async def test_an_interrupt_is_no_failure_and_repeats_no_other_call(shop: Shop) -> None:
    builder = shop.graph(("charge", {"order_id": "1"}), ("confirm", {"question": "sure?"}))
    graph = builder.compile(checkpointer=LocusSaver("memory"))
    await graph.ainvoke({"messages": [HumanMessage("pay")]}, CONFIG, durability="sync")
    assert await shop.states() == [("charge", "done", 1), ("confirm", "paused", 1)]
    assert {effect.thread_id for effect in await shop.effects.find()} == {"t"}
    result = await graph.ainvoke(Command(resume="yes"), CONFIG, durability="sync")
    assert said(result) == ["pay", "", "paid 1", "yes"]
    assert await shop.states() == [("charge", "done", 1), ("confirm", "done", 2)]
    assert shop.charged == ["1"]


async def test_a_fork_makes_effects_of_its_own(shop: Shop) -> None:
    graph = shop.graph(("charge", {"order_id": "1"})).compile(checkpointer=LocusSaver("memory"))
    await graph.ainvoke({"messages": [HumanMessage("pay")]}, CONFIG, durability="sync")
    history = [state async for state in graph.aget_state_history(CONFIG)]
    before = next(state for state in history if state.next == ("tools",))
    await graph.ainvoke(None, before.config, durability="sync")
    assert shop.charged == ["1", "1"]
    forked = await graph.aupdate_state(before.config, {"messages": [HumanMessage("and more")]}, as_node="model")
    await graph.ainvoke(None, forked, durability="sync")
    assert shop.charged == ["1"] * 3
    assert await shop.states() == [("charge", "done", 1)] * 3


@pytest.mark.parametrize("below", [False, True], ids=["at the top", "in a sub-graph"])
async def test_a_retry_repeats_what_has_not_happened_and_nothing_else(shop: Shop, below: bool) -> None:
    policy = RetryPolicy(initial_interval=0.001, max_attempts=3, retry_on=(Exception,))
    builder = shop.graph(("charge", {"order_id": "1"}), retry=policy)
    if below:
        outer = StateGraph(MessagesState)
        outer.add_node("inner", builder.compile())
        outer.add_edge(START, "inner")
        builder = outer
    graph = builder.compile(checkpointer=LocusSaver("memory"))
    shop.errors.append(CleanFailure("no network"))
    result = await graph.ainvoke({"messages": [HumanMessage("pay")]}, CONFIG, durability="sync")
    assert said(result)[-1] == "paid 1"
    assert await shop.states() == [("charge", "done", 2)]
    shop.errors.append(ConnectionError("reset"))
    with pytest.raises(EffectFailedError):
        await graph.ainvoke({"messages": [HumanMessage("again")]}, CONFIG, durability="sync")
    assert len(shop.charged) == 3


async def test_a_key_names_what_is_paid_for_whoever_calls(shop: Shop) -> None:
    made: list[str] = []

    @tool
    def refund(order_id: str, amount: int) -> str:
        """Pay back."""
        made.append(order_id)
        return f"refunded {amount}"

    once = effect_tool(refund, shop.effects, key="refund/{order_id}")
    for call_id in ("c1", "c2"):
        call = {"name": "refund", "args": {"order_id": "7", "amount": 5}, "id": call_id, "type": "tool_call"}
        message = once.invoke(call)
        assert (message.content, message.tool_call_id) == ("refunded 5", call_id)
    assert once.invoke({"order_id": "7", "amount": 5}).content == "refunded 5"
    assert made == ["7"]
    with pytest.raises(ConfigurationError, match="no id"):
        effect_tool(refund, shop.effects).invoke({"order_id": "7", "amount": 5})
    with pytest.raises(ConfigurationError, match="does not have"):
        effect_tool(refund, shop.effects, key="refund/{order}").invoke({"order_id": "7", "amount": 5})
    assert once.args == refund.args
