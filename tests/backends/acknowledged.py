"""What was acknowledged to several writers at once, and a way to wait until there is more of it."""

from __future__ import annotations

import asyncio

from locus.core.state import AgentState

PATIENCE = 120


class Acknowledged:
    def __init__(self, writers: int) -> None:
        self.of_each: list[dict[str, AgentState]] = [{} for _ in range(writers)]
        self._changed = asyncio.Condition()

    async def note(self, writer: int, checkpoint_id: str, state: AgentState) -> None:
        self.of_each[writer][checkpoint_id] = state
        async with self._changed:
            self._changed.notify_all()

    async def more_of_each(self, count: int) -> None:
        """Wait until so many more saves of every writer have been acknowledged."""
        wanted = [len(saved) + count for saved in self.of_each]
        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(
                lambda: all(len(saved) >= least for saved, least in zip(self.of_each, wanted, strict=True))
            )
