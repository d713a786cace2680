"""Deleting one checkpoint never breaks another."""

from __future__ import annotations

import random
from typing import ClassVar

from locus.core.state import AgentState
from locus.memory.checkpointer import Checkpointer
from locus.memory.engine import Engine
from locus.testing.data import conversation, message
from locus.testing.laws.base import (
    Laws,
    OpenHandle,
    assert_all_load,
    assert_same,
    assert_same_state,
    dicts,
    ids,
    parent_of,
    present,
)


async def _turns(handle: Checkpointer, count: int, thread_id: str = "t") -> dict[str, AgentState]:
    """Save a conversation that grows by a message a turn. Returns its states by checkpoint id, oldest first."""
    state = AgentState()
    saved: dict[str, AgentState] = {}
    for turn in range(count):
        state = state.with_message(message(turn)).with_metadata("large", f"{turn // 3} " * 600)
        saved[await handle.save(state, thread_id)] = state
    return saved


class DeletionLaws(Laws):
    """A deletion takes what it names, and leaves every other checkpoint as it was."""

    long_thread: ClassVar[int] = 1_100
    """The number of checkpoints in a long thread: more than most databases take in one statement."""

    winding_threads: ClassVar[int] = 4
    """The number of threads with random steps that are deleted one checkpoint after another."""

    async def test_deleting_the_newest_makes_the_one_before_it_the_latest(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        saved = await _turns(checkpointer, 5)
        order = list(saved)
        while len(order) > 1:
            assert await checkpointer.delete("t", order.pop())
            for handle in (checkpointer, open_handle()):
                assert_same_state(await handle.load("t"), saved[order[-1]])
                assert await handle.list_checkpoints("t") == order[::-1]

    async def test_a_deleted_checkpoint_is_gone(self, checkpointer: Checkpointer, open_handle: OpenHandle) -> None:
        first, second = await _turns(checkpointer, 2)
        await checkpointer.put_writes("t", second, "task", [("x", 1)])
        assert await checkpointer.delete("t", second)
        for handle in (checkpointer, open_handle()):
            assert await handle.load("t", second) is None
            assert not await handle.exists("t", second)
            assert await handle.exists("t", first)
            assert await handle.get_metadata("t", second) is None
            assert await handle.get_writes("t", second) == []
            assert not await handle.delete("t", second)

    async def test_deleting_what_is_not_there_is_false_and_changes_nothing(self, checkpointer: Checkpointer) -> None:
        saved = await _turns(checkpointer, 2)
        assert not await checkpointer.delete("t", "nothing")
        assert not await checkpointer.delete("u")
        assert not await checkpointer.delete("u", next(iter(saved)))
        assert not await checkpointer.delete("t", next(iter(saved)), namespace="other")
        assert not await checkpointer.delete("t", namespace="other")
        await assert_all_load(checkpointer, "t", saved)

    async def test_deleting_what_is_not_there_leaves_the_writes_that_wait_for_a_checkpoint(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        """A task may write before the first checkpoint of its thread is saved."""
        if not checkpointer.store.keeps_writes:
            return
        await checkpointer.put_writes("t", "not yet", "task", [("x", 1)])
        assert not await checkpointer.delete("t", "nothing")
        assert not await checkpointer.delete("t", namespace="other")
        async with checkpointer.store.using() as engine:
            assert await engine.delete("t", None, {1: "gone meanwhile"}) == 0
            assert await engine.trim("t", {1: "gone meanwhile"}) == 0
        assert len(await open_handle().get_writes("t", "not yet")) == 1

    async def test_what_is_stored_and_not_listed_can_be_found_and_deleted(self, checkpointer: Checkpointer) -> None:
        """Pending writes whose checkpoint never came are found if the engine can find them."""
        engine = checkpointer.store.engine
        if type(engine).unlisted is Engine.unlisted:
            return
        for thread_id in ("a/1", "a/2", "a/3", "a", "b/1"):
            await checkpointer.put_writes(thread_id, "not yet", "task", [("x", 1)])
        await checkpointer.save(AgentState(), "a/2")
        await checkpointer.save(AgentState(), "a/4")
        store = checkpointer.store
        assert await store.unlisted_threads("a/", "", 100) == ["a/1", "a/3"]
        assert await store.unlisted_threads("a/", "", 1) == ["a/1"]
        assert await store.unlisted_threads("a/", "a/1", 1) == ["a/3"]
        assert await store.unlisted_threads("", "", 100) == ["a", "a/1", "a/3", "b/1"]
        assert not await checkpointer.delete("a/1")
        assert await store.unlisted_threads("a/", "", 100) == ["a/3"]
        assert await checkpointer.get_writes("a/1", "not yet") == []
        assert len(await checkpointer.get_writes("a/3", "not yet")) == 1

    async def test_deleting_any_one_of_a_thread_leaves_the_others_loadable(self, checkpointer: Checkpointer) -> None:
        for victim in range(6):
            saved = await _turns(checkpointer, 6, f"t{victim}")
            gone = list(saved)[victim]
            assert await checkpointer.delete(f"t{victim}", gone)
            del saved[gone]
            await assert_all_load(checkpointer, f"t{victim}", saved)

    async def test_many_deletions_in_any_order_leave_the_others_loadable(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        for seed in range(self.winding_threads):
            chance = random.Random(seed)
            thread_id = f"t{seed}"
            saved = await self._winding_thread(checkpointer, thread_id, chance)
            doomed = list(saved)
            chance.shuffle(doomed)
            for checkpoint_id in doomed[:-1]:
                assert await checkpointer.delete(thread_id, checkpoint_id)
                del saved[checkpoint_id]
                if len(saved) % 5 == 1:
                    await assert_all_load(open_handle(), thread_id, saved)
            await assert_all_load(checkpointer, thread_id, saved)

    @staticmethod
    async def _winding_thread(handle: Checkpointer, thread_id: str, chance: random.Random) -> dict[str, AgentState]:
        """Save a thread with random appends, trims, edits and forks."""
        state, saved = AgentState(), dict[str, AgentState]()
        for turn in range(25):
            if saved and chance.random() < 0.2:
                state = await handle.load(thread_id, chance.choice(list(saved))) or state
            if chance.random() < 0.2:
                state = state.with_messages_replaced(state.messages[chance.randrange(len(state.messages) + 1) :])
            if state.messages and chance.random() < 0.3:
                state = state.with_messages_replaced(state.messages[:-1] + (message(turn * 100),))
            state = state.with_messages(conversation(chance.randrange(4), turn * 10))
            saved[await handle.save(state, thread_id)] = state
        return saved

    async def test_a_line_that_was_trimmed_does_not_decide_for_one_that_was_not(
        self, checkpointer: Checkpointer
    ) -> None:
        """Both lines show items of the same runs, one of them only the last few."""
        base = AgentState()
        for turn in range(3):
            base = base.with_messages(conversation(4, turn * 4))
            await checkpointer.save(base, "t", f"base {turn}")
        trimmed = base.with_messages_replaced(base.messages[-2:])
        longer = base.with_messages(conversation(4, 50))
        await checkpointer.save(trimmed, "t", "trimmed")
        await checkpointer.save(longer, "t", "longer")
        for turn in range(3):
            assert await checkpointer.delete("t", f"base {turn}")
            assert_same_state(await checkpointer.load("t", "trimmed"), trimmed)
            assert_same_state(await checkpointer.load("t", "longer"), longer)

    async def test_saving_goes_on_after_deletions(self, checkpointer: Checkpointer) -> None:
        chance = random.Random(5)
        state, saved = AgentState(), dict[str, AgentState]()
        for turn in range(30):
            state = state.with_message(message(turn))
            saved[await checkpointer.save(state, "t")] = state
            if turn % 2 and len(saved) > 2:
                doomed = chance.choice(list(saved))
                assert await checkpointer.delete("t", doomed)
                del saved[doomed]
        await assert_all_load(checkpointer, "t", saved)

    async def test_children_of_a_deleted_checkpoint_get_its_parent(self, checkpointer: Checkpointer) -> None:
        for name, parent in (("a", None), ("b", "a"), ("c", "b"), ("d", "b"), ("e", "d")):
            await checkpointer.save(AgentState(), "t", name, parent=parent)
        assert await checkpointer.delete("t", "b")
        assert [await parent_of(checkpointer, "t", name) for name in "acde"] == [None, "a", "a", "d"]
        assert await checkpointer.delete("t", "a")
        assert [await parent_of(checkpointer, "t", name) for name in "cde"] == [None, None, "d"]

    async def test_deleting_a_thread_removes_everything_of_it(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        saved = await _turns(checkpointer, 3)
        await checkpointer.save(AgentState(), "t", "c", namespace="")
        await checkpointer.save(AgentState(), "t", "c", namespace="other")
        await checkpointer.put_writes("t", "c", "task", [("x", 1)], namespace="other")
        await checkpointer.put_writes("t", next(iter(saved)), "task", [("x", 1)])
        await checkpointer.put_writes("t", "not yet", "task", [("x", 1)])
        assert await checkpointer.delete("t")
        for handle in (checkpointer, open_handle()):
            for namespace in ("default", "", "other"):
                assert await handle.load("t", namespace=namespace) is None
                assert await handle.history("t", namespace=namespace) == []
                for checkpoint_id in (*saved, "c", "not yet"):
                    assert await handle.get_writes("t", checkpoint_id, namespace=namespace) == []
            assert await handle.list_threads() == []
            assert await handle.list_with_metadata() == []
        assert not await checkpointer.delete("t")

    async def test_a_thread_of_more_than_a_thousand_checkpoints_is_deleted_whole(
        self, checkpointer: Checkpointer
    ) -> None:
        backend = dicts(checkpointer)
        for number in range(self.long_thread):
            await backend.save("t", {"n": number}, metadata={"n": number})
        assert len(await ids(backend, "t")) == self.long_thread
        assert await backend.delete("t")
        assert await ids(backend, "t") == []
        assert await backend.list_with_metadata() == []

    async def test_a_thread_that_is_made_anew_starts_clean(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        saved = await _turns(checkpointer, 3)
        assert await checkpointer.delete("t")
        state = AgentState().with_message(message(99))
        for handle in (checkpointer, open_handle()):
            fresh = AgentState.from_checkpoint(state.to_checkpoint())
            saved_as = await handle.save(fresh, "t", if_latest=None)
            (entry,) = await handle.history("t")
            assert (entry.checkpoint_id, entry.parent_id, entry.metadata) == (saved_as, None, {})
            assert_same_state(await handle.load("t"), state)
            for checkpoint_id in saved:
                assert await handle.load("t", checkpoint_id) is None
            assert await handle.delete("t")

    async def test_deleting_in_one_thread_touches_no_other(self, checkpointer: Checkpointer) -> None:
        shared = {"items": [{"n": index} for index in range(50)], "large": "same " * 500}
        backend = dicts(checkpointer)
        for thread_id in ("a", "b"):
            for checkpoint_id in ("1", "2"):
                await backend.save(thread_id, {**shared, "in": [thread_id, checkpoint_id]}, checkpoint_id)
        assert await backend.delete("a", "1")
        assert_same(await backend.load("a", "2"), {**shared, "in": ["a", "2"]})
        assert await backend.delete("a")
        for checkpoint_id in ("1", "2"):
            assert_same(await backend.load("b", checkpoint_id), {**shared, "in": ["b", checkpoint_id]})

    async def test_the_last_checkpoint_takes_the_thread_with_it(self, checkpointer: Checkpointer) -> None:
        (only,) = await _turns(checkpointer, 1)
        assert await checkpointer.delete("t", only)
        assert await checkpointer.load("t") is None
        assert not await checkpointer.exists("t")
        assert await checkpointer.list_threads() == []
        assert await checkpointer.save(AgentState(), "t", if_latest=None)

    async def test_what_is_trimmed_stays_when_the_line_it_was_trimmed_from_is_deleted(
        self, checkpointer: Checkpointer
    ) -> None:
        """Another line may write runs under the numbers that a deletion frees. They must not show in this line."""
        first = AgentState().with_messages([message(0), message(1)])
        one = await checkpointer.save(first, "t")
        second = first.with_message(message(2))
        two = await checkpointer.save(second, "t")
        trimmed = second.with_messages_replaced(second.messages[:2])
        three = await checkpointer.save(trimmed, "t")
        assert await checkpointer.delete("t", two)
        loaded = present(await checkpointer.load("t", one))
        edited = loaded.with_messages_replaced(loaded.messages[:1] + (message(9),))
        four = await checkpointer.save(edited, "t")
        await assert_all_load(checkpointer, "t", {one: first, three: trimmed, four: edited})

    async def test_what_was_chosen_for_deletion_is_not_what_came_after(self, checkpointer: Checkpointer) -> None:
        """A vacuum in another process looks first and deletes later. Meanwhile the thread may be begun anew."""
        await checkpointer.save(AgentState(agent_id="old"), "t")
        (old,) = await checkpointer.store.history("t", None, None, None)
        assert await checkpointer.delete("t")
        kept = await checkpointer.save(AgentState(agent_id="new"), "t")
        assert await checkpointer.store.engine.delete("t", None, {old.seq: old.rev}) == 0
        assert await checkpointer.list_checkpoints("t") == [kept]

    async def test_a_number_that_a_checkpoint_names_is_not_given_out_again(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        """Otherwise items of another line would show in a checkpoint that was saved long before."""
        first = AgentState().with_messages(conversation(3))
        await checkpointer.save(first, "t", "first")
        longer = first.with_message(message(4))
        await checkpointer.save(longer, "t", "longer")
        shorter = longer.with_messages_replaced(longer.messages[:2])
        await checkpointer.save(shorter, "t", "shorter")
        edited = longer.with_messages_replaced((*longer.messages[:3], message(5)))
        await checkpointer.save(edited, "t", "edited")
        for name in ("longer", "edited"):
            assert await open_handle().delete("t", name)
        other = first.with_messages_replaced((*first.messages[:1], message(6), message(7)))
        await checkpointer.save(other, "t", "other")
        await assert_all_load(open_handle(), "t", {"first": first, "shorter": shorter, "other": other})
