"""The tables: made by whoever comes first, by an administrator, or by nobody."""

from __future__ import annotations

import asyncio
import json
import zlib
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import ConfigurationError, CorruptCheckpointError, UnsupportedFormatError
from locus.memory.backends import PostgreSQLBackend, postgresql_checkpointer
from locus.memory.backends.postgresql.schema import FORMAT
from locus.memory.item_log import ItemLog
from locus.testing.processes import jobs
from locus.testing.processes.workers import Crew
from tests.backends.postgresql.roles import role
from tests.backends.postgresql.store import PostgreSQLStore

pytestmark = pytest.mark.postgresql

DATA = Path(__file__).parent / "data"
GRANTS = "SELECT, INSERT, UPDATE, DELETE"


def backend_of(store: PostgreSQLStore, **options: Any) -> PostgreSQLBackend:
    return PostgreSQLBackend(dsn=store.server_url, schema_name=store.schema, retry_seconds=0.1, **options)


async def test_twenty_processes_may_make_the_tables_at_once(store: PostgreSQLStore) -> None:
    with Crew(store.url) as crew:
        workers = [
            crew.start(jobs.save_many, url=store.url, thread_ids=["t"], count=1, name=f"{n}", from_latest=False)
            for n in range(20)
        ]
        crew.together(workers)
        saved = {known for worker in workers for _, known, _ in worker.finish()}
    async with store.open() as handle:
        assert {entry.checkpoint_id for entry in await handle.history("t", None)} == saved
    assert len(saved) == 20
    with store.connection() as connection:
        assert connection.execute("SELECT version FROM locus_format").fetchall() == [(FORMAT,)]


async def test_a_newer_format_is_refused_and_left_alone(store: PostgreSQLStore) -> None:
    async with store.open() as handle:
        await handle.save(AgentState(), "t")
    with store.connection() as connection:
        connection.execute("UPDATE locus_format SET version = 99, min_reader = 99, min_writer = 99")
    async with store.open() as handle:
        with pytest.raises(UnsupportedFormatError, match=r"format 99.*upgrade"):
            await handle.load("t")
        with pytest.raises(UnsupportedFormatError):
            await handle.save(AgentState(), "t")
    with store.connection() as connection:
        assert connection.execute("SELECT version FROM locus_format").fetchall() == [(99,)]
        assert connection.execute("SELECT count(*) FROM locus_checkpoints").fetchall() == [(1,)]


async def test_tables_that_are_not_there_are_not_made_when_that_is_off(store: PostgreSQLStore) -> None:
    with store.connection() as connection:
        connection.execute(f'CREATE SCHEMA "{store.schema}"')
    async with backend_of(store, auto_create_table=False) as backend:
        for _ in range(2):
            with pytest.raises(ConfigurationError, match=r"auto_create_table is off.*PostgreSQLBackend\.ddl\(\)"):
                await backend.load("t")
    with store.connection() as connection:
        made = connection.execute("SELECT 1 FROM pg_tables WHERE schemaname = %s", (store.schema,)).fetchall()
    assert made == []


async def test_the_printed_statements_make_the_same_tables(store: PostgreSQLStore) -> None:
    columns = """SELECT table_name, column_name, data_type, is_nullable, column_default, collation_name
        FROM information_schema.columns WHERE table_schema = %s ORDER BY 1, 2"""
    indexes = "SELECT tablename, replace(indexdef, schemaname, '') FROM pg_indexes WHERE schemaname = %s ORDER BY 1, 2"
    with store.connection() as connection:
        connection.execute(PostgreSQLBackend.ddl(schema_name=store.schema).encode())
        printed = [connection.execute(query, (store.schema,)).fetchall() for query in (columns, indexes)]
        async with backend_of(store, auto_create_table=False) as backend:
            await backend.save("t", {"n": 1})
            assert await backend.load("t") == {"n": 1}
        connection.execute(f'DROP SCHEMA "{store.schema}" CASCADE')
        async with backend_of(store) as backend:
            await backend.save("t", {"n": 1})
        made = [connection.execute(query, (store.schema,)).fetchall() for query in (columns, indexes)]
    assert made == printed
    assert len(printed[0]) > 30


