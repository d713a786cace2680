"""Forks: a state remembers the checkpoint it came from, and names it as the parent of the next."""

from __future__ import annotations

import copy

import pytest

from locus.core.state import AgentState, ToolExecution
from locus.errors import CheckpointNotFoundError
from locus.memory.checkpointer import Checkpointer
from locus.testing.data import conversation, message
from locus.testing.laws.base import (
    Laws,
    OpenHandle,
    assert_all_load,
    assert_same_state,
    dicts,
    ids,
    parent_of,
    present,
    snapshot,
)


class LineageLaws(Laws):
    """A save has the right parent, and all lines of a fork stay loadable."""

    async def test_a_state_loaded_from_an_old_checkpoint_forks_there(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        state = AgentState()
        saved: dict[str, AgentState] = {}
        for turn in range(4):
            state = state.with_message(message(turn))
            saved[await checkpointer.save(state, "t")] = state
        main = list(saved)
        for handle in (checkpointer, open_handle()):
            forked = present(await handle.load("t", main[1])).with_message(message(100))
            fork = await handle.save(forked, "t")
            saved[fork] = forked
            assert await parent_of(handle, "t", fork) == main[1]
            assert (await handle.list_checkpoints("t"))[0] == fork
        again = state.with_message(message(4))
        saved[await checkpointer.save(again, "t")] = again
        assert await parent_of(checkpointer, "t", list(saved)[-1]) == main[3]
        await assert_all_load(open_handle(), "t", saved)

    async def test_every_derived_state_inherits_where_it_came_from(self, checkpointer: Checkpointer) -> None:
        first = await checkpointer.save(AgentState().with_messages(conversation(3)), "t")
        await checkpointer.save(AgentState(), "t")
        state = present(await checkpointer.load("t", first))
        derived = {
            "itself": state,
            "with_message": state.with_message(message(7)),
            "with_messages": state.with_messages(conversation(2, 8)),
            "with_messages_replaced": state.with_messages_replaced(state.messages[1:]),
            "with_iteration": state.with_iteration(3),
            "next_iteration": state.next_iteration(),
            "with_tool_execution": state.with_tool_execution(ToolExecution(tool_name="t", tool_call_id="c")),
            "with_confidence": state.with_confidence(0.5),
            "with_error": state.with_error("e"),
            "with_metadata": state.with_metadata("k", 1),
            "with_token_usage": state.with_token_usage(1, 2),
            "model_copy": state.model_copy(update={"agent_id": "x"}),
            "copy": copy.copy(state),
            "deepcopy": copy.deepcopy(state),
            "a chain": state.next_iteration().with_error("x").with_message(message(9)),
        }
        for how, child in derived.items():
            saved_as = await checkpointer.save(child, "t")
            assert await parent_of(checkpointer, "t", saved_as) == first, how
            assert_same_state(await checkpointer.load("t", saved_as), child)

    async def test_a_state_that_was_saved_continues_from_there(self, checkpointer: Checkpointer) -> None:
        """States that were derived before the save continue from it, too: siblings have the same parent."""
        state = AgentState().with_message(message(0))
        early = state.with_message(message(1))
        first = await checkpointer.save(state, "t")
        second = await checkpointer.save(state.with_message(message(2)), "t")
        third = await checkpointer.save(state.with_message(message(3)), "t")
        assert await parent_of(checkpointer, "t", second) == first
        assert await parent_of(checkpointer, "t", third) == first
        await checkpointer.save(early, "t")
        assert_same_state(await checkpointer.load("t"), early)

    async def test_a_fresh_state_and_a_dict_follow_the_latest(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        expected: list[str] = []
        for number in range(6):
            handle = (checkpointer, open_handle())[number % 2]
            if number % 3:
                expected.append(await handle.save(AgentState(), "t"))
            else:
                expected.append(await dicts(handle).save("t", {"n": number}))
        history = await checkpointer.history("t", None)
        assert [entry.checkpoint_id for entry in history] == expected[::-1]
        assert [entry.parent_id for entry in history] == [*expected[-2::-1], None]

    async def test_a_parent_can_be_named(self, checkpointer: Checkpointer) -> None:
        first = await checkpointer.save(AgentState(), "t")
        await checkpointer.save(AgentState(), "t")
        state = present(await checkpointer.load("t"))
        named = await checkpointer.save(state, "t", parent=first)
        assert await parent_of(checkpointer, "t", named) == first
        from_dict = await dicts(checkpointer).save("t", {"d": 1}, parent=first)
        assert await parent_of(checkpointer, "t", from_dict) == first
        root = await checkpointer.save(state.with_error("x"), "t", parent=None)
        assert await parent_of(checkpointer, "t", root) is None

    async def test_a_parent_that_is_not_there_is_refused_and_nothing_is_written(
        self, checkpointer: Checkpointer
    ) -> None:
        saved_as = await checkpointer.save(AgentState(), "t")
        elsewhere = await checkpointer.save(AgentState(), "u")
        hidden = await checkpointer.save(AgentState(), "t", namespace="other")
        before = await snapshot(checkpointer)
        for parent in ("nothing", elsewhere, hidden):
            for thread_id in ("t", "new"):
                with pytest.raises(CheckpointNotFoundError):
                    await checkpointer.save(AgentState(), thread_id, parent=parent)
                with pytest.raises(CheckpointNotFoundError):
                    await dicts(checkpointer).save(thread_id, {}, parent=parent)
        assert await snapshot(checkpointer) == before
        assert await ids(checkpointer, "t") == [saved_as]

    async def test_where_a_state_was_kept_is_no_part_of_what_it_is(self, checkpointer: Checkpointer) -> None:
        state = AgentState().with_message(message(0))
        same = AgentState.from_checkpoint(state.to_checkpoint())
        await checkpointer.save(state, "t")
        assert state == same
        assert await checkpointer.load("t") == same
        assert await checkpointer.load("t") == state

    async def test_the_memory_of_one_thread_is_not_taken_to_another(self, checkpointer: Checkpointer) -> None:
        state = AgentState().with_messages(conversation(5))
        first = await checkpointer.save(state, "t")
        longer = state.with_message(message(9))
        places = (("u", "default"), ("t", "other"))
        for thread_id, namespace in places:
            await checkpointer.save(longer, thread_id, namespace=namespace)
            (entry,) = await checkpointer.history(thread_id, namespace=namespace)
            assert entry.parent_id is None
        assert await checkpointer.delete("t", first)
        for thread_id, namespace in places:
            assert_same_state(await checkpointer.load(thread_id, namespace=namespace), longer)

    async def test_two_lines_grow_side_by_side(self, checkpointer: Checkpointer, open_handle: OpenHandle) -> None:
        other = open_handle()
        base = AgentState().with_messages(conversation(4))
        saved = {await checkpointer.save(base, "t"): base}
        root = next(iter(saved))
        lines = {checkpointer: base, other: present(await other.load("t"))}
        newest = dict.fromkeys(lines, root)
        for turn in range(20):
            for handle in lines:
                lines[handle] = lines[handle].with_message(message(turn + (500 if handle is other else 0)))
                saved_as = await handle.save(lines[handle], "t")
                assert await parent_of(handle, "t", saved_as) == newest[handle]
                newest[handle] = saved_as
                saved[saved_as] = lines[handle]
        await assert_all_load(open_handle(), "t", saved)
