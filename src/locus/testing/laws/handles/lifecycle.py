"""The life of a handle: opened, closed and opened again, used from several OS threads and event loops."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from locus.core.state import AgentState
from locus.memory.checkpointer import Checkpointer
from locus.testing.data import conversation, message
from locus.testing.laws.base import Laws, OpenHandle, assert_same, assert_same_state, dicts, ids, present
from locus.testing.stores import TestStore


async def _converse(handle: Checkpointer, thread_id: str, turns: int) -> AgentState:
    """Continue a conversation, turn by turn, and return its last state."""
    state = await handle.load(thread_id) or AgentState(agent_id=thread_id)
    for turn in range(turns):
        state = state.with_message(message(len(state.messages) + turn))
        await handle.save(state, thread_id)
    return state


class HandleLaws(Laws):
    """Handles can be closed and used again, block or not, and serve several event loops."""

    async def test_close_can_be_repeated_and_use_afterwards_opens_anew(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        await open_handle().close()
        state = AgentState().with_messages(conversation(3))
        await checkpointer.save(state, "t")
        for turn in range(3):
            await checkpointer.close()
            await checkpointer.close()
            assert_same_state(await checkpointer.load("t"), state)
            await checkpointer.close()
            state = state.with_message(message(turn))
            await checkpointer.save(state, "t")
        assert_same_state(await open_handle().load("t"), state)

    async def test_closing_one_handle_closes_no_other(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        other = open_handle()
        await checkpointer.save(AgentState(), "t")
        await other.save(AgentState(), "t")
        await other.close()
        await checkpointer.save(AgentState(), "t")
        assert len(await ids(checkpointer, "t")) == 3

    async def test_a_handle_is_a_context(self, store: TestStore) -> None:
        state = AgentState().with_messages(conversation(2))
        async with store.open() as handle:
            await handle.save(state, "t")
        async with store.open() as handle, dicts(handle) as backend:
            assert_same_state(await handle.load("t"), state)
            await backend.save("d", {"n": 1})
        async with store.open() as handle:
            assert_same(await dicts(handle).load("d"), {"n": 1})

    async def test_the_first_uses_may_come_all_at_once(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        handles = [checkpointer, *(open_handle() for _ in range(7))]
        await asyncio.gather(*(handles[n % 8].save(AgentState(), f"t{n:02}") for n in range(32)))
        assert await checkpointer.list_threads() == [f"t{n:02}" for n in range(32)]

    async def test_the_sync_face_works_inside_a_running_loop(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        sync = checkpointer.sync
        state = AgentState().with_messages(conversation(3))
        first = sync.save(state, "t", metadata={"n": 1})
        second = sync.save(state.with_message(message(4)), "t", if_latest=first)
        assert_same_state(sync.load("t", first), state)
        assert sync.list_checkpoints("t") == [second, first]
        assert [entry.parent_id for entry in sync.history("t")] == [first, None]
        assert sync.exists("t")
        assert sync.get_metadata("t", first) == {"n": 1}
        assert len(sync.diff("t", first, second).added) == 1
        sync.put_writes("t", second, "task", [("x", 1)])
        assert [write.value for write in sync.get_writes("t", second)] == [1]
        assert sync.list_threads() == ["t"]
        assert len(sync.list_with_metadata()) == 2
        assert sync.vacuum(keep_last=1, dry_run=True) == 1
        assert sync.capabilities == checkpointer.capabilities
        assert sync.delete("t", first)
        sync.close()
        assert await open_handle().list_checkpoints("t") == [second]
        assert await checkpointer.list_checkpoints("t") == [second]

    async def test_the_sync_face_of_dicts(self, checkpointer: Checkpointer) -> None:
        with dicts(checkpointer).sync as sync:
            saved_as = sync.save("t", {"n": [1, {"x": None}]})
            assert_same(sync.load("t"), {"n": [1, {"x": None}]})
            assert sync.list_checkpoints("t") == [saved_as]
        assert_same(await dicts(checkpointer).load("t"), {"n": [1, {"x": None}]})

    async def test_the_sync_face_works_from_several_threads_at_once(self, checkpointer: Checkpointer) -> None:
        start = threading.Barrier(4)

        def converse(number: int) -> AgentState:
            state = AgentState()
            start.wait(timeout=30)
            for turn in range(6):
                state = state.with_message(message(number * 10 + turn))
                checkpointer.sync.save(state, f"t{number}")
                checkpointer.sync.save(state, "shared")
            return state

        with ThreadPoolExecutor(4) as pool:
            states = await asyncio.gather(
                *(asyncio.get_running_loop().run_in_executor(pool, converse, n) for n in range(4))
            )
        for number, state in enumerate(states):
            assert_same_state(await checkpointer.load(f"t{number}"), state)
        assert len(await ids(checkpointer, "shared")) == 24

    async def test_one_handle_serves_several_loops_at_once(self, checkpointer: Checkpointer) -> None:
        start = threading.Barrier(3)

        async def work(number: int) -> AgentState:
            start.wait(timeout=30)
            state, _ = await asyncio.gather(
                _converse(checkpointer, f"t{number}", 5), _converse(checkpointer, "shared", 5)
            )
            return state

        def loop_of(number: int) -> AgentState:
            return asyncio.run(work(number))

        states = await asyncio.gather(*(asyncio.to_thread(loop_of, number) for number in range(3)))
        for number, state in enumerate(states):
            assert_same_state(await checkpointer.load(f"t{number}"), state)
            assert len(await ids(checkpointer, f"t{number}")) == 5
        assert len(await ids(checkpointer, "shared")) == 15
        for name in await ids(checkpointer, "shared"):
            assert await checkpointer.load("shared", name) is not None

    async def test_one_handle_serves_loops_one_after_another(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        await _converse(checkpointer, "t", 2)
        for _ in range(3):
            state = await asyncio.to_thread(lambda: asyncio.run(_converse(checkpointer, "t", 2)))
            assert_same_state(await checkpointer.load("t"), state)
            await _converse(checkpointer, "t", 1)
        assert len(await ids(open_handle(), "t")) == 11

    async def test_a_handle_closed_in_one_loop_works_in_another(self, checkpointer: Checkpointer) -> None:
        async def work() -> None:
            await _converse(checkpointer, "t", 2)
            await checkpointer.close()

        for _ in range(2):
            await asyncio.to_thread(lambda: asyncio.run(work()))
            assert await checkpointer.exists("t")
        assert len(await ids(checkpointer, "t")) == 4

    async def test_a_cancelled_save_leaves_the_handle_usable(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        base = AgentState().with_messages(conversation(3))
        await checkpointer.save(base, "t", "base")
        for number in range(20):
            task = asyncio.ensure_future(checkpointer.save(base.with_message(message(number)), "t", f"c{number}"))
            for _ in range(number % 5):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled() or task.result() == f"c{number}"
        last = base.with_message(message(99))
        saved_as = await checkpointer.save(last, "t", "last")
        assert (await ids(checkpointer, "t"))[0] == saved_as
        for name in await ids(checkpointer, "t"):
            loaded = present(await open_handle().load("t", name))
            assert loaded.messages[:3] == base.messages
            assert len(loaded.messages) == (3 if name == "base" else 4)
