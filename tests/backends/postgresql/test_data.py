"""`search_data` and `count`; and that look-ups use their indexes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import ConfigurationError, SerializationError
from locus.memory.backends import PostgreSQLBackend, StorageBackendAdapter
from locus.memory.backends.postgresql import commit as postgresql_commit
from locus.memory.backends.postgresql import read as postgresql_read
from locus.memory.backends.postgresql import search as postgresql_search
from locus.memory.backends.postgresql.schema import PostgreSQLFlavour, numbered
from locus.memory.backends.sql import read as sql_read
from locus.memory.model.ids import words
from locus.memory.model.records import Base, Commit, Run
from tests.backends.postgresql.store import PostgreSQLStore

pytestmark = pytest.mark.postgresql

LARGE = "large " * 300


@pytest_asyncio.fixture
async def backend(store: PostgreSQLStore) -> AsyncIterator[PostgreSQLBackend]:
    async with PostgreSQLBackend(dsn=store.server_url, schema_name=store.schema) as backend:
        yield backend


async def places(backend: PostgreSQLBackend, path: Any, value: Any, limit: int = 100) -> list[str]:
    return [hit["checkpoint_id"] for hit in await backend.search_data(path, value, limit)]


async def test_values_are_found_wherever_they_are_kept(backend: PostgreSQLBackend) -> None:
    """In the head, in a list that was cut out, in a large value that was cut out, and below any of them."""
    data = {
        "agent_id": "agent-123",
        "confidence": 0.5,
        "metadata": {"user": {"id": 7, "name": "Eve"}, "big": {"text": LARGE, "flag": True}},
        "messages": [{"role": "user", "content": f"hello {n}", "tags": ["a", f"b{n}"]} for n in range(5)],
        "note": LARGE,
        "empty": [],
        "nothing": None,
    }
    await backend.save("t", data, "a")
    await backend.save("u", {"agent_id": "other", "messages": ["plain"], "confidence": 1}, "b")
    found: dict[tuple[str, str], list[str]] = {
        ("agent_id", '"agent-123"'): ["a"],
        ("confidence", "0.5"): ["a"],
        ("confidence", "1"): ["b"],
        ("confidence", "1.0"): [],
        ("metadata.user.id", "7"): ["a"],
        ("metadata.user", '{"id": 7}'): ["a"],
        ("metadata.user", '{"id": 8}'): [],
        ("metadata", json.dumps({"big": {"flag": True}})): ["a"],
        ("metadata.big.flag", "true"): ["a"],
        ("metadata.big.text", json.dumps(LARGE)): ["a"],
        ("note", json.dumps(LARGE)): ["a"],
        ("messages.content", '"hello 3"'): ["a"],
        ("messages.tags", '"b4"'): ["a"],
        ("messages.tags", '["a", "b4"]'): ["a"],
        ("messages.tags", '["a"]'): [],
        ("messages", '{"role": "user", "content": "hello 0"}'): ["a"],
        ("messages", '{"role": "user", "content": "goodbye"}'): [],
        ("messages", '"plain"'): ["b"],
        ("messages", '["plain"]'): ["b"],
        ("empty", "[]"): ["a"],
        ("nothing", "null"): ["a"],
        ("note", "null"): [],
        ("messages", "[]"): [],
        ("content", '"hello 3"'): [],
        ("nowhere", "null"): [],
    }
    for (path, value), expected in found.items():
        assert await places(backend, path, json.loads(value)) == expected, (path, value)
    assert await places(backend, ["metadata", "user", "id"], 7) == ["a"]


async def test_every_checkpoint_that_shows_an_item_is_found_and_no_other(backend: PostgreSQLBackend) -> None:
    handle = StorageBackendAdapter(backend)
    state, shown = AgentState(), []
    for number in range(6):
        state = state.with_message(Message.user(f"message {number}"))
        shown.append(await handle.save(state, "t"))
    trimmed = await handle.save(state.with_messages_replaced(state.messages[3:]), "t")
    edited = state.with_messages_replaced((*state.messages[:-1], Message.user("other")))
    changed = await handle.save(edited, "t")
    assert await places(backend, "messages.content", "message 1") == [changed, *shown[:0:-1]]
    assert await places(backend, "messages.content", "message 5") == [trimmed, shown[5]]
    assert await places(backend, "messages.content", "message 1", 2) == [changed, shown[5]]
    assert await backend.delete("t", changed)
    assert await places(backend, "messages.content", "other") == []


async def test_values_that_jsonb_would_change_and_odd_keys(backend: PostgreSQLBackend) -> None:
    odd: dict[str, Any] = {"-0": -0.0, "1e22": 1e22, "nul": "a\0b", "a.b": 1, "\0": 2, "$locus:str": "x"}
    await backend.save("t", odd, "a")
    for key, value in odd.items():
        assert await places(backend, [key], value) == ["a"], key
    for key, value in {"-0": 0.0, "1e22": 10**22, "nul": "ab"}.items():
        assert await places(backend, [key], value) == [], key
    for key in ("$", "$.*", "**", "'; DROP TABLE locus_runs; --", "%"):
        assert await places(backend, [key], 1) == []


async def test_what_is_newest_comes_first_across_threads(backend: PostgreSQLBackend) -> None:
    for number in range(9):
        await backend.save(f"t{number % 3}", {"kind": "x", "n": number}, f"c{number}")
    assert await places(backend, "kind", "x") == [f"c{number}" for number in range(8, -1, -1)]
    assert await places(backend, "kind", "x", 4) == ["c8", "c7", "c6", "c5"]
    assert await places(backend, "kind", "x", 0) == []


async def test_bad_questions_are_refused(backend: PostgreSQLBackend) -> None:
    bad: Any
    for bad in ("", "a..b", (), [1], 5):
        with pytest.raises((ConfigurationError, TypeError)):
            await backend.search_data(bad, 1)
    with pytest.raises(SerializationError):
        await backend.search_data("a", float("nan"))
    with pytest.raises(ConfigurationError):
        await backend.search_data("a", 1, -1)


async def test_checkpoints_are_counted_by_their_threads(backend: PostgreSQLBackend) -> None:
    assert await backend.count() == 0
    for thread_id, times in {"user/1": 2, "user/2": 3, "use%": 1}.items():
        for number in range(times):
            await backend.save(thread_id, {"n": number})
    assert await backend.count() == 6
    assert await backend.count("user/*") == 5
    assert await backend.count("user/?") == 5
    assert await backend.count("use%") == 1
    assert await backend.count("nobody*") == 0


async def test_look_ups_use_their_indexes(backend: PostgreSQLBackend, store: PostgreSQLStore) -> None:
    await backend.save("t", {"list": [{"text": "x" * 200}]}, metadata={"user": "eve"})
    with store.connection() as connection:
        connection.execute(
            """INSERT INTO locus_checkpoints
            (thread, namespace, checkpoint_id, seq, rev, created_at, metadata, head, manifest)
            SELECT 2 + n / 10, 'default', n::text, n, n::text, now(), jsonb_build_object('user', n), '{}', '[]'
            FROM generate_series(1, 20000) n"""
        )
        connection.execute(
            """INSERT INTO locus_runs (thread, branch, number, start, count, seq, items)
            SELECT 2 + n / 10, n::text, 0, 0, 1, n, '["x"]' FROM generate_series(1, 20000) n"""
        )
        connection.execute(
            "INSERT INTO locus_threads (thread_id, last_seq) SELECT n, 9 FROM generate_series(2, 2002) n"
        )
        connection.execute("VACUUM ANALYZE")
        sql = PostgreSQLFlavour(schema_name=store.schema)
        for steps, index in (
            (postgresql_read.find(sql, "user", '"eve"', 100), "checkpoints_by_metadata"),
            (postgresql_read.read(sql, "t", "default", None), "runs_pkey"),
        ):
            statement, given = next(steps)
            steps.close()
            plan = await asyncio.to_thread(_plan, store, statement, list(given))
            assert index in plan, plan
            assert "Seq Scan on locus_checkpoints" not in plan, plan
            assert "Seq Scan on locus_runs" not in plan, plan


async def test_the_newest_checkpoints_are_read_without_sorting_all(
    backend: PostgreSQLBackend, store: PostgreSQLStore
) -> None:
    """Also before there are statistics, when every plan seems cheap."""
    for number in range(300):
        await backend.save("t", {"turn": number})
    sql = PostgreSQLFlavour(schema_name=store.schema)
    for steps in (
        sql_read.history(sql, "t", "default", 10, None),
        sql_read.history(sql, "t", "default", 10, 200),
        sql_read.entry(sql, "t", "default", None),
        postgresql_read.read(sql, "t", "default", None),
    ):
        statement, given = next(steps)
        steps.close()
        plan = await asyncio.to_thread(_plan, store, statement, list(given))
        assert "Index Scan Backward using locus_checkpoints_by_seq" in plan, plan
        assert "Sort Key: c.seq" not in plan, plan


async def test_a_save_scans_no_checkpoints_whatever_plan_the_server_keeps(
    backend: PostgreSQLBackend, store: PostgreSQLStore
) -> None:
    """Plans are made, and kept, while the tables are small and a scan of them is cheap."""
    for number in range(6):
        await backend.save("t", {"list": [number]}, f"c{number}")
    base = await backend.store.entry("t", "c5", "default")
    assert base is not None
    commit = Commit(
        thread_id="t",
        namespace="default",
        checkpoint_id="c6",
        rev="rev",
        created_at=base.created_at,
        metadata="{}",
        head="{}",
        manifest="[]",
        runs=(Run("branch", 1, 1, 1, "[6]"),),
        base=Base("c5", base.rev),
        parent_id="c5",
        parent_as_named=True,
    )
    statement = postgresql_commit.in_thread(PostgreSQLFlavour(schema_name=store.schema), commit)
    with store.connection() as connection:
        rows = connection.execute(f"EXPLAIN (GENERIC_PLAN) {statement.text}".encode()).fetchall()
    plan = "\n".join(str(row[0]) for row in rows)
    assert "locus_checkpoints_by_id" in plan, plan
    assert "Seq Scan" not in plan, plan


async def test_a_search_looks_only_at_threads_that_have_changed(
    backend: PostgreSQLBackend, store: PostgreSQLStore
) -> None:
    """Also if the statistics are of a time when all had."""
    await backend.save("user/0", {"list": ["before"]})
    sql = PostgreSQLFlavour(schema_name=store.schema)
    with store.connection() as connection:
        connection.execute(
            "INSERT INTO locus_threads (thread_id, last_seq) SELECT 'user/' || n, 3 FROM generate_series(1, 20000) n"
        )
        connection.execute("ANALYZE")
        connection.execute("INSERT INTO locus_indexed (thread, up_to) SELECT id, last_seq FROM locus_threads")
        connection.execute("UPDATE locus_threads SET indexed_seq = last_seq")
        connection.execute("VACUUM locus_threads")
    assert await backend.search("before") == []
    await backend.save("user/0", {"list": ["after"]})
    for prefix, found in (("", 1), ("user/", 1), ("user/0", 1), ("user/1", 0)):
        steps = postgresql_search.behind(sql, prefix, "")
        statement, given = next(steps)
        steps.close()
        plan = await asyncio.to_thread(_plan, store, statement, list(given), "EXPLAIN ANALYZE")
        assert "Index Scan using locus_threads_unindexed on locus_threads t" in plan, plan
        assert f"rows={found}" in plan, plan
        assert "Seq Scan" not in plan, plan
        assert "Rows Removed" not in plan, plan
    assert len(await backend.search("after")) == 1


async def test_a_save_leaves_the_indexes_of_threads_alone(store: PostgreSQLStore) -> None:
    """Only the first one after a search changes the index of those that have something to index."""
    async with PostgreSQLBackend(dsn=store.server_url, schema_name=store.schema) as backend:
        await backend.save("t", {"n": 1})
        assert len(await backend.search("n")) == 0
    updated = b"SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relid = 'locus_threads'::regclass"
    with store.connection() as connection, connection.transaction():
        for in_place in range(3):
            connection.execute("UPDATE locus_threads SET last_seq = last_seq + 1")
            assert connection.execute(updated).fetchall() == [(in_place + 1, in_place)]


async def test_older_versions_may_index_and_save_beside_this_one(
    backend: PostgreSQLBackend, store: PostgreSQLStore
) -> None:
    """They know `locus_indexed` only. What they have indexed is not indexed again, and what they save is."""
    await backend.save("t", {"list": ["first"]})
    assert len(await backend.search("first")) == 1
    await backend.save("t", {"list": ["first", "second"]})
    with store.connection() as connection:
        connection.execute("UPDATE locus_indexed SET up_to = 2")
        assert await backend.search("second") == []
        assert connection.execute("SELECT indexed_seq, unindexed FROM locus_threads").fetchall() == [(2, False)]
        await backend.save("t", {"list": ["first", "second", "third"]})
        assert connection.execute("SELECT indexed_seq, unindexed FROM locus_threads").fetchall() == [(2, True)]
    assert len(await backend.search("third")) == 1


def _plan(store: PostgreSQLStore, statement: str, values: list[Any], explain: str = "EXPLAIN") -> str:
    from psycopg import RawCursor

    with store.connection() as connection, RawCursor(connection) as cursor:
        rows: list[Any] = cursor.execute(f"{explain} {numbered(statement)}".encode(), values).fetchall()
    return "\n".join(str(row[0]) for row in rows)


async def test_a_text_too_large_for_a_vector_is_found_all_the_same(backend: PostgreSQLBackend) -> None:
    """PostgreSQL refuses vectors of more than a megabyte."""
    many = " ".join(f"word{number}x{'y' * 20}" for number in range(40_000))
    await backend.save("t", {"list": [f"{many} and a needle in it"]}, "a")
    await backend.save("u", {"list": ["another needle"]}, "b")
    assert {hit["checkpoint_id"] for hit in await backend.search("needle")} == {"a", "b"}
    assert [hit["checkpoint_id"] for hit in await backend.search("needle word7x" + "y" * 20)] == ["a"]
    assert await backend.delete("t")
    assert {hit["checkpoint_id"] for hit in await backend.search("needle")} == {"b"}


async def test_long_words_and_long_queries(backend: PostgreSQLBackend) -> None:
    long = "x" * 3_000
    text = " ".join(f"w{number}" for number in range(60))
    await backend.save("t", {"list": [f"{long} and {text}"]}, "a")
    assert len(await backend.search(long)) == 1
    assert await backend.search(long + "y") == []
    assert len(await backend.search(text)) == 1
    assert await backend.search(f"{text} missing") == []
    assert len(words(text)) == 60


async def test_searches_while_others_save_miss_nothing_in_the_end(backend: PostgreSQLBackend) -> None:
    """Several index the same at once; what is committed late gets its turn."""

    async def save(number: int) -> None:
        for turn in range(8):
            await backend.save(f"t{number % 3}", {"list": [f"common word{number}x{turn}"]})

    async def search() -> None:
        for _ in range(6):
            await backend.search("common", 1_000)

    await asyncio.gather(*(save(number) for number in range(6)), *(search() for _ in range(3)))
    for number in range(6):
        for turn in range(8):
            assert len(await backend.search(f"word{number}x{turn}")) == 1
    assert len(await backend.search("common", 1_000)) == 48
