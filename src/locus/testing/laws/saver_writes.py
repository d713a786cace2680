"""What the versioned saver does with pending writes, and with everything that a thread has when it ends."""

from __future__ import annotations

import asyncio
from typing import Any

from locus.memory.saver import CheckpointSaver
from locus.testing.laws.base import assert_same
from locus.testing.laws.saver_checkpoints import OpenSaver, SaverFixtures, listed, put

KEYS = {"task_id", "idx", "channel", "value", "task_path"}


async def put_writes(saver: CheckpointSaver, task_id: str, *writes: tuple[str, Any], **options: Any) -> None:
    place = {"thread_id": "t", "checkpoint_id": "c"} | options
    await saver.put_writes(task_id=task_id, writes=list(writes), **place)


async def found(saver: CheckpointSaver, **options: Any) -> list[tuple[str, int, str, Any]]:
    writes = await saver.get_writes(**({"thread_id": "t", "checkpoint_id": "c"} | options))
    assert all(set(write) == KEYS for write in writes)
    return [(write["task_id"], write["idx"], write["channel"], write["value"]) for write in writes]


class SaverWritesLaws(SaverFixtures):
    """`put_writes`, `get_writes` and `delete_thread`."""

    async def test_a_task_replaces_its_own_writes(self, saver: CheckpointSaver, open_saver: OpenSaver) -> None:
        await put(saver, "c")
        await put_writes(saver, "one", ("a", 1), ("b", [2]), ("a", {"x": None}))
        await put_writes(saver, "two", ("a", 4))
        for _ in range(2):
            await put_writes(open_saver(), "one", ("z", True), ("y", 0.0))
        for reader in (saver, open_saver()):
            expected = [("one", 0, "z", True), ("one", 1, "y", 0.0), ("two", 0, "a", 4)]
            assert_same(await found(reader), expected)
            assert await found(reader, task_id="two") == [("two", 0, "a", 4)]
        await put_writes(saver, "one")
        assert await found(saver) == [("two", 0, "a", 4)]

    async def test_special_and_numbered_writes_leave_each_other_alone(
        self, saver: CheckpointSaver, open_saver: OpenSaver
    ) -> None:
        await put(saver, "c")
        await put_writes(saver, "task", ("a", 1), ("b", 2))
        await put_writes(saver, "task", ("__interrupt__", "stop"), ("__resume__", [1]))
        both = [("task", -4, "__resume__", [1]), ("task", -3, "__interrupt__", "stop")]
        assert await found(open_saver()) == [*both, ("task", 0, "a", 1), ("task", 1, "b", 2)]
        await put_writes(saver, "task", ("c", 3))
        assert await found(open_saver()) == [*both, ("task", 0, "c", 3)]
        await put_writes(saver, "task", ("__resume__", "old"), ("__resume__", "again"))
        both[0] = ("task", -4, "__resume__", "again")
        assert await found(open_saver()) == [*both, ("task", 0, "c", 3)]
        await put_writes(saver, "task", ("d", 4), ("__error__", "broke"), ("e", 5))
        special = [*both, ("task", -1, "__error__", "broke")]
        assert await found(open_saver()) == [*special, ("task", 0, "d", 4), ("task", 2, "e", 5)]
        await put_writes(saver, "task")
        assert await found(open_saver()) == special

    async def test_writes_are_ordered_by_path_task_and_index(self, saver: CheckpointSaver) -> None:
        writes = [("x", number) for number in range(11)]
        for path, task in (("b", "1"), ("a", "2"), ("", "9"), ("a", "10")):
            await put_writes(saver, task, *writes, ("__scheduled__", task), task_path=path)
        got = await saver.get_writes(thread_id="t", checkpoint_id="c")
        order = [(write["task_path"], write["task_id"], write["idx"]) for write in got]
        assert len(order) == 48
        assert order == sorted(order)

    async def test_writes_at_once_lose_nothing(self, saver: CheckpointSaver, open_saver: OpenSaver) -> None:
        savers = [saver, open_saver()]
        await put(saver, "c")
        await asyncio.gather(
            *(put_writes(savers[0], f"task {number}", ("x", number)) for number in range(6)),
            *(put_writes(savers[1], f"task {number}", ("__interrupt__", number)) for number in range(6)),
            put(savers[1], "d"),
        )
        expected = [
            write
            for number in range(6)
            for write in ((f"task {number}", -3, "__interrupt__", number), (f"task {number}", 0, "x", number))
        ]
        assert await found(open_saver()) == expected

    async def test_a_thread_is_deleted_with_all_that_it_has(
        self, saver: CheckpointSaver, open_saver: OpenSaver
    ) -> None:
        for thread_id in ("t", "t2"):
            for namespace in ("", "default", "inner"):
                place: dict[str, Any] = {"thread_id": thread_id, "checkpoint_ns": namespace}
                await saver.put(checkpoint_id="c", checkpoint_data={"messages": [namespace * 9]}, **place)
                await put_writes(saver, "task", ("x", 1), ("__error__", 2), **place)
        await put_writes(saver, "task", ("x", 1), checkpoint_id="never put")
        await saver.delete_thread(thread_id="t")
        reader = open_saver()
        for namespace in ("", "default", "inner"):
            assert await listed(reader, checkpoint_ns=namespace) == []
            assert await found(reader, checkpoint_ns=namespace) == []
            assert len(await found(reader, checkpoint_ns=namespace, thread_id="t2")) == 2
        assert await found(reader, checkpoint_id="never put") == []
        assert await reader.list_threads() == ["t2"]
        await put(saver, "c")
        assert await found(reader) == []
        await saver.delete_thread(thread_id="not there")

    async def test_writes_without_a_checkpoint_are_deleted_too(
        self, saver: CheckpointSaver, open_saver: OpenSaver
    ) -> None:
        await put_writes(saver, "task", ("x", 1))
        assert await found(open_saver()) == [("task", 0, "x", 1)]
        await saver.delete_thread(thread_id="t")
        assert await found(open_saver()) == []

    async def test_a_saver_works_from_a_thread_without_a_loop(
        self, saver: CheckpointSaver, open_saver: OpenSaver
    ) -> None:
        sync = open_saver().sync

        def work() -> None:
            sync.put(thread_id="t", checkpoint_id="c", checkpoint_data={"n": 1}, metadata={"k": "v"})
            sync.put_writes(thread_id="t", checkpoint_id="c", task_id="task", writes=[("x", 1)])
            latest = sync.get(thread_id="t")
            assert latest is not None
            assert latest["checkpoint"] == {"n": 1}
            assert sync.list_checkpoints(thread_id="t") == [latest]
            assert len(sync.get_writes(thread_id="t", checkpoint_id="c")) == 1
            sync.close()

        try:
            await asyncio.to_thread(work)
            assert await listed(saver) == ["c"]
            assert await found(saver) == [("task", 0, "x", 1)]
        finally:
            await asyncio.to_thread(sync.close)
