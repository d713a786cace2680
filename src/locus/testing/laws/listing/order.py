"""Checkpoints are in the order of their commits. Clocks only date them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from locus.core.state import AgentState
from locus.errors import CheckpointNotFoundError
from locus.memory.checkpointer import Checkpointer
from locus.testing.data import at, message
from locus.testing.laws.base import Clock, Laws, OpenHandle, assert_same, dicts, ids


async def _save_some(handle: Checkpointer, count: int, thread_id: str = "t") -> list[str]:
    """Save dicts one after the other. Returns their ids, oldest first."""
    return [await dicts(handle).save(thread_id, {"n": number}) for number in range(count)]


class OrderLaws(Laws):
    """The order of checkpoints is the order of their commits, whatever the clocks say."""

    async def test_the_newest_commit_is_the_latest(self, checkpointer: Checkpointer) -> None:
        saved = await _save_some(checkpointer, 5)
        assert await checkpointer.list_checkpoints("t") == saved[::-1]
        assert await dicts(checkpointer).load("t") == {"n": 4}

    async def test_a_clock_that_runs_backwards_changes_nothing(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, clock: Clock
    ) -> None:
        saved = []
        for number in range(6):
            clock.stop(at(1_000 - number * 60))
            handle = (checkpointer, open_handle())[number % 2]
            saved.append(await dicts(handle).save("t", {"n": number}, metadata={"m": number}))
            assert_same(await dicts(open_handle()).load("t"), {"n": number})
        assert await checkpointer.list_checkpoints("t") == saved[::-1]
        history = await checkpointer.history("t", None)
        assert [entry.checkpoint_id for entry in history] == saved[::-1]
        assert [entry.metadata["m"] for entry in history] == [5, 4, 3, 2, 1, 0]
        assert await checkpointer.get_metadata("t") == {"m": 5}

    async def test_a_clock_that_stands_still_changes_nothing(self, checkpointer: Checkpointer, clock: Clock) -> None:
        clock.stop(at(0))
        saved = await _save_some(checkpointer, 12)
        assert await ids(checkpointer, "t") == saved[::-1]
        assert await dicts(checkpointer).load("t") == {"n": 11}
        assert {entry.created_at for entry in await checkpointer.history("t", None)} == {at(0)}

    async def test_lists_over_all_threads_keep_the_order_inside_a_thread(
        self, checkpointer: Checkpointer, clock: Clock
    ) -> None:
        saved = []
        for number in range(4):
            clock.stop(at(1_000 - number * 60))
            saved.append(await checkpointer.save(AgentState(), "t", metadata={"k": "v"}))
        recent = await checkpointer.list_with_metadata()
        assert [found["checkpoint_id"] for found in recent] == saved[::-1]
        assert [found["checkpoint_id"] for found in await checkpointer.list_with_metadata(1)] == saved[-1:]

    async def test_the_time_of_a_checkpoint_is_kept_to_the_microsecond(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, clock: Clock
    ) -> None:
        moments = [at(5), datetime(1999, 12, 31, 23, 59, 59, 1, tzinfo=UTC), datetime(2038, 1, 19, 4, tzinfo=UTC)]
        for moment in moments:
            clock.stop(moment)
            await checkpointer.save(AgentState(), "t")
        found = [entry.created_at for entry in await open_handle().history("t")]
        assert found == moments[::-1]
        assert all(moment.utcoffset() == timedelta(0) for moment in found)

    async def test_sequence_numbers_rise_and_are_never_used_again(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        given: list[int] = []
        for number in range(12):
            handle = checkpointer if number % 3 else open_handle()
            saved_as = await dicts(handle).save("t", {"n": number})
            (newest, *_) = await checkpointer.history("t")
            assert newest.checkpoint_id == saved_as
            assert all(newest.seq > seq for seq in given)
            given.append(newest.seq)
            if number % 2 and number > 1:
                assert await handle.delete("t", saved_as)

    async def test_history_says_what_there_is_to_say_of_a_checkpoint(self, checkpointer: Checkpointer) -> None:
        before = datetime.now(UTC)
        first = await checkpointer.save(AgentState(), "t", metadata={"user": "eve", "n": [1, {}]})
        second = await checkpointer.save(AgentState(), "t")
        newest, oldest = await checkpointer.history("t")
        assert (oldest.thread_id, oldest.namespace) == ("t", "default")
        assert (oldest.checkpoint_id, oldest.parent_id) == (first, None)
        assert (newest.checkpoint_id, newest.parent_id) == (second, first)
        assert_same(oldest.metadata, {"user": "eve", "n": [1, {}]})
        assert newest.metadata == {}
        assert newest.seq > oldest.seq > 0
        assert before <= oldest.created_at <= newest.created_at <= datetime.now(UTC)

    async def test_history_can_be_read_page_by_page(self, checkpointer: Checkpointer) -> None:
        saved = (await _save_some(checkpointer, 11))[::-1]
        await _save_some(checkpointer, 3, "other")
        assert await checkpointer.list_checkpoints("t") == saved[:10]
        assert [entry.checkpoint_id for entry in await checkpointer.history("t")] == saved[:10]
        assert await ids(checkpointer, "t") == saved
        names: list[str] = []
        while page := await checkpointer.history("t", 4, before=names[-1] if names else None):
            assert len(page) <= 4
            names += [entry.checkpoint_id for entry in page]
        assert names == saved
        assert await checkpointer.history("t", None, before=saved[3]) == (await checkpointer.history("t", None))[4:]
        assert await checkpointer.history("t", 0, before=saved[3]) == []

    async def test_paging_goes_on_where_checkpoints_were_deleted(self, checkpointer: Checkpointer) -> None:
        saved = (await _save_some(checkpointer, 8))[::-1]
        for checkpoint_id in (saved[1], saved[4], saved[5]):
            assert await checkpointer.delete("t", checkpoint_id)
        page = await checkpointer.history("t", 3, before=saved[2])
        assert [entry.checkpoint_id for entry in page] == [saved[3], saved[6], saved[7]]

    async def test_history_before_an_unknown_checkpoint_is_an_error(self, checkpointer: Checkpointer) -> None:
        await _save_some(checkpointer, 2)
        elsewhere = await checkpointer.save(AgentState(), "t", namespace="other")
        for before in ("nothing", elsewhere):
            with pytest.raises(CheckpointNotFoundError):
                await checkpointer.history("t", before=before)
        with pytest.raises(CheckpointNotFoundError):
            await checkpointer.history("no thread", before="nothing")

    async def test_a_second_handle_sees_a_save_at_once(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        other = open_handle()
        state = AgentState()
        for number in range(5):
            state = state.with_message(message(number))
            writer, reader = (checkpointer, other) if number % 2 else (other, checkpointer)
            saved_as = await writer.save(state, "t")
            assert await reader.load("t") == state
            assert (await reader.list_checkpoints("t"))[0] == saved_as