async def test_few_rights_are_enough_for_everything(store: PostgreSQLStore) -> None:
    """Those that the page on PostgreSQL names."""
    with store.connection() as connection:
        connection.execute(PostgreSQLBackend.ddl(schema_name=store.schema).encode())
    rights = (f'USAGE ON SCHEMA "{store.schema}"', f'{GRANTS} ON ALL TABLES IN SCHEMA "{store.schema}"')
    with role(store, *rights) as dsn:
        options: dict[str, Any] = {
            "dsn": dsn,
            "schema_name": store.schema,
            "auto_create_table": False,
            "ttl_seconds": 1000,
        }
        async with PostgreSQLBackend(**options) as backend:
            first = await backend.save("t", {"words": ["hello there"], "n": 1}, metadata={"k": "v"})
            await backend.save("t", {"words": ["hello there", "again"], "n": 2})
            assert await backend.load("t", first) == {"words": ["hello there"], "n": 1}
            assert await backend.search("hello")
            assert len(await backend.query_by_metadata("k", "v")) == 1
            assert len(await backend.search_data("n", 2)) == 1
            await backend.put_writes("t", first, "task", [("x", 1)])
            assert await backend.copy_thread("t", "copy")
            assert await backend.delete("t", first)
            assert await backend.vacuum(0) == 3


async def test_a_user_who_may_not_make_tables_is_told_what_to_do(store: PostgreSQLStore) -> None:
    with store.connection() as connection:
        connection.execute(f'CREATE SCHEMA "{store.schema}"')
    with role(store, f'USAGE ON SCHEMA "{store.schema}"') as dsn:
        async with PostgreSQLBackend(dsn=dsn, schema_name=store.schema) as backend:
            with pytest.raises(ConfigurationError, match=r"may not create.*PostgreSQLBackend\.ddl\(\)") as failure:
                await backend.save("t", {})
    assert "a secret" not in str(failure.value)


async def test_a_stranger_with_the_same_name_is_left_alone(store: PostgreSQLStore) -> None:
    with store.connection() as connection:
        connection.execute(f'CREATE SCHEMA "{store.schema}"')
        connection.execute(f'CREATE TABLE "{store.schema}".locus_threads (mine integer)')
        async with backend_of(store) as backend:
            with pytest.raises(ConfigurationError, match="choose another table_name"):
                await backend.save("t", {})
        assert connection.execute("SELECT * FROM locus_threads").fetchall() == []
        assert connection.execute("SELECT to_regclass('locus_format')").fetchall() == [(None,)]
        async with backend_of(store, table_name="agents") as backend:
            await backend.save("t", {"n": 1})
            assert await backend.load("t") == {"n": 1}


async def test_two_names_are_two_stores(store: PostgreSQLStore) -> None:
    async with backend_of(store, table_name="One") as one, backend_of(store, table_name="one") as other:
        assert one.store.engine.identity != other.store.engine.identity
        await one.save("t", {"n": 1})
        assert await other.load("t") is None
        await other.save("t", {"n": 2})
        assert await one.load("t") == {"n": 1}


async def test_a_database_that_cannot_hold_every_text_is_refused(store: PostgreSQLStore) -> None:
    name = f"latin_{store.schema}"
    with store.connection() as connection:
        connection.execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0".encode())
        try:
            async with postgresql_checkpointer(dsn=make_conninfo(store.server_url, dbname=name)) as handle:
                with pytest.raises(ConfigurationError, match="encoding LATIN1"):
                    await handle.save(AgentState(), "t")
        finally:
            connection.execute(f"DROP DATABASE {name}".encode())


async def test_the_first_schema_of_the_search_path_is_the_default(store: PostgreSQLStore) -> None:
    with store.connection() as connection:
        connection.execute(f'CREATE SCHEMA "{store.schema}"')
        dsn = make_conninfo(store.server_url, options=f"-c search_path={store.schema}")
        async with PostgreSQLBackend(dsn=dsn) as backend:
            await backend.save("t", {"n": 1})
        assert connection.execute("SELECT thread_id FROM locus_threads").fetchall() == [("t",)]


