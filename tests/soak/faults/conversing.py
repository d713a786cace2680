"""A client that talks to a site while a fault strikes, and what it was told."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import BackendUnavailableError
from locus.memory import get_checkpointer
from locus.memory.checkpointer import BaseCheckpointer


def opened(url: str) -> BaseCheckpointer:
    found = get_checkpointer(url)
    assert isinstance(found, BaseCheckpointer)
    return found


def greeting(text: str = "hello") -> AgentState:
    return AgentState().with_message(Message.user(text))


@dataclass
class Client:
    """What was acknowledged, by the id of its checkpoint."""

    thread_id: str = field(default_factory=lambda: f"thread {secrets.token_hex(4)}")
    acknowledged: dict[str, AgentState] = field(default_factory=dict)
    errors: int = 0

    async def converse(self, url: str) -> None:
        state = greeting("begin")
        async with opened(url) as checkpointer:
            while True:
                state = state.with_message(Message.user(f"message {len(state.messages)}"))
                try:
                    self.acknowledged[await checkpointer.save(state, self.thread_id)] = state
                except BackendUnavailableError:
                    self.errors += 1

    async def check(self, url: str) -> None:
        """All that was acknowledged is there."""
        assert self.acknowledged
        async with opened(url) as checkpointer:
            for checkpoint_id, state in self.acknowledged.items():
                assert await checkpointer.load(self.thread_id, checkpoint_id) == state


@asynccontextmanager
async def conversing(url: str) -> AsyncIterator[Client]:
    client = Client()
    task = asyncio.create_task(client.converse(url))
    try:
        async with asyncio.timeout(60):
            while not client.acknowledged and not task.done():  # noqa: ASYNC110 - the client says nothing
                await asyncio.sleep(0.005)
        yield client
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
