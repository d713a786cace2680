"""Writers that go on while one server takes over from another, and what they were told meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import BackendUnavailableError
from locus.memory.checkpointer import Checkpointer
from tests.backends.acknowledged import Acknowledged

WRITERS = 4
PATIENCE = 120


class Writers:
    """Each saves to a thread of its own, turn by turn, on a handle that is never opened again."""

    def __init__(self, handle: Checkpointer, name: str) -> None:
        self._handle = handle
        self._name = name
        self.written = Acknowledged(WRITERS)
        self.refusals: list[str] = []
        """The texts of the errors that they were told."""
        self._last = time.monotonic()
        self.longest = 0.0
        """Seconds that passed between two acknowledged saves, at most."""
        self._refused = [asyncio.Event() for _ in range(WRITERS)]
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def thread_id(self, number: int) -> str:
        return f"{self._name} {number}"

    def start(self) -> None:
        self._last = time.monotonic()
        self._tasks = [asyncio.create_task(self._write(number)) for number in range(WRITERS)]

    async def _write(self, number: int) -> None:
        state = AgentState(agent_id=self.thread_id(number))
        while not self._stop.is_set():
            grown = state.with_message(Message.user(f"{self.thread_id(number)}: {len(state.messages)}"))
            try:
                checkpoint_id = await self._handle.save(grown, self.thread_id(number))
            except BackendUnavailableError as error:
                self.refusals.append(str(error))
                self._refused[number].set()
                await asyncio.sleep(0.02)
                continue
            now = time.monotonic()
            self.longest, self._last = max(self.longest, now - self._last), now
            await self.written.note(number, checkpoint_id, grown)
            state = grown

    async def all_refused(self) -> None:
        """Wait until every writer has been told of the outage."""
        async with asyncio.timeout(PATIENCE):
            for refused in self._refused:
                await refused.wait()

    async def stop(self) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks)

    async def lost_in(self, reader: Checkpointer) -> int:
        """How many acknowledged saves are not in a store. Whatever is there is whole, and in its order."""
        lost = 0
        for number, saved in enumerate(self.written.of_each):
            thread_id = self.thread_id(number)
            entries = [entry.checkpoint_id for entry in reversed(await reader.history(thread_id, None))]
            assert [found for found in entries if found in saved] == [told for told in saved if told in entries]
            lost += len(saved.keys() - set(entries))
            for checkpoint_id in entries:
                state = await reader.load(thread_id, checkpoint_id)
                assert state is not None
                assert state == saved.get(checkpoint_id, state)
                texts = [message.content for message in state.messages]
                assert texts == [f"{thread_id}: {place}" for place in range(len(texts))]
        return lost


async def until(is_so: Callable[[], Awaitable[bool] | bool]) -> None:
    """Wait for what only a server knows."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = is_so()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.02)
