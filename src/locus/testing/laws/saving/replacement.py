"""Saving again under an id that exists: a repeat changes nothing, anything else becomes the newest."""

from __future__ import annotations

import asyncio
from typing import Any

from locus.core.state import AgentState
from locus.memory.checkpointer import Checkpointer
from locus.testing.data import conversation, message, rich_state
from locus.testing.laws.base import (
    Laws,
    OpenHandle,
    assert_all_load,
    assert_same,
    assert_same_state,
    dicts,
    entry_of,
    ids,
    parent_of,
    snapshot,
)


class ReplacementLaws(Laws):
    """A checkpoint id names one checkpoint: an equal save changes nothing, another one replaces it."""

    async def test_a_repeated_save_changes_nothing(self, checkpointer: Checkpointer, open_handle: OpenHandle) -> None:
        state = rich_state()
        await checkpointer.save(state, "t", "a", {"user": "eve"})
        await checkpointer.save(AgentState(), "t", "b")
        before = await snapshot(checkpointer)
        again = AgentState.from_checkpoint(state.to_checkpoint())
        for handle in (checkpointer, open_handle()):
            for copy in (state, again):
                assert await handle.save(copy, "t", "a", {"user": "eve"}) == "a"
                assert await handle.save(copy, "t", "a") == "a"
        assert await snapshot(open_handle()) == before
        assert_same_state(await checkpointer.load("t", "a"), state)

    async def test_a_retry_with_the_same_expectation_is_safe(self, checkpointer: Checkpointer) -> None:
        """The answer to the first attempt was lost, so the checkpoint itself is the latest now."""
        first = await checkpointer.save(AgentState(), "t")
        state = AgentState().with_message(message(1))
        for _ in range(2):
            assert await checkpointer.save(state, "t", "mine", if_latest=first) == "mine"
        assert await ids(checkpointer, "t") == ["mine", first]

    async def test_another_payload_replaces_and_becomes_the_newest(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        states = {name: AgentState().with_messages(conversation(4, index)) for index, name in enumerate("abc")}
        for name, state in states.items():
            await checkpointer.save(state, "t", name)
        old = await entry_of(checkpointer, "t", "a")
        states["a"] = AgentState(agent_id="another").with_messages(conversation(3, 2))
        assert await open_handle().save(states["a"], "t", "a", {"m": 2}) == "a"
        assert await ids(checkpointer, "t") == ["a", "c", "b"]
        new = await entry_of(checkpointer, "t", "a")
        assert new.seq > old.seq
        assert new.metadata == {"m": 2}
        await assert_all_load(checkpointer, "t", states)
        assert_same_state(await checkpointer.load("t"), states["a"])

    async def test_a_value_that_differs_only_in_its_type_is_another_payload(self, checkpointer: Checkpointer) -> None:
        backend = dicts(checkpointer)
        values: tuple[Any, ...] = (1, True, 1.0, 0, -0.0, 0.0, False, None, [], {}, "", "1")
        for value in values:
            await backend.save("t", {"v": value, "l": [{"v": value}] * 30}, "same")
            assert_same(await backend.load("t", "same"), {"v": value, "l": [{"v": value}] * 30})
        assert await ids(backend, "t") == ["same"]

    async def test_other_metadata_replaces_too(self, checkpointer: Checkpointer) -> None:
        state = AgentState()
        await checkpointer.save(state, "t", "a", {"n": 1})
        await checkpointer.save(AgentState(), "t", "b")
        await checkpointer.save(state, "t", "a", {"n": True})
        assert_same(await checkpointer.get_metadata("t", "a"), {"n": True})
        assert await ids(checkpointer, "t") == ["a", "b"]

    async def test_the_lines_stay_trees_when_an_ancestor_is_replaced(self, checkpointer: Checkpointer) -> None:
        """After a ← b ← c, a is saved again from the state of c. No checkpoint may become its own ancestor."""
        state = AgentState()
        for name in "abc":
            state = state.with_message(message(ord(name)))
            await checkpointer.save(state, "t", name)
        state = state.with_message(message(0))
        await checkpointer.save(state, "t", "a")
        for name in "abc":
            seen, at = [name], await parent_of(checkpointer, "t", name)
            while at is not None:
                assert at not in seen
                seen.append(at)
                at = await parent_of(checkpointer, "t", at)
        assert await checkpointer.vacuum(keep_last=1) == 2
        assert_same_state(await checkpointer.load("t"), state)

    async def test_a_state_saved_under_its_own_id_again_and_again_keeps_its_parent(
        self, checkpointer: Checkpointer
    ) -> None:
        root = await checkpointer.save(AgentState(), "t")
        state = AgentState().with_messages(conversation(3))
        for turn in range(20):
            state = state.with_messages_replaced(state.messages[turn % 2 :] + tuple(conversation(3, turn)))
            await checkpointer.save(state, "t", "scratch")
            assert await parent_of(checkpointer, "t", "scratch") == root
            assert_same_state(await checkpointer.load("t"), state)
        assert await ids(checkpointer, "t") == ["scratch", root]

    async def test_others_keep_what_they_shared_with_a_replaced_checkpoint(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        base = AgentState().with_messages(conversation(6)).with_metadata("large", "x" * 3_000)
        await checkpointer.save(base, "t", "a")
        longer = base.with_messages(conversation(4, 10))
        await checkpointer.save(longer, "t", "b")
        other = AgentState().with_message(message(99))
        await open_handle().save(other, "t", "a")
        await assert_all_load(checkpointer, "t", {"a": other, "b": longer})
        later = longer.with_message(message(100))
        await checkpointer.save(later, "t", "c")
        stale = base.with_message(message(101))
        await checkpointer.save(stale, "t", "d")
        await assert_all_load(open_handle(), "t", {"a": other, "b": longer, "c": later, "d": stale})

    async def test_writers_of_one_id_leave_one_of_their_payloads(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        keep = AgentState().with_messages(conversation(2))
        await checkpointer.save(keep, "t", "keep")
        handles = [checkpointer, *(open_handle() for _ in range(3))]
        states = [AgentState(agent_id=f"writer {n}").with_messages(conversation(3, n)) for n in range(6)]
        await asyncio.gather(*(handles[n % 4].save(state, "t", "same") for n, state in enumerate(states)))
        assert set(await ids(checkpointer, "t")) == {"same", "keep"}
        assert await checkpointer.load("t", "same") in states
        assert_same_state(await checkpointer.load("t", "keep"), keep)

    async def test_the_same_save_at_once_from_many_handles_is_one_checkpoint(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        state = rich_state()
        handles = [checkpointer, *(open_handle() for _ in range(3))]
        names = await asyncio.gather(*(handle.save(state, "t", "same") for handle in handles * 3))
        assert set(names) == {"same"}
        (entry,) = await checkpointer.history("t")
        assert entry.parent_id is None
        assert_same_state(await checkpointer.load("t"), state)
