"""Long-term memory: the laws that `locus.memory.long_term.memory` names, over any store."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta, tzinfo
from typing import Any, ClassVar

import pytest
import pytest_asyncio

from locus.errors import (
    BackendUnavailableError,
    ConfigurationError,
    ConflictError,
    CorruptCheckpointError,
    DamagedThreadsWarning,
    EmbeddingMismatchError,
    InvalidIdError,
    SerializationError,
)
from locus.memory.checkpointer import Checkpointer
from locus.memory.long_term import Delete, Get, Item, LongTermMemory, Put
from locus.memory.long_term import held as held_module
from locus.memory.long_term import memory as memory_module
from locus.memory.long_term import store as store_module
from locus.memory.long_term.names import Namespace, item_id, path_of
from locus.memory.model.payloads import dict_payload
from locus.memory.model.records import DEFAULT_NAMESPACE
from locus.testing.data import EXACT_VALUES, HOSTILE_QUERIES, LOOK_ALIKE_IDS
from locus.testing.laws.base import Laws, OpenHandle, WorkerLaws, assert_same, exact, present, save_each
from locus.testing.processes import memory_jobs
from locus.testing.processes.workers import Crew
from locus.testing.stores import DurableTestStore, OutageTestStore

USER: Namespace = ("users", "1", "memories")
NEVER_CROSS: Sequence[Namespace] = (
    (), ("",), ("", ""), ("a",), ("a", ""), ("a", "b"), ("a/b",), ("a~1b",), ("a~", "b"), ("!a",), ("a", "!b"), (" a",),
    ("us",), ("user",), ("us", "er"), ("\0",), ("😀" * 250,), ("x" * 254, "y"), ("x" * 254, "z"), ("x" * 1023,),
)  # fmt: skip
"""Namespaces that could be taken for each other."""


async def _all(memory: LongTermMemory, prefix: Namespace = ()) -> dict[tuple[Namespace, str], Any]:
    return {(found.namespace, found.key): found.value for found in await memory.search(prefix, limit=10_000)}


class LongTermLaws(Laws):
    """The laws of a memory that one process uses."""

    item_ids: ClassVar[Sequence[str]] = LOOK_ALIKE_IDS
    """Hostile labels and keys. A fast store may try `HOSTILE_IDS`."""

    @pytest_asyncio.fixture
    async def memory(self, open_handle: OpenHandle) -> LongTermMemory:
        return LongTermMemory(open_handle())

    @pytest.fixture
    def another(self, open_handle: OpenHandle) -> LongTermMemory:
        """A memory on the same store, by another handle."""
        return LongTermMemory(open_handle())

    @pytest.fixture
    def at(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[timedelta], None]:
        """A function that sets the clock of memories ahead."""

        def set_ahead(by: timedelta) -> None:
            class Ahead(datetime):
                @classmethod
                def now(cls, tz: tzinfo | None = None) -> Any:
                    return datetime.now(tz) + by

            monkeypatch.setattr(memory_module, "datetime", Ahead)
            monkeypatch.setattr(store_module, "datetime", Ahead)
            monkeypatch.setattr(held_module, "datetime", Ahead)

        return set_ahead

    async def test_namespaces_and_keys_are_data_and_never_cross(
        self, memory: LongTermMemory, another: LongTermMemory
    ) -> None:
        expected: dict[tuple[Namespace, str], Any] = {}
        for number, namespace in enumerate(NEVER_CROSS):
            await memory.put(namespace, "k", number)
            expected[namespace, "k"] = number
        for number, name in enumerate(self.item_ids):
            await memory.put(("keys",), name, number)
            expected[("keys",), name] = number
            if len(name.encode()) < 1_000:
                await memory.put(("ids", name), "k", number)
                expected[("ids", name), "k"] = number
        assert await _all(another) == expected
        for (namespace, key), value in expected.items():
            assert await another.get(namespace, key) == value
            assert key in await another.list_keys(namespace, limit=None)
            below = {place: value for place, value in expected.items() if place[0][: len(namespace)] == namespace}
            if len(below) < 4:
                assert await _all(another, namespace) == below
        assert await another.list_keys(("keys",), limit=None) == sorted(self.item_ids)
        there = sorted({namespace for namespace, _ in expected}, key=path_of)
        assert await another.list_namespaces(limit=None) == there
        assert await another.list_namespaces(("a",)) == [name for name in there if name[:1] == ("a",)]
        for namespace in NEVER_CROSS:
            assert await memory.delete(namespace, "k")
            del expected[namespace, "k"]
        assert await _all(another) == expected

    async def test_names_that_cannot_be_are_refused_and_nothing_is_written(self, memory: LongTermMemory) -> None:
        for namespace, key in (
            (("a",), "x" * 1025), (("é" * 512,), "k"), (("a",), "\ud800"), (("\udfff",), "k"), (("a", 1), "k"),
            (("a",), 7), (("a",), None),
        ):  # fmt: skip
            for call in (memory.put(namespace, key, 1), memory.get(namespace, key), memory.delete(namespace, key)):  # type: ignore[arg-type]
                with pytest.raises(InvalidIdError):
                    await call
        with pytest.raises(ConfigurationError, match="tuple of texts"):
            await memory.put("users", "k", 1)
        with pytest.raises(SerializationError):
            await memory.put(("a",), "k", None)
        with pytest.raises(SerializationError):
            await memory.put(("a",), "k", {"x": object()})
        for wrong in ("1", 0, True, 1.5):
            with pytest.raises(ConfigurationError, match="if_version"):
                await memory.put(("a",), "k", 1, if_version=wrong)  # type: ignore[arg-type]
        assert await _all(memory) == {}

    async def test_items_and_threads_know_nothing_of_each_other(
        self, memory: LongTermMemory, checkpointer: Checkpointer
    ) -> None:
        name = item_id(USER, "tea")
        await memory.put(USER, "tea", "green tea", source="t")
        assert await checkpointer.list_threads(None) == []
        assert not await checkpointer.exists(name)
        await save_each(checkpointer, [name, "t"], {"drinks": "green tea"}, metadata={"source": "t"})
        assert await checkpointer.list_threads(None) == sorted([name, "t"])
        assert {entry["thread_id"] for entry in await checkpointer.list_with_metadata()} == {name, "t"}
        if checkpointer.capabilities.search:
            assert {hit["thread_id"] for hit in await checkpointer.search("green")} == {name, "t"}
        assert {hit["thread_id"] for hit in await checkpointer.query_by_metadata("source", "t")} == {name, "t"}
        assert await _all(memory) == {(USER, "tea"): "green tea"}
        assert await checkpointer.vacuum(0) == 2
        assert await memory.get(USER, "tea") == "green tea"
        await save_each(checkpointer, [name])
        assert await memory.erase(()) == 1
        assert await checkpointer.list_threads() == [name]

    @pytest.mark.parametrize(
        "value", [value for value in EXACT_VALUES if value is not None], ids=lambda v: f"{v!r:.20}"
    )
    async def test_a_value_comes_back_as_it_was(
        self, memory: LongTermMemory, another: LongTermMemory, value: Any
    ) -> None:
        metadata = {"of": value, "list": [value, [value]], "'": 1}
        put = await memory.put(USER, "k", value, metadata)
        item = present(await another.get_item(USER, "k"))
        assert_same([item.value, item.metadata], [value, metadata])
        assert (item.namespace, item.key, item.version, item.rev) == (USER, "k", 1, put.rev)
        found = (await another.search(USER))[0]
        assert_same([found.value, found.metadata], [value, metadata])

    async def test_a_large_value_comes_back_whole(self, memory: LongTermMemory, another: LongTermMemory) -> None:
        value = {"text": "é" * 300_000, "numbers": list(range(20_000)), "nested": {"text": "x" * 100_000}}
        await memory.put(USER, "large", value)
        assert await another.get(USER, "large") == value
        await another.put(USER, "large", {**value, "more": 1})
        assert [item.value for item in await memory.history(USER, "large")] == [{**value, "more": 1}, value]

    async def test_versions_count_from_one_and_each_can_be_read(
        self, memory: LongTermMemory, another: LongTermMemory
    ) -> None:
        items = [await memory.put(USER, "k", number, source=f"t{number}") for number in range(1, 6)]
        assert [item.version for item in items] == [1, 2, 3, 4, 5]
        assert len({item.rev for item in items}) == 5
        assert [await another.get(USER, "k", version=number) for number in range(7)] == [None, 1, 2, 3, 4, 5, None]
        history = await another.history(USER, "k")
        assert [(item.version, item.value, item.source) for item in history] == [
            (n, n, f"t{n}") for n in (5, 4, 3, 2, 1)
        ]
        assert {item.created_at for item in history} == {items[0].created_at}
        times = [item.updated_at for item in reversed(history)]
        assert times == sorted(times)
        assert [item.version for item in await another.history(USER, "k", limit=2)] == [5, 4]
        assert [item.version for item in await another.history(USER, "k", limit=2, before=4)] == [3, 2]
        assert await another.history(USER, "other") == []

    async def test_a_writer_that_has_not_seen_the_newest_version_is_refused(
        self, memory: LongTermMemory, another: LongTermMemory
    ) -> None:
        elsewhere = await memory.put(USER, "elsewhere", "x")
        for stale in (1, elsewhere):
            with pytest.raises(ConflictError, match="found nothing"):
                await memory.put(USER, "k", "x", if_version=stale)
        first = await memory.put(USER, "k", "one", if_version=None)
        with pytest.raises(ConflictError):
            await another.put(USER, "k", "x", if_version=None)
        second = await another.put(USER, "k", "two", if_version=first)
        for version in (first, 1, 3, None):
            with pytest.raises(ConflictError, match="version 2"):
                await memory.put(USER, "k", "x", if_version=version)
            with pytest.raises(ConflictError, match="version 2"):
                await memory.delete(USER, "k", if_version=version)
        assert [item.value for item in await memory.history(USER, "k")] == ["two", "one"]
        assert (await memory.put(USER, "k", "three", if_version=2)).version == 3
        with pytest.raises(ConflictError):
            await another.delete(USER, "k", if_version=second)
        assert await another.delete(USER, "k", if_version=3)
        assert await memory.get(USER, "k") is None

    async def test_an_item_that_was_deleted_and_put_again_is_another_one(
        self, memory: LongTermMemory, another: LongTermMemory
    ) -> None:
        seen = await memory.put(USER, "k", "old")
        assert await another.delete(USER, "k")
        again = await another.put(USER, "k", "new")
        assert again.version >= seen.version == 1  # a store may go on counting
        with pytest.raises(ConflictError):
            await memory.put(USER, "k", "x", if_version=seen)
        with pytest.raises(ConflictError):
            await memory.delete(USER, "k", if_version=seen)
        assert await memory.get(USER, "k") == "new"
        assert again.created_at > seen.created_at

    async def test_of_several_who_have_seen_the_same_version_one_is_first(
        self, memory: LongTermMemory, another: LongTermMemory
    ) -> None:
        for round_ in range(3):
            seen = await memory.put(USER, f"k{round_}", 0)
            calls = [
                (another if number % 2 else memory).put(USER, seen.key, number, if_version=seen) for number in range(5)
            ]
            deletions = [handle.delete(USER, seen.key, if_version=seen) for handle in (memory, another)]
            random.Random(round_).shuffle(calls)
            results = await asyncio.gather(*calls, *deletions, return_exceptions=True)
            done = [result for result in results if not isinstance(result, BaseException)]
            assert len(done) == 1, results
            assert sum(isinstance(result, ConflictError) for result in results) == len(results) - 1, results
            value = await another.get(USER, seen.key)
            assert value == (done[0].value if isinstance(done[0], Item) else None)

    async def test_writers_without_a_condition_all_leave_a_version(
        self, memory: LongTermMemory, another: LongTermMemory
    ) -> None:
        puts = [(memory if number % 2 else another).put(USER, "k", number) for number in range(12)]
        items = await asyncio.gather(*puts)
        assert sorted(item.version for item in items) == list(range(1, 13))
        history = await memory.history(USER, "k", limit=None)
        assert {item.version: item.value for item in history} == {item.version: item.value for item in items}

    async def test_what_was_deleted_does_not_come_back(self, memory: LongTermMemory, another: LongTermMemory) -> None:
        for number in range(3):
            await memory.put(USER, "k", f"secret {number}", source="t")
        await memory.put(USER, "other", "kept")
        assert next(found.key for found in await memory.search((), "secret")) == "k"
        assert await another.delete(USER, "k")
        for handle in (memory, another):
            assert await handle.get(USER, "k") is None
            assert await handle.get(USER, "k", version=1) is None
            assert not await handle.exists(USER, "k")
            assert await handle.history(USER, "k") == []
            assert await handle.list_keys(USER) == ["other"]
            assert await _all(handle) == {(USER, "other"): "kept"}
            assert not await handle.delete(USER, "k")
        new = await memory.put(USER, "k", "new")
        assert [(item.version, item.value) for item in await another.history(USER, "k")] == [(new.version, "new")]
        assert [await another.get(USER, "k", version=number) for number in range(1, new.version)] == [None] * (
            new.version - 1
        )

    @pytest.mark.parametrize("again", [False, True], ids=["left", "put again"])
    async def test_a_deletion_that_is_interrupted_has_deleted(
        self, memory: LongTermMemory, another: LongTermMemory, again: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in range(3):
            item = await memory.put(USER, "k", number, source="t")
        with monkeypatch.context() as patch:

            async def killed(*_: Any) -> None:
                raise KeyboardInterrupt

            patch.setattr(store_module.ItemStore, "remove_versions", killed)
            with suppress(KeyboardInterrupt):
                await memory.delete(USER, "k", if_version=item)
        if again:
            assert (await another.put(USER, "k", "new", if_version=None)).value == "new"
        for handle in (memory, another):
            assert await handle.get(USER, "k") == ("new" if again else None)
            assert [item.value for item in await handle.history(USER, "k")] == (["new"] if again else [])
            assert [await handle.get(USER, "k", version=number) for number in (2, 3)] == [None, None]
            assert await handle.list_keys(USER) == (["k"] if again else [])
            assert await _all(handle) == ({(USER, "k"): "new"} if again else {})
        assert await another.sweep() == (0 if again else 1)
        left = await another._items.store.list_threads(None, "*")
        assert left == ([item_id(USER, "k")] if again else [])

    async def test_erasing_a_namespace_erases_what_is_below_it_alone(
        self, memory: LongTermMemory, another: LongTermMemory
    ) -> None:
        for namespace in NEVER_CROSS:
            await memory.put(namespace, "k", 1)
            await memory.put(namespace, "k", 2)
            if len(path_of(namespace).encode()) < 1_000:
                await memory.put((*namespace, "l"), "m" * 300, 3)
        expected = await _all(memory)
        for namespace in (("us",), ("a", "b"), ("x" * 254, "y"), ("😀" * 250,), ("nothing",), ("a",)):
            below = {place for place in expected if place[0][: len(namespace)] == namespace}
            assert await another.erase(namespace) == len(below)
            expected = {place: value for place, value in expected.items() if place not in below}
            assert await _all(memory) == expected
        assert await memory.erase(()) == len(expected)
        assert await _all(another) == {}
        with pytest.raises(ConfigurationError, match="prefix"):
            await memory.erase()

    async def test_erasing_a_source_erases_what_it_has_taught(
        self, memory: LongTermMemory, another: LongTermMemory
    ) -> None:
        await memory.put(USER, "mine", "by t1", source="t1")
        await memory.put(USER, "both", "by t1", source="t1")
        await memory.put(USER, "both", "by t2", source="t2")
        await memory.put(("users", "2"), "back", "by t2", source="t2")
        await memory.put(("users", "2"), "back", "by t1", source="t1")
        await memory.put(USER, "none", "by nobody")
        assert await another.erase(("elsewhere",), source="t1") == 0
        assert await another.erase(source="t1") == 3
        assert await _all(memory) == {
            (USER, "both"): "by t2",
            (USER, "none"): "by nobody",
            (("users", "2"), "back"): "by t2",
        }
        assert [item.source for item in await memory.history(USER, "both")] == ["t2"]
        assert await another.erase(USER, source="t2") == 1
        assert set(await _all(memory)) == {(USER, "none"), (("users", "2"), "back")}

    async def test_pages_neither_lose_nor_repeat_an_item(self, memory: LongTermMemory) -> None:
        words = ("tea", "green tea", "black tea with milk", "coffee", "milk")
        for number in range(23):
            await memory.put(("p", str(number % 3)), f"k{number}", {"text": words[number % 5], "n": number})
        for query in (None, "green tea", "nothing of this"):
            whole = [
                (found.score, found.namespace, found.key) for found in await memory.search(("p",), query, limit=100)
            ]
            assert len(whole) == 23
            assert whole == sorted(whole, key=lambda one: (-(one[0] or 0), path_of(one[1]), one[2]))
            for size in (1, 4, 7):
                pages = [
                    (found.score, found.namespace, found.key)
                    for offset in range(0, 23, size)
                    for found in await memory.search(("p",), query, limit=size, offset=offset)
                ]
                assert pages == whole
        keys: list[str] = []
        while page := await memory.list_keys(("p", "1"), limit=3, after=keys[-1] if keys else None):
            keys += page
        assert keys == sorted(f"k{number}" for number in range(1, 23, 3))
        spaces = await memory.list_namespaces()
        assert [name for at in range(3) for name in await memory.list_namespaces(limit=1, offset=at)] == spaces
        assert await memory.list_namespaces(suffix=("2",)) == [("p", "2")]
        assert await memory.list_namespaces(max_depth=1) == [("p",)]

    async def test_vectors_are_kept_and_what_was_held_is_never_shown_again(
        self, open_handle: OpenHandle, at: Callable[[timedelta], None]
    ) -> None:
        pytest.importorskip("numpy")

        def embed(texts: Sequence[str]) -> list[list[float]]:
            return [[float(text.count(letter)) for letter in "abc"] + [0.25] for text in texts]

        memory = LongTermMemory(open_handle(), embed=embed)
        other = LongTermMemory(open_handle(), embed=embed)
        for key, value in {"one": "aab", "two": "aabb", "three": "ccc"}.items():
            item = await memory.put(USER, key, value, ttl_seconds=60 if key == "two" else None)
            assert await other.get_item(USER, key) == item
        for by in ("vector", "hybrid"):
            found = await other.search(USER, "aab aab", by=by)
            assert [hit.key for hit in found] == ["one", "two", "three"]
            assert [hit.similarity for hit in found] == sorted((hit.similarity or 0 for hit in found), reverse=True)
        await memory.put(USER, "one", "cccc")
        assert next(hit.key for hit in await other.search(USER, "aab aab")) == "two"
        assert await memory.delete(USER, "three")
        assert {hit.key for hit in await other.search(USER, "c")} == {"one", "two"}
        at(timedelta(seconds=61))
        assert [(hit.key, hit.value) for hit in await other.search(USER, "aab")] == [("one", "cccc")]
        stranger = LongTermMemory(open_handle(), embed=embed, embed_model="another")
        with pytest.raises(EmbeddingMismatchError):
            await stranger.search(USER, "aab")
        assert await stranger.reindex() == 1
        assert len(await stranger.search(USER, "aab")) == 1

    async def test_a_filter_applies_before_the_limit_and_means_the_same_everywhere(
        self, memory: LongTermMemory
    ) -> None:
        for number in range(30):
            value = {"n": number, "kind": "rare" if number % 10 == 9 else "often", "user": {"name": f"u{number % 2}"}}
            await memory.put(
                USER, f"k{number:02}", value | {"a.b": number % 3, "float": number / 2, "flag": number > 15}
            )
        await memory.put(USER, "text", "no dict")
        rare = await memory.search(USER, "often", filter={"kind": "rare"}, limit=3)
        assert [found.key for found in rare] == ["k09", "k19", "k29"]
        infinite = float("inf")
        for wanted, passing in (
            ({"n": {"$gte": 3, "$lt": 5}}, {3, 4}),
            ({"n": {"$gt": 28}}, {29}),
            ({"n": {"$lte": 0}}, {0}),
            ({"n": {"$gt": -infinite, "$lt": infinite}, "kind": "rare"}, {9, 19, 29}),
            ({"n": {"$gt": infinite}}, set()),
            ({"user.name": "u1", "n": {"$lt": 4}}, {1, 3}),
            ({"user": {"name": "u1"}, "n": {"$lt": 4}}, {1, 3}),
            ({"a.b": 2, "n": {"$lt": 6}}, {2, 5}),
            ({"kind": {"$ne": "often"}}, {9, 19, 29}),
            ({"n": 4.0}, {4}),
            ({"flag": 1}, set()),
            ({"flag": True, "n": {"$lt": 17}}, {16}),
            ({"n": "4"}, set()),
            ({"missing": None, "n": {"$eq": 7}}, {7}),
            ({"'; DROP TABLE locus_threads; --": 1}, set()),
            ({"$.n": 1}, set()),
        ):
            found = await memory.search(USER, filter=wanted, limit=100)
            assert {item.value["n"] for item in found if item.key != "text"} == passing, wanted
        for bad in ({"n": {"$where": "1"}}, {"n": {"$regex": "."}}, [1], "n"):
            with pytest.raises(ConfigurationError):
                await memory.search(USER, filter=bad)  # type: ignore[arg-type]

    async def test_a_query_is_text(self, memory: LongTermMemory) -> None:
        for number, query in enumerate(HOSTILE_QUERIES):
            await memory.put(USER, f"k{number}", f"text {number}")
            assert len(await memory.search(USER, query, limit=100)) == number + 1
        with pytest.raises(ConfigurationError):
            await memory.search(USER, "x", by="magic")  # type: ignore[arg-type]
        with pytest.raises(InvalidIdError):
            await memory.search(USER, "\ud800")

    async def test_an_index_says_what_a_search_looks_at(self, memory: LongTermMemory) -> None:
        value = {"title": "zebra", "user": {"name": "yak"}, "tags": ["xenops"]}
        for key, index in (("all", None), ("none", False), ("title", ["title"]), ("deep", ["user.name", "tags"])):
            await memory.put(USER, key, value, index=index)  # type: ignore[arg-type]

        async def found(query: str) -> set[str]:
            return {hit.key for hit in await memory.search(USER, query) if hit.score}

        assert await found("zebra") == {"all", "title"}
        assert await found("yak") == {"all", "deep"}
        assert await found("xenops") == {"all", "deep"}
        with pytest.raises(ConfigurationError, match="index"):
            await memory.put(USER, "k", value, index="title")

    async def test_what_has_ended_is_in_no_answer(
        self, memory: LongTermMemory, another: LongTermMemory, at: Callable[[timedelta], None]
    ) -> None:
        item = await memory.put(USER, "k", "old", ttl_seconds=3_600, source="t")
        assert item.expires_at == item.updated_at + timedelta(hours=1)
        await memory.put(USER, "stays", 1, ttl_seconds=3_600)
        await memory.put(USER, "stays", 2)
        assert await another.get(USER, "k") == "old"
        at(timedelta(hours=2))
        for handle in (memory, another):
            assert await handle.get(USER, "k") is None
            assert await handle.get(USER, "k", version=1) is None
            assert await handle.history(USER, "k") == []
            assert await handle.list_keys(USER) == ["stays"]
            assert await _all(handle) == {(USER, "stays"): 2}
            assert not await handle.delete(USER, "other")
            with pytest.raises(ConflictError):
                await handle.put(USER, "k", "x", if_version=item)
        again = await another.put(USER, "k", "new", if_version=None)
        assert again.created_at > item.created_at + timedelta(hours=1)
        assert [item.value for item in await memory.history(USER, "k")] == ["new"]

    async def test_what_has_ended_is_removed_by_a_sweep(self, memory: LongTermMemory, another: LongTermMemory) -> None:
        brief = LongTermMemory(memory._opened, ttl_seconds=0.01)
        for number in range(3):
            await brief.put(USER, f"k{number}", number)
        await brief.put(USER, "stays", "here", ttl_seconds=None)
        while len(await another.list_keys(USER)) > 1:  # noqa: ASYNC110 - what ends says nothing
            await asyncio.sleep(0.01)
        await another.sweep()
        assert await another._items.store.list_threads(None, "*") == [item_id(USER, "stays")]
        assert await another._items.store.unlisted_threads("", "", 10) == []
        assert await another.get(USER, "stays") == "here"

    async def test_a_sweep_may_keep_the_newest_versions_only(
        self, memory: LongTermMemory, another: LongTermMemory
    ) -> None:
        for number in range(5):
            item = await memory.put(USER, "k", number, if_version=number or None)
            await another.put(USER, "other", number)
        assert await memory.sweep() == 0
        assert await another.sweep(keep_last=2) == 6
        for key in ("k", "other"):
            assert [old.version for old in await memory.history(USER, key)] == [5, 4]
            assert await memory.get(USER, key, version=1) is None
        assert (await another.put(USER, "k", "next", if_version=item)).version > 5  # a removal may take a number
        with pytest.raises(ConfigurationError, match="keep_last"):
            await memory.sweep(keep_last=0)

    async def test_a_scope_sees_nothing_else(self, memory: LongTermMemory) -> None:
        await memory.put(("users", "1"), "k", "one")
        await memory.put(("users", "2"), "k", "two")
        scoped = memory.scoped(("users",)).scoped(("1",))
        assert await _all(scoped) == {((), "k"): "one"}
        item = await scoped.put(("deep",), "k", "new")
        assert item.namespace == ("deep",)
        assert await scoped.list_namespaces() == [(), ("deep",)]
        assert await scoped.list_keys(()) == ["k"]
        assert await memory.get(("users", "1", "deep"), "k") == "new"
        assert (await scoped.put(("deep",), "k", "newer", if_version=item)).version == 2
        assert await scoped.erase(()) == 2
        assert await _all(memory) == {(("users", "2"), "k"): "two"}

    async def test_a_batch_answers_in_order(self, memory: LongTermMemory, another: LongTermMemory) -> None:
        items = await memory.put_batch([(USER, f"k{number}", number) for number in range(100)])
        assert [(item.key, item.version) for item in items] == [(f"k{number}", 1) for number in range(100)]
        assert await another.get_batch([(USER, f"k{number}") for number in range(99, 101)]) == [99, None]
        results = await memory.batch(
            [
                Put(USER, "k1", "one"),
                Get(USER, "k1"),
                Delete(USER, "k1"),
                Get(USER, "k1"),
                Put(USER, "k1", "again"),
                Get(USER, "k2"),
                Delete(USER, "none"),
            ]
        )
        shown = [result if result is None or isinstance(result, bool) else result.value for result in results]
        assert shown == ["one", "one", True, None, "again", 2, False]
        with pytest.raises(ConflictError):
            await memory.batch([Put(USER, "k3", "x", if_version=None), Put(USER, "new", 1)])
        assert await another.get_batch([(USER, "k3"), (USER, "new")]) == [3, 1]

    async def test_a_damaged_item_is_an_error_and_hides_no_other(
        self, memory: LongTermMemory, another: LongTermMemory
    ) -> None:
        await memory.put(USER, "kept", "whole")
        space = memory._items.store
        damaged: list[dict[str, Any]] = [
            {"x": 1},
            {"format": "1"},
            {"format": 99, "value": 1},
            {"format": 1, "value": None},
            {"format": 1, "value": 9, "metadata": []},
            {"format": 1, "value": 9, "created_at": "x"},
            {"format": 1, "value": 9, "expires_at": "2026-01-01T00:00:00"},
            {"format": 1, "value": 9, "index": {}},
            *({"format": 1, "value": 9, "vectors": vectors} for vectors in (7, ["m"], ["m", 4, "~~~~~"], [1, 4, "0"])),
        ]
        for number, payload in enumerate(damaged):
            await space.save(item_id(USER, f"bad{number}"), dict_payload(payload), namespace=DEFAULT_NAMESPACE)
            with pytest.raises(CorruptCheckpointError):
                await another.get(USER, f"bad{number}")
        with pytest.warns(DamagedThreadsWarning, match=f"{len(damaged)} damaged"):
            assert await _all(another) == {(USER, "kept"): "whole"}
        with pytest.warns(DamagedThreadsWarning):
            assert await another.list_keys(USER) == ["kept"]
        assert await another.erase(USER) == 1 + len(damaged)


class LongTermOutageLaws(LongTermLaws):
    """During an outage every call raises."""

    async def test_no_memory_answers_what_it_could_not_find_out(
        self, memory: LongTermMemory, another: LongTermMemory, store: OutageTestStore
    ) -> None:
        item = await memory.put(USER, "k", "kept", ttl_seconds=3_600, source="t")
        async with store.outage():
            for handle in (memory, another):
                calls: dict[str, Awaitable[object]] = {
                    "get": handle.get(USER, "k"),
                    "a version": handle.get_item(USER, "k", version=1),
                    "exists": handle.exists(USER, "missing"),
                    "put": handle.put(USER, "k", "x"),
                    "a conditional put": handle.put(USER, "k", "x", if_version=item),
                    "delete": handle.delete(USER, "k"),
                    "a conditional deletion": handle.delete(USER, "k", if_version=item),
                    "history": handle.history(USER, "k"),
                    "search": handle.search(USER, "kept"),
                    "list_keys": handle.list_keys(USER),
                    "list_namespaces": handle.list_namespaces(),
                    "batch": handle.batch([Get(USER, "k")]),
                    "erase": handle.erase(USER),
                    "erase a source": handle.erase(source="t"),
                    "sweep": handle.sweep(),
                }
                for what, call in calls.items():
                    answer: object = None
                    with suppress(BackendUnavailableError):
                        answer = await call
                        pytest.fail(f"{what} answered {answer!r} although the store could not be reached")
        for handle in (memory, another):
            assert await handle.get(USER, "k") == "kept"
            assert [item.version for item in await handle.history(USER, "k")] == [1]


class LongTermProcessLaws(LongTermOutageLaws, WorkerLaws):
    """Several processes, and processes that are killed."""

    memory_kills: ClassVar[int] = 5
    """The number of processes that are killed while they put and delete."""

    counted_at_once: ClassVar[int] = 12
    """How often each of several processes raises a number that the others raise, too."""

    async def test_processes_that_count_on_each_other_lose_nothing(self, memory: LongTermMemory, crew: Crew) -> None:
        workers = [
            crew.start(memory_jobs.count_up, url=crew.url, namespace=list(USER), key="n", count=self.counted_at_once)
            for _ in range(3)
        ]
        crew.together(workers)
        for worker in workers:
            worker.finish()
        history = await memory.history(USER, "n", limit=None)
        count = 3 * self.counted_at_once
        assert [(item.version, item.value) for item in reversed(history)] == [(n, n) for n in range(1, count + 1)]

    @pytest.mark.crash
    async def test_a_process_that_is_killed_loses_nothing_it_has_acknowledged(
        self, store: DurableTestStore, crew: Crew
    ) -> None:
        inside = 0
        for kill in range(self.memory_kills):
            worker = crew.start(memory_jobs.put_until_killed, url=crew.url, namespace=list(USER), key=f"k{kill}")
            heard = [worker.hear() for _ in range(3 + 2 * kill)]
            heard += worker.kill()
            acknowledged = max(message.get("acknowledged", 0) for message in heard)
            async with store.open_after_kill() as handle:
                memory = LongTermMemory(handle)
                history = await memory.history(USER, f"k{kill}", limit=None)
                values = [item.value["number"] for item in reversed(history)]
                assert values == list(range(1, len(values) + 1))
                assert [item.version for item in reversed(history)] == values
                assert acknowledged <= len(values) <= acknowledged + 1
                gone = await memory.get_item(USER, f"k{kill} gone")
                deleted = max((message["deleted"] for message in heard if "deleted" in message), default=0)
                assert gone is None or gone.value > deleted
                inside += len(values) > acknowledged or gone is not None
                assert all(exact(item.value["text"]) == exact("x" * 500) for item in history)
                await memory.sweep()
                assert f"k{kill}" in await memory.list_keys(USER)
