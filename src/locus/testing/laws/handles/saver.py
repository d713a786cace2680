"""The versioned saver, on every backend: checkpoints, pending writes, and the cost of a put."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import pytest

from locus.errors import CheckpointNotFoundError, ConflictError, InvalidIdError, SerializationError
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.records import ANY
from locus.memory.saver import CheckpointSaver
from locus.testing.data import EXACT_VALUES
from locus.testing.laws.base import Laws, OpenHandle, assert_same, present
from locus.testing.laws.saving.cost import SentBytes

KEYS = {"checkpoint_id", "parent_checkpoint_id", "checkpoint", "metadata", "created_at"}
NAMESPACES = ("", "default", "inner", "inner|deeper", "Inner")


class OpenSaver(Protocol):
    """Opens one more saver on the store of the test. It has a handle of its own."""

    def __call__(self) -> CheckpointSaver: ...


class SaverFixtures(Laws):
    """Fixtures for savers on the `store` of a test class. A backend with a saver of its own overrides `saver_over`."""

    def saver_over(self, handle: Checkpointer) -> CheckpointSaver:
        return CheckpointSaver(handle)

    @pytest.fixture
    def open_saver(self, open_handle: OpenHandle) -> OpenSaver:
        return lambda: self.saver_over(open_handle())

    @pytest.fixture
    def saver(self, open_saver: OpenSaver) -> CheckpointSaver:
        return open_saver()


async def put(saver: CheckpointSaver, checkpoint_id: str, n: Any = 0, **options: Any) -> None:
    await saver.put(thread_id="t", checkpoint_id=checkpoint_id, checkpoint_data={"n": n}, **options)


async def listed(saver: CheckpointSaver, **options: Any) -> list[str]:
    """The ids of all checkpoints. Asserts that both ways of listing agree."""
    whole = await saver.list_checkpoints(thread_id="t", **options)
    infos = await saver.history(thread_id="t", **options)
    assert [{**info, "checkpoint": found["checkpoint"]} for info, found in zip(infos, whole, strict=True)] == whole
    return [found["checkpoint_id"] for found in whole]


async def parents(saver: CheckpointSaver) -> dict[str, str | None]:
    found = await saver.history(thread_id="t", limit=None)
    return {info["checkpoint_id"]: info["parent_checkpoint_id"] for info in found}


class SaverCheckpointLaws(SaverFixtures):
    """A saver's checkpoints: `put`, `get`, `list_checkpoints`, and deletion."""

    async def test_what_is_put_is_got(self, saver: CheckpointSaver, open_saver: OpenSaver) -> None:
        data = {
            "values": list(EXACT_VALUES),
            "by name": {str(n): value for n, value in enumerate(EXACT_VALUES)},
            "": {},
        }
        metadata = {"source": "loop", "step": -1, "nested": {"list": [None, True, 1.5]}}
        began = datetime.now(UTC)
        await saver.put(thread_id="t", checkpoint_id="c1", checkpoint_data=data, metadata=metadata)
        await saver.put(thread_id="t", checkpoint_id="c2", checkpoint_data={}, parent_checkpoint_id="c1")
        for reader in (saver, open_saver()):
            first = present(await reader.get(thread_id="t", checkpoint_id="c1"))
            assert set(first) == KEYS
            assert_same(first["checkpoint"], data)
            assert_same(first["metadata"], metadata)
            assert (first["checkpoint_id"], first["parent_checkpoint_id"]) == ("c1", None)
            latest = present(await reader.get(thread_id="t"))
            assert (latest["checkpoint_id"], latest["parent_checkpoint_id"]) == ("c2", "c1")
            assert (latest["checkpoint"], latest["metadata"]) == ({}, {})
            # Servers may date by a clock of their own.
            assert abs(latest["created_at"] - began) < timedelta(minutes=5)
            assert await reader.get(thread_id="t", checkpoint_id="c3") is None
            assert await reader.get(thread_id="u") is None
            assert (await reader.backend.load("t", "c1")) == data

    async def test_each_namespace_has_versions_of_its_own(self, saver: CheckpointSaver, open_saver: OpenSaver) -> None:
        for namespace in NAMESPACES:
            await put(saver, "same id", namespace, checkpoint_ns=namespace)
            await put(saver, f"in {namespace}", namespace, checkpoint_ns=namespace, parent_checkpoint_id="same id")
        reader = open_saver()
        for namespace in NAMESPACES:
            assert await listed(reader, checkpoint_ns=namespace) == [f"in {namespace}", "same id"]
            assert present(await reader.get(thread_id="t", checkpoint_ns=namespace))["checkpoint"] == {"n": namespace}
        assert await listed(reader) == ["in default", "same id"]
        assert await reader.list_namespaces(thread_id="t") == sorted(NAMESPACES)
        assert await reader.list_namespaces(thread_id="u") == []
        assert await reader.delete_checkpoint(thread_id="t", checkpoint_id="same id", checkpoint_ns="")
        assert await listed(saver, checkpoint_ns="") == ["in "]
        assert await listed(saver) == ["in default", "same id"]

    async def test_a_parent_is_kept_as_it_is_named(self, saver: CheckpointSaver, open_saver: OpenSaver) -> None:
        await put(saver, "first", 0, parent_checkpoint_id="from elsewhere")
        await put(saver, "early", 1, parent_checkpoint_id="late")
        await put(saver, "late", 2)
        await put(saver, "fork", 3, parent_checkpoint_id="first")
        await put(saver, "on top", 4, parent_checkpoint_id=ANY)
        await put(saver, "itself", 5, parent_checkpoint_id="itself")
        expected = {"first": "from elsewhere", "early": "late", "late": None, "fork": "first", "on top": "fork"}
        assert await parents(open_saver()) == {**expected, "itself": None}

    async def test_a_child_of_what_is_deleted_gets_its_parent(self, saver: CheckpointSaver) -> None:
        await put(saver, "a", 0)
        await put(saver, "b", 1, parent_checkpoint_id="a")
        await put(saver, "c", 2, parent_checkpoint_id="b")
        # Two that name each other: a circle, which whoever removes must not go round for ever.
        await put(saver, "x", 3, parent_checkpoint_id="y")
        await put(saver, "y", 4, parent_checkpoint_id="x")
        await put(saver, "z", 5, parent_checkpoint_id="y")
        assert await saver.delete_checkpoints(thread_id="t", checkpoint_ids=["b", "x", "y", "not there"]) == 3
        assert await parents(saver) == {"a": None, "c": "a", "z": None}
        assert await saver.delete_checkpoints(thread_id="t", checkpoint_ids=[]) == 0
        assert not await saver.delete_checkpoint(thread_id="t", checkpoint_id="b")
        assert present(await saver.get(thread_id="t"))["checkpoint"] == {"n": 5}

    async def test_history_is_paged_from_the_newest(self, saver: CheckpointSaver) -> None:
        names = [f"c{number}" for number in range(12)]
        for number, name in enumerate(names):
            await put(saver, name, number)
        newest_first = names[::-1]
        assert await listed(saver) == newest_first[:10]
        assert await listed(saver, limit=None) == newest_first
        assert await listed(saver, limit=3, before="c5") == ["c4", "c3", "c2"]
        assert await listed(saver, limit=0) == []
        assert await listed(saver, before="c0") == []
        assert await listed(saver, checkpoint_ns="other") == []
        newest = await saver.list_checkpoints(thread_id="t", limit=2)
        assert [(set(each), each["checkpoint"]) for each in newest] == [(KEYS, {"n": 11}), (KEYS, {"n": 10})]
        with pytest.raises(CheckpointNotFoundError):
            await saver.list_checkpoints(thread_id="t", before="not there")

    async def test_the_same_again_changes_nothing_and_something_else_replaces(self, saver: CheckpointSaver) -> None:
        await put(saver, "a", 0, metadata={"k": 1})
        await put(saver, "b", 1, parent_checkpoint_id="a")
        before = await saver.list_checkpoints(thread_id="t")
        await put(saver, "a", 0, metadata={"k": 1})
        await put(saver, "a", 0, metadata={"k": 1}, parent_checkpoint_id="a")
        assert await saver.list_checkpoints(thread_id="t") == before
        await put(saver, "a", 2, parent_checkpoint_id="a")
        assert await listed(saver) == ["a", "b"]
        latest = present(await saver.get(thread_id="t"))
        assert (latest["checkpoint"], latest["metadata"]) == ({"n": 2}, {})
        # What b came from is gone.
        assert await parents(saver) == {"a": None, "b": None}

    async def test_a_put_may_insist_on_the_latest(self, saver: CheckpointSaver, open_saver: OpenSaver) -> None:
        await put(saver, "a", 0, if_latest=None)
        await put(open_saver(), "b", 1, if_latest="a")
        with pytest.raises(ConflictError) as refused:
            await put(saver, "c", 2, if_latest="a", parent_checkpoint_id="a")
        assert (refused.value.expected, refused.value.latest) == ("a", "b")
        with pytest.raises(ConflictError):
            await put(saver, "c", 2, if_latest=None)
        assert await listed(saver) == ["b", "a"]
        await put(saver, "c", 2, if_latest=None, checkpoint_ns="")

    async def test_puts_at_once_lose_nothing(self, saver: CheckpointSaver, open_saver: OpenSaver) -> None:
        savers = [saver, open_saver(), open_saver()]
        expected = {f"c{number:02}": {"messages": [f"message {n}" * 9 for n in range(number)]} for number in range(12)}
        await asyncio.gather(
            *(
                savers[number % 3].put(thread_id="t", checkpoint_id=name, checkpoint_data=data)
                for number, (name, data) in enumerate(expected.items())
            )
        )
        stored = await open_saver().list_checkpoints(thread_id="t", limit=None)
        assert {each["checkpoint_id"]: each["checkpoint"] for each in stored} == expected

    async def test_what_cannot_be_kept_is_refused_with_its_path(self, saver: CheckpointSaver) -> None:
        await put(saver, "a", 0)
        for data, path in (
            ({"values": {"messages": [{"text": "ok"}, {"text": {1}}]}}, "values.messages[1].text"),
            ({"values": {"x": float("nan")}}, "values.x"),
        ):
            with pytest.raises(SerializationError) as refused:
                await saver.put(thread_id="t", checkpoint_id="b", checkpoint_data=data)
            assert path in str(refused.value)
        with pytest.raises(SerializationError):
            await saver.put(thread_id="t", checkpoint_id="b", checkpoint_data=["no dict"])  # type: ignore[arg-type]
        with pytest.raises(SerializationError):
            await put(saver, "b", 1, metadata={"k": object()})
        with pytest.raises(SerializationError):
            await saver.put_writes(thread_id="t", checkpoint_id="a", task_id="x", writes=[("ok", 1), ("no", object())])
        with pytest.raises(InvalidIdError):
            await put(saver, "", 1)
        assert await listed(saver) == ["a"]
        assert await saver.get_writes(thread_id="t", checkpoint_id="a") == []

    async def test_threads_are_listed(self, saver: CheckpointSaver) -> None:
        for name in ("b", "a", "a/1"):
            await saver.put(thread_id=name, checkpoint_id="c", checkpoint_data={})
        assert await saver.list_threads() == ["a", "a/1", "b"]
        assert await saver.list_threads(pattern="a*", limit=1) == ["a"]


