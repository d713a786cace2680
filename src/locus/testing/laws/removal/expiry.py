"""Expiry: threads that end by themselves, some time after their last save."""

from __future__ import annotations

import asyncio

import pytest

from locus.core.state import AgentState
from locus.errors import ConfigurationError
from locus.memory.checkpointer import Checkpointer
from locus.testing.data import conversation, message
from locus.testing.laws.base import Clock, Laws, OpenHandle, assert_same_state, ids
from locus.testing.stores import TestStore

_HOUR = 3_600.0


async def _save_expired(handle: Checkpointer, clock: Clock, thread_id: str, word: str = "w") -> str:
    """Save with a clock so far behind that the thread has ended by now."""
    clock.shift(days=-2)
    state = AgentState().with_messages(conversation(3)).with_error(word)
    saved_as = await handle.save(state, thread_id, metadata={"k": "v"})
    clock.shift()
    return saved_as


class ExpiryLaws(Laws):
    """A thread saved with `ttl_seconds` is gone that long after its last save."""

    async def test_a_thread_is_there_until_its_time_has_come(self, open_handle: OpenHandle) -> None:
        handle = open_handle(ttl_seconds=_HOUR)
        state = AgentState().with_messages(conversation(2))
        await handle.save(state, "t")
        for reader in (handle, open_handle()):
            assert_same_state(await reader.load("t"), state)
            assert await reader.list_threads() == ["t"]

    async def test_an_expired_thread_is_seen_by_nobody(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, clock: Clock
    ) -> None:
        handle = open_handle(ttl_seconds=_HOUR)
        ended = await _save_expired(handle, clock, "ended", "platypus")
        await checkpointer.save(AgentState(), "stays", metadata={"k": "v"})
        for reader in (handle, checkpointer, open_handle()):
            assert await reader.load("ended") is None
            assert await reader.load("ended", ended) is None
            assert not await reader.exists("ended")
            assert not await reader.exists("ended", ended)
            assert await reader.history("ended") == []
            assert await reader.list_checkpoints("ended") == []
            assert await reader.get_metadata("ended") is None
            assert await reader.get_writes("ended", ended) == []
            assert await reader.list_threads() == ["stays"]
            assert [hit["thread_id"] for hit in await reader.list_with_metadata()] == ["stays"]
            if self.required.search:
                assert await reader.search("platypus") == []
            if self.required.metadata_query:
                assert [hit["thread_id"] for hit in await reader.query_by_metadata("k", "v")] == ["stays"]

    async def test_an_expired_thread_cannot_be_copied_or_deleted(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, clock: Clock
    ) -> None:
        handle = open_handle(ttl_seconds=_HOUR)
        ended = await _save_expired(handle, clock, "ended")
        if self.required.branching:
            assert not await checkpointer.copy_thread("ended", "copy")
            assert not await checkpointer.copy_thread("ended", "copy", ended)
        assert await checkpointer.list_namespaces("ended") == []
        assert not await checkpointer.delete("ended", ended)
        assert not await checkpointer.delete("ended")

    async def test_a_thread_ends_by_itself(self, open_handle: OpenHandle) -> None:
        handle = open_handle(ttl_seconds=0.2)
        await handle.save(AgentState(), "t")
        await asyncio.sleep(0.3)
        assert await handle.load("t") is None
        assert await open_handle().list_threads() == []

    async def test_each_save_gives_the_thread_its_time_again(self, open_handle: OpenHandle, clock: Clock) -> None:
        handle = open_handle(ttl_seconds=_HOUR)
        clock.shift(seconds=2 - _HOUR)
        first = await handle.save(AgentState(), "t")
        await handle.save(AgentState(), "not saved again")
        clock.shift()
        second = await handle.save(AgentState(), "t")
        await asyncio.sleep(2.1)
        assert await ids(handle, "t") == [second, first]
        assert await handle.list_threads() == ["t"]

    async def test_a_save_after_the_end_starts_afresh(self, open_handle: OpenHandle, clock: Clock) -> None:
        handle = open_handle(ttl_seconds=_HOUR)
        old = AgentState().with_messages(conversation(4)).with_metadata("large", "x" * 3_000)
        await handle.put_writes("t", "same id", "task", [("x", 1)])
        clock.shift(days=-2)
        await handle.save(old, "t", "same id")
        clock.shift()
        state = old.with_message(message(9))
        saved_as = await handle.save(state, "t", "same id", if_latest=None)
        for reader in (handle, open_handle()):
            (entry,) = await reader.history("t")
            assert (entry.checkpoint_id, entry.parent_id) == (saved_as, None)
            assert_same_state(await reader.load("t"), state)
            assert await reader.get_writes("t", "same id") == []

    async def test_vacuum_removes_what_has_expired(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, clock: Clock
    ) -> None:
        await _save_expired(open_handle(ttl_seconds=_HOUR), clock, "ended")
        await checkpointer.save(AgentState(), "stays")
        await checkpointer.vacuum()
        assert await checkpointer.list_threads() == ["stays"]

    async def test_threads_without_a_time_to_live_stay(self, checkpointer: Checkpointer, clock: Clock) -> None:
        clock.shift(days=-20_000)
        await checkpointer.save(AgentState(), "t")
        clock.shift()
        assert await checkpointer.exists("t")

    async def test_a_time_to_live_that_is_no_time_is_refused(self, store: TestStore) -> None:
        for bad in (0, -1, float("nan")):
            with pytest.raises(ConfigurationError):
                store.open(ttl_seconds=bad)
