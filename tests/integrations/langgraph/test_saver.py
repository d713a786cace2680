"""The saver itself: listing, what it refuses, what it says of an outage, and whom it closes."""

from __future__ import annotations

import asyncio
import datetime as dt
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from pydantic import BaseModel

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import (
    BackendUnavailableError,
    CapabilityError,
    ConfigurationError,
    ConflictError,
    CorruptCheckpointError,
    LocusError,
    SerializationError,
    UnsupportedFormatError,
)
from locus.integrations.langgraph.saver import LocusSaver
from locus.memory.backends import MemoryCheckpointer, SQLiteBackend, StorageBackendAdapter, sqlite_checkpointer
from locus.memory.backends.sqlite.engine import SQLiteEngine
from locus.memory.model import sizes
from locus.testing.stores import OutageTestStore
from tests.backends.embedded import SQLiteStore
from tests.backends.postgresql.store import new_store
from tests.integrations.langgraph.graphs import chat, said, texts, thread
from tests.servers.postgresql import PostgreSQLServer
from tests.servers.proxy import Proxy
from tests.unsealed import unseal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "saver.db"


@pytest.fixture
def saver(path: Path) -> Iterator[LocusSaver]:
    with LocusSaver(f"sqlite:{path}") as saver:
        yield saver


def checkpoint(**values: Any) -> Checkpoint:
    made = empty_checkpoint()
    made["id"] = str(uuid6(clock_seq=1))
    made["channel_values"] = values
    made["channel_versions"] = dict.fromkeys(values, 1)
    return made


def put(saver: LocusSaver, config: RunnableConfig, metadata: Any = None, **values: Any) -> RunnableConfig:
    about: Any = metadata or {}
    return saver.put(config, checkpoint(**values), about, {})


def ids(found: Iterator[CheckpointTuple]) -> list[str]:
    return [one.config["configurable"]["checkpoint_id"] for one in found]


def name(config: RunnableConfig) -> str:
    return str(config["configurable"]["checkpoint_id"])


class TestAsLangGraphsSaversAreMade:
    """`with SqliteSaver.from_conn_string(…) as saver: saver.setup()`, and its async twin."""

    def test_in_a_sync_program(self, path: Path) -> None:
        with LocusSaver.from_conn_string(f"sqlite:{path}", ttl_seconds=60) as saver:
            saver.setup()
            with closing(sqlite3.connect(path)) as database:
                assert database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] > 0
            config = put(saver, thread("alice"))
            saver.setup()
            assert saver.get_tuple(config) is not None

    async def test_in_an_async_program(self, path: Path) -> None:
        async with LocusSaver.from_conn_string(f"sqlite:{path}") as saver:
            await saver.setup()
            with closing(sqlite3.connect(path)) as database:
                assert database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] > 0
            await chat(saver).ainvoke(said("Hello"), thread("alice"))
            assert await saver.aget_tuple(thread("alice")) is not None

    async def test_what_is_in_the_way_is_told(self, tmp_path: Path) -> None:
        nowhere = f"sqlite:{tmp_path / 'none' / 'saver.db'}"
        with pytest.raises(ConfigurationError, match="pipeline"):
            LocusSaver.from_conn_string(nowhere, pipeline=True)
        saver = LocusSaver.from_conn_string(nowhere)
        with pytest.raises(LocusError):
            await saver.setup()
        with pytest.raises(LocusError):
            await asyncio.to_thread(saver.setup)


