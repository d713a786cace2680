"""Outages: a store that cannot be reached says so. For stores that something can make unreachable."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from locus.core.state import AgentState
from locus.errors import BackendUnavailableError
from locus.memory.checkpointer import Checkpointer
from locus.memory.saver import CheckpointSaver
from locus.testing.data import conversation, message
from locus.testing.laws.base import Laws, OpenHandle, assert_all_load, assert_same_state, dicts, raised
from locus.testing.stores import OutageTestStore


async def _assert_unavailable(call: Awaitable[object], verb: str) -> None:
    failure = await raised(BackendUnavailableError, call, f"during an outage, {verb}")
    assert failure.__cause__ is not None, f"{verb} lost the driver's own error"


class OutageLaws(Laws):
    """During an outage every call raises: `None` means "not there", and never "could not tell"."""

    @pytest.mark.parametrize("warm", [True, False], ids=["warm handle", "cold handle"])
    async def test_nothing_is_answered_that_could_not_be_found_out(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, store: OutageTestStore, warm: bool
    ) -> None:
        state = AgentState().with_messages(conversation(3))
        await checkpointer.save(state, "t", "a", {"k": "v"})
        handle = checkpointer if warm else open_handle()
        async with store.outage():
            for verb, call in self._verbs(handle, state).items():
                await _assert_unavailable(call(), verb)
        for reader in (handle, open_handle()):
            await assert_all_load(reader, "t", {"a": state})
            assert await reader.list_threads() == ["t"]
            assert await reader.get_writes("t", "a") == []

    def _verbs(self, handle: Checkpointer, state: AgentState) -> dict[str, Callable[[], Awaitable[object]]]:
        verbs: dict[str, Callable[[], Awaitable[object]]] = {
            "load": lambda: handle.load("t"),
            "load by id": lambda: handle.load("t", "a"),
            "exists": lambda: handle.exists("t"),
            "save": lambda: handle.save(state.with_message(message(9)), "t", "b"),
            "dict save": lambda: dicts(handle).save("new", {"n": 1}),
            "list_checkpoints": lambda: handle.list_checkpoints("t"),
            "history": lambda: handle.history("t"),
            "list_threads": lambda: handle.list_threads(),
            "list_namespaces": lambda: handle.list_namespaces("t"),
            "list_with_metadata": lambda: handle.list_with_metadata(),
            "get_metadata": lambda: handle.get_metadata("t"),
            "delete": lambda: handle.delete("t"),
            "delete by id": lambda: handle.delete("t", "a"),
            "vacuum": lambda: handle.vacuum(0),
            "put_writes": lambda: handle.put_writes("t", "a", "task", [("x", 1)]),
            "get_writes": lambda: handle.get_writes("t", "a"),
            "diff": lambda: handle.diff("t", "a", "a"),
        }
        if self.required.search:
            verbs["search"] = lambda: handle.search("message")
        if self.required.metadata_query:
            verbs["query_by_metadata"] = lambda: handle.query_by_metadata("k", "v")
        if self.required.branching:
            verbs["copy_thread"] = lambda: handle.copy_thread("t", "copy")
        return verbs

    async def test_a_saver_answers_nothing_that_could_not_be_found_out(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, store: OutageTestStore
    ) -> None:
        saver = CheckpointSaver(checkpointer)
        place: dict[str, Any] = {"thread_id": "t", "checkpoint_ns": ""}
        first = {**place, "checkpoint_id": "a"}
        await saver.put(**first, checkpoint_data={"n": 0})
        verbs: dict[str, Callable[[], Awaitable[object]]] = {
            "get": lambda: saver.get(**place),
            "list_checkpoints": lambda: saver.list_checkpoints(**place),
            "put": lambda: saver.put(**(first | {"checkpoint_id": "b"}), checkpoint_data={"n": 1}),
            "put_writes": lambda: saver.put_writes(**first, task_id="task", writes=[("__error__", 1)]),
            "delete_thread": lambda: saver.delete_thread(thread_id="t"),
        }
        async with store.outage():
            for verb, call in verbs.items():
                await _assert_unavailable(call(), f"a saver's {verb}")
        listed = await CheckpointSaver(open_handle()).list_checkpoints(**place)
        assert [each["checkpoint"] for each in listed] == [{"n": 0}]

    async def test_a_handle_goes_on_where_it_was_after_an_outage(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, store: OutageTestStore
    ) -> None:
        state = AgentState().with_messages(conversation(3))
        saved = {await checkpointer.save(state, "t"): state}
        for turn in range(3):
            state = state.with_message(message(10 + turn))
            async with store.outage():
                await _assert_unavailable(checkpointer.save(state, "t", f"turn {turn}"), "save")
            saved[await checkpointer.save(state, "t", f"turn {turn}")] = state
        await assert_all_load(open_handle(), "t", saved)

    async def test_what_a_handle_holds_is_of_use_after_an_outage(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, store: OutageTestStore
    ) -> None:
        """Held checkpoints do not stand in for a store that cannot be reached."""
        state = AgentState().with_messages(conversation(4))
        await checkpointer.save(state, "t")
        assert_same_state(await checkpointer.load("t"), state)
        async with store.outage():
            await _assert_unavailable(checkpointer.load("t"), "load")
            await _assert_unavailable(dicts(checkpointer).load("t"), "dict load")
        state = state.with_message(message(9))
        await open_handle().save(state, "t")
        assert_same_state(await checkpointer.load("t"), state)
        assert_same_state(AgentState.from_checkpoint(await dicts(checkpointer).load("t") or {}), state)

    async def test_a_handle_can_be_closed_during_an_outage(
        self, checkpointer: Checkpointer, store: OutageTestStore
    ) -> None:
        await checkpointer.save(AgentState(), "t")
        async with store.outage():
            await checkpointer.close()
        assert await checkpointer.exists("t")
