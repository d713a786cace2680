"""Damage: stored data that cannot be read is an error, and is never reported as "not there"."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable
from traceback import format_exception
from typing import TypeVar

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import ConflictError, CorruptCheckpointError, DamagedThreadsWarning
from locus.memory.checkpointer import Checkpointer
from locus.testing.data import conversation, message
from locus.testing.laws.base import Laws, OpenHandle, assert_same_state, dicts
from locus.testing.stores import TestStore

T = TypeVar("T")


async def _or_corrupt(call: Awaitable[T]) -> T | None:
    """The answer of a query; None if the query says that the thread is corrupt."""
    try:
        return await call
    except CorruptCheckpointError:
        return None


async def _saved_and_damaged(checkpointer: Checkpointer, store: TestStore) -> str:
    """Save a state in the thread "t", and damage it. Returns the id of its checkpoint."""
    saved_as = await checkpointer.save(AgentState().with_messages(conversation(6)), "t")
    await store.corrupt("t")
    checkpointer.cache_clear()  # what a handle holds it does not read, so that damage there is not noticed
    return saved_as


class DamageLaws(Laws):
    """Damage is told as an error, in the damaged thread and nowhere else."""

    async def test_a_damaged_state_raises(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, store: TestStore
    ) -> None:
        saved_as = await _saved_and_damaged(checkpointer, store)
        for handle in (checkpointer, open_handle()):
            for checkpoint_id in (None, saved_as):
                with pytest.raises(CorruptCheckpointError):
                    await handle.load("t", checkpoint_id)
                with pytest.raises(CorruptCheckpointError):
                    await dicts(handle).load("t", checkpoint_id)
            with pytest.raises(CorruptCheckpointError):
                await handle.diff("t", saved_as, saved_as)

    async def test_a_report_of_damage_shows_nothing_of_the_thread(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, store: TestStore
    ) -> None:
        """Errors and their causes end up in logs, so they quote nothing."""
        thread_id, secret = "eve-and-her-bank", "the number is 4711"
        state = AgentState(agent_id="a").with_messages([Message.user(secret), Message.assistant(secret)])
        await checkpointer.save(state, thread_id, metadata={"note": secret})
        await store.corrupt(thread_id)
        checkpointer.cache_clear()
        for handle in (checkpointer, open_handle()):
            for call in (handle.load(thread_id), dicts(handle).load(thread_id)):
                with pytest.raises(CorruptCheckpointError) as caught:
                    await call
                told = "".join(format_exception(caught.value))
                assert thread_id not in told
                assert "4711" not in told

    async def test_a_damaged_thread_is_there(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, store: TestStore
    ) -> None:
        saved_as = await _saved_and_damaged(checkpointer, store)
        for handle in (checkpointer, open_handle()):
            assert await _or_corrupt(handle.exists("t")) is not False
            assert await _or_corrupt(handle.exists("t", saved_as)) is not False
            assert await _or_corrupt(handle.list_checkpoints("t")) in (None, [saved_as])
            assert await _or_corrupt(handle.list_threads()) in (None, ["t"])

    async def test_damage_in_one_thread_does_not_reach_another(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, store: TestStore
    ) -> None:
        state = AgentState().with_messages(conversation(6))
        for thread_id in ("damaged", "whole"):
            await checkpointer.save(state, thread_id)
        await store.corrupt("damaged")
        for handle in (checkpointer, open_handle()):
            assert_same_state(await handle.load("whole"), state)
        longer = state.with_message(message(9))
        await checkpointer.save(longer, "whole")
        assert_same_state(await open_handle().load("whole"), longer)

    async def test_damage_in_one_thread_does_not_stop_lists_of_all(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, store: TestStore
    ) -> None:
        """Lists leave the damaged thread out or name it, and warn. A query for that thread raises the error."""
        state = AgentState().with_messages(conversation(6))
        for thread_id in ("a", "damaged", "z"):
            await checkpointer.save(state, thread_id, metadata={"k": 1})
        await store.corrupt("damaged")
        handle = open_handle()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DamagedThreadsWarning)
            listed = await handle.list_threads()
            recent = await handle.list_with_metadata()
            matching = await handle.query_by_metadata("k", 1) if handle.capabilities.metadata_query else recent
            newest = (await handle.recent_threads(titles=True)).threads
        assert [thread.thread_id for thread in newest if thread.thread_id != "damaged"] == ["z", "a"]
        assert set(listed) - {"damaged"} == {"a", "z"}
        for entries in (recent, matching):
            assert [entry["thread_id"] for entry in entries if entry["thread_id"] != "damaged"] == ["z", "a"]
        with pytest.raises(CorruptCheckpointError):
            await handle.load("damaged")

    async def test_a_damaged_thread_does_not_pass_for_a_new_one(
        self, open_handle: OpenHandle, store: TestStore
    ) -> None:
        """A save that expects no thread must not begin one over data that cannot be read."""
        first = await open_handle().save(AgentState().with_messages(conversation(6)), "t")
        await store.corrupt("t")
        handle = open_handle()
        with pytest.raises((ConflictError, CorruptCheckpointError)):
            await handle.save(AgentState(), "t", if_latest=None)
        with pytest.raises((ConflictError, CorruptCheckpointError)):
            await dicts(handle).save("t", {"n": 1}, if_latest=None)
        assert await _or_corrupt(handle.list_checkpoints("t")) in (None, [first])

    async def test_a_damaged_thread_can_be_deleted_and_made_anew(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, store: TestStore
    ) -> None:
        await checkpointer.save(AgentState().with_messages(conversation(6)), "t")
        await store.corrupt("t")
        assert await open_handle().delete("t")
        assert not await checkpointer.exists("t")
        state = AgentState().with_message(message(1))
        await open_handle().save(state, "t", if_latest=None)
        assert_same_state(await checkpointer.load("t"), state)