async def test_the_first_saves_of_a_process_may_come_at_once(store: PostgreSQLStore) -> None:
    """Whoever has waited for the tables to be made has to see them, in a schema that was there before, too."""
    with store.connection() as connection:
        connection.execute(f'CREATE SCHEMA "{store.schema}"')
    dsn = make_conninfo(store.server_url, options=f"-c search_path={store.schema}")
    async with PostgreSQLBackend(dsn=dsn) as backend:
        await asyncio.gather(*(backend.save(f"t{number}", {"n": number}) for number in range(32)))
        assert len(await backend.list_threads()) == 32


def test_indexes_are_made_inside_the_transaction() -> None:
    """`CREATE INDEX CONCURRENTLY` would fail there."""
    script = PostgreSQLBackend.ddl("agents", "state")
    assert script.startswith("BEGIN;")
    assert script.endswith("COMMIT;\n")
    assert "CONCURRENTLY" not in script
    assert '"state"."agents_threads"' in script


def test_the_statements_are_plain_sql(store: PostgreSQLStore) -> None:
    """Whoever runs them twice hears of it, and nothing changes."""
    with store.connection() as connection:
        connection.execute(PostgreSQLBackend.ddl(schema_name=store.schema).encode())
        with pytest.raises(psycopg.errors.DuplicateTable):
            connection.execute(PostgreSQLBackend.ddl(schema_name=store.schema).encode())


async def test_an_administrator_can_bring_older_tables_to_the_newest_format(store: PostgreSQLStore) -> None:
    large = ["said over and over"] * 50
    with store.connection() as connection:
        connection.execute(f'CREATE SCHEMA "{store.schema}"')
        script, _, _ = (DATA / "format-1.sql").read_text(encoding="utf-8").partition("INSERT INTO locus_threads")
        connection.execute(script.encode())
        async with backend_of(store, auto_create_table=False) as backend:
            with pytest.raises(ConfigurationError, match=rf"have format 1, not {FORMAT}.*ddl\(from_format=1\)"):
                await backend.list_threads()
            connection.execute(PostgreSQLBackend.ddl(schema_name=store.schema, from_format=1).encode())
            await backend.put_writes("t", "c", "task", [("small", 1), ("large", large)])
            await backend.save("t", {}, "c")
            await backend.copy_thread("t", "copy")
            for thread in ("t", "copy"):
                assert [write.value for write in await backend.get_writes(thread, "c")] == [1, large]
        query = "SELECT channel, value IS NULL, packed FROM locus_writes ORDER BY 1"
        found: list[Any] = connection.execute(query).fetchall()
    assert [row[:2] for row in found] == [("large", True)] * 2 + [("small", False)] * 2
    assert [json.loads(zlib.decompress(row[2])) for row in found[:2]] == [large] * 2


def test_a_format_that_there_is_not_is_refused() -> None:
    for wrong in (-1, 99, True, "1"):
        with pytest.raises(ConfigurationError, match="from_format"):
            PostgreSQLBackend.ddl(from_format=wrong)  # type: ignore[arg-type]


async def test_a_newer_format_is_used_if_it_allows_that(store: PostgreSQLStore) -> None:
    async with store.open() as cp:
        await cp.save(AgentState(), "t")
    for least, allowed in ((FORMAT, True), (FORMAT + 1, False), (None, False)):
        with store.connection() as connection:
            connection.execute("UPDATE locus_format SET version = %s, min_writer = %s", (FORMAT + 1, least))
        async with store.open() as cp:
            if allowed:
                assert await cp.load("t") is not None
            else:
                with pytest.raises(UnsupportedFormatError, match="upgrade"):
                    await cp.load("t")


