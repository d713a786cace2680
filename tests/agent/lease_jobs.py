"""An agent in a process of its own, whose tool says `{"holds": name}` and is under way until the test lets it go."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

from locus.agent import Agent
from locus.errors import ConflictError
from locus.testing.processes.jobs import opened, wait_for_the_others
from locus.testing.processes.workers import Channel
from locus.tools import tool
from tests.agent.support import Following, a_call, asks, results_told


async def hold(
    channel: Channel, url: str, thread_id: str, name: str, lease_seconds: float, meets: bool, stops: bool
) -> list[str]:
    """Run in the thread; return how it ended: an error's name and text, or the answer.

    It `meets` others before it begins, and `stops` in its tool until it gets SIGCONT. Nothing is being written there:
    a process that stops inside a transaction would keep its database locked.
    """

    @tool
    async def wait() -> str:
        """Wait until the test says something."""
        channel.send(holds=name)
        if stops:
            os.kill(os.getpid(), signal.SIGSTOP)
        await asyncio.to_thread(channel.receive)
        return f"{name} waited"

    async with opened(url) as store:
        await store.exists(thread_id)
        settings: dict[str, Any] = {"lease_seconds": lease_seconds, "tools": [wait]}
        agent = Agent(model=Following(asks(a_call("wait", "c1")), results_told), checkpointer=store, **settings)
        if meets:
            await wait_for_the_others(channel)
        try:
            return ["answer", (await agent.invoke(name, thread_id)).message]
        except ConflictError as error:
            return [type(error).__name__, str(error)]
