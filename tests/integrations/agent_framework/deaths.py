"""Runs that end with a kill: `python -m tests.integrations.agent_framework.deaths agent|workflow URL`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from agent_framework import CheckpointStorage, Executor, Workflow, WorkflowBuilder, WorkflowContext, handler

from locus.integrations.agent_framework import LocusCheckpointStorage, LocusHistoryProvider
from tests.integrations.agent_framework.models import agent, calls


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def add(a: int, b: int) -> str:
    """Add two numbers."""
    if a > 100:
        die()
    return str(a + b)


class Step(Executor):
    """Adds its number to a text. A step that is deadly does not survive it."""

    def __init__(self, number: int, *, deadly: bool = False) -> None:
        super().__init__(id=f"step-{number}")
        self.number = number
        self.deadly = deadly

    @handler
    async def work(self, text: str, ctx: WorkflowContext[str]) -> None:
        if self.deadly:
            die()
        await ctx.send_message(f"{text}{self.number}x")


class Last(Executor):
    def __init__(self) -> None:
        super().__init__(id="last")

    @handler
    async def work(self, text: str, ctx: WorkflowContext[Any, str]) -> None:
        await ctx.yield_output(f"{text}3")


def workflow(storage: CheckpointStorage, *, deadly: bool = False) -> Workflow:
    """Three steps; each is a superstep with a checkpoint."""
    first, second, last = Step(1), Step(2, deadly=deadly), Last()
    builder = WorkflowBuilder(name="steps", start_executor=first, checkpoint_storage=storage, output_from=[last])
    return builder.add_edge(first, second).add_edge(second, last).build()


async def main(what: str, url: str) -> None:
    if what == "agent":
        history = LocusHistoryProvider(url)
        for a in (1, 1_000):
            clerk, _ = agent(calls("add", a=a, b=1), history, tools=[add])
            await clerk.run(f"{a} + 1?", session=clerk.create_session(session_id="alice"))
    else:
        await workflow(LocusCheckpointStorage(url), deadly=True).run("x")


if __name__ == "__main__":
    # A checkpoint names the classes of its workflow, so they must not be those of `__main__`.
    from tests.integrations.agent_framework import deaths

    asyncio.run(deaths.main(*sys.argv[1:]))
