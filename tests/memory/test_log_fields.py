"""Fields beside the items of a log: written in one step with them, large ones once, and only if nobody was faster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from locus.errors import CheckpointNotFoundError, ConfigurationError, ConflictError, SerializationError
from locus.memory.backends import SQLiteBackend, sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.memory.item_log import ItemLog, logged_change
from locus.memory.model.codec import decode, encode
from locus.transfer.content import comparable_metadata, metadata_for
from tests.backends.every_store import handle, store

__all__ = ["handle", "store"]

LARGE = "x" * 2_000


async def _view(log: ItemLog, limit: int | None = None, checkpoint_id: str | None = None) -> tuple[list[Any], Any, int]:
    found = await log.view(limit, checkpoint_id)
    assert found is not None
    return found.items, found.fields, found.count


async def test_items_and_fields_are_one_step(handle: Checkpointer) -> None:
    log, other = (ItemLog(handle.store, "t", "n") for _ in range(2))
    assert await log.view() is None
    first = await log.put([], {"title": "a", "state": {"n": 0, "big": LARGE}}, if_latest=None, change="create")
    assert await _view(log) == ([], {"title": "a", "state": {"n": 0, "big": LARGE}}, 0)
    second = await log.put([1, {"a": 2}], {"state": {"n": 1, "big": LARGE}}, if_latest=first)
    third = await other.put([3], {"state": {"n": 2, "big": LARGE}, "list": [1, [2]]}, if_latest=second)
    assert await _view(other) == ([1, {"a": 2}, 3], {"state": {"n": 2, "big": LARGE}, "list": [1, [2]]}, 3)
    assert await _view(log, 1) == ([3], {"state": {"n": 2, "big": LARGE}, "list": [1, [2]]}, 3)
    assert await _view(log, 0) == ([], {"state": {"n": 2, "big": LARGE}, "list": [1, [2]]}, 3)
    assert await _view(log, None, second) == ([1, {"a": 2}], {"state": {"n": 1, "big": LARGE}}, 2)
    entries = await handle.store.history("t", None, None, "n")
    assert [entry.checkpoint_id for entry in entries] == [third, second, first]
    changes = [logged_change(entry.metadata) for entry in entries]
    assert [change and (change.change, change.items) for change in changes] == [("add", 3), ("add", 2), ("create", 0)]
    assert await ItemLog(handle.store, "t", "n").read() == [1, {"a": 2}, 3]


async def test_metadata_of_a_log_with_fields_say_how_many_items_there_are(handle: Checkpointer) -> None:
    """And not where they are, which the manifest says: databases store metadata twice."""
    log = ItemLog(handle.store, "t", "n")
    first = await log.put([1, 2], {"v": 1}, if_latest=None)
    (entry,) = await handle.store.history("t", None, None, "n")
    assert decode(entry.metadata) == {"log": '["add",2]'}
    await ItemLog(handle.store, "t", "n").put([3], {"v": 2}, if_latest=first)
    await ItemLog(handle.store, "t", "n").append([4])  # a handle that knows nothing has to find the place
    assert await ItemLog(handle.store, "t", "n").pop() == 4
    assert await ItemLog(handle.store, "t", "n").read() == [1, 2, 3]
    assert metadata_for(entry.metadata, "[]", "[]") == entry.metadata, "it holds in every store"
    assert comparable_metadata(entry.metadata) == {"log": ["add", 2]}
    for count in ("-1", "2.5", "true", "1e400", str(10**30)):
        assert logged_change(encode({"log": f'["add",{count}]'})) is None


async def test_of_two_from_one_checkpoint_one_is_refused(handle: Checkpointer) -> None:
    one, other = (ItemLog(handle.store, "t", "n") for _ in range(2))
    start = await one.put([0], {"v": 0}, if_latest=None)
    assert await other.view() is not None
    await one.put([1], {"v": 1}, if_latest=start)
    for log in (one, other, ItemLog(handle.store, "t", "n")):
        for expected in (start, None, "none"):
            with pytest.raises(ConflictError) as refused:
                await log.put([2], {"v": 2}, if_latest=expected)
            assert refused.value.expected == expected
    assert await _view(other) == ([0, 1], {"v": 1}, 2)
    await one.delete()
    with pytest.raises(ConflictError):
        await other.put([2], {"v": 2}, if_latest=start)
    assert await other.view() is None


async def test_a_log_goes_on_from_an_earlier_checkpoint(handle: Checkpointer) -> None:
    log = ItemLog(handle.store, "t", "n")
    first = await log.put([1], {"v": 1}, if_latest=None)
    second = await log.put([2], {"v": 2}, if_latest=first)
    back = await log.put([9], {"v": 9}, if_latest=second, after=first, change="rewind")
    assert await _view(log) == ([1, 9], {"v": 9}, 2)
    assert await _view(log, None, second) == ([1, 2], {"v": 2}, 2)
    await ItemLog(handle.store, "t", "n").put([10], {}, if_latest=back)
    assert await _view(log) == ([1, 9, 10], {}, 3)
    with pytest.raises(CheckpointNotFoundError):
        await log.put([], {}, if_latest=await log.latest(), after="none")
    with pytest.raises(CheckpointNotFoundError):
        await log.view(1, "none")


@pytest_asyncio.fixture
async def stored(tmp_path: Path) -> AsyncIterator[Checkpointer]:
    async with sqlite_checkpointer(tmp_path / "a.db") as opened:
        yield opened


async def test_a_large_value_that_stays_is_stored_once(stored: Checkpointer) -> None:
    commits: list[Any] = []
    commit = stored.store.commit

    async def watched(given: Any) -> Any:
        commits.append(given)
        return await commit(given)

    stored.store.commit = watched  # type: ignore[method-assign,assignment]
    state = {"doc": LARGE * 10, "small": {str(n): "y" * 100 for n in range(20)}}
    log = ItemLog(stored.store, "t", "n")
    latest = await log.put([], {"state": state}, if_latest=None)
    for number in range(3):
        latest = await log.put([number], {"state": state, "n": number}, if_latest=latest)
    fresh = ItemLog(stored.store, "t", "n")
    assert await fresh.view(1) is not None
    latest = await fresh.put([3], {"state": {**state, "doc": "z" * 5_000}}, if_latest=latest)
    assert [sum(len(run.items) for run in one.values) > 1_000 for one in commits] == [True, False, False, False, True]
    assert all(len(one.head) < 200 for one in commits)
    assert await _view(log) == ([0, 1, 2, 3], {"state": {**state, "doc": "z" * 5_000}}, 4)
    data = await SQLiteBackend.load(_backend(stored), "t", namespace="n")
    assert data == {"items": [0, 1, 2, 3], "state": {**state, "doc": "z" * 5_000}}


def _backend(stored: Checkpointer) -> Any:
    return stored.backend  # type: ignore[attr-defined]


async def test_the_same_large_value_in_two_places(handle: Checkpointer) -> None:
    log = ItemLog(handle.store, "t", "n")
    fields = {"a": LARGE, "b": {"c": LARGE, "d": {"e": LARGE}}, "e": {"x" * 2_000: 1}}
    latest = await log.put([], fields, if_latest=None)
    await log.put([], fields, if_latest=latest)
    assert await _view(ItemLog(handle.store, "t", "n")) == ([], fields, 0)


async def test_what_cannot_be_written_is_refused(handle: Checkpointer) -> None:
    log = ItemLog(handle.store, "t", "n")
    for fields in ({"a": {1: 2}}, {"a": float("nan")}, {"a": {"b": b"x"}}, {"a": {"b": {"c": "\ud800"}}}):
        with pytest.raises(SerializationError):
            await log.put([], fields, if_latest=None)
    with pytest.raises(ConfigurationError, match="no field has this name"):
        await log.put([], {"items": []}, if_latest=None)
    assert await log.view() is None
