"""What the pages show in tests and pictures: conversations as agents of several frameworks leave them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from examples.trip import OTHER_WAY, STEPS, about
from locus.core.messages import Message, ToolCall, ToolResult
from locus.core.state import AgentState
from locus.memory import LongTermMemory
from locus.memory.backends import sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.records import DEFAULT_NAMESPACE
from locus.memory.storage import StorageBackend

TRIP = "trip-to-helsinki"
GRAPH = "refund/order-2077"
SESSION = "support-118"
LONG = "nightly-report"
SHOP = "shop/ada"
PLANTED = "the invoice is 4,711 euros"
"""What stands in one checkpoint of the long thread, and in all that come after it."""


async def fill(path: Path, *, turns: int = 30) -> None:
    """A store with a few threads of different shapes. `turns` is how long the longest is."""
    async with sqlite_checkpointer(path, durability="normal") as handle:
        await long_thread(handle, turns)
        await session(handle)
        await graph(handle)
        await trip(handle)
        await facts(handle)
        await handle.search("hello")  # so that a store which may only be read has its index


async def facts(handle: Checkpointer) -> None:
    """What agents have learnt about two users."""
    memory = LongTermMemory(handle)
    for text in ("Ada drinks tea.", "Ada drinks green tea, without sugar."):
        await memory.put(("users", "ada", "memories"), "tea", {"text": text}, {"sure": 0.9}, source=TRIP)
    await memory.put(
        ("users", "ada", "memories"), "train", {"text": "Ada would rather take the train than fly."}, source=TRIP
    )
    await memory.put(("users", "grace", "memories"), "tea", {"text": "Grace drinks no tea, but coffee."})


async def trip(handle: Checkpointer) -> None:
    """Our agent's: a conversation with tools, and a fork in the middle of it."""
    state = AgentState(agent_id="travel-agent")
    middle = state
    for step in STEPS:
        state = state.with_message(step())
        await handle.save(state, TRIP, metadata=about(state))
        if len(state.messages) == 8:
            middle = state
    for step in OTHER_WAY.messages(len(STEPS) // 4 + 1):
        middle = middle.with_message(step())
        await handle.save(middle, TRIP, metadata={**about(middle), "line": "over Vienna"})


async def graph(handle: Checkpointer) -> None:
    """LangGraph's: channels, a namespace of a subgraph, and a node that waits for somebody."""
    backend = StorageBackend(handle.store)
    messages: list[dict[str, Any]] = []
    for number, (kind, text) in enumerate(GRAPH_TURNS):
        messages = [*messages, {"type": kind, "content": text, "id": f"m{number}"}]
        state = {"v": 4, "channel_values": {"messages": messages, "approved": False, "amount": 129.9}}
        last = await backend.save(GRAPH, state, metadata={"source": "loop", "step": number})
    inner = {"v": 4, "channel_values": {"messages": messages[:1], "plan": ["look up", "decide"]}}
    await backend.save(GRAPH, inner, metadata={"source": "loop", "step": 0}, namespace="planner:1")
    question = {"value": {"question": "Refund 129.90 euros?", "order": 2077}, "id": "9f2c"}
    await handle.store.put_writes(
        GRAPH, last, "task-approve", [("__interrupt__", [question])], task_path="", namespace=DEFAULT_NAMESPACE
    )


GRAPH_TURNS = (
    ("human", "The lamp arrived broken. I want my money back."),
    ("ai", "I am sorry. May I have the number of the order?"),
    ("human", "2077."),
    ("ai", "Thank you. Somebody has to approve a refund of 129.90 euros; I have asked."),
)


async def session(handle: Checkpointer) -> None:
    """Items as the OpenAI Agents SDK has them: a call and its output are items of their own."""
    backend = StorageBackend(handle.store)
    items: list[dict[str, Any]] = []
    for item in SESSION_ITEMS:
        items = [*items, item]
        await backend.save(SESSION, {"items": items}, metadata={"customer": "ada", "tier": "gold"})


SESSION_ITEMS = (
    {"type": "message", "role": "user", "content": "Where is my parcel?"},
    {"type": "function_call", "name": "find_parcel", "arguments": '{"customer": "ada"}', "call_id": "call_1"},
    {
        "type": "function_call_output",
        "call_id": "call_1",
        "output": '{"parcel": "JD0146", "stops": [{"at": "08:10", "place": "Leipzig"}, '
        '{"at": "13:45", "place": "Berlin"}]}',
    },
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "It reached Berlin at 13:45 and arrives tomorrow."}],
    },
)


async def long_thread(handle: Checkpointer, turns: int) -> None:
    """A thread that is longer than a page of a conversation, with forks and with a text that comes in somewhere."""
    state = AgentState(agent_id="reporter")
    kept: list[AgentState] = []
    for number in range(turns):
        text = f"Section {number}: all figures are as expected."
        if number == 2 * turns // 3:
            text += f" By the way, {PLANTED}."
        state = state.with_message(Message.user(f"Write section {number}."))
        state = state.with_message(Message.assistant(text))
        await handle.save(state, LONG, metadata={"section": number})
        kept.append(state)
        if number % 10 == 9:
            fork = kept[-5].with_message(Message.assistant(f"Another way to put section {number - 4}."))
            await handle.save(fork, LONG, metadata={"section": number - 4, "draft": "b"})
    await handle.save(state.with_message(Message.user("Thank you.")), LONG, metadata={"section": turns})


async def shop(handle: Checkpointer) -> None:
    """An answer in Markdown, tokens, an error of a tool, and a wrong price."""
    state = AgentState(agent_id="shop")
    for step in SHOP_STEPS:
        state = state.with_message(step)
        await handle.save(state, SHOP)


SHOP_STEPS = (
    Message.user("How much is the Peak jacket, and which sizes are there?"),
    Message.assistant("", tool_calls=(ToolCall(id="1", name="get_price", arguments={"item": "Peak"}),)),
    Message.tool(
        ToolResult(tool_call_id="1", name="get_price", content='{"price": 89.9, "sizes": ["M", "L"]}', duration_ms=40)
    ),
    Message.assistant(
        "The **Peak** jacket costs 89.90:\n\n| size | price | in stock |\n|---|---|---|\n| M | 89.90 | 4 |\n"
        "| L | 89.90 | 1 |\n\n1. Choose a size.\n2. I put it aside for two days.\n"
    ),
    Message.user("Put L aside, please. And what did I pay for the last one?"),
    Message.assistant("", tool_calls=(ToolCall(id="2", name="last_payment", arguments={"customer": "ada"}),)),
    Message.tool(ToolResult(tool_call_id="2", name="last_payment", error="timeout after 5 s", duration_ms=5_000)),
    Message.assistant("", tool_calls=(ToolCall(id="3", name="last_payment", arguments={"customer": "ada"}),)),
    Message.tool(ToolResult(tool_call_id="3", name="last_payment", content="8.99", duration_ms=61)),
    Message.assistant("You paid **8.99**, and L is put aside until Saturday."),
    Message.user("Can my own program ask for the price?"),
    Message.assistant(
        'Yes:\n\n```python\nfor size in ("M", "L"):  # both are in stock\n'
        '    print(size, shop.get_price("Peak", size=size))\n```\n'
    ),
)
