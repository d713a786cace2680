"""Real graphs, small ones, whose states show what was done."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Send, StateSnapshot, interrupt

Graph = CompiledStateGraph[Any, Any, Any, Any]
Saver = BaseCheckpointSaver[Any]
Node = Any
"""A function of the state; LangGraph's own type has a protocol for each way to write one."""


def thread(name: str = "t", **more: Any) -> RunnableConfig:
    return {"configurable": {"thread_id": name, **more}}


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def answer(state: Chat) -> dict[str, Any]:
    count = len(state["messages"])
    return {"messages": [AIMessage(f"answer to {state['messages'][-1].content}", id=f"a{count}")]}


def chat(saver: Saver, node: Node = answer) -> Graph:
    """One node that answers."""
    return StateGraph(Chat).add_node("answer", node).add_edge(START, "answer").compile(checkpointer=saver)


def said(text: str) -> dict[str, Any]:
    return {"messages": [HumanMessage(text, id=f"h {text}")]}


def texts(state: Any) -> list[str]:
    values = state.values if isinstance(state, StateSnapshot) else state
    return [str(message.content) for message in values["messages"]]


class Log(TypedDict):
    log: Annotated[list[str], operator.add]


def noting(name: str) -> Node:
    return lambda _state: {"log": [name]}


def line(saver: Saver, *names: str, **options: Any) -> Graph:
    """Nodes one after the other, each of which notes its name."""
    builder = StateGraph(Log)
    for before, name in zip((START, *names), names, strict=False):
        builder.add_node(name, noting(name))
        builder.add_edge(before, name)
    return builder.compile(checkpointer=saver, **options)


def asking(saver: Saver) -> Graph:
    """Two questions to a human, between notes."""

    def ask(state: Log) -> dict[str, Any]:
        first = interrupt({"question": "first"})
        second = interrupt({"question": "second"})
        return {"log": [f"{first} and {second}"]}

    builder = (
        StateGraph(Log).add_node("before", noting("before")).add_node("ask", ask).add_node("after", noting("after"))
    )
    builder.add_edge(START, "before").add_edge("before", "ask").add_edge("ask", "after")
    return builder.compile(checkpointer=saver)


class Work(TypedDict):
    parts: list[int]
    done: Annotated[list[str], operator.add]


class Part(TypedDict):
    number: int


def fan(saver: Saver, work: Node = None) -> Graph:
    """A task for each part, all at once, and one that gathers."""

    def each(state: Work) -> list[Send]:
        return [Send("work", {"number": number}) for number in state["parts"]]

    builder = StateGraph(Work)
    builder.add_node("work", work or (lambda part: {"done": [f"part {part['number']}"]}))
    builder.add_node("gather", lambda state: {"done": [f"{len(state['done'])} parts"]})
    builder.add_conditional_edges(START, each, ["work"])
    builder.add_edge("work", "gather").add_edge("gather", END)
    return builder.compile(checkpointer=saver)


def parallel(saver: Saver, failing: Callable[[], bool] = lambda: False) -> Graph:
    """Three nodes in one step; the second may fail."""

    def second(state: Log) -> dict[str, Any]:
        if failing():
            raise RuntimeError("the second failed")
        return {"log": ["second"]}

    builder = StateGraph(Log).add_node("first", noting("first")).add_node("second", second)
    builder.add_node("third", noting("third")).add_node("last", noting("last"))
    for name in ("first", "second", "third"):
        builder.add_edge(START, name)
    builder.add_edge(["first", "second", "third"], "last")
    return builder.compile(checkpointer=saver)


def nested(saver: Saver, *, stateful: bool = False) -> Graph:
    """A graph in a graph in a graph; the innermost asks a human."""

    def ask(state: Log) -> dict[str, Any]:
        return {"log": [f"asked: {interrupt('go on?')}"]}

    inner = StateGraph(Log).add_node("begin", noting("inner")).add_node("ask", ask)
    inner.add_edge(START, "begin").add_edge("begin", "ask")
    middle = StateGraph(Log).add_node("inside", inner.compile(checkpointer=True if stateful else None))
    middle.add_node("close", noting("middle")).add_edge(START, "inside").add_edge("inside", "close")
    outer = StateGraph(Log).add_node("open", noting("outer")).add_node("within", middle.compile())
    outer.add_edge(START, "open").add_edge("open", "within")
    return outer.compile(checkpointer=saver)
