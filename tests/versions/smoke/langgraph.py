"""A graph with our saver and our store: `python -m tests.versions.smoke.langgraph FOLDER`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.base import BaseStore
from langgraph.types import Command, interrupt

from locus.integrations.langgraph import LocusSaver
from locus.integrations.langgraph_store import LocusStore


async def answer(state: MessagesState, *, store: BaseStore) -> dict[str, Any]:
    await store.aput(("users", "alice"), "said", {"text": state["messages"][-1].content})
    return {"messages": [AIMessage(f"You said: {state['messages'][-1].content}")]}


def ask(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage(f"A person said: {interrupt('May I?')}")]}


async def check(folder: Path) -> None:
    url = f"sqlite:{folder / 'graph.db'}"
    config: RunnableConfig = {"configurable": {"thread_id": "alice"}}
    async with LocusSaver(url) as saver, LocusStore(url) as store:
        builder = StateGraph(MessagesState).add_node(answer).add_node(ask)
        graph = builder.add_edge(START, "answer").add_edge("answer", "ask").compile(checkpointer=saver, store=store)
        stopped = await graph.ainvoke({"messages": [HumanMessage("Hello")]}, config)
        assert "__interrupt__" in stopped
        found = await graph.ainvoke(Command(resume="yes"), config)
        assert [message.content for message in found["messages"]] == ["Hello", "You said: Hello", "A person said: yes"]
        kept = await store.aget(("users", "alice"), "said")
        assert kept is not None
        assert kept.value == {"text": "Hello"}
        points = [point async for point in graph.aget_state_history(config)]
        assert len(points) >= 3
        assert (await graph.aget_state(config)).values["messages"] == found["messages"]
        await saver.adelete_thread("alice")
        assert await saver.aget_tuple(config) is None


if __name__ == "__main__":
    asyncio.run(check(Path(sys.argv[1])))
