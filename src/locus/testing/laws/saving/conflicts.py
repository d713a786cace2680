"""Two writers: whoever says what it expects is told, and whoever does not loses nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from locus.core.state import AgentState
from locus.errors import ConflictError
from locus.memory.checkpointer import Checkpointer
from locus.testing.data import conversation, message
from locus.testing.laws.base import Laws, OpenHandle, assert_all_load, assert_same, dicts, ids, snapshot


class ConflictLaws(Laws):
    """A save that expects the wrong latest checkpoint is refused, and saves without an expectation all survive."""

    async def test_a_save_that_expects_the_right_latest_is_done(self, checkpointer: Checkpointer) -> None:
        state = AgentState()
        latest: str | None = None
        for turn in range(4):
            state = state.with_message(message(turn))
            latest = await checkpointer.save(state, "t", if_latest=latest)
        assert len(await ids(checkpointer, "t")) == 4
        latest = await dicts(checkpointer).save("t", {"d": 1}, if_latest=latest)
        assert (await ids(checkpointer, "t"))[0] == latest

    async def test_a_save_that_expects_the_wrong_latest_is_refused(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        first = await checkpointer.save(AgentState(), "t")
        second = await open_handle().save(AgentState(), "t")
        before = await snapshot(checkpointer)
        for wrong in (first, "never there", None):
            with pytest.raises(ConflictError) as caught:
                await checkpointer.save(AgentState().with_message(message(1)), "t", if_latest=wrong)
            assert (caught.value.expected, caught.value.latest) == (wrong, second)
            with pytest.raises(ConflictError):
                await dicts(checkpointer).save("t", {"large": "x" * 2_000, "l": [{}]}, "new id", if_latest=wrong)
        assert await snapshot(checkpointer) == before
        assert await checkpointer.load("t", "new id") is None

    async def test_expecting_a_checkpoint_of_a_thread_that_is_not_there_is_refused(
        self, checkpointer: Checkpointer
    ) -> None:
        with pytest.raises(ConflictError) as caught:
            await checkpointer.save(AgentState(), "t", if_latest="gone")
        assert (caught.value.expected, caught.value.latest) == ("gone", None)
        assert not await checkpointer.exists("t")
        assert await checkpointer.save(AgentState(), "t", if_latest=None)

    async def test_an_expectation_is_about_one_namespace(self, checkpointer: Checkpointer) -> None:
        first = await checkpointer.save(AgentState(), "t")
        await checkpointer.save(AgentState(), "t", namespace="other", if_latest=None)
        await checkpointer.save(AgentState(), "t", if_latest=first)
        with pytest.raises(ConflictError):
            await checkpointer.save(AgentState(), "t", namespace="other", if_latest=first)

    async def test_the_latest_that_was_deleted_is_the_latest_no_more(self, checkpointer: Checkpointer) -> None:
        first = await checkpointer.save(AgentState(), "t")
        second = await checkpointer.save(AgentState(), "t")
        await checkpointer.delete("t", second)
        with pytest.raises(ConflictError) as caught:
            await checkpointer.save(AgentState(), "t", if_latest=second)
        assert caught.value.latest == first
        assert await checkpointer.save(AgentState(), "t", if_latest=first)

    async def test_a_refused_state_can_be_saved_afterwards(self, checkpointer: Checkpointer) -> None:
        base = AgentState().with_messages(conversation(3))
        first = await checkpointer.save(base, "t")
        rival = base.with_message(message(50))
        second = await checkpointer.save(rival, "t")
        mine = base.with_message(message(60))
        with pytest.raises(ConflictError):
            await checkpointer.save(mine, "t", if_latest=first)
        third = await checkpointer.save(mine, "t", if_latest=second)
        await assert_all_load(checkpointer, "t", {first: base, second: rival, third: mine})

    @pytest.mark.parametrize("known", [True, False], ids=["same base", "fresh states"])
    async def test_of_many_that_expect_the_same_exactly_one_wins(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, known: bool
    ) -> None:
        base = AgentState().with_messages(conversation(3))
        for latest in (None, await checkpointer.save(base, "old")):
            thread_id = "old" if latest else "new"
            handles = [checkpointer, *(open_handle() for _ in range(3))]
            states = [(base if known else AgentState()).with_message(message(number)) for number in range(16)]
            answers = await asyncio.gather(
                *(handles[number % 4].save(state, thread_id, if_latest=latest) for number, state in enumerate(states)),
                return_exceptions=True,
            )
            winners = [answer for answer in answers if isinstance(answer, str)]
            assert len(winners) == 1, answers
            assert sum(isinstance(answer, ConflictError) for answer in answers) == 15
            assert await ids(checkpointer, thread_id) == [winners[0], *([latest] if latest else [])]
            assert await checkpointer.load(thread_id) == states[answers.index(winners[0])]

    async def test_concurrent_saves_without_an_expectation_all_survive(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        handles = [checkpointer, *(open_handle() for _ in range(3))]
        base = AgentState().with_messages(conversation(5))
        saved = {await checkpointer.save(base, "t"): base}
        states = [base.with_messages(conversation(2, number * 10)) for number in range(32)]
        names = await asyncio.gather(*(handles[n % 4].save(state, "t") for n, state in enumerate(states)))
        saved |= dict(zip(names, states, strict=True))
        assert len(saved) == 33
        await assert_all_load(open_handle(), "t", saved)
        seqs = [entry.seq for entry in await checkpointer.history("t", None)]
        assert seqs == sorted(set(seqs), reverse=True)

    async def test_concurrent_first_saves_all_survive(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        handles = [checkpointer, *(open_handle() for _ in range(7))]
        states = [AgentState().with_messages(conversation(3, number * 10)) for number in range(24)]
        names = await asyncio.gather(*(handles[n % 8].save(state, "t") for n, state in enumerate(states)))
        await assert_all_load(checkpointer, "t", dict(zip(names, states, strict=True)))
        history = await checkpointer.history("t", None)
        assert [entry.parent_id for entry in history] == [*(entry.checkpoint_id for entry in history[1:]), None]

    async def test_concurrent_dicts_all_survive(self, checkpointer: Checkpointer, open_handle: OpenHandle) -> None:
        backends = [dicts(checkpointer), dicts(open_handle()), dicts(open_handle())]
        common: list[Any] = [{"n": number} for number in range(20)]
        await backends[0].save("t", {"items": common})
        payloads = [{"items": [*common, {"by": number}], "large": f"{number} " * 500} for number in range(24)]
        names = await asyncio.gather(*(backends[n % 3].save("t", data) for n, data in enumerate(payloads)))
        assert len(await ids(checkpointer, "t")) == 25
        for name, data in zip(names, payloads, strict=True):
            assert_same(await backends[0].load("t", name), data)

    async def test_concurrent_saves_to_many_threads_do_not_mix(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        other = open_handle()

        async def converse(number: int) -> AgentState:
            state = AgentState(agent_id=f"agent {number}")
            for turn in range(5):
                state = state.with_message(message(number * 100 + turn))
                await (checkpointer if turn % 2 else other).save(state, f"t{number}")
            return state

        states = await asyncio.gather(*(converse(number) for number in range(12)))
        for number, state in enumerate(states):
            assert await checkpointer.load(f"t{number}") == state
            assert len(await ids(checkpointer, f"t{number}")) == 5

    async def test_readers_beside_a_writer_see_whole_states_only(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        """Every message of turn n contains n, so a torn read shows."""
        reader = dicts(open_handle())
        done = asyncio.Event()

        async def write() -> None:
            for turn in range(40):
                items = [{"turn": turn, "i": index} for index in range(20)]
                saved_as = await dicts(checkpointer).save("t", {"turn": turn, "items": items, "deep": {"l": items}})
                if turn % 3 == 2:
                    await checkpointer.delete("t", saved_as)
                await asyncio.sleep(0)
            done.set()

        async def read() -> int:
            seen = 0
            while not done.is_set():
                data = await reader.load("t")
                if data is not None:
                    seen += 1
                    assert {item["turn"] for item in data["items"]} == {data["turn"]}
                    assert data["deep"]["l"] == data["items"]
                    assert len(data["items"]) == 20
                await asyncio.sleep(0)
            return seen

        _, *seen = await asyncio.gather(write(), read(), read())
        assert all(seen)
