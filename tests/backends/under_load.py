"""Writers that save without a pause while a server fails, and what they were told."""

from __future__ import annotations

import asyncio
import time
from typing import Self

from locus.core.state import AgentState
from locus.errors import BackendUnavailableError
from locus.memory.checkpointer import Checkpointer
from locus.testing.data import message
from locus.testing.laws.base import assert_same_state
from tests.backends.acknowledged import Acknowledged

_TURNS = 20
"""After so many, a writer begins anew, so that states stay small."""
_BETWEEN_SAVES = 0.01
_AFTER_AN_ERROR = 0.05


class UnderLoad:
    """Each writer saves one checkpoint after the other to a thread of its own, through one handle."""

    def __init__(self, handle: Checkpointer, writers: int = 4) -> None:
        self._handle = handle
        self._begun: list[dict[str, AgentState]] = [{} for _ in range(writers)]
        self._stop = asyncio.Event()
        self.saved = Acknowledged(writers)
        self.errors: list[BackendUnavailableError] = []
        self.outage = 0.0
        """The longest time in seconds, since the fault, that a writer had to wait until a save was acknowledged."""

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.ensure_future(self._save_on(writer)) for writer in range(len(self._begun))]
        return self

    async def __aexit__(self, *failure: object) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks)

    async def _save_on(self, writer: int) -> None:
        state, turn = AgentState(), 0
        begun_at = time.monotonic()
        while not self._stop.is_set():
            turn += 1
            following = (state if turn % _TURNS else AgentState()).with_message(message(turn))
            self._begun[writer][f"c{turn}"] = following
            try:
                await self._handle.save(following, f"t{writer}", f"c{turn}")
            except BackendUnavailableError as error:
                self.errors.append(error)
                await asyncio.sleep(_AFTER_AN_ERROR)
                continue
            self.outage = max(self.outage, time.monotonic() - begun_at)
            state = following
            await self.saved.note(writer, f"c{turn}", state)
            await asyncio.sleep(_BETWEEN_SAVES)
            begun_at = time.monotonic()

    def count_from_now(self) -> None:
        """Something bad happens now: only what comes after it is an outage."""
        self.outage = 0.0

    async def check(self, reader: Checkpointer) -> None:
        """Everything that was acknowledged is there, nothing is there that was not sent, and all of it is as sent."""
        for writer, saved in enumerate(self.saved.of_each):
            begun = self._begun[writer]
            found = {entry.checkpoint_id for entry in await reader.history(f"t{writer}", None)}
            assert set(saved) <= found <= set(begun)
            for checkpoint_id in found:
                assert_same_state(await reader.load(f"t{writer}", checkpoint_id), begun[checkpoint_id])
