"""The checkpoint that was the latest at a moment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import ConfigurationError
from locus.looking.revisions import first_of, latest_at, moment_of
from locus.memory.backends import MemoryCheckpointer
from locus.memory.model.records import Entry


async def _saved(checkpointer: MemoryCheckpointer, count: int) -> list[Entry]:
    state = AgentState()
    for at in range(count):
        state = state.with_message(Message.user(str(at)))
        await checkpointer.save(state, "t")
    return (await checkpointer.store.history("t", None, None, None))[::-1]


async def test_the_newest_that_was_saved_by_then() -> None:
    checkpointer = MemoryCheckpointer()
    entries = await _saved(checkpointer, 23)
    for entry in entries:
        latest = [one for one in entries if one.created_at <= entry.created_at][-1]
        assert await latest_at(checkpointer.store, "t", None, entry.created_at) == latest
    last = entries[-1]
    assert await latest_at(checkpointer.store, "t", None, datetime.now(UTC) + timedelta(days=1)) == last


async def test_nothing_was_there_yet() -> None:
    checkpointer = MemoryCheckpointer()
    entries = await _saved(checkpointer, 3)
    before = entries[0].created_at - timedelta(seconds=1)
    assert await latest_at(checkpointer.store, "t", None, before) is None
    assert await latest_at(checkpointer.store, "nobody", None, before) is None


async def test_removed_checkpoints_leave_gaps() -> None:
    checkpointer = MemoryCheckpointer()
    entries = await _saved(checkpointer, 12)
    for removed in (0, 1, 5, 6, 7):
        await checkpointer.delete("t", entries[removed].checkpoint_id)
    left = (await checkpointer.store.history("t", None, None, None))[::-1]
    assert len(left) == 7
    for entry in left:
        latest = [one for one in left if one.created_at <= entry.created_at][-1]
        assert await latest_at(checkpointer.store, "t", None, entry.created_at) == latest


async def test_the_first_that_is_still_there() -> None:
    checkpointer = MemoryCheckpointer()
    entries = await _saved(checkpointer, 23)
    for entry in entries:
        first = await first_of(checkpointer.store, "t", None)
        assert first is not None
        assert first.seq == entry.seq
        await checkpointer.delete("t", entry.checkpoint_id)
    assert await first_of(checkpointer.store, "t", None) is None


def test_a_time_without_a_fraction_is_the_end_of_its_second() -> None:
    second = datetime(2026, 11, 16, 14, 3, 20, tzinfo=UTC)
    end = second + timedelta(microseconds=999_999)
    for text in ("2026-11-16T14:03:20", "2026-11-16 14:03:20+00:00", "2026-11-16T15:03:20+01:00"):
        assert moment_of(text) == end
    assert moment_of("2026-11-16T14:03") == end - timedelta(seconds=20)
    assert moment_of("2026-11-16T14:03:20.000") == second
    assert moment_of("2026-11-16T14:03:20.5Z") == second + timedelta(seconds=0.5)
    for wrong in ("", "soon", "25:00", "9999-12-31T23:59:59-10:00"):
        with pytest.raises(ConfigurationError, match="a time is written as"):
            moment_of(wrong)
