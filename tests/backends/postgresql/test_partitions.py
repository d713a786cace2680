"""Tables that are partitioned by thread: made so, told apart, used with one partition a thread, and moved to."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import ConfigurationError
from locus.memory import get_checkpointer
from locus.memory.backends import PostgreSQLBackend, StorageBackendAdapter
from locus.memory.backends.postgresql import examine
from locus.memory.backends.postgresql.client import PostgreSQLConnection
from locus.memory.backends.postgresql.engine import PostgreSQLEngine
from locus.memory.backends.postgresql.schema import FORMAT, MOST_PARTITIONS, PARTITIONED, PostgreSQLFlavour
from locus.memory.model.records import TaskWrites
from locus.testing.laws.base import dicts
from tests.backends.postgresql.roles import role
from tests.backends.postgresql.store import PostgreSQLStore, new_store
from tests.backends.sql.grouped import first, wrote
from tests.format.story import HOSTILE, PLAIN
from tests.servers.postgresql import PostgreSQLServer
from tests.servers.proxy import NoProxy
from tests.transfer.support import contents, fill

DATA = Path(__file__).parent / "data"
PARTITIONS = 4
GRANTS = "SELECT, INSERT, UPDATE, DELETE"


# What is printed and what is given, without a server.


def test_the_script_has_the_partitions_of_every_table_with_a_thread_in_its_key() -> None:
    script = PostgreSQLBackend.ddl("agents", "app", partitions=16)
    for table in PARTITIONED:
        made = re.findall(rf'"app"\."agents_{table}_(\d+)" PARTITION OF "app"\."agents_{table}"', script)
        assert sorted(map(int, made)) == list(range(16))
    assert script.count("(MODULUS 16, REMAINDER 15)") == len(PARTITIONED)
    assert "PARTITION" not in PostgreSQLBackend.ddl()


def test_only_what_a_partitioned_table_cannot_have_is_different() -> None:
    plain, partitioned = (set(PostgreSQLBackend.ddl(partitions=number).splitlines()) for number in (0, 1))
    assert {line.strip() for line in plain - partitioned} == {
        ");",
        "manifest json NOT NULL",
        'CREATE TABLE "locus_indexed" (thread bigint PRIMARY KEY, up_to bigint NOT NULL);',
    }
    added = {line.strip() for line in partitioned - plain}
    assert all("PARTITION" in line or "SEQUENCE" in line or line.startswith(("id", "PRIM", "mani")) for line in added)


@pytest.mark.parametrize("wrong", [-1, MOST_PARTITIONS + 1, True, "4", 1.5])
def test_a_number_that_there_cannot_be_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="partitions"):
        PostgreSQLBackend.ddl(partitions=wrong)
    if not isinstance(wrong, (bool, str)):  # which pydantic takes for numbers
        with pytest.raises(ConfigurationError, match="partitions"):
            PostgreSQLBackend(partitions=wrong)


def test_rows_are_moved_into_a_number_of_partitions_and_from_the_newest_format() -> None:
    with pytest.raises(ConfigurationError, match="partitions=16"):
        PostgreSQLBackend.ddl(from_unpartitioned=True)
    with pytest.raises(ConfigurationError, match="newest format"):
        PostgreSQLBackend.ddl(from_format=1, partitions=4, from_unpartitioned=True)
    longest = PostgreSQLBackend.ddl("x" * 40, partitions=2, from_unpartitioned=True)
    assert max(map(len, re.findall(r'SCHEMA "(\w+)"', longest))) <= 63


def test_the_number_can_stand_in_the_url() -> None:
    with_number = get_checkpointer("postgresql://me@db/app?partitions=16&sslmode=prefer")
    assert isinstance(with_number, StorageBackendAdapter)
    assert isinstance(with_number.backend, PostgreSQLBackend)
    assert with_number.backend.config.partitions == 16
    with pytest.raises(ConfigurationError, match="partitions"):
        get_checkpointer("postgresql://me@db/app?partitions=many")
    with pytest.raises(ConfigurationError, match="partitions"):
        get_checkpointer(f"postgresql://me@db/app?partitions={MOST_PARTITIONS + 1}")


def test_tables_that_lack_a_partition_are_an_error() -> None:
    sql = PostgreSQLFlavour()
    assert examine.partitioning(sql, {}, "B") == []
    assert [one.severity for one in examine.partitioning(sql, {"t": [4, 4, 2]}, "B")] == ["note"]
    found = examine.partitioning(sql, {"t": [4, 4, 4]}, "B")
    assert [one.severity for one in found] == ["error", "note"]
    assert "t lacks partitions" in found[0].what


# On the server.


@pytest.fixture
def partitioned(postgresql_server: PostgreSQLServer) -> Iterator[PostgreSQLStore]:
    with new_store(postgresql_server.url, NoProxy(postgresql_server.port), PARTITIONS) as store:
        yield store


@pytest_asyncio.fixture
async def engine(partitioned: PostgreSQLStore) -> AsyncIterator[PostgreSQLEngine]:
    async with partitioned.open() as handle:
        engine = handle.store.engine
        assert isinstance(engine, PostgreSQLEngine)
        await engine.setup()
        yield engine


def rows(store: PostgreSQLStore, query: str, *values: Any) -> list[tuple[Any, ...]]:
    with store.connection() as connection:
        return connection.execute(query.encode(), values).fetchall()


def shape(store: PostgreSQLStore) -> list[list[tuple[Any, ...]]]:
    """The columns, the indexes and the partitions of all tables."""
    return [
        rows(store, query, store.schema)
        for query in (
            """SELECT table_name, column_name, data_type, is_nullable, replace(column_default, table_schema, ''),
            collation_name FROM information_schema.columns WHERE table_schema = %s ORDER BY 1, 2""",
            "SELECT tablename, replace(indexdef, schemaname, '') FROM pg_indexes WHERE schemaname = %s ORDER BY 1, 2",
            """SELECT relname, relkind, pg_get_partkeydef(oid), pg_get_expr(relpartbound, oid) FROM pg_class
            WHERE relnamespace = %s::regnamespace AND relkind IN ('r', 'p', 'S') ORDER BY 1""",
        )
    ]


@pytest.mark.postgresql
async def test_rows_are_spread_over_the_partitions(partitioned: PostgreSQLStore) -> None:
    async with partitioned.open() as handle:
        for number in range(24):
            await handle.save(
                AgentState().with_message(Message.user(f"{number}")), f"t{number}", metadata={"n": number}
            )
        assert await handle.search("17")
        assert len((await handle.recent_threads(30)).threads) == 24
    for table in ("checkpoints", "runs", "search"):
        counts = [rows(partitioned, f"SELECT count(*) FROM locus_{table}_{part}")[0][0] for part in range(PARTITIONS)]
        assert all(counts)
        assert sum(counts) >= 24


@pytest.mark.postgresql
async def test_the_printed_statements_make_the_same_partitions(partitioned: PostgreSQLStore) -> None:
    with partitioned.connection() as connection:
        connection.execute(PostgreSQLBackend.ddl(schema_name=partitioned.schema, partitions=PARTITIONS).encode())
        printed = shape(partitioned)
        connection.execute(f'DROP SCHEMA "{partitioned.schema}" CASCADE')
    async with partitioned.open() as handle:
        await handle.save(AgentState(), "t")
    assert shape(partitioned) == printed
    assert sum(kind == "p" for _, kind, *_ in printed[2]) == len(PARTITIONED)
    assert sum(kind == "r" for _, kind, *_ in printed[2]) == len(PARTITIONED) * PARTITIONS + 2


@pytest.mark.postgresql
async def test_tables_that_are_not_there_are_asked_for_with_their_partitions(partitioned: PostgreSQLStore) -> None:
    async with get_checkpointer(f"{partitioned.url}&auto_create_table=off") as handle:
        with pytest.raises(ConfigurationError, match=r"PostgreSQLBackend\.ddl\(partitions=4\)"):
            await handle.load("t")


@pytest.mark.postgresql
@pytest.mark.parametrize(("made", "asked"), [(2, 4), (0, 4), (2, 0)])
async def test_another_number_than_the_tables_have_is_told_and_no_error(
    postgresql_server: PostgreSQLServer, caplog: pytest.LogCaptureFixture, made: int, asked: int
) -> None:
    with new_store(postgresql_server.url, NoProxy(postgresql_server.port), made) as store:
        async with store.open() as handle:
            checkpoint = await handle.save(AgentState(agent_id="a"), "t")
            before = shape(store)
        store.partitions = asked
        with caplog.at_level(logging.WARNING, logger="locus"):
            async with store.open() as handle:
                loaded = await handle.load("t")
                assert loaded is not None
                await handle.save(loaded.with_iteration(1), "t", if_latest=checkpoint)
                engine = handle.store.engine
                assert isinstance(engine, PostgreSQLEngine)
                findings = await engine.examine()
        assert shape(store) == before
    notes = [f"{one.what}: {one.advice}" for one in findings if "partition" in one.what]
    assert not [one for one in findings if "partition" in one.what and one.severity != "note"]
    told = " ".join(record.getMessage() for record in caplog.records)
    if made:
        assert "partitioned by thread: 2 partitions" in notes[0]
    if made and asked:
        assert "4 partitions were asked for, and the tables have 2" in told
    elif asked:
        assert "not partitioned" in told
        assert "PostgreSQLBackend.ddl(partitions=4, from_unpartitioned=True)" in told
    else:
        assert not told
    assert all(part in " ".join(notes) for part in told.splitlines())


@pytest.mark.postgresql
@pytest.mark.usefixtures("engine")
async def test_the_format_is_that_of_other_tables(partitioned: PostgreSQLStore) -> None:
    """So whoever knows only an older one is refused, and whoever knows this one needs to know nothing of partitions."""
    assert rows(partitioned, "SELECT version, min_reader, min_writer FROM locus_format") == [(FORMAT, 3, 3)]


@pytest.mark.postgresql
async def test_few_rights_are_enough(partitioned: PostgreSQLStore) -> None:
    """Those that the page on PostgreSQL names, and one on the sequence. None on a partition itself."""
    with partitioned.connection() as connection:
        connection.execute(PostgreSQLBackend.ddl(schema_name=partitioned.schema, partitions=PARTITIONS).encode())
    schema = f'"{partitioned.schema}"'
    tables = ", ".join(f"{schema}.locus_{name}" for name in (*PARTITIONED, "threads", "format"))
    rights = (
        f"USAGE ON SCHEMA {schema}",
        f"{GRANTS} ON {tables}",
        f"USAGE ON SEQUENCE {schema}.locus_checkpoints_ids",
    )
    with role(partitioned, *rights) as dsn:
        async with PostgreSQLBackend(dsn=dsn, schema_name=partitioned.schema, auto_create_table=False) as backend:
            for number in range(3):
                await backend.save("t", {"said": ["a word"] * number}, f"c{number}", {"n": number})
            await backend.put_writes("t", "c2", "task", [("a", 1)])
            assert await backend.search("word")
            assert await backend.copy_thread("t", "copy")
            assert await backend.delete("t", "c1")
            assert await backend.delete("t")


# Pending writes, whose rows are removed by their place in the table.


@pytest.mark.postgresql
async def test_pending_writes_of_one_thread_leave_those_of_others_alone(engine: PostgreSQLEngine) -> None:
    """Rows of two partitions have the same place. Each thread writes, and then one of them anew."""
    threads = [f"t{number}" for number in range(8)]
    for number, thread in enumerate(threads):
        await engine.commit(first(thread))
        await engine.put_writes(TaskWrites(thread, "default", "a", "task", wrote(f"{number}")))
    for number, thread in enumerate(threads):
        await engine.put_writes(TaskWrites(thread, "default", "a", "task", wrote(f"{number + 100}")))
        left = [(await engine.get_writes(name, "default", "a", None))[0].value for name in threads]
        assert left == [f"{at + 100 * (at <= number)}" for at in range(8)]


@pytest.mark.postgresql
async def test_pending_writes_of_a_group_leave_those_of_others_alone(engine: PostgreSQLEngine) -> None:
    threads = [f"t{number}" for number in range(12)]
    await engine.commit_together([first(thread) for thread in threads])
    for number, thread in enumerate(threads):
        await engine.put_writes(TaskWrites(thread, "default", "a", "task", wrote(f"{number}", "2", "3")))
    for changed in (threads[:5], threads[3:9]):
        group = [TaskWrites(thread, "default", "a", "task", wrote("99")) for thread in changed]
        assert None not in await engine.commit_together(group)
    for number, thread in enumerate(threads):
        found = [write.value for write in await engine.get_writes(thread, "default", "a", None)]
        assert found == (["99"] if number < 9 else [f"{number}", "2", "3"])


# A statement about one thread reads one partition.


class Plans:
    """Explains every statement before it runs, and notes which partitions it reads."""

    def __init__(self) -> None:
        self.read: list[tuple[str, set[int]]] = []
        self._execute = PostgreSQLConnection.execute

    async def execute(self, connection: PostgreSQLConnection, statement: str, values: Sequence[Any] = ()) -> Any:
        if re.match(r"(SELECT|WITH|INSERT|UPDATE|DELETE)\b", statement) and "locus_" in statement:
            inside = connection.in_transaction()
            await self._execute(connection, "SAVEPOINT plan" if inside else "BEGIN")
            ((plan,),) = await self._execute(connection, f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", values)
            await self._execute(connection, "ROLLBACK TO plan" if inside else "ROLLBACK")
            found = json.loads(plan) if isinstance(plan, str) else plan
            self.read.append((statement, set(partitions_read(found[0]["Plan"]))))
        return await self._execute(connection, statement, values)


def partitions_read(node: dict[str, Any]) -> Iterator[int]:
    """The numbers of the partitions that a part of a plan has looked into."""
    found = re.fullmatch(r"locus_[a-z]+_(\d+)", node.get("Relation Name", ""))
    if found is not None and node["Node Type"] != "ModifyTable" and node["Actual Loops"]:
        yield int(found[1])
    for part in node.get("Plans", ()):
        yield from partitions_read(part)


async def save_again(handle: Any, thread: str) -> None:
    state = await handle.load(thread)
    await handle.save(state.with_message(Message.user("once more")), thread)


async def save_conditionally(handle: Any, thread: str) -> None:
    (latest,) = await handle.list_checkpoints(thread, limit=1)
    state = await handle.load(thread, latest)
    await handle.save(state.with_iteration(7), thread, "named", if_latest=latest)
    await handle.save(state.with_iteration(8), thread, "named")


async def write_pending(handle: Any, thread: str) -> None:
    await dicts(handle).put_writes(thread, "c1", "task", [("a", 1), ("b", "x" * 600)])
    await dicts(handle).put_writes(thread, "c1", "task", [("a", 2)])
    assert [write.value for write in await dicts(handle).get_writes(thread, "c1")] == [2]


async def measure(handle: Any, thread: str) -> None:
    assert await handle.store.engine.measure(thread) is not None


async def export(handle: Any, thread: str) -> None:
    assert (await handle.store.engine.export(thread, 0, 10, {})).checkpoints


OPERATIONS: dict[str, Callable[[Any, str], Awaitable[object]]] = {
    "load": lambda handle, thread: handle.load(thread),
    "load a window": lambda handle, thread: handle.load(thread, last=1),
    "load by id": lambda handle, thread: handle.load(thread, "c1"),
    "read items": lambda handle, thread: handle.read_items(thread, start=-1),
    "history": lambda handle, thread: handle.history(thread),
    "namespaces": lambda handle, thread: handle.list_namespaces(thread),
    "save": save_again,
    "save conditionally": save_conditionally,
    "pending writes": write_pending,
    "measure": measure,
    "export": export,
    "delete a checkpoint": lambda handle, thread: handle.delete(thread, "c1"),
    "delete": lambda handle, thread: handle.delete(thread),
}


@pytest.mark.postgresql
@pytest.mark.parametrize("known", [False, True], ids=["without statistics", "with statistics"])
async def test_a_statement_about_one_thread_reads_one_partition(
    partitioned: PostgreSQLStore, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    async with partitioned.open() as handle:
        for thread in (f"t{number}" for number in range(40)):
            state = AgentState().with_message(Message.user("first"))
            await handle.save(state, thread, "c1", metadata={"k": "v"})
            await handle.save(state.with_message(Message.user("second")), thread, "c2")
    if known:
        rows_of = ", ".join(f"locus_{name}" for name in (*PARTITIONED, "threads"))
        with partitioned.connection() as connection:
            connection.execute(f"ANALYZE {rows_of}".encode())
    ((its,),) = rows(
        partitioned,
        """SELECT DISTINCT tableoid::regclass::text FROM locus_runs
        WHERE thread = (SELECT id FROM locus_threads WHERE thread_id = 't7')""",
    )
    number = int(its.rpartition("_")[2].strip('"'))
    plans = Plans()
    async with partitioned.open() as handle:
        await handle.load("t8")  # whoever comes first looks at the tables themselves
        monkeypatch.setattr(PostgreSQLConnection, "execute", lambda *call: plans.execute(*call))
        for name, operation in OPERATIONS.items():
            plans.read.clear()
            await operation(handle, "t7")
            touched = set[int]().union(*(found for _, found in plans.read))
            assert plans.read, name
            assert touched == {number}, (name, plans.read)
        plans.read.clear()
        assert len((await handle.recent_threads(50)).threads) == 39
        assert set[int]().union(*(found for _, found in plans.read)) == set(range(PARTITIONS))


# From tables that are not partitioned.


async def used_before(store: PostgreSQLStore) -> None:
    """A store that older versions have written to, and this one."""
    with store.connection() as connection:
        connection.execute(f'CREATE SCHEMA "{store.schema}"')
        connection.execute((DATA / "format-1.sql").read_bytes())
        for table in ("threads", "checkpoints"):
            sequence = f"pg_get_serial_sequence('locus_{table}', 'id')"
            connection.execute(f"SELECT setval({sequence}, max(id)) FROM locus_{table}".encode())
    async with store.open() as handle:
        await fill(handle, small=True)
        assert await handle.search("message")
        await dicts(handle).put_writes("long", "later", "task", [("waits", "for its checkpoint")])


def moving(store: PostgreSQLStore) -> str:
    return PostgreSQLBackend.ddl(schema_name=store.schema, partitions=PARTITIONS, from_unpartitioned=True)


@pytest.fixture
def no_leftovers(store: PostgreSQLStore) -> Iterator[None]:
    yield
    with store.connection() as connection:
        connection.execute("DROP SCHEMA IF EXISTS locus_unpartitioned CASCADE")
        connection.execute("DROP SCHEMA IF EXISTS locus_partitioned CASCADE")


@pytest.mark.postgresql
@pytest.mark.usefixtures("no_leftovers")
async def test_everything_is_there_after_it_was_moved_into_partitions(store: PostgreSQLStore) -> None:
    await used_before(store)
    async with store.open() as handle:
        before, recent = await contents(handle), await handle.recent_threads(100)
        found = await handle.search("coffee")
        assert {PLAIN, HOSTILE} <= before.keys()
        counts = {name: rows(store, f"SELECT count(*) FROM locus_{name}") for name in PARTITIONED}
        assert all(count > 0 for ((count,),) in counts.values())
        with store.connection() as connection:
            connection.execute(moving(store).encode())
            with pytest.raises(psycopg.errors.RaiseException, match="partitioned already"):
                connection.execute(moving(store).encode())
            connection.execute("ROLLBACK")
        # This handle has its connections and its prepared statements from before.
        assert await contents(handle) == before
        assert await handle.recent_threads(100) == recent
        assert await handle.search("coffee") == found
        assert {name: rows(store, f"SELECT count(*) FROM locus_{name}") for name in PARTITIONED} == counts
        await handle.save(AgentState(), "new one")
        assert (await handle.recent_threads(1)).threads[0].thread_id == "new one"
        assert await handle.delete("new one")
    with new_store(store.server_url, store.proxy, PARTITIONS) as other:
        async with other.open() as handle:
            await handle.save(AgentState(), "t")
        moved, made = ([(*row[:3], row[3]) for row in shape(one)[2]] for one in (store, other))
        assert moved == made
        assert shape(store)[1] == shape(other)[1]
    async with store.open() as handle:
        assert await contents(handle) == before
        kept = await dicts(handle).get_writes("long", "later")
        assert [write.value for write in kept] == ["for its checkpoint"]


@pytest.mark.postgresql
@pytest.mark.usefixtures("no_leftovers")
async def test_owners_and_rights_stay_as_they_are(store: PostgreSQLStore) -> None:
    async with store.open() as handle:
        await handle.save(AgentState(), "t")
    schema = f'"{store.schema}"'
    rights = (f"USAGE ON SCHEMA {schema}", f"{GRANTS} ON ALL TABLES IN SCHEMA {schema}")
    with role(store, *rights) as dsn, store.connection() as connection:
        owner = f"owner_{store.schema}"
        connection.execute(f"CREATE ROLE {owner}".encode())
        try:
            for name in PARTITIONED:
                connection.execute(f"ALTER TABLE {schema}.locus_{name} OWNER TO {owner}".encode())
            connection.execute(moving(store).encode())
            connection.execute("DROP SCHEMA locus_unpartitioned CASCADE")
            found = rows(
                store,
                """SELECT DISTINCT relowner::regrole::text FROM pg_class
                WHERE relnamespace = %s::regnamespace AND relname ~ 'locus_(checkpoints|runs|writes)'""",
                store.schema,
            )
            assert found == [(owner,)]
            async with PostgreSQLBackend(dsn=dsn, schema_name=store.schema, auto_create_table=False) as backend:
                await backend.save("new", {"n": 1})
                assert await backend.load("new") == {"n": 1}
        finally:
            connection.execute(f"DROP OWNED BY {owner} CASCADE".encode())
            connection.execute(f"DROP ROLE {owner}".encode())


@pytest.mark.postgresql
@pytest.mark.usefixtures("no_leftovers")
async def test_comments_rights_on_columns_and_storage_parameters_come_along(store: PostgreSQLStore) -> None:
    async with store.open() as handle:
        await handle.save(AgentState(), "t")
    said = "it's what it's \\ about"
    with role(store, f'USAGE ON SCHEMA "{store.schema}"') as dsn, store.connection() as connection:
        name = conninfo_to_dict(dsn)["user"]
        ((quoted,),) = rows(store, "SELECT quote_literal(%s)", said)
        for statement in (
            f"GRANT SELECT (thread, seq) ON locus_runs TO {name} WITH GRANT OPTION",
            "GRANT INSERT (thread), UPDATE (head) ON locus_checkpoints TO PUBLIC",
            f"COMMENT ON TABLE locus_runs IS {quoted}",
            "COMMENT ON COLUMN locus_runs.items IS 'a list'",
            "COMMENT ON INDEX locus_writes_by_checkpoint IS 'an index'",
            "ALTER TABLE locus_runs SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_enabled = true)",
        ):
            connection.execute(statement.encode())
        connection.execute(moving(store).encode())
        connection.execute("DROP SCHEMA locus_unpartitioned CASCADE")
        granted = """SELECT attname, privilege_type, is_grantable, grantee = 0 FROM pg_attribute,
            aclexplode(attacl) WHERE attrelid = %s::regclass ORDER BY 1, 2"""
        assert rows(store, granted, "locus_runs") == [
            ("seq", "SELECT", True, False),
            ("thread", "SELECT", True, False),
        ]
        assert rows(store, granted, "locus_checkpoints") == [
            ("head", "UPDATE", False, True),
            ("thread", "INSERT", False, True),
        ]
        assert rows(store, "SELECT has_sequence_privilege('public', 'locus_checkpoints_ids', 'USAGE')") == [(True,)]
        assert rows(
            store,
            """SELECT obj_description('locus_runs'::regclass), col_description('locus_runs'::regclass, attnum),
            obj_description('locus_writes_by_checkpoint'::regclass) FROM pg_attribute
            WHERE attrelid = 'locus_runs'::regclass AND attname = 'items'""",
        ) == [(said, "a list", "an index")]
        kept = rows(
            store, "SELECT DISTINCT reloptions FROM pg_class WHERE relname ~ '^locus_runs_[0-9]+$' AND relkind = 'r'"
        )
        assert kept == [(["autovacuum_vacuum_scale_factor=0.05", "autovacuum_enabled=true"],)]


ADDED = {
    "policy mine on table {}locus_runs": ("CREATE POLICY mine ON locus_runs",),
    "row-level security of table {}locus_search": ("ALTER TABLE locus_search ENABLE ROW LEVEL SECURITY",),
    "trigger mine on table {}locus_writes": (
        "CREATE TRIGGER mine BEFORE UPDATE ON locus_writes FOR EACH ROW"
        " EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    ),
    "rule mine on table {}locus_indexed": ("CREATE RULE mine AS ON DELETE TO locus_indexed DO INSTEAD NOTHING",),
    "rule _RETURN on view {}mine": ("CREATE VIEW mine AS SELECT checkpoint_id FROM locus_checkpoints",),
    "index {}mine": ("CREATE INDEX mine ON locus_checkpoints (created_at)",),
    "constraint mine on table {}locus_runs": ("ALTER TABLE locus_runs ADD CONSTRAINT mine CHECK (number >= 0)",),
    "constraint mine_id_fkey on table {}mine": ("CREATE TABLE mine (id bigint REFERENCES locus_checkpoints)",),
    "statistics object {}mine": ("CREATE STATISTICS mine ON thread, seq FROM locus_runs",),
    "default value for column seq of table {}locus_runs": ("ALTER TABLE locus_runs ALTER seq SET DEFAULT 0",),
    "replica identity of table {}locus_runs": ("ALTER TABLE locus_runs REPLICA IDENTITY FULL",),
    "table {}mine": ("CREATE TABLE mine () INHERITS (locus_writes)",),
}


@pytest.mark.postgresql
@pytest.mark.usefixtures("no_leftovers")
@pytest.mark.parametrize("named", ADDED)
async def test_what_would_be_lost_is_named_before_anything_is_moved(store: PostgreSQLStore, named: str) -> None:
    async with store.open() as handle:
        await handle.save(AgentState(), "t")
        with store.connection() as connection:
            for statement in ADDED[named]:
                connection.execute(statement.encode())
            before = shape(store)
            with pytest.raises(psycopg.errors.RaiseException, match=r"would be lost.*nothing has changed") as refusal:
                connection.execute(moving(store).encode())
            assert named.format("") in str(refusal.value).replace(f"{store.schema}.", "")
            connection.execute("ROLLBACK")
        assert shape(store) == before
        assert await handle.load("t") is not None


@pytest.mark.postgresql
@pytest.mark.usefixtures("no_leftovers")
@pytest.mark.parametrize("of", ["TABLE locus_runs, locus_threads", "ALL TABLES"])
async def test_a_publication_is_named_before_anything_is_moved(store: PostgreSQLStore, of: str) -> None:
    """Whoever has subscribed to it has no partitions."""
    async with store.open() as handle:
        await handle.save(AgentState(), "t")
    publication = f"of_{store.schema}"
    with store.connection() as connection:
        connection.execute(f"CREATE PUBLICATION {publication} FOR {of}".encode())
        try:
            with pytest.raises(
                psycopg.errors.RaiseException, match=rf"publication {publication} of table \S*locus_runs"
            ):
                connection.execute(moving(store).encode())
            connection.execute("ROLLBACK")
        finally:
            connection.execute(f"DROP PUBLICATION {publication}".encode())
        connection.execute(moving(store).encode())


@pytest.mark.postgresql
@pytest.mark.usefixtures("no_leftovers")
@pytest.mark.parametrize(
    ("holding", "patience", "impatience"),
    [
        ("UPDATE locus_threads SET expires_at = NULL", "'10s'", "'10ms'"),
        ("SELECT count(*) FROM locus_runs", "'5 min'", "'0 min'"),
    ],
    ids=["a transaction that writes", "a backup that reads"],
)
async def test_the_script_does_not_wait_for_ever(
    store: PostgreSQLStore, holding: str, patience: str, impatience: str
) -> None:
    """Saves would wait behind it. It says who is in the way."""
    state = AgentState()
    async with store.open() as handle:
        await handle.save(state, "t")
        before = shape(store)
        script = moving(store)
        assert script.count(patience) == 1
        with store.connection() as other, store.connection() as connection:
            other.execute("BEGIN")
            other.execute(holding.encode())
            with pytest.raises(psycopg.errors.LockNotAvailable, match="nothing has changed") as refusal:
                connection.execute(script.replace(patience, impatience).encode())
            assert f"process {other.info.backend_pid})" in str(refusal.value)
            assert "run this again" in str(refusal.value.diag.message_hint)
            connection.execute("ROLLBACK")
            other.execute("ROLLBACK")
            assert shape(store) == before
            await handle.save(state.with_iteration(1), "t")
            connection.execute(script.encode())
        assert len(await handle.history("t")) == 2


@pytest.mark.postgresql
@pytest.mark.usefixtures("no_leftovers")
async def test_reading_goes_on_while_rows_are_moved_and_saves_wait(store: PostgreSQLStore) -> None:
    """A save that waits has opened the table of checkpoints already, and holds it: the script must not wait for it.

    Both would wait for each other, and the server ends the one that began last. It looks once, after a moment. That
    has passed for the save by then, as it has for every save that waits while many rows are moved.
    """
    url = f"{store.url}&options=-c%20deadlock_timeout%3D10ms"
    state = AgentState().with_message(Message.user("before"))
    async with get_checkpointer(url, retry_seconds=60) as handle:
        before = await handle.save(state, "t")
        moved, exclusive, rest = moving(store).partition("-- Reading waits")
        assert exclusive
        with store.connection() as connection:
            connection.execute(moved.encode())
            assert await handle.load("t") == state
            assert len(await handle.history("t")) == 1
            saving = asyncio.ensure_future(handle.save(state.with_iteration(1), "t", if_latest=before))
            waiting = """SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s
                AND query_start < clock_timestamp() - interval '200 ms'"""
            while not rows(store, waiting, f"%{store.schema}%"):  # noqa: ASYNC110 - only the server knows
                await asyncio.sleep(0.01)
            await asyncio.to_thread(connection.execute, f"{exclusive}{rest}".encode())
        await saving
        loaded = await handle.load("t")
        assert loaded is not None
        assert loaded.iteration == 1
        assert len(await handle.history("t")) == 2
    assert sum(rows(store, f"SELECT count(*) FROM locus_checkpoints_{part}")[0][0] for part in range(PARTITIONS)) == 2


@pytest.mark.postgresql
@pytest.mark.usefixtures("no_leftovers")
async def test_a_script_that_fails_changes_nothing(store: PostgreSQLStore) -> None:
    """Here because a schema is in the way, as after a move whose old tables were not dropped."""
    async with store.open() as handle:
        await handle.save(AgentState(), "t")
        before = shape(store)
        with store.connection() as connection:
            connection.execute("CREATE SCHEMA locus_unpartitioned")
            with pytest.raises(psycopg.errors.DuplicateSchema):
                connection.execute(moving(store).encode())
            connection.execute("ROLLBACK")
        assert shape(store) == before
        assert await handle.load("t") is not None


@pytest.mark.postgresql
@pytest.mark.usefixtures("no_leftovers")
async def test_the_first_schema_of_the_search_path_is_moved_in(store: PostgreSQLStore) -> None:
    dsn = make_conninfo(store.server_url, options=f"-c search_path={store.schema}")
    with store.connection() as connection:
        connection.execute(f'CREATE SCHEMA "{store.schema}"')
        async with PostgreSQLBackend(dsn=dsn) as backend:
            await backend.save("t", {"n": 1})
            connection.execute(PostgreSQLBackend.ddl(partitions=2, from_unpartitioned=True).encode())
            assert await backend.load("t") == {"n": 1}
            await backend.save("t", {"n": 2})
    assert rows(store, "SELECT count(*) FROM locus_checkpoints") == [(2,)]
    assert rows(store, "SELECT to_regclass('locus_checkpoints_1') IS NOT NULL") == [(True,)]