class TestListing:
    @pytest.mark.parametrize("most", [1, 3_000])
    def test_large_checkpoints_are_all_listed(
        self, saver: LocusSaver, monkeypatch: pytest.MonkeyPatch, most: int
    ) -> None:
        """A store gives fewer of them at a time than it was asked for."""
        config = thread()
        for turn in range(6):
            config = put(saver, config, messages=[f"{number}" * 500 for number in range(turn + 1)])
        expected = list(saver.list(thread()))
        monkeypatch.setattr(sizes, "EXPORT_BYTES", most)
        assert len(expected) == 6
        assert list(saver.list(thread())) == expected

    def test_a_filter_is_about_whole_values(self, saver: LocusSaver) -> None:
        made = [
            put(saver, thread("t", checkpoint_ns=""), metadata)
            for metadata in (
                {"user": {"name": "Ann", "tags": ["a", {"b": 1}]}, "score": 1},
                {"user": {"name": "Ann"}, "score": 2},
                {"user": {"name": "Ann", "tags": ["a", {"b": 1}]}, "score": 2.5, "at": dt.date(2026, 7, 1)},
                {"score": None},
            )
        ]
        for where, expected in (
            ({"user": {"name": "Ann", "tags": ["a", {"b": 1}]}}, [2, 0]),
            ({"user": {"name": "Ann"}}, [1]),
            ({"user": {"name": "Ann", "tags": ["a", {"b": 1}]}, "score": 1}, [0]),
            ({"at": dt.date(2026, 7, 1)}, [2]),
            ({"score": None}, [3]),
            ({"score": "1"}, []),
            ({"nothing": 1}, []),
            ({"user.name": "Ann"}, []),
            ({"' OR 1=1 --": 1}, []),
            ({"$type": "dict", "at": 1}, []),
            ({}, [3, 2, 1, 0]),
        ):
            for config in (thread(), thread(checkpoint_ns=""), None):
                assert ids(saver.list(config, filter=where)) == [name(made[number]) for number in expected]
                assert len(ids(saver.list(config, filter=where, limit=1))) == min(1, len(expected))

    def test_metadata_that_looks_like_a_tag_is_found(self, saver: LocusSaver) -> None:
        made = put(saver, thread(checkpoint_ns=""), {"$type": "dict", "at": dt.date(2026, 7, 1)})
        put(saver, thread(checkpoint_ns=""), {"at": dt.date(2026, 7, 2)})
        for where in ({"$type": "dict"}, {"at": dt.date(2026, 7, 1)}):
            (found,) = saver.list(thread(), filter=where)
            assert found.config == made
            assert found.metadata == {"$type": "dict", "at": dt.date(2026, 7, 1)}

    def test_pages_are_the_whole(self, saver: LocusSaver) -> None:
        made = [name(put(saver, thread(checkpoint_ns=""), {"step": number})) for number in range(45)]
        whole = ids(saver.list(thread()))
        assert whole == made[::-1]
        pages: list[str] = []
        before = None
        while page := ids(saver.list(thread(checkpoint_ns=""), before=before, limit=7)):
            pages += page
            before = thread(checkpoint_id=page[-1])
        assert pages == whole
        assert ids(saver.list(thread(), limit=0)) == []
        assert ids(saver.list(thread(checkpoint_ns="", checkpoint_id=made[3]))) == [made[3]]
        assert ids(saver.list(thread(checkpoint_id=made[3]))) == [made[3]]
        assert ids(saver.list(thread(checkpoint_ns="", checkpoint_id="none"))) == []

    def test_before_may_name_a_checkpoint_of_another_namespace(self, saver: LocusSaver) -> None:
        early = put(saver, thread(checkpoint_ns="child"))
        parent = put(saver, thread(checkpoint_ns=""))
        put(saver, thread(checkpoint_ns="child"))
        assert ids(saver.list(thread(checkpoint_ns="child"), before=parent)) == [name(early)]

    def test_all_threads_are_listed_newest_first(self, saver: LocusSaver) -> None:
        made = [
            name(put(saver, thread(f"t{number % 3}", checkpoint_ns=""), {"n": number, "kind": "x" * (number % 2)}))
            for number in range(9)
        ]
        assert ids(saver.list(None)) == made[::-1]
        assert ids(saver.list(None, limit=2)) == made[:-3:-1]
        assert ids(saver.list({"configurable": {}}, filter={"n": 4})) == [made[4]]
        assert ids(saver.list(None, filter={"kind": "x"}, limit=2)) == [made[7], made[5]]
        assert ids(saver.list(None, before=thread(checkpoint_id=made[2]))) == [made[1], made[0]]

    async def test_threads_that_are_not_of_graphs_are_not_listed(self, path: Path) -> None:
        async with sqlite_checkpointer(path) as checkpointer:
            state = AgentState().with_message(Message.user("Hello"))
            await checkpointer.save(state, "agent", metadata={"kind": "x"})
            saver = LocusSaver(checkpointer)
            made = await saver.aput(thread("graph", checkpoint_ns=""), checkpoint(), {"kind": "x"}, {})  # type: ignore[typeddict-unknown-key]
            await checkpointer.save(state, "agent", metadata={"kind": "x"})
            for where in (None, {"kind": "x"}):
                found = [one async for one in saver.alist(None, filter=where, limit=1)]
                assert [one.config for one in found] == [made]
            with pytest.raises(CorruptCheckpointError, match="not one of LangGraph's: use another thread_id"):
                await saver.aget_tuple(thread("agent", checkpoint_ns="default"))
            assert await saver.aget_tuple(thread("agent")) is None

    def test_nothing_is_read_that_is_not_asked_for(self, saver: LocusSaver, monkeypatch: pytest.MonkeyPatch) -> None:
        for number in range(100):
            put(saver, thread(checkpoint_ns=""), {"step": number}, messages=[HumanMessage(str(number))])
        read: list[int] = []
        export = SQLiteEngine.export

        async def counted(self: SQLiteEngine, thread_id: str, after_seq: int, limit: int, known: Any) -> Any:
            found = await export(self, thread_id, after_seq, limit, known)
            read.append(len(found.checkpoints))
            return found

        monkeypatch.setattr(SQLiteEngine, "export", counted)
        assert len(ids(saver.list(thread(checkpoint_ns=""), limit=10))) == 10
        assert sum(read) == 10
        read.clear()
        assert next(iter(saver.list(thread(checkpoint_ns="")))).metadata["step"] == 99
        assert sum(read) <= 4

    def test_the_checkpoints_of_a_listing_have_lists_of_their_own(self, saver: LocusSaver) -> None:
        messages = [HumanMessage(str(number)) for number in range(3)]
        for count in (1, 2, 3):
            put(saver, thread(checkpoint_ns=""), messages=messages[:count])
        found = [one.checkpoint["channel_values"]["messages"] for one in saver.list(thread())]
        found[0].append("x")
        assert [len(one) for one in found] == [4, 2, 1]


