"""An agent in a process of its own that is told to remember a fact, and says when the fact is stored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from locus.agent import Agent
from locus.memory import Item, LongTermMemory
from locus.testing.processes.jobs import opened
from locus.testing.processes.workers import Channel
from tests.agent.support import Following, a_call, asks, results_told

FACT = "Ada drinks green tea."


class Halting(LongTermMemory):
    """A memory that says what it has put, and waits for the test before it returns."""

    channel: Channel

    async def put(self, namespace: Iterable[str], key: str, *args: Any, **options: Any) -> Item:
        item = await super().put(namespace, key, *args, **options)
        self.channel.send(put=item.key)
        self.channel.receive()
        return item


async def learn(channel: Channel, url: str, thread_id: str) -> str:
    """Begin the run; return its answer."""
    async with opened(url) as store:
        memory = Halting(store)
        memory.channel = channel
        model = Following(asks(a_call("remember", "c1", fact=FACT)), results_told)
        agent = Agent(model=model, checkpointer=store, long_term=memory, user_id="ada", lease_seconds=600)
        return (await agent.invoke("I am Ada, and I drink green tea.", thread_id)).message
