"""Graphs that use what a saver has to keep: messages, fan-out, subgraphs, interrupts, forks, types of all kinds."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, TypedDict
from uuid import UUID

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, Send, StateSnapshot, interrupt


class Colour(Enum):
    RED = "red"


@dataclass
class Ticket:
    """A class of the user's, which has to be allowed."""

    number: int
    colour: Colour = Colour.RED


class Seen(TypedDict, total=False):
    """What the subgraph keeps for itself, and what it gets."""

    messages: list[AnyMessage]
    seen: Annotated[list[int], operator.add]


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    notes: Annotated[list[str], operator.add]
    facts: dict[str, Any]
    ticket: Ticket


def _inner(state: Seen) -> Seen:
    return {"seen": [len(state["messages"])]}


def _answer(state: State) -> State:
    text = state["messages"][-1].text
    return {
        "messages": [AIMessage(f"You said {text}", id=f"a{len(state['messages'])}")],
        "facts": {
            "at": datetime(2026, 1, 2, tzinfo=UTC),
            "id": UUID(int=7),
            "price": Decimal("1.10"),
            "set": {1, 2},
            "pair": (1, "x"),
            "bytes": b"\0\xff",
            "deep": [{"n": None, "f": 0.1, "lists": [[1], []]}],
        },
    }


def _spread(state: State) -> list[Send]:
    return [Send("work", {"notes": [str(number)]}) for number in range(3)]


def _work(state: State) -> State:
    return {"notes": [f"worked on {state['notes'][-1]}"]}


def _ask(state: State) -> State:
    if "approve" not in state["messages"][0].text:
        return {}
    return {"notes": [f"approved: {interrupt({'question': 'go on?'})}"]}


def make_graph(saver: BaseCheckpointSaver[Any]) -> CompiledStateGraph[State, None, State, State]:
    inner = StateGraph(Seen)
    inner.add_node("inner", _inner)
    inner.add_edge(START, "inner")
    graph = StateGraph(State)
    graph.add_node("answer", _answer)
    graph.add_node("sub", inner.compile(checkpointer=True))
    graph.add_node("work", _work)
    graph.add_node("ask", _ask)
    graph.add_edge(START, "answer")
    graph.add_edge("answer", "sub")
    graph.add_conditional_edges("sub", _spread, ["work"])
    graph.add_edge("work", "ask")
    graph.add_edge("ask", END)
    return graph.compile(checkpointer=saver)


def config(thread_id: str, **more: Any) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, **more}}


def _said(text: str, name: str) -> State:
    return {"messages": [HumanMessage(text, id=name)]}


async def talk(saver: BaseCheckpointSaver[Any]) -> None:
    """Threads with turns, a fork, an update from outside, and one that waits for an answer."""
    graph = make_graph(saver)
    for turn in range(3):
        await graph.ainvoke(_said(f"hello {turn}", f"h{turn}"), config("talk"))
    history = [snapshot async for snapshot in graph.aget_state_history(config("talk"))]
    await graph.aupdate_state(history[4].config, {"notes": ["from outside"]}, as_node="answer")
    await graph.ainvoke(None, config("talk"))
    await graph.ainvoke(_said("approve this", "h"), config("waits/1"))


def talk_blocking(saver: BaseCheckpointSaver[Any]) -> None:
    graph = make_graph(saver)
    for turn in range(2):
        graph.invoke(_said(f"hello {turn}", f"h{turn}"), config("talk"))
    graph.invoke(_said("approve this", "h"), config("waits/1"))


async def go_on(saver: BaseCheckpointSaver[Any]) -> dict[str, Any]:
    """The thread that waits gets its answer."""
    result: dict[str, Any] = await make_graph(saver).ainvoke(Command(resume="yes"), config("waits/1"))
    return result


def told(snapshot: StateSnapshot) -> tuple[Any, ...]:
    """A snapshot, so that equal ones are equal."""
    tasks = [(task.id, task.name, task.path, task.error, task.interrupts, task.result) for task in snapshot.tasks]
    names = [(where or {}).get("configurable", {}) for where in (snapshot.config, snapshot.parent_config)]
    places = [(name.get("checkpoint_ns"), name.get("checkpoint_id")) for name in names]
    return (snapshot.values, snapshot.next, snapshot.metadata, snapshot.created_at, tasks, places)


async def everything(saver: BaseCheckpointSaver[Any]) -> dict[str, Any]:
    """What a saver knows: every checkpoint of every thread with its writes, and the states that graphs see."""
    found: dict[str, Any] = {}
    async for one in saver.alist(None):
        name = one.config["configurable"]
        parent = (one.parent_config or {}).get("configurable", {}).get("checkpoint_id")
        place = (name["thread_id"], name["checkpoint_ns"], name["checkpoint_id"])
        found["/".join(place)] = (one.checkpoint, one.metadata, parent, one.pending_writes)
    graph = make_graph(saver)
    for thread_id in ("talk", "waits/1"):
        history = [told(snapshot) async for snapshot in graph.aget_state_history(config(thread_id))]
        found[thread_id] = history
    return found