class Order(BaseModel):
    number: int


class TestTypes:
    def test_a_class_is_kept_once_it_is_allowed(self, path: Path) -> None:
        with LocusSaver(f"sqlite:{path}", allowed_types=[Order]) as saver:
            put(saver, thread(checkpoint_ns=""), order=Order(number=7), orders=[Order(number=1)])
            found = saver.get_tuple(thread())
            assert found is not None
            assert found.checkpoint["channel_values"] == {"order": Order(number=7), "orders": [Order(number=1)]}
        with LocusSaver(f"sqlite:{path}") as saver:
            with pytest.raises(SerializationError, match=r"test_saver\.Order, which is not allowed here"):
                saver.get_tuple(thread())
            with pytest.raises(SerializationError, match=r"test_saver\.Order, which is not allowed here"):
                list(saver.list(thread()))

    def test_nothing_is_written_of_a_state_with_a_type_that_is_not_allowed(self, saver: LocusSaver) -> None:
        kept = put(saver, thread(checkpoint_ns=""), x=1)
        for values in ({"x": 2, "order": Order(number=1)}, {"orders": [Order(number=1)]}):
            with pytest.raises(SerializationError, match=r"channel_values\.orders?(\[0\])? is of type .*\.Order"):
                put(saver, kept, **values)
        with pytest.raises(SerializationError, match=r"writes\[1\]\.b is of type"):
            saver.put_writes(kept, [("a", 1), ("b", Order(number=1))], "task")
        assert ids(saver.list(thread())) == [name(kept)]
        found = saver.get_tuple(kept)
        assert found is not None
        assert found.pending_writes == []

    def test_the_database_can_be_asked_what_is_in_a_state(self, path: Path) -> None:
        with LocusSaver(f"sqlite:{path}") as saver:
            chat(saver).invoke(said("where is the station?"), thread())
        with closing(sqlite3.connect(path)) as connection:
            rows = connection.execute(
                "SELECT json_extract(item.value, '$.$type'), json_extract(item.value, '$.content')"
                " FROM locus_runs, json_each(items) AS item"
            ).fetchall()
        assert ("HumanMessage", "where is the station?") in rows
        assert ("AIMessage", "answer to where is the station?") in rows

    async def test_what_was_said_is_found_by_search(self, path: Path) -> None:
        async with SQLiteBackend(path) as backend:
            await chat(LocusSaver(backend)).ainvoke(said("where is the station?"), thread())
            assert {found["thread_id"] for found in await backend.search("station")} == {"t"}

    def test_the_serializer_does_the_same(self, saver: LocusSaver) -> None:
        kept = saver.serde.dumps_typed({"at": dt.date(2026, 7, 1)})
        assert saver.serde.loads_typed(kept) == {"at": dt.date(2026, 7, 1)}
        with pytest.raises(CorruptCheckpointError, match="another serializer"):
            saver.serde.loads_typed(("msgpack", b""))
        with pytest.raises(SerializationError):
            saver.serde.dumps_typed(Order(number=1))
        assert saver.with_allowlist({("os", "system")}) is saver


