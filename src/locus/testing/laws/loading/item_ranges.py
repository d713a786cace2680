"""Ranges: some items of a list, read without the rest, are those that a whole load gives."""

from __future__ import annotations

from typing import Any

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import ConfigurationError, CorruptCheckpointError, InvalidIdError
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.parts import ItemPage
from locus.testing.data import CHANGES, HOSTILE_KEYS, conversation, message
from locus.testing.laws.base import Laws, OpenHandle, assert_same, dicts, present
from locus.testing.stores import TestStore

_RANGES = ((0, 50), (0, 0), (0, 1), (3, 4), (7, 1), (-1, 1), (-3, 2), (-3, 50), (-99, 3), (99, 5), (2, 2**53 - 1))


async def _check(handle: Checkpointer, thread_id: str, checkpoint_id: str | None, total: int) -> None:
    stored = present(await dicts(handle).load(thread_id, checkpoint_id))
    whole = stored["messages"]
    assert len(whole) == total
    for start, count in _RANGES:
        found = await handle.read_items(thread_id, checkpoint_id, start=start, count=count)
        first = max(0, len(whole) + start) if start < 0 else min(start, len(whole))
        assert found == ItemPage(whole[first : first + count], len(whole), first), (start, count)
        assert_same(found.items, whole[first : first + count])


class ItemRangeLaws(Laws):
    """`read_items` gives the items of a range, and refuses what is no range of a list."""

    async def test_a_range_is_what_a_whole_load_has_there(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        """The checkpoints come from appends, edits at the end and in the middle, and a trimmed front."""
        state, saved = AgentState(), dict[str, int]()
        for turn in range(9):
            change = CHANGES[("keep", "edit last", "edit middle", "trim")[turn % 4]]
            messages = change(state.messages, (message(turn + 900),))
            state = state.with_messages_replaced(messages + tuple(conversation(3, turn * 3)))
            saved[await checkpointer.save(state, "t")] = len(state.messages)
        for handle in (checkpointer, open_handle()):
            for checkpoint_id in [*saved][::3]:
                await _check(handle, "t", checkpoint_id, saved[checkpoint_id])
            await _check(handle, "t", None, [*saved.values()][-1])

    async def test_a_range_after_a_fork(self, checkpointer: Checkpointer) -> None:
        state = AgentState().with_messages(conversation(6))
        first = await checkpointer.save(state, "t")
        await checkpointer.save(state.with_message(message(50)), "t")
        await checkpointer.save(state.with_message(message(51)), "t", "fork", parent=first)
        await _check(checkpointer, "t", "fork", 7)

    async def test_every_list_of_a_payload_can_be_read(self, checkpointer: Checkpointer) -> None:
        backend = dicts(checkpointer)
        data: dict[str, Any] = {key: {"inner": [{key: number} for number in range(5)]} for key in HOSTILE_KEYS}
        data |= {"empty": [], "large": {"text": "x" * 5_000, "of": {"lists": [1, 2, 3]}}, "deep": [[1], [2, [3]]]}
        saved = await backend.save("t", data)
        for key in HOSTILE_KEYS:
            page = await backend.read_items("t", saved, path=(key, "inner"), start=1, count=2)
            assert page == ItemPage(data[key]["inner"][1:3], 5, 1), key
        assert await backend.read_items("t", path=["empty"]) == ItemPage([], 0, 0)
        assert await backend.read_items("t", path=("large", "of", "lists"), start=-1) == ItemPage([3], 3, 2)
        assert await backend.read_items("t", path=("deep",), count=1, start=1) == ItemPage([[2, [3]]], 2, 1)

    async def test_what_is_not_there_is_none_and_what_is_no_list_is_an_error(self, checkpointer: Checkpointer) -> None:
        saved = await dicts(checkpointer).save("t", {"messages": [1], "n": 1, "large": "x" * 5_000, "d": {"e": 1}})
        assert await checkpointer.read_items("t", "another") is None
        assert await checkpointer.read_items("another") is None
        assert await checkpointer.read_items("t", saved, namespace="another") is None
        for path in (
            ("n",),
            ("large",),
            ("d",),
            ("d", "e"),
            ("d", "e", "f"),
            ("none",),
            ("messages", "0"),
            ("large", "x"),
        ):
            with pytest.raises(ConfigurationError, match="no list"):
                await checkpointer.read_items("t", path=path)

    async def test_bad_ranges_are_refused(self, checkpointer: Checkpointer) -> None:
        await dicts(checkpointer).save("t", {"messages": [1, 2, 3]})
        bad: Any
        for bad in ({"path": "messages"}, {"path": ()}, {"path": (1,)}, {"path": None}, {"start": "1"}, {"start": 1.0}):
            with pytest.raises(ConfigurationError):
                await checkpointer.read_items("t", **bad)
        for bad in (
            {"count": -1},
            {"count": None},
            {"count": True},
            {"count": "5"},
            {"start": 2**60},
            {"count": 2**60},
        ):
            with pytest.raises(ConfigurationError):
                await checkpointer.read_items("t", **bad)
        with pytest.raises(InvalidIdError):
            await checkpointer.read_items("")

    async def test_damage_is_an_error_where_it_is_read(self, checkpointer: Checkpointer, store: TestStore) -> None:
        await checkpointer.save(AgentState().with_message(Message.user("hi")), "t")
        await store.corrupt("t")
        with pytest.raises(CorruptCheckpointError):
            await checkpointer.read_items("t")

    def test_the_sync_face_reads_ranges(self, checkpointer: Checkpointer) -> None:
        checkpointer.sync.save(AgentState().with_messages(conversation(4)), "t")
        found = present(checkpointer.sync.read_items("t", start=-1))
        assert (len(found.items), found.total, found.start) == (1, 4, 3)