WRITE_KEYS = {"task_id", "idx", "channel", "value", "task_path"}


async def put_writes(saver: CheckpointSaver, task_id: str, *writes: tuple[str, Any], **options: Any) -> None:
    place = {"thread_id": "t", "checkpoint_id": "c"} | options
    await saver.put_writes(task_id=task_id, writes=list(writes), **place)


async def found(saver: CheckpointSaver, **options: Any) -> list[tuple[str, int, str, Any]]:
    writes = await saver.get_writes(**({"thread_id": "t", "checkpoint_id": "c"} | options))
    assert all(set(write) == WRITE_KEYS for write in writes)
    return [(write["task_id"], write["idx"], write["channel"], write["value"]) for write in writes]


class SaverWritesLaws(SaverFixtures):
    """A saver's pending writes: `put_writes`, `get_writes` and `delete_thread`."""

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
            latest = present(sync.get(thread_id="t"))
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


TURNS = 48
ALLOWED = 1.5

_TEXT = "The quick brown fox jumps over the lazy dog, and the dog does not mind. " * 8


def _checkpoint(turn: int) -> dict[str, Any]:
    """A graph's checkpoint after `turns` turns, which shares no object with any other."""
    messages = [{"id": f"{number:04}", "content": f"{number:04} {_TEXT}"} for number in range(turn + 1)]
    return {"v": 4, "id": f"{turn:08}", "channel_values": {"messages": messages, "manual": _TEXT * 8}}