class TestOutage:
    @pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.server("postgresql"))])
    def store(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OutageTestStore]:
        if request.param == "sqlite":
            yield SQLiteStore(tmp_path)
            return
        server: PostgreSQLServer = request.getfixturevalue("postgresql_server")
        with Proxy(server.port) as proxy, new_store(server.url, proxy) as store:
            yield store

    async def test_it_is_raised_and_never_no_checkpoint(self, store: OutageTestStore) -> None:
        async with store.open() as checkpointer:
            saver = LocusSaver(checkpointer)
            graph = chat(saver)
            await graph.ainvoke(said("before"), thread())
        async with store.outage(), store.open() as checkpointer:
            saver = LocusSaver(checkpointer)
            with pytest.raises(BackendUnavailableError):
                await saver.aget_tuple(thread())
            with pytest.raises(BackendUnavailableError):
                _ = [one async for one in saver.alist(thread())]
            with pytest.raises(BackendUnavailableError):
                await saver.aput(thread(checkpoint_ns=""), checkpoint(), {}, {})
            with pytest.raises(BackendUnavailableError):
                await saver.aput_writes(thread(checkpoint_ns="", checkpoint_id="x"), [("a", 1)], "task")
            with pytest.raises(BackendUnavailableError):
                await chat(saver).ainvoke(said("lost"), thread())
        async with store.open() as checkpointer:
            found = await chat(LocusSaver(checkpointer)).ainvoke(said("after"), thread())
        assert texts(found) == ["before", "answer to before", "after", "answer to after"]


class TestStores:
    async def test_any_store_of_ours_will_do(self, path: Path) -> None:
        for store in (MemoryCheckpointer(), SQLiteBackend(path), StorageBackendAdapter(SQLiteBackend(path))):
            async with store:
                saver = LocusSaver(store)
                made = await saver.aput(thread("t", checkpoint_ns=""), checkpoint(a=1), {}, {})
                found = await saver.aget_tuple(made)
                assert found is not None
                assert found.checkpoint["channel_values"] == {"a": 1}
                await saver.adelete_thread("t")

    def test_a_store_that_keeps_no_pending_writes_is_refused(self) -> None:
        class Plain:
            async def save(self, key: str, data: dict[str, Any]) -> None: ...
            async def load(self, key: str) -> None: ...
            async def delete(self, key: str) -> None: ...
            async def exists(self, key: str) -> None: ...

        with pytest.raises(CapabilityError, match="pending writes"):
            LocusSaver(Plain())

    async def test_who_opens_closes(self, path: Path) -> None:
        async with SQLiteBackend(":memory:") as backend:
            async with LocusSaver(backend) as saver:
                made = await saver.aput(thread(checkpoint_ns=""), checkpoint(), {}, {})
            assert await saver.aget_tuple(made) is not None
        async with LocusSaver("sqlite::memory:") as saver:
            await saver.aput(thread(checkpoint_ns=""), checkpoint(), {}, {})
        assert await saver.aget_tuple(thread()) is None
        await saver.aclose()

    def test_options_belong_to_a_name(self, path: Path) -> None:
        with LocusSaver(f"sqlite:{path}", ttl_seconds=60) as saver:
            assert saver.store.ttl_seconds == 60
        with pytest.raises(ConfigurationError, match="ttl_seconds"):
            LocusSaver(MemoryCheckpointer(), ttl_seconds=60)

    def test_it_says_where_it_keeps_things_and_no_secret(self, path: Path) -> None:
        with LocusSaver(f"sqlite:{path}") as saver:
            assert repr(saver) == f"LocusSaver('sqlite:{path}')"


