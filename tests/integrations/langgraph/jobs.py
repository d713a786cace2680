"""Graphs in processes of their own, some of which are killed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from langgraph.graph import START, StateGraph

from locus.integrations.langgraph.saver import LocusSaver
from locus.testing.processes.workers import Channel
from tests.integrations.langgraph.agents import deep_agent
from tests.integrations.langgraph.graphs import Graph, Log, Saver, chat, fan, said, texts, thread


def noting_in(file: Path, *names: str, dies: str = "") -> Any:
    """A builder of nodes in a line, which note in a file that they were run; one of them kills the process."""

    def node(name: str) -> Any:
        def run(state: Log) -> dict[str, Any]:
            with file.open("a") as notes:
                notes.write(f"{name}\n")
            if name == dies:
                os.kill(os.getpid(), signal.SIGKILL)
            return {"log": [name]}

        return run

    builder = StateGraph(Log)
    for before, name in zip((START, *names), names, strict=False):
        builder.add_node(name, node(name)).add_edge(before, name)
    return builder


async def die_in_a_step(talk: Channel, url: str, notes: str, durability: Any) -> None:
    with LocusSaver(url) as saver:
        graph: Graph = noting_in(Path(notes), "a", "b", "c", dies="b").compile(checkpointer=saver)
        graph.invoke({"log": []}, thread(), durability=durability)


def parts(saver: Saver, file: Path, *, deadly: bool) -> Graph:
    """Tasks that note that they were run. One waits for the writes of the others, and kills the process."""

    def work(part: Any) -> dict[str, Any]:
        if deadly and part["number"] == 2:
            while not _has_writes(saver, 2):
                time.sleep(0.005)
            os.kill(os.getpid(), signal.SIGKILL)
        with file.open("a") as notes:
            notes.write(f"{part['number']}\n")
        return {"done": [f"part {part['number']}"]}

    return fan(saver, work)


def _has_writes(saver: Saver, tasks: int) -> bool:
    found = saver.get_tuple(thread())
    written = found.pending_writes if found is not None else None
    return len({task for task, channel, _ in written or () if channel == "done"}) >= tasks


async def die_beside_other_tasks(talk: Channel, url: str, notes: str) -> None:
    with LocusSaver(url) as saver:
        parts(saver, Path(notes), deadly=True).invoke({"parts": [1, 2, 3]}, thread())


async def converse(talk: Channel, url: str, name: str, turns: int) -> int:
    """Turns of one thread; each is told when it is acknowledged."""
    async with LocusSaver(url) as saver:
        graph = chat(saver)
        talk.send(ready=True)
        talk.receive()
        for number in range(turns):
            await graph.ainvoke(said(f"{name} {number}"), thread(), durability="sync")
            talk.send(said=f"{name} {number}")
    return turns


async def ask_deep_agent(talk: Channel, url: str, question: Any) -> dict[str, Any]:
    """One call of the agent: a question, or (a dict) the answer to one of its own."""
    async with LocusSaver(url) as saver:
        agent = deep_agent(saver)
        found = await agent.ainvoke(question_of(question), thread())
        state = await agent.aget_state(thread())
    return {
        "texts": texts(found),
        "files": {path: file["content"] for path, file in (found.get("files") or {}).items()},
        "todos": found.get("todos"),
        "next": list(state.next),
    }


def question_of(question: Any) -> Any:
    from langgraph.types import Command

    return Command(resume=question) if isinstance(question, dict) else said(question)