class SaverCostLaws(SaverFixtures):
    """A put writes what is new, although every dict that it is given is new."""

    @pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
    async def test_puts_are_flat(
        self, saver: CheckpointSaver, open_saver: OpenSaver, monkeypatch: pytest.MonkeyPatch, warm: bool
    ) -> None:
        sent = SentBytes()
        sent.watch(type(saver.store.engine), monkeypatch)
        sizes = []
        for turn in range(TURNS):
            # Those in the middle only fill the thread.
            writer = open_saver() if not warm and (6 <= turn < 9 or turn >= TURNS - 3) else saver
            parent = f"c{turn - 1}" if turn else None
            await writer.put(
                thread_id="t",
                checkpoint_id=f"c{turn}",
                checkpoint_data=_checkpoint(turn),
                parent_checkpoint_id=parent,
                metadata={"step": turn},
            )
            sizes.append(sent.take())
        early, late = sum(sizes[6:9]) / 3, sum(sizes[-3:]) / 3
        assert len(_TEXT) < early < 3 * len(_TEXT)
        assert late <= ALLOWED * early, f"{early:.0f} bytes at turn 8, {late:.0f} at turn {TURNS}"
        for turn in (TURNS // 2, TURNS - 1):
            stored = present(await saver.get(thread_id="t", checkpoint_id=f"c{turn}"))
            assert_same(stored["checkpoint"], _checkpoint(turn))


class SaverLaws(SaverCheckpointLaws, SaverWritesLaws, SaverCostLaws):
    """All laws of the versioned saver. `CoreContract` includes them."""