class TestPutting:
    def test_the_same_checkpoint_may_be_put_again(self, saver: LocusSaver) -> None:
        first = put(saver, thread(checkpoint_ns=""), {"step": 1})
        again = checkpoint(a=[1])
        second = saver.put(first, again, {"step": 2}, {})
        saver.put_writes(second, [("x", 1)], "task")
        assert saver.put(first, again, {"step": 2}, {}) == second
        # As a run does at its end with durability="exit": the checkpoint is its own parent then.
        again["channel_values"] = {"a": [1, 2]}
        saver.put(second, again, {"step": 3}, {})
        found = saver.get_tuple(thread())
        assert found is not None
        assert found.parent_config == first
        assert (found.metadata["step"], found.checkpoint["channel_values"]) == (3, {"a": [1, 2]})
        assert found.pending_writes == [("task", "x", 1)]
        assert len(ids(saver.list(thread()))) == 2

    def test_a_thread_of_another_saver_goes_on_with_its_versions(self, saver: LocusSaver) -> None:
        assert saver.get_next_version(None, None) == 1
        assert saver.get_next_version(7, None) == 8
        texts = [f"{3:032}.{0.25:016}"]
        for _ in range(12):
            texts.append(str(saver.get_next_version(texts[-1], None)))
        assert texts == sorted(texts)
        assert texts[-1].startswith(f"{15:032}.")

    def test_a_config_without_a_thread_is_refused(self, saver: LocusSaver) -> None:
        with pytest.raises(ConfigurationError, match="thread_id"):
            saver.get_tuple({"configurable": {}})
        with pytest.raises(ConfigurationError, match="checkpoint_id"):
            saver.put_writes(thread(), [("a", 1)], "task")

    def test_a_thread_may_be_a_number(self, saver: LocusSaver) -> None:
        config: RunnableConfig = {"configurable": {"thread_id": 7, "checkpoint_ns": ""}}
        put(saver, config, x=1)
        assert saver.get_tuple({"configurable": {"thread_id": "7"}}) is not None
        assert len(ids(saver.list(config))) == 1

    def test_ids_are_data(self, saver: LocusSaver) -> None:
        names = ["a/b", "a_b", "A/B", "a' OR '1'='1", "../x", "%", "é", "e\u0301", "*"]
        for text in names:
            put(saver, thread(text, checkpoint_ns=text), x=text)
        for text in names:
            (found,) = saver.list(thread(text, checkpoint_ns=text))
            assert found.checkpoint["channel_values"]["x"] == text

    def test_a_newer_format_is_refused(self, saver: LocusSaver, path: Path) -> None:
        put(saver, thread(checkpoint_ns=""), x=1)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(
                """UPDATE locus_checkpoints SET head = replace(head, '"langgraph":1', '"langgraph":2')"""
            )
            unseal(connection)
        with pytest.raises(UnsupportedFormatError, match="upgrade locus-state"):
            saver.get_tuple(thread())

    async def test_damage_is_an_error(self, tmp_path: Path) -> None:
        store = SQLiteStore(tmp_path)
        async with store.open() as checkpointer:
            await LocusSaver(checkpointer).aput(thread(checkpoint_ns=""), checkpoint(m=[AIMessage("x" * 99)]), {}, {})
        await store.corrupt("t")
        async with store.open() as checkpointer:
            with pytest.raises(CorruptCheckpointError):
                await LocusSaver(checkpointer).aget_tuple(thread())

    def test_a_copy_is_refused_where_there_is_something(self, saver: LocusSaver) -> None:
        for text in ("a", "b"):
            put(saver, thread(text, checkpoint_ns=""))
        with pytest.raises(ConflictError, match="exists already"):
            saver.copy_thread("a", "b")

    def test_an_unknown_strategy_is_refused(self, saver: LocusSaver) -> None:
        with pytest.raises(ConfigurationError, match="keep_latest"):
            saver.prune(["t"], strategy="keep_some")

    def test_deleted_threads_are_gone_and_can_begin_anew(self, saver: LocusSaver) -> None:
        graph = chat(saver)
        for _ in range(2):
            graph.invoke(said("hello"), thread())
            assert len(texts(graph.get_state(thread()))) == 2
            saver.delete_thread("t")
            assert saver.get_tuple(thread()) is None
