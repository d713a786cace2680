"""Stale bases: the checkpoint that a save builds on may be gone, replaced or made anew by then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from locus.core.state import AgentState
from locus.memory.checkpointer import Checkpointer
from locus.testing.data import conversation, message
from locus.testing.laws.base import (
    Clock,
    Laws,
    OpenHandle,
    assert_all_load,
    assert_same,
    assert_same_state,
    dicts,
    ids,
    present,
)

_LARGE = "large " * 400


def _base_state() -> AgentState:
    return AgentState().with_messages(conversation(8)).with_metadata({"large": _LARGE, "log": conversation_log(30)})


def conversation_log(count: int) -> list[dict[str, Any]]:
    return [{"entry": number, "text": "something happened"} for number in range(count)]


async def _delete_checkpoint(handle: Checkpointer) -> None:
    assert await handle.delete("t", "base")


async def _delete_thread(handle: Checkpointer) -> None:
    assert await handle.delete("t")


async def _vacuum(handle: Checkpointer) -> None:
    assert await handle.vacuum(older_than_days=0) > 0


async def _recreate_with_other_ids(handle: Checkpointer) -> None:
    await _delete_thread(handle)
    await handle.save(AgentState().with_messages(conversation(5, 50)), "t")


async def _recreate_with_the_same_id(handle: Checkpointer) -> None:
    await _delete_thread(handle)
    other = AgentState().with_messages(conversation(8, 50)).with_metadata("large", "other " * 400)
    await handle.save(other, "t", "base")


async def _recreate_with_equal_content(handle: Checkpointer) -> None:
    await _delete_thread(handle)
    await handle.save(_base_state(), "t", "base")


async def _replace(handle: Checkpointer) -> None:
    await handle.save(AgentState().with_messages(conversation(9, 70)), "t", "base")


async def _replace_and_put_back(handle: Checkpointer) -> None:
    stored = present(await dicts(handle).load("t", "base"))
    await _replace(handle)
    await dicts(handle).save("t", stored, "base")


async def _recreate_and_grow(handle: Checkpointer) -> None:
    await _recreate_with_the_same_id(handle)
    state = present(await handle.load("t"))
    for turn in range(4):
        state = state.with_message(message(900 + turn))
        await handle.save(state, "t")


Disturbance = Callable[[Checkpointer], Awaitable[None]]

DISTURBANCES: dict[str, Disturbance] = {
    "the checkpoint is deleted": _delete_checkpoint,
    "the thread is deleted": _delete_thread,
    "the checkpoint is vacuumed": _vacuum,
    "the thread is made anew": _recreate_with_other_ids,
    "the thread is made anew with the same id": _recreate_with_the_same_id,
    "the thread is made anew with the same content": _recreate_with_equal_content,
    "the thread is made anew and grows": _recreate_and_grow,
    "the checkpoint is replaced": _replace,
    "the checkpoint is replaced and put back": _replace_and_put_back,
}


async def _contents(handle: Checkpointer) -> dict[str, Any]:
    return {name: await dicts(handle).load("t", name) for name in await ids(handle, "t")}


class StaleBaseLaws(Laws):
    """A delta is only attached to the checkpoint that it was made for. Otherwise the state is saved whole."""

    @pytest.mark.parametrize("disturbance", DISTURBANCES)
    @pytest.mark.parametrize("by_another", [False, True], ids=["by itself", "by another handle"])
    async def test_a_state_whose_base_is_gone_is_saved_whole(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, disturbance: str, by_another: bool
    ) -> None:
        other = open_handle()
        saved = _base_state()
        await checkpointer.save(saved, "t", "base")
        loaded = present(await checkpointer.load("t"))
        await DISTURBANCES[disturbance](other if by_another else checkpointer)
        before = await _contents(other)
        children = {}
        for number, base in enumerate((saved, loaded)):
            child = base.with_message(message(100 + number)).with_metadata("log", conversation_log(31))
            children[await checkpointer.save(child, "t")] = child
        for handle in (checkpointer, open_handle()):
            for name, child in children.items():
                assert_same_state(await handle.load("t", name), child)
            contents = await _contents(handle)
            for name, data in before.items():
                assert_same(contents[name], data)

    @pytest.mark.parametrize("disturbance", DISTURBANCES)
    async def test_a_dict_after_a_disturbance_is_saved_whole(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, disturbance: str
    ) -> None:
        other = open_handle()
        data = {**_base_state().to_checkpoint(), "deep": {"er": conversation_log(30)}}
        await dicts(checkpointer).save("t", data, "base")
        await DISTURBANCES[disturbance](other)
        before = await _contents(other)
        longer = {**data, "deep": {"er": conversation_log(31)}}
        saved_as = await dicts(checkpointer).save("t", longer)
        again = await dicts(checkpointer).save("t", {**longer, "n": 1})
        contents = await _contents(open_handle())
        assert_same(contents, {**before, saved_as: longer, again: {**longer, "n": 1}})

    async def test_a_base_that_outlives_its_branch_mates_is_continued(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        """The end of a list is deleted, and two savers write it again, each believing to be the first."""
        other = open_handle()
        base = AgentState().with_messages(conversation(4))
        saved = {await checkpointer.save(base, "t"): base}
        theirs = present(await other.load("t"))
        mine = base
        for turn in range(12):
            mine, theirs = mine.with_message(message(200 + turn)), theirs.with_message(message(300 + turn))
            ends = {await checkpointer.save(mine, "t"): mine, await other.save(theirs, "t"): theirs}
            doomed = list(ends)[turn % 2]
            assert await (other if turn % 3 else checkpointer).delete("t", doomed)
            saved |= {name: state for name, state in ends.items() if name != doomed}
        await assert_all_load(open_handle(), "t", saved)

    async def test_states_of_two_handles_interleave(self, checkpointer: Checkpointer, open_handle: OpenHandle) -> None:
        """Each of three handles saves from the state that it last knew, while others delete checkpoints."""
        handles = [checkpointer, open_handle(), open_handle()]
        known = [AgentState().with_messages(conversation(3, n * 20)) for n in range(3)]
        saved: dict[str, AgentState] = {}
        for turn in range(36):
            who = turn * 7 % 3
            known[who] = known[who].with_messages_replaced(
                known[who].messages[turn % 4 == 3 :] + tuple(conversation(turn % 3, turn * 10))
            )
            saved[await handles[who].save(known[who], "t")] = known[who]
            if turn % 5 == 4:
                doomed = list(saved)[turn * 3 % len(saved)]
                assert await handles[turn % 3].delete("t", doomed)
                del saved[doomed]
            if turn % 11 == 10:
                known[(who + 1) % 3] = await handles[(who + 1) % 3].load("t") or known[who]
        await assert_all_load(handles[0], "t", saved)

    async def test_savers_and_a_deleter_at_once(self, checkpointer: Checkpointer, open_handle: OpenHandle) -> None:
        saved: dict[str, AgentState] = {}
        deleted: set[str] = set()

        async def save_some(handle: Checkpointer, number: int) -> None:
            state = AgentState().with_messages(conversation(3, number * 100))
            for turn in range(10):
                state = state.with_message(message(number * 100 + 10 + turn))
                saved[await handle.save(state, "t")] = state
                await asyncio.sleep(0)

        async def delete_some(handle: Checkpointer) -> None:
            while len(deleted) < 15:
                await asyncio.sleep(0)
                doomed = next((name for name in reversed(saved) if name not in deleted), None)
                if doomed is not None:
                    assert await handle.delete("t", doomed)
                    deleted.add(doomed)

        handles = [open_handle() for _ in range(4)]
        await asyncio.gather(delete_some(checkpointer), *(save_some(h, n) for n, h in enumerate(handles)))
        expected = {name: state for name, state in saved.items() if name not in deleted}
        await assert_all_load(open_handle(), "t", expected)

    async def test_a_thread_deleted_under_running_savers_is_whole_or_gone(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, clock: Clock
    ) -> None:
        clock.shift(days=-1)
        saved: dict[str, AgentState] = {}

        async def save_some(handle: Checkpointer, number: int) -> None:
            state = AgentState().with_messages(conversation(5, number * 100))
            for turn in range(8):
                state = state.with_message(message(number * 100 + turn))
                saved[await handle.save(state, "t")] = state
                await asyncio.sleep(0)

        async def disturb(handle: Checkpointer) -> None:
            for turn in range(6):
                await asyncio.sleep(0)
                await (handle.vacuum(older_than_days=0) if turn % 2 else handle.delete("t"))

        handles = [open_handle() for _ in range(3)]
        await asyncio.gather(disturb(checkpointer), *(save_some(h, n) for n, h in enumerate(handles)))
        left = await ids(checkpointer, "t")
        assert set(left) <= set(saved)
        for name in left:
            assert_same_state(await open_handle().load("t", name), saved[name])
