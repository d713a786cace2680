"""A store that adapters open: what can be done with its threads, and who closes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from locus.errors import CheckpointNotFoundError, ConfigurationError, ConflictError
from locus.memory.backends import sqlite_checkpointer
from locus.threads import AsyncStoreUser, Kept, ThreadStore, metadata_of, session_ids, session_points
from tests.threads.stores import NAMESPACE, OpenStore, opened, threads

__all__ = ["opened", "threads"]


async def _saved(store: ThreadStore, thread_id: str, *numbers: int) -> list[str]:
    document = store.document(thread_id, NAMESPACE)
    return [(await document.save({"n": number}, metadata={"n": number})).checkpoint_id for number in numbers]


async def test_the_same_handle_is_given_out_as_long_as_it_is_remembered(threads: ThreadStore) -> None:
    document = threads.document("t", NAMESPACE, ("items",))
    assert threads.document("t", NAMESPACE, ("items",)) is document
    assert threads.document("t", NAMESPACE) is not document
    assert threads.log("t", NAMESPACE) is threads.log("t", NAMESPACE)
    assert threads.lent().document("t", NAMESPACE, ("items",)) is not document


async def test_threads_and_their_checkpoints_are_listed(threads: ThreadStore) -> None:
    first, second = await _saved(threads, "a", 1, 2)
    await _saved(threads, "b", 3)
    assert await threads.list_threads() == ["a", "b"]
    assert await threads.list_threads(prefix="b") == ["b"]
    assert [metadata_of(entry) for entry in await threads.history("a", NAMESPACE)] == [{"n": 2}, {"n": 1}]
    assert [entry.checkpoint_id for entry in await threads.history("a", NAMESPACE, before=second)] == [first]
    newest, oldest = await threads.history("a", None)
    for namespace in (NAMESPACE, None):
        assert await threads.history("a", namespace, before=newest) == [oldest]
        assert await threads.history("a", namespace, 0, newest) == []
        assert await threads.history("a", namespace, 3, oldest) == []
    with pytest.raises(CheckpointNotFoundError):
        await threads.history("a", NAMESPACE, before="nothing")
    page = await threads.newest_threads()
    assert [entry.thread_id for entry in page.entries] == ["b", "a"]
    assert len(await threads.newest_checkpoints()) == 3
    assert [entry.checkpoint_id for entry in await threads.find("n", 1)] == [first]
    assert await threads.namespaces("a") == [NAMESPACE]
    entry = await threads.entry("a", NAMESPACE)
    assert entry is not None
    assert entry.checkpoint_id == second
    assert await threads.entry("a", NAMESPACE, "nothing") is None
    assert "nothing" in str(await threads.not_found("a", NAMESPACE, "nothing"))


async def test_a_thread_is_forked_at_a_point_and_goes_its_own_way(threads: ThreadStore) -> None:
    document = threads.document("a", NAMESPACE, ("items",))
    first = await document.save({"n": 1}, lists={"items": [1]})
    await document.save({"n": 2}, lists={"items": Kept(1, [2])}, after=first)
    assert not await threads.fork("a", "b", NAMESPACE, "nothing")
    assert not await threads.fork("nothing", "b", NAMESPACE)
    assert await threads.fork("a", "b", NAMESPACE, first.checkpoint_id)
    assert await threads.fork("a", "c", NAMESPACE)
    with pytest.raises(ConflictError):
        await threads.fork("a", "b", NAMESPACE)
    forked = threads.document("b", NAMESPACE, ("items",))
    version = await forked.read(newest=0)
    assert version is not None
    await forked.save({"n": 3}, lists={"items": Kept(1, [3])}, after=version)
    lists = [await threads.document(name, NAMESPACE, ("items",)).items("items") for name in "abc"]
    assert [page and page.items for page in lists] == [[1, 2], [1, 3], [1, 2]]
    assert await threads.copy("b", "d")
    assert not await threads.copy("nothing", "e")


async def test_points_that_were_found_are_deleted(threads: ThreadStore) -> None:
    await _saved(threads, "a", 1, 2, 3)
    entries = await threads.history("a", NAMESPACE)
    assert await threads.delete_entries("a", NAMESPACE, entries[1:]) == 2
    assert await threads.delete_entries("a", NAMESPACE, entries[1:]) == 0
    assert await threads.delete("a", NAMESPACE, entries[0].checkpoint_id)
    assert await threads.list_threads() == []


async def test_the_points_of_a_session_that_is_a_log(threads: ThreadStore) -> None:
    log = threads.log("a", NAMESPACE)
    await log.append([1, 2])
    await log.pop()
    points = await session_points(threads, "a", NAMESPACE)
    assert [(point.items, point.change) for point in points] == [(1, "pop"), (2, "add")]
    assert await session_ids(threads, NAMESPACE, None, "*") == ["a"]
    assert await session_ids(threads, NAMESPACE, 0, "*") == []


async def test_pending_writes_are_kept(tmp_path: Path) -> None:
    async with sqlite_checkpointer(tmp_path / "a.db") as handle:
        store = ThreadStore.open(handle)
        assert store.keeps_writes
        (checkpoint_id,) = await _saved(store, "a", 1)
        await store.put_writes("a", NAMESPACE, checkpoint_id, "task", [("messages", {"n": 1})])
        (write,) = await store.get_writes("a", NAMESPACE, checkpoint_id)
        assert (write.task_id, write.channel, write.value) == ("task", "messages", '{"n":1}')


def _closed(*stores: ThreadStore) -> list[bool]:
    return [store.is_closed for store in stores]


async def test_whoever_opens_a_store_by_name_closes_it(tmp_path: Path) -> None:
    store = ThreadStore.open(f"sqlite:{tmp_path / 'a.db'}")
    await _saved(store, "a", 1)
    lent = store.lent()
    await lent.close()
    assert _closed(lent, store) == [True, False]
    assert store._store.ready
    await store.close()
    assert _closed(lent, store, store.lent()) == [True, True, True]
    assert [store._store.ready] == [False]
    async with sqlite_checkpointer(tmp_path / "a.db") as handle:
        given = ThreadStore.open(handle)
        await _saved(given, "a", 2)
        await given.close()
        assert handle.store.ready
        assert not given.lent().is_closed
        assert given.identity == ThreadStore.open(handle).identity
        assert repr(given) == "ThreadStore(SQLiteEngine)"


async def test_an_option_that_does_not_exist_is_refused_with_those_of_the_adapter(tmp_path: Path) -> None:
    class Adapter(AsyncStoreUser):
        def __init__(self, store: object, **options: object) -> None:
            self._open(store, options, ("title",))

    with pytest.raises(ConfigurationError, match=r"Adapter has no option 'titel' \(did you mean 'title'\?\)"):
        Adapter(f"sqlite:{tmp_path / 'a.db'}", titel="x")
    async with sqlite_checkpointer(tmp_path / "a.db") as handle:
        with pytest.raises(ConfigurationError):
            Adapter(handle, durability="normal")
        with pytest.raises(ConfigurationError):
            ThreadStore.open(object())


async def test_some_stores_keep_no_lists(opened: OpenStore, request: pytest.FixtureRequest) -> None:
    assert await opened().keeps_lists() == ("plain" not in request.node.name)
