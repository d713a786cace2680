"""A flow of llmfy that is interrupted and goes on, in a file, with every step still there afterwards.

    python examples/llmfy_flow.py [PATH]

It runs offline: the nodes are plain functions where an application would ask a model. One of them fails, as when a
process is killed; another `FlowEngine`, which knows nothing but the file, goes on with the node that is next.
"""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any, TypedDict

from llmfy import END, START, FlowEngine, Send

from locus.integrations.llmfy import LlmfyCheckpointer
from locus.memory.backends import sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer


def joined(old: list[str] | None, new: list[str]) -> list[str]:
    return (old or []) + new


class Report(TypedDict, total=False):
    topics: list[str]
    findings: Annotated[list[str], joined]
    text: str


async def plan(state: Report) -> dict[str, Any]:
    return {"topics": ["coast", "forests", "lakes"]}


async def research(state: dict[str, Any]) -> dict[str, Any]:
    return {"findings": [f"{state['topic']}: {len(state['topic']) * 100} km"]}


async def write(state: Report) -> dict[str, Any]:
    return {"text": "; ".join(sorted(state["findings"]))}


async def fail(state: Report) -> dict[str, Any]:
    raise ConnectionError("the power is gone")


def flow(store: Checkpointer, writer: Any) -> FlowEngine:
    engine = FlowEngine(Report, checkpointer=LlmfyCheckpointer(store))
    engine.add_node("plan", plan)
    engine.add_node("research", research)
    engine.add_node("write", writer)
    engine.add_edge(START, "plan")
    engine.add_conditional_edges("plan", topics_of, ["research"])
    engine.add_edge("research", "write")
    engine.add_edge("write", END)
    engine.build()  # type: ignore[no-untyped-call]
    return engine


def topics_of(state: Report) -> list[Send]:
    return [Send("research", {"topic": topic}) for topic in state["topics"]]


async def main(path: Path) -> None:
    async with sqlite_checkpointer(path) as store:
        try:
            await flow(store, fail).invoke(session_id="finland")
        except Exception as error:  # noqa: BLE001 - whatever it was, the file has what was done before
            print(f"The first engine ends: {error}")
    async with sqlite_checkpointer(path) as store:
        final = await flow(store, write).invoke(session_id="finland")
        print(f"The second engine goes on: {final['text']}\n")
        for about in await LlmfyCheckpointer(store).history("finland"):
            print(f"  run {about.run_id[:8]}, after {about.node!r}: {', '.join(about.updated_fields)} changed")


if __name__ == "__main__":
    if sys.argv[1:]:
        asyncio.run(main(Path(sys.argv[1])))
    else:
        with tempfile.TemporaryDirectory(prefix="locus-") as folder:
            asyncio.run(main(Path(folder) / "flows.db"))
