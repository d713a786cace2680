"""Stalls: a query without an answer ends at its deadline, and others do not wait. For stores where that can happen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import ClassVar, TypeVar

from locus.core.state import AgentState
from locus.errors import BackendUnavailableError
from locus.memory.checkpointer import Checkpointer
from locus.testing.data import conversation
from locus.testing.laws.base import Laws, assert_same_state
from locus.testing.stores import StallTestStore

T = TypeVar("T")

DEADLINE = 0.2
NEVER = 3_600.0


class StallLaws(Laws):
    """A stalled query ends, and only its own caller waits for it."""

    patience: ClassVar[float] = 30.0
    """Seconds after which a law gives up. A sound store takes a small part of that, even on a busy machine."""

    async def test_a_stalled_query_ends_at_its_deadline(
        self, checkpointer: Checkpointer, store: StallTestStore
    ) -> None:
        state = AgentState().with_messages(conversation(3))
        await checkpointer.save(state, "t")
        async with store.stalling(DEADLINE) as stall:
            assert_same_state(await self._at_last(lambda: stall.handle.load("t")), state)
            await stall.begin()
            query = asyncio.create_task(stall.query())
            await asyncio.wait({query}, timeout=self.patience)
            try:
                assert query.done(), f"a query goes on long after its deadline, {DEADLINE:g} s"
            finally:
                query.cancel()
                await stall.end()
            assert isinstance(query.exception(), BackendUnavailableError)
            assert_same_state(await self._at_last(lambda: stall.handle.load("t")), state)

    async def test_nobody_waits_for_a_stalled_query(self, checkpointer: Checkpointer, store: StallTestStore) -> None:
        state = AgentState().with_messages(conversation(3))
        await checkpointer.save(state, "t")
        async with store.stalling(NEVER) as stall:
            assert_same_state(await stall.handle.load("t"), state)
            await stall.begin()
            query = asyncio.create_task(stall.query())
            try:
                async with asyncio.timeout(self.patience):
                    await stall.reached()
                    assert_same_state(await checkpointer.load("t"), state)
                    assert await checkpointer.list_threads() == ["t"]
                assert not query.done(), "nothing stalled"
            finally:
                query.cancel()
                await asyncio.wait({query}, timeout=self.patience)
                await stall.end()
            assert query.cancelled(), "a query goes on that nobody waits for"

    async def _at_last(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a query until it is answered: on a busy machine it may take longer than the short deadline."""
        async with asyncio.timeout(self.patience):
            while True:
                try:
                    return await call()
                except BackendUnavailableError:
                    await asyncio.sleep(0)
