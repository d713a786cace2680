"""What the versioned saver does with checkpoints: versions, parents, namespaces, pages."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import pytest

from locus.errors import CheckpointNotFoundError, ConflictError, InvalidIdError, SerializationError
from locus.memory.checkpointer import ANY
from locus.memory.saver import CheckpointSaver
from locus.memory.thread_checkpointer import ThreadCheckpointer
from locus.testing.data import EXACT_VALUES
from locus.testing.laws.base import Laws, OpenHandle, assert_same

KEYS = {"checkpoint_id", "parent_checkpoint_id", "checkpoint", "metadata", "created_at"}
NAMESPACES = ("", "default", "inner", "inner|deeper", "Inner")


class OpenSaver(Protocol):
    """Opens one more saver on the store of the test, with a handle of its own."""

    def __call__(self) -> CheckpointSaver: ...


class SaverFixtures(Laws):
    """Savers over the `store` of a test class. One that has a saver of its own gives another `saver_over`."""

    def saver_over(self, handle: ThreadCheckpointer) -> CheckpointSaver:
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
    """The ids, and the proof that both ways of listing agree."""
    whole = await saver.list_checkpoints(thread_id="t", **options)
    infos = await saver.history(thread_id="t", **options)
    assert [{**info, "checkpoint": found["checkpoint"]} for info, found in zip(infos, whole, strict=True)] == whole
    return [found["checkpoint_id"] for found in whole]


async def parents(saver: CheckpointSaver) -> dict[str, str | None]:
    found = await saver.history(thread_id="t", limit=None)
    return {info["checkpoint_id"]: info["parent_checkpoint_id"] for info in found}


class SaverCheckpointLaws(SaverFixtures):
    """`put`, `get`, `list_checkpoints` and what deletes."""

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
            first = await reader.get(thread_id="t", checkpoint_id="c1")
            assert first is not None
            assert set(first) == KEYS
            assert_same(first["checkpoint"], data)
            assert_same(first["metadata"], metadata)
            assert (first["checkpoint_id"], first["parent_checkpoint_id"]) == ("c1", None)
            latest = await reader.get(thread_id="t")
            assert latest is not None
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
            latest = await reader.get(thread_id="t", checkpoint_ns=namespace)
            assert latest is not None
            assert latest["checkpoint"] == {"n": namespace}
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
        latest = await saver.get(thread_id="t")
        assert latest is not None
        assert latest["checkpoint"] == {"n": 5}

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
        found = await saver.list_checkpoints(thread_id="t", limit=2)
        assert [(set(each), each["checkpoint"]) for each in found] == [(KEYS, {"n": 11}), (KEYS, {"n": 10})]
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
        latest = await saver.get(thread_id="t")
        assert latest is not None
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
        found = await open_saver().list_checkpoints(thread_id="t", limit=None)
        assert {each["checkpoint_id"]: each["checkpoint"] for each in found} == expected

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
