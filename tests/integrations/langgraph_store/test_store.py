"""LangGraph's contract for stores, on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchItem,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from locus.core.state import AgentState
from locus.errors import (
    BackendUnavailableError,
    ConfigurationError,
    InvalidIdError,
    SerializationError,
)
from locus.integrations.langgraph_store.store import LocusStore
from locus.memory.backends import PostgreSQLBackend, sqlite_checkpointer
from locus.memory.long_term import LongTermMemory
from locus.memory.long_term.store import ItemStore
from locus.testing.stores import DurableTestStore
from tests.backends.postgresql.store import PostgreSQLStore
from tests.integrations.langgraph_store.conftest import Clock

ODD = {
    "text": "emoji 🧵, NUL \0, quotes ' \" and \\",
    "numbers": [2**70, -0.0, 1e22, 0.1, 1, True, None],
    "": {"$locus:int": "5", "nested": [[], {}, ""]},
    "NUL\0": 1,
}
STRANGE = [
    ("a", "b"),
    ("a/b",),
    ("a~1b",),
    ("a~b",),
    ("a",),
    ("A",),
    ("a ",),
    ("ä",),
    ("a:b",),
    ("a%",),
    ("a_",),
    ("*",),
    ("a\x01b",),
    ("'; DROP TABLE locus_store --",),
]


def keys(found: list[SearchItem]) -> list[str]:
    return [item.key for item in found]


async def test_items_are_kept_changed_and_deleted(store: LocusStore, clock: Clock) -> None:
    assert await store.aget(("users",), "alice") is None
    await store.aput(("users",), "alice", ODD)
    clock.pass_minutes(1)
    first = await store.aget(("users",), "alice")
    assert first is not None
    assert (first.namespace, first.key, first.value) == (("users",), "alice", ODD)
    assert str(first.value["numbers"][1]) == "-0.0"
    await store.aput(("users",), "alice", {"n": 2})
    second = await store.aget(("users",), "alice")
    assert second is not None
    assert second.value == {"n": 2}
    assert second.created_at == first.created_at == first.updated_at
    assert (second.updated_at - second.created_at).total_seconds() == 60
    await store.adelete(("users",), "alice")
    assert await store.aget(("users",), "alice") is None
    await store.adelete(("users",), "alice")


async def test_namespaces_never_cross(store: LocusStore) -> None:
    await store.abatch([PutOp(namespace, "key", {"of": list(namespace)}) for namespace in STRANGE])
    found = await store.abatch([GetOp(namespace, "key") for namespace in STRANGE])
    assert [item.value["of"] for item in found] == [list(namespace) for namespace in STRANGE]  # type: ignore[union-attr]
    below = await store.abatch([SearchOp(namespace, limit=50) for namespace in STRANGE])
    expected = [[other for other in STRANGE if other[: len(one)] == one] for one in STRANGE]
    assert [{item.namespace for item in part} for part in below] == [set(part) for part in expected]  # type: ignore[union-attr]
    assert set(await store.alist_namespaces(limit=50)) == set(STRANGE)
    await store.abatch([PutOp(("a",), "key", None)])
    assert len(await store.alist_namespaces(limit=50)) == len(STRANGE) - 1


INVALID: list[Any] = ["", 5, None]
NEVER_NEW: list[Any] = ["a.b", ".", "a\0b", *INVALID]


@pytest.mark.parametrize("label", NEVER_NEW)
async def test_a_batch_stores_nothing_under_the_labels_that_langgraph_refuses(store: LocusStore, label: Any) -> None:
    op = PutOp(("a", label), "k", {})
    with pytest.raises(InvalidNamespaceError):
        await store.abatch([PutOp(("a",), "other", {}), op])
    with pytest.raises(InvalidNamespaceError):
        await asyncio.to_thread(store.batch, [op])
    assert await store.alist_namespaces() == []


@pytest.mark.parametrize("label", INVALID)
async def test_a_batch_refuses_what_cannot_be_a_label(store: LocusStore, label: Any) -> None:
    for op in (
        PutOp(("a", label), "k", None),
        GetOp((label,), "k"),
        SearchOp((label, "a")),
        ListNamespacesOp((MatchCondition("prefix", ("*", label)),)),
        ListNamespacesOp((MatchCondition("suffix", (label,)),)),
    ):
        with pytest.raises(InvalidNamespaceError):
            await store.abatch([PutOp(("a",), "other", {}), op])
        with pytest.raises(InvalidNamespaceError):
            await asyncio.to_thread(store.batch, [op])
    assert await store.alist_namespaces() == []


async def test_what_is_stored_under_a_label_with_a_dot_is_found_and_deleted(store: LocusStore) -> None:
    """Earlier versions have taken dots and NUL in a batch."""
    strange = [("a.b",), ("a\0b", "c")]
    for namespace in strange:
        await store._memory.put(namespace, "k", {})
    assert {item.namespace for item in await store.asearch(())} == set(strange)
    assert await store.alist_namespaces() == sorted(strange)
    for namespace in strange:
        got, found = await store.abatch([GetOp(namespace, "k"), SearchOp(namespace)])
        assert isinstance(got, Item)
        assert isinstance(found, list)
        assert (got.namespace, len(found)) == (namespace, 1)
        await store.abatch([PutOp(namespace, "k", None)])
        assert await store.abatch([GetOp(namespace, "k")]) == [None]


async def test_a_beginning_of_a_label_is_no_prefix(store: LocusStore) -> None:
    for namespace in (("us",), ("us", "1"), ("user",), ("user", "us"), ("us0",), ("us!",), ("us-east",)):
        await store.abatch([PutOp(namespace, "key", {})])
    assert {item.namespace for item in await store.asearch(("us",))} == {("us",), ("us", "1")}
    assert await store.alist_namespaces(prefix=("us",)) == [("us",), ("us", "1")]


async def test_a_search_gives_the_newest_first_in_pages(store: LocusStore, clock: Clock) -> None:
    for number in range(5):
        await store.aput(("docs",), f"d{number}", {"n": number})
        clock.pass_minutes(1)
    await store.aput(("docs",), "d1", {"n": 1})
    assert keys(await store.asearch(("docs",))) == ["d1", "d4", "d3", "d2", "d0"]
    assert keys(await store.asearch(("docs",), limit=2, offset=1)) == ["d4", "d3"]
    assert keys(await store.asearch((), limit=1)) == ["d1"]
    assert await store.asearch(("docs",), limit=0) == []
    assert await store.asearch(("nothing",)) == []


FILTERS: list[tuple[dict[str, Any], list[str]]] = [
    ({"kind": "book"}, ["a", "b"]),
    ({"kind": {"$eq": "book"}, "year": {"$gt": 1990}}, ["b"]),
    ({"year": {"$gte": 1990, "$lt": 2001}}, ["a", "b"]),
    ({"year": {"$lte": 1990}}, ["a"]),
    ({"year": {"$gt": "1"}}, []),
    ({"kind": {"$gt": "book"}}, ["c"]),
    ({"kind": {"$ne": "book"}}, ["c", "d"]),
    ({"year": 2000.0}, ["b"]),
    ({"flag": True}, ["b"]),
    ({"flag": 1}, ["c"]),
    ({"nested": {"deep": {"x": 1}}}, ["a"]),
    ({"nested": {"deep": {"$eq": {"x": 1, "y": [1, 2]}}}}, ["a"]),
    ({"tags": ["x", "y"]}, ["a"]),
    ({"missing": None}, ["a", "b", "c", "d"]),
    ({"year": None}, ["d"]),
    ({"text": "NUL \0"}, ["d"]),
    ({"a') OR 1=1 --": 1}, []),
    ({"$.kind": "book"}, []),
    ({'"': "quote"}, ["c"]),
]


@pytest.mark.parametrize("portion", [500, 2])
async def test_filters(store: LocusStore, portion: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ItemStore, "pages", partialmethod(ItemStore.pages, size=portion))
    values: dict[str, dict[str, Any]] = {
        "a": {"kind": "book", "year": 1990, "nested": {"deep": {"x": 1, "y": [1, 2]}}, "tags": ["x", "y"]},
        "b": {"kind": "book", "year": 2000, "flag": True},
        "c": {"kind": "film", "year": 2010, "flag": 1, '"': "quote"},
        "d": {"text": "NUL \0"},
    }
    await store.abatch([PutOp(("docs",), key, value) for key, value in values.items()])
    await store.aput(("other",), "z", values["a"])
    for wanted, expected in FILTERS:
        assert sorted(keys(await store.asearch(("docs",), filter=wanted))) == expected, wanted
    assert len(await store.asearch(("docs",), filter={"kind": {"$ne": "book"}}, limit=1, offset=1)) == 1


@pytest.mark.parametrize(
    "wanted", [{"year": {"$like": "x"}}, {"a": {"$eq": 1, "b": 2}}, {"a": {"b": [{"$x": 1}]}}, ["kind"], "kind"]
)
async def test_filters_that_mean_nothing_are_refused(store: LocusStore, wanted: Any) -> None:
    with pytest.raises(ConfigurationError):
        await store.asearch(("docs",), filter=wanted)


async def test_a_query_ranks_by_words(store: LocusStore, clock: Clock) -> None:
    texts = {"a": "I like Pizza and pasta", "b": "pizza!", "c": "my name is Bob", "d": "nothing"}
    for key, text in texts.items():
        await store.aput(("memories",), key, {"deep": [{"text": text}], "kind": key})
        clock.pass_minutes(1)
    found = await store.asearch(("memories",), query="Who likes pizza or PASTA?")
    assert [(item.key, item.score and round(item.score, 2)) for item in found] == [
        ("a", 1.0),
        ("b", 0.34),
        ("c", None),
        ("d", None),
    ]
    found = await store.asearch(("memories",), query="bob", filter={"kind": {"$ne": "d"}}, limit=2)
    assert [(item.key, item.score) for item in found] == [("c", 1.0), ("a", None)]
    assert keys(await store.asearch(("memories",), query="?!")) == ["a", "b", "c", "d"]


NAMESPACES = [("a",), ("a", "b"), ("a", "b", "c"), ("a", "x", "c"), ("b", "c"), ("b", "x", "v1")]
LISTINGS: list[dict[str, Any]] = [
    {},
    {"prefix": ("a",)},
    {"prefix": ("a", "*", "c")},
    {"prefix": ("*", "x")},
    {"suffix": ("c",)},
    {"suffix": ("*", "v1")},
    {"prefix": ("a",), "suffix": ("c",)},
    {"max_depth": 2},
    {"max_depth": 1, "prefix": ("b",)},
    {"limit": 2, "offset": 1},
    {"prefix": ("a", "b", "c", "d")},
]


async def test_namespaces_are_listed_as_langgraph_lists_them(store: LocusStore) -> None:
    reference = InMemoryStore()
    for one in (store, reference):
        await one.abatch([PutOp(namespace, "key", {}) for namespace in NAMESPACES])
    for asked in LISTINGS:
        assert await store.alist_namespaces(**asked) == await reference.alist_namespaces(**asked), asked
    wrong = ListNamespacesOp((MatchCondition("middle", ("a",)),))  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="middle"):
        await store.abatch([wrong])


async def test_a_batch_reads_before_it_writes_and_writes_all_or_nothing(store: LocusStore) -> None:
    await store.aput(("n",), "a", {"v": 1})
    results = await store.abatch(
        [
            PutOp(("n",), "a", {"v": 2}),
            GetOp(("n",), "a"),
            PutOp(("n",), "a", {"v": 3}),
            PutOp(("n",), "b", {"v": 1}),
            SearchOp(("n",)),
            ListNamespacesOp(),
            PutOp(("n",), "b", None),
        ]
    )
    assert results[1].value == {"v": 1}  # type: ignore[union-attr]
    assert [item.value for item in results[4]] == [{"v": 1}]  # type: ignore[union-attr]
    assert results[5] == [("n",)]
    assert [results[index] for index in (0, 2, 3, 6)] == [None] * 4
    assert [item.value for item in await store.asearch(("n",))] == [{"v": 3}]
    with pytest.raises(SerializationError) as caught:
        await store.abatch([PutOp(("n",), "a", {"v": 4}), PutOp(("n",), "b", {"v": [float("inf")]})])
    assert caught.value.path == "value.v[0]"
    assert [item.value for item in await store.asearch(("n",))] == [{"v": 3}]
    assert await store.abatch([]) == []


@pytest.mark.parametrize(
    ("op", "error"),
    [
        (PutOp((), "k", {}), ConfigurationError),
        (PutOp(("a", ""), "k", {}), InvalidNamespaceError),
        (PutOp(("a", 5), "k", {}), InvalidNamespaceError),  # type: ignore[arg-type]
        (PutOp(("a",), 5, {}), InvalidIdError),  # type: ignore[arg-type]
        (PutOp(("a",), "k" * 1_025, {}), InvalidIdError),
        (PutOp(("a" * 600, "ä" * 300), "k", {}), InvalidIdError),
        (PutOp(("a",), "\ud800", {}), InvalidIdError),
        (PutOp(("a",), "k", [1]), SerializationError),  # type: ignore[arg-type]
        (PutOp(("a",), "k", {5: 1}), SerializationError),  # type: ignore[dict-item]
        (PutOp(("a",), "k", {}, ttl=-1), ConfigurationError),
        (SearchOp(("a",), limit=-1), ConfigurationError),
        ("nonsense", ConfigurationError),
    ],
)
async def test_what_cannot_be_is_refused(store: LocusStore, op: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        await store.abatch([op])
    assert await store.alist_namespaces() == []


async def test_the_longest_names_fit(store: LocusStore) -> None:
    namespace, key = ("🧵" * 127, "x" * 500), "🧵" * 256
    await store.aput(namespace, key, {"n": 1})
    assert await store.aget(namespace, key) is not None
    assert await store.alist_namespaces() == [namespace]


async def test_first_uses_at_once_make_one_table(place: DurableTestStore) -> None:
    async with place.open() as one, place.open() as another:
        stores = [LocusStore(handle) for handle in (one, another, one, another)]
        await asyncio.gather(*(stores[n % 4].aput(("n",), f"k{n}", {"n": n}) for n in range(12)))
        assert len(await stores[0].asearch(("n",), limit=20)) == 12


def test_sync_calls_do_the_same(place: DurableTestStore) -> None:
    with LocusStore(place.url) as store:
        store.put(("n",), "a", {"v": 1})
        item = store.get(("n",), "a")
        assert item is not None
        assert item.value == {"v": 1}
        assert keys(store.search(("n",))) == ["a"]
        assert store.list_namespaces() == [("n",)]
        assert store.sweep_ttl() == 0
        store.delete(("n",), "a")
        assert store.get(("n",), "a") is None


async def test_an_outage_is_an_error_and_not_an_empty_store(place: DurableTestStore, store: LocusStore) -> None:
    await store.aput(("n",), "a", {"v": 1})
    async with place.outage():
        for call in (store.aget(("n",), "a"), store.asearch(("n",)), store.aput(("n",), "a", {})):
            with pytest.raises(BackendUnavailableError):
                await call
    assert await store.aget(("n",), "a") is not None


async def test_the_database_of_a_checkpointer_may_hold_a_store(tmp_path: Path) -> None:
    async with sqlite_checkpointer(tmp_path / "locus.db") as handle:
        await handle.save(AgentState(), "thread")
        async with LocusStore(handle) as store:
            await store.aput(("n",), "a", {"v": 1})
        assert handle.store.ready
        assert await handle.list_threads() == ["thread"]
        assert repr(store) == "LocusStore(SQLiteEngine)"
        memory = LongTermMemory(handle)
        assert [item.value for item in await memory.history(("n",), "a")] == [{"v": 1}]


async def test_without_auto_create_an_administrator_makes_the_table(schema: PostgreSQLStore) -> None:
    options: dict[str, Any] = {"dsn": schema.dsn, "schema_name": schema.schema, "table_name": "apart"}
    async with PostgreSQLBackend(**options) as backend:
        await backend.save("thread", {})
        script = LocusStore(backend).ddl()
    async with PostgreSQLBackend(**options, auto_create_table=False) as backend:
        store = LocusStore(backend)
        with pytest.raises(ConfigurationError, match=r"apart__memory"):
            await store.aget(("n",), "a")
        with schema.connection() as connection:
            connection.execute(script)
        await store.aput(("n",), "a", {"v": 1})
        assert await store.aget(("n",), "a") is not None


def test_what_it_cannot_do_is_said_at_once() -> None:
    with pytest.raises(ConfigurationError, match="how to embed"):
        LocusStore("sqlite::memory:", index={"dims": 3})
    with pytest.raises(ConfigurationError, match="rank is"):
        LocusStore("sqlite::memory:", rank="words")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="only work with a name or URL"):
        LocusStore(sqlite_checkpointer(":memory:"), timeout=1.0)
