"""A flow of llmfy with our checkpointer: `python -m tests.versions.smoke.llmfy FOLDER`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any, TypedDict

from llmfy import END, START, FlowEngine

from locus.integrations.llmfy import LlmfyCheckpointer


def joined(old: list[str] | None, new: list[str]) -> list[str]:
    return (old or []) + new


class State(TypedDict, total=False):
    log: Annotated[list[str], joined]


async def greet(state: State) -> dict[str, Any]:
    return {"log": ["hello"]}


async def part(state: State) -> dict[str, Any]:
    return {"log": ["goodbye"]}


async def check(folder: Path) -> None:
    async with LlmfyCheckpointer(f"sqlite:{folder / 'flows.db'}") as kept:
        flow = FlowEngine(State, checkpointer=kept)
        flow.add_node("greet", greet)
        flow.add_node("part", part)
        for edge in ((START, "greet"), ("greet", "part"), ("part", END)):
            flow.add_edge(*edge)
        flow.build()  # type: ignore[no-untyped-call]
        assert await flow.invoke(session_id="alice") == {"log": ["hello", "goodbye"]}
        assert await flow.get_state("alice") == {"log": ["hello", "goodbye"]}
        assert len(await kept.history("alice")) >= 2
        await kept.delete("alice")
        assert await kept.load("alice") is None


if __name__ == "__main__":
    asyncio.run(check(Path(sys.argv[1])))