async def test_what_is_indexed_stays_indexed_in_a_newer_format(store: PostgreSQLStore) -> None:
    """A search after the upgrade looks at what has changed since the last one, and not at every thread."""
    with store.connection() as connection:
        connection.execute(f'CREATE SCHEMA "{store.schema}"')
        connection.execute((DATA / "format-3.sql").read_bytes())
        connection.execute("INSERT INTO locus_indexed (thread, up_to) VALUES (1, 4), (3, 4)")
        connection.execute(PostgreSQLBackend.ddl(schema_name=store.schema, from_format=3).encode())
        behind = connection.execute("SELECT thread_id, indexed_seq FROM locus_threads WHERE unindexed").fetchall()
        assert behind == [("support-42", 4)]
        assert connection.execute("SELECT min_reader, min_writer FROM locus_format").fetchall() == [(3, 3)]


async def test_a_lost_edit_does_not_bring_back_what_it_replaced(store: PostgreSQLStore) -> None:
    async with store.open() as cp:
        one = AgentState(agent_id="agent").with_messages([Message.user("said"), Message.user("wrong")])
        await cp.save(one, "t", "c1")
        two = one.with_messages_replaced((*one.messages[:-1], Message.user("right")))
        await cp.save(two, "t", "c2")
        await cp.save(two.with_message(Message.user("last")), "t", "c3")
    with store.connection() as connection:
        connection.execute("DELETE FROM locus_runs WHERE number = 1")
    async with store.open() as cp:
        with pytest.raises(CorruptCheckpointError):
            await cp.load("t")


async def test_a_lost_newest_edit_does_not_bring_back_what_it_replaced(store: PostgreSQLStore) -> None:
    """Nothing follows it that could tell, but what precedes it was stored by a version that keeps such runs."""
    async with store.open() as cp:
        one = AgentState(agent_id="agent").with_messages([Message.user("said")])
        await cp.save(one, "t", "c1")
        two = one.with_message(Message.user("wrong"))
        await cp.save(two, "t", "c2")
        await cp.save(two.with_messages_replaced((*one.messages, Message.user("right"))), "t", "c3")
    with store.connection() as connection:
        assert connection.execute("DELETE FROM locus_runs WHERE number = 2").rowcount == 1
    async with store.open() as cp:
        with pytest.raises(CorruptCheckpointError, match="run 2"):
            await cp.load("t")
        with pytest.raises(CorruptCheckpointError, match="run 2"):
            await cp.read_items("t", start=-1)
        assert await cp.load("t", "c2") == two


@pytest.mark.parametrize("number", [2**31, 2**53 - 1, 2**63, 10**30])
@pytest.mark.parametrize("at", [1, 2])
async def test_a_number_that_no_run_can_have_is_damage(store: PostgreSQLStore, number: int, at: int) -> None:
    """Neither an outage, nor a value that cannot be kept."""
    async with store.open() as cp:
        await cp.save(AgentState().with_message(Message.user("said")), "t")
    with store.connection() as connection:
        (row,) = connection.execute("SELECT manifest::text FROM locus_checkpoints").fetchall()
        manifest = json.loads(str(row[0]))
        (extent,) = next(cut for path, cut in manifest if path == ["messages"])
        extent[at] = number
        connection.execute("UPDATE locus_checkpoints SET manifest = %s", (json.dumps(manifest),))
    async with store.open() as cp:
        with pytest.raises(CorruptCheckpointError):
            await cp.load("t")
        with pytest.raises(CorruptCheckpointError):
            await cp.read_items("t")


async def test_a_lost_edit_of_a_log_does_not_bring_back_what_it_replaced(store: PostgreSQLStore) -> None:
    """jsonb does not keep the order of keys, so the digests are of texts whose keys are in order."""
    items = [{"b": number, "a": "é"} for number in range(4)]
    async with store.open() as cp:
        log = ItemLog(cp.store, "t", "ns")
        await log.append(items[:2])
        await log.pop()
        await log.append(items[2:3])
        again = ItemLog(cp.store, "t", "ns")
        assert await again.read() == [items[0], items[2]]
        await again.append(items[3:])
        assert await again.read() == [items[0], *items[2:]]
    with store.connection() as connection:
        assert connection.execute("DELETE FROM locus_runs WHERE number = 1").rowcount == 1
    async with store.open() as cp:
        with pytest.raises(CorruptCheckpointError, match="run 0"):
            await ItemLog(cp.store, "t", "ns").read()
