"""Pending writes: what tasks wrote since a checkpoint, before the next one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from locus.core.state import AgentState
from locus.errors import ConflictError
from locus.memory.checkpointer import Checkpointer, PendingWrite
from locus.memory.model.plan import Payload
from locus.testing.data import EXACT_VALUES
from locus.testing.laws.base import Laws, OpenHandle, assert_same, exact

_SPECIAL = {"__error__": -1, "__scheduled__": -2, "__interrupt__": -3, "__resume__": -4}


async def _found(handle: Checkpointer, **options: Any) -> list[tuple[str, int, str, Any]]:
    writes = await handle.get_writes("t", "c", **options)
    return [(write.task_id, write.idx, write.channel, write.value) for write in writes]


class PendingWritesLaws(Laws):
    """Pending writes come back as they were put, in order, and go with their checkpoint."""

    async def test_writes_come_back_as_they_were_put(self, checkpointer: Checkpointer, open_handle: OpenHandle) -> None:
        await checkpointer.save(AgentState(), "t", "c")
        await checkpointer.put_writes("t", "c", "task", [("a", 1), ("b", [2]), ("a", {"x": 3})], task_path="p/1")
        for handle in (checkpointer, open_handle()):
            assert await handle.get_writes("t", "c") == [
                PendingWrite("task", 0, "a", 1, "p/1"),
                PendingWrite("task", 1, "b", [2], "p/1"),
                PendingWrite("task", 2, "a", {"x": 3}, "p/1"),
            ]
            assert await handle.get_writes("t", "c", "other task") == []
            assert await handle.get_writes("t", "other checkpoint") == []
            assert await handle.get_writes("u", "c") == []

    async def test_every_value_is_kept(self, checkpointer: Checkpointer) -> None:
        await checkpointer.put_writes("t", "c", "task", [("x", value) for value in EXACT_VALUES])
        found = await checkpointer.get_writes("t", "c")
        assert [write.idx for write in found] == list(range(len(EXACT_VALUES)))
        assert_same([write.value for write in found], list(EXACT_VALUES))

    async def test_a_task_that_writes_again_replaces_its_own_writes_only(self, checkpointer: Checkpointer) -> None:
        await checkpointer.put_writes("t", "c", "one", [("a", 1), ("b", 2), ("c", 3)])
        await checkpointer.put_writes("t", "c", "two", [("a", 4)])
        await checkpointer.put_writes("t", "c", "one", [("z", True)])
        assert exact(await _found(checkpointer)) == exact([["one", 0, "z", True], ["two", 0, "a", 4]])
        await checkpointer.put_writes("t", "c", "one", [])
        assert await _found(checkpointer) == [("two", 0, "a", 4)]

    async def test_repeating_a_set_of_writes_changes_nothing(self, checkpointer: Checkpointer) -> None:
        writes = [("a", 1), ("__interrupt__", "stop"), ("b", [1])]
        for _ in range(3):
            await checkpointer.put_writes("t", "c", "task", writes, task_path="p")
        assert await _found(checkpointer) == [
            ("task", -3, "__interrupt__", "stop"),
            ("task", 0, "a", 1),
            ("task", 2, "b", [1]),
        ]

    async def test_the_order_is_task_path_task_and_index(self, checkpointer: Checkpointer) -> None:
        for path, task in (("b", "1"), ("a", "2"), ("", "9"), ("a", "10"), ("a", "1x"), ("é", "0"), ("B", "5")):
            await checkpointer.put_writes("t", "c", task, [("x", 1), ("__error__", 2), ("y", 3)], task_path=path)
        found = [(w.task_path, w.task_id, w.idx) for w in await checkpointer.get_writes("t", "c")]
        assert found == sorted(found)
        assert len(found) == 21

    async def test_more_than_ten_writes_are_ordered_by_number(self, checkpointer: Checkpointer) -> None:
        await checkpointer.put_writes("t", "c", "task", [("x", number) for number in range(120)])
        assert [value for *_, value in await _found(checkpointer)] == list(range(120))

    async def test_special_channels_are_kept_beside_the_others(self, checkpointer: Checkpointer) -> None:
        await checkpointer.put_writes("t", "c", "task", [(channel, channel) for channel in _SPECIAL])
        await checkpointer.put_writes("t", "c", "task", [("a", 1), ("b", 2)])
        await checkpointer.put_writes("t", "c", "task", [("a", 3)])
        expected = sorted((index, channel) for channel, index in _SPECIAL.items())
        writes = await _found(checkpointer)
        assert [(idx, channel) for _, idx, channel, _ in writes] == [*expected, (0, "a")]
        await checkpointer.put_writes("t", "c", "task", [("__error__", "again")])
        writes = await _found(checkpointer)
        assert [(idx, value) for _, idx, _, value in writes] == [
            *((index, channel) for index, channel in expected[:-1]),
            (-1, "again"),
        ]

    async def test_namespaces_checkpoints_and_threads_have_writes_of_their_own(
        self, checkpointer: Checkpointer
    ) -> None:
        places = [(t, c, n) for t in ("t", "u") for c in ("c", "d") for n in ("default", "", "other")]
        for place in places:
            await checkpointer.put_writes(*place[:2], "task", [("x", list(place))], namespace=place[2])
        for place in places:
            (write,) = await checkpointer.get_writes(*place[:2], namespace=place[2])
            assert write.value == list(place)

    async def test_writes_go_with_their_checkpoint_and_with_no_other(self, checkpointer: Checkpointer) -> None:
        for name in ("a", "b"):
            await checkpointer.save(AgentState(), "t", name)
            await checkpointer.save(AgentState(), "t", name, namespace="other")
            for namespace in ("default", "other"):
                await checkpointer.put_writes("t", name, "task", [("x", 1)], namespace=namespace)
        assert await checkpointer.delete("t", "a")
        assert await checkpointer.get_writes("t", "a") == []
        assert len(await checkpointer.get_writes("t", "b")) == 1
        assert len(await checkpointer.get_writes("t", "a", namespace="other")) == 1
        assert await checkpointer.delete("t")
        for namespace in ("default", "other"):
            assert await checkpointer.get_writes("t", "b", namespace=namespace) == []

    async def test_a_deleted_checkpoint_that_comes_back_has_no_old_writes(self, checkpointer: Checkpointer) -> None:
        for whole in (False, True):
            await checkpointer.save(AgentState(), "t", "root")
            await checkpointer.save(AgentState(), "t", "c")
            await checkpointer.put_writes("t", "c", "task", [("x", 1), ("__error__", 2)])
            assert await checkpointer.delete("t", None if whole else "c")
            await checkpointer.save(AgentState(), "t", "c")
            assert await checkpointer.get_writes("t", "c") == []

    async def test_writes_may_be_there_before_their_checkpoint(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        await checkpointer.put_writes("t", "c", "task", [("x", 1)])
        assert await checkpointer.list_threads() == []
        assert not await checkpointer.exists("t")
        assert not await checkpointer.exists("t", "c")
        assert await checkpointer.load("t") is None
        assert await checkpointer.history("t") == []
        assert await checkpointer.list_with_metadata() == []
        assert await open_handle().save(AgentState(), "t", "c", if_latest=None) == "c"
        assert await _found(open_handle()) == [("task", 0, "x", 1)]

    async def test_writes_beside_the_checkpoints_go_with_the_thread(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        """Leases are kept as writes of a checkpoint that is never saved, in a namespace that nothing else uses."""

        async def beside(handle: Checkpointer) -> list[Any]:
            return [write.value for write in await handle.get_writes("t", "beside", namespace="beside")]

        async def put(value: int) -> None:
            await checkpointer.put_writes("t", "beside", "task", [("x", value)], namespace="beside")

        for whole in (True, False):
            first = await checkpointer.save(AgentState(), "t")
            second = await checkpointer.save(AgentState(), "t")
            for value in (1, 2):
                await put(value)
            assert await beside(open_handle()) == [2]
            assert await checkpointer.list_checkpoints("t") == [second, first]
            assert await checkpointer.history("t", namespace="beside") == []
            assert {entry["namespace"] for entry in await checkpointer.list_with_metadata()} == {"default"}
            await checkpointer.delete("t", second)
            assert await beside(open_handle()) == [2]
            assert await checkpointer.delete("t", None if whole else first)
            assert await beside(open_handle()) == []
            await checkpointer.save(AgentState(), "t")
            assert await beside(open_handle()) == []
            await checkpointer.delete("t")

    async def test_saves_do_not_touch_the_writes_of_earlier_checkpoints(self, checkpointer: Checkpointer) -> None:
        await checkpointer.save(AgentState(), "t", "c")
        await checkpointer.put_writes("t", "c", "task", [("x", 1)])
        await checkpointer.save(AgentState(), "t", "d")
        await checkpointer.save(AgentState(), "t")
        assert await _found(checkpointer) == [("task", 0, "x", 1)]

    async def test_tasks_that_write_at_once_all_keep_their_writes(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        handles = [checkpointer, open_handle(), open_handle()]
        await checkpointer.save(AgentState(), "t", "c")
        await asyncio.gather(
            *(handles[n % 3].put_writes("t", "c", f"task {n:02}", [("x", n), ("y", -n)]) for n in range(24)),
            *(handles[n % 3].save(AgentState(), "t") for n in range(6)),
        )
        writes = await _found(checkpointer)
        assert writes == [
            write for n in range(24) for write in ((f"task {n:02}", 0, "x", n), (f"task {n:02}", 1, "y", -n))
        ]

    async def test_a_save_may_bring_writes_and_takes_them_back_if_it_is_refused(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        store = checkpointer.store
        if not store.commits_with_writes:
            return

        async def save(checkpoint_id: str, value: str, written: str | None = None, **options: Any) -> None:
            task = ("t", "default", "first", "task")
            one = store.task_writes(*task, [("x", written or value), ("y", "w" * 3_000)], "p", False)
            other = store.task_writes(*task[:2], checkpoint_id, "other", [("__error__", value)], "", True)
            payload = Payload({}, {"n": value}, frozen=False)
            await store.save(
                "t", payload, namespace="default", checkpoint_id=checkpoint_id, writes=[one, other], **options
            )

        async def found(checkpoint_id: str) -> list[tuple[str, Any]]:
            writes = await open_handle().get_writes("t", checkpoint_id)
            return [(write.channel, write.value) for write in writes]

        await save("first", "a", if_latest=None)
        assert await found("first") == [("__error__", "a"), ("x", "a"), ("y", "w" * 3_000)]
        await save("second", "b", parent="first")
        assert await found("first") == [("__error__", "a"), ("x", "b"), ("y", "w" * 3_000)]
        await save("second", "b", "again", parent="first")  # it is there already, but not what was written since
        assert ("x", "again") in await found("first")
        with pytest.raises(ConflictError):
            await save("third", "c", if_latest="first")
        assert await found("third") == []
        assert ("x", "again") in await found("first")
        twice = [store.task_writes("t", "default", "second", "task", [("x", n)], "", False) for n in (1, 2)]
        payload = Payload({}, {"n": "e"}, frozen=False)
        await store.save("t", payload, namespace="default", checkpoint_id="twice", writes=twice)
        assert ("x", 2) in await found("second")
        assert ("x", 1) not in await found("second")
        names = ("fourth", "fifth", "sixth", "seventh")
        await asyncio.gather(*(save(name, name) for name in names))
        for name in names:
            assert await found(name) == [("__error__", name)]
        assert dict(await found("first"))["x"] in names
