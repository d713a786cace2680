"""Whatever is wrong with a store is found, a repair keeps all that can be read, and old formats are migrated."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, redirect_stderr, redirect_stdout
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
import pytest

from locus.cli import main
from locus.core.messages import Message
from locus.core.state import AgentState
from locus.doctor import content, stored_format
from locus.errors import CorruptCheckpointError
from locus.memory.backends import MemoryCheckpointer
from locus.memory.backends.mysql import examine as mysql
from locus.memory.backends.objects.engine import ObjectEngine
from locus.memory.backends.opensearch import examine as opensearch
from locus.memory.backends.postgresql import examine as postgresql
from locus.memory.backends.postgresql import schema
from locus.memory.backends.redis import examine as redis
from locus.memory.backends.sqlite.schema import MIGRATIONS
from locus.memory.checkpointer import Checkpointer
from locus.memory.model import findings
from locus.memory.model.records import StoredFormat
from locus.testing.stores import TestStore
from tests.backends.embedded import FileStore, SQLiteStore
from tests.backends.every_store import embedded_store, store_on_server
from tests.backends.mysql.stores import MySQLStore, run_sql
from tests.backends.opensearch.store import OpenSearchStore, ask
from tests.backends.postgresql.store import PostgreSQLStore
from tests.backends.redis.stores import RedisStore
from tests.cli.terminals import Commands, Said
from tests.format.story import DATA, Told, repeatable, tell

HEALTHY = [
    "sqlite",
    "file",
    pytest.param("postgresql", marks=pytest.mark.server("postgresql")),
    pytest.param("redis", marks=pytest.mark.server("redis")),
    pytest.param("s3", marks=pytest.mark.server("s3")),
    pytest.param("http", marks=pytest.mark.http),
]


@contextmanager
def opened(name: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[TestStore]:
    embedded = nullcontext(embedded_store(name, folder)) if name in ("sqlite", "file") else None
    with embedded or store_on_server(name, request, folder) as store:
        asyncio.run(_story(store))
        yield store


async def _story(store: TestStore) -> None:
    async with store.open() as checkpointer:
        for thread in ("a", "b"):
            state = AgentState(agent_id="shop")
            for turn in range(4):
                state = state.with_message(Message.user(f"{thread} asks {turn}"))
                await checkpointer.save(state, thread, f"cp-{turn}", metadata={"turn": turn})


def url_of(store: TestStore) -> str:
    url = getattr(store, "url", None)
    assert isinstance(url, str)
    return url


def command(*words: str) -> Said:
    """Run a command here: most of these tests are about what it finds, and not about a process of its own."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        code = main(words)
    return Said(code, out.getvalue(), err.getvalue())


def examined(store: TestStore, *options: str) -> dict[str, Any]:
    done = command("doctor", "--json", "-s", url_of(store), *options)
    assert done.code in (0, 1), done
    found: dict[str, Any] = json.loads(done.out)
    assert done.code == (0 if found["healthy"] else 1)
    return found


def severities(found: dict[str, Any], words: str) -> list[str]:
    """How severe the findings are that say this."""
    return [one["severity"] for one in found["findings"] if words in one["what"]]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_store_has_no_errors(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    with opened(name, request, tmp_path) as store:
        found = examined(store)
    assert [one for one in found["findings"] if one["severity"] == "error"] == []
    assert (found["damaged"], found["threads"], found["checkpoints"]) == ([], 2, 8)
    assert all(one["advice"] for one in found["findings"])


def test_apply_alone_is_no_use(tmp_path: Path) -> None:
    said = command("doctor", "--apply", "-s", f"sqlite:{tmp_path / 'none.db'}")
    assert said.code == 2
    assert "--repair" in said.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [[], ["--repair", "--apply"]])
def test_a_store_that_is_not_there_is_not_made(tmp_path: Path, options: list[str]) -> None:
    assert command("doctor", "-s", f"sqlite:{tmp_path / 'none.db'}", *options).code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_clock_that_is_off_is_found() -> None:
    now = datetime.now(UTC)
    assert findings.clock(now, now) == []
    for off in (timedelta(seconds=-20), timedelta(seconds=20)):
        (finding,) = findings.clock(now + off, now)
        assert finding.severity == "warning"
        assert " seconds apart" in finding.what
    assert findings.clock(now - timedelta(seconds=1), now, timedelta(seconds=1)) == []


def test_the_clock_of_a_server_over_http() -> None:
    assert findings.http_time("Mon, 16 Nov 2026 17:30:00 GMT") == datetime(2026, 11, 16, 17, 30, tzinfo=UTC)
    assert findings.http_time("") is findings.http_time("soon") is None


@pytest.mark.server("s3")
def test_a_bucket_tells_the_time(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    async def asked(store: TestStore) -> datetime | None:
        async with store.open() as checkpointer:
            engine = checkpointer.store.engine
            assert isinstance(engine, ObjectEngine)
            return await engine.store.server_time()

    with opened("s3", request, tmp_path) as store:
        told = asyncio.run(asked(store))
    assert told is not None
    assert findings.clock(told, told, findings.SECOND) == []


# Missing indexes.


def dropped(store: TestStore) -> None:
    """Drop an index, behind the back of the store."""
    if isinstance(store, SQLiteStore):
        with closing(sqlite3.connect(store.path)) as connection, connection:
            connection.execute("DROP INDEX locus_checkpoints_by_seq")
    elif isinstance(store, PostgreSQLStore):
        with store.connection() as connected:
            connected.execute("DROP INDEX locus_checkpoints_by_seq")
    else:
        assert isinstance(store, MySQLStore)
        run_sql(store.direct, f"ALTER TABLE {store.table_name}_checkpoints DROP INDEX by_seq")
        run_sql(store.direct, f"ALTER TABLE {store.table_name}_search DROP INDEX by_words")


@pytest.mark.parametrize(
    "name",
    [
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.server("postgresql")),
        pytest.param("mysql", marks=pytest.mark.server("mysql")),
    ],
)
def test_a_missing_index_is_found_and_created_again(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    with opened(name, request, tmp_path) as store:
        assert severities(examined(store), "is missing") == []
        dropped(store)
        number = 2 if name == "mysql" else 1
        shown = examined(store, "--repair")
        assert severities(shown, "is missing") == ["error"] * number
        assert len(shown["repairs"]) == number
        assert severities(examined(store, "--quick"), "is missing") == ["error"] * number
        done = examined(store, "--repair", "--apply")
        assert [one["left_alone"] for one in done["repairs"]] == [""] * number
        again = examined(store)
        assert severities(again, "is missing") == []
        assert again["checkpoints"] == 8


# Servers that may lose what they have acknowledged.


@pytest.mark.server("postgresql")
def test_settings_of_postgresql_are_found(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    with opened("postgresql", request, tmp_path) as store:
        assert isinstance(store, PostgreSQLStore)
        with store.connection() as connection:
            ((fsync,),) = connection.execute("SELECT setting FROM pg_settings WHERE name = 'fsync'").fetchall()
            before = examined(store, "--quick")
            assert severities(before, "synchronous_commit") == []
            assert severities(before, "fsync is off") == (["warning"] if fsync == "off" else [])
            # Only for the sessions of this test: others use the server, too.
            store.dsn += "&options=-csynchronous_commit%3Doff"
            assert severities(examined(store, "--quick"), "synchronous_commit") == ["warning"]
            connection.execute(
                "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'locus_search_by_words'::regclass"
            )
            assert severities(examined(store, "--quick"), "is not valid") == ["error"]


def test_standbys_of_postgresql() -> None:
    def said(states: list[str | None] | None) -> list[str]:
        return [finding.severity for finding in postgresql.replication(states)]

    assert said([]) == said(["sync"]) == said(["async", "quorum"]) == []
    assert said(["async"]) == said(["async", "potential"]) == ["warning"]
    assert said(None) == said([None]) == ["note"]
    assert postgresql.durability({"fsync": "on", "full_page_writes": "on", "synchronous_commit": "local"}) == []


@pytest.mark.server("postgresql")
def test_a_user_who_may_not_ask_hears_that(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    with opened("postgresql", request, tmp_path) as store:
        assert isinstance(store, PostgreSQLStore)
        with store.connection() as connection:
            connection.execute("REVOKE SELECT ON pg_stat_replication FROM PUBLIC")
            try:
                role = store.schema
                connection.execute(f'CREATE ROLE "{role}"; GRANT USAGE ON SCHEMA "{role}" TO "{role}"'.encode())
                connection.execute(f'GRANT SELECT ON ALL TABLES IN SCHEMA "{role}" TO "{role}"'.encode())
                store.dsn += f"&options=-crole%3D{role}"
                found = examined(store)
                assert severities(found, "whether its standbys are synchronous") == ["note"]
                assert found["checkpoints"] == 8
            finally:
                connection.execute("GRANT SELECT ON pg_stat_replication TO PUBLIC")
                connection.execute(f'DROP OWNED BY "{role}"; DROP ROLE "{role}"'.encode())


@pytest.mark.server("postgresql")
def test_a_grant_that_is_missing_is_no_outage(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    with opened("postgresql", request, tmp_path) as store:
        assert isinstance(store, PostgreSQLStore)
        with store.connection() as connection:
            role = store.schema
            connection.execute(f'CREATE ROLE "{role}"; GRANT USAGE ON SCHEMA "{role}" TO "{role}"'.encode())
            try:
                store.dsn += f"&options=-crole%3D{role}"
                said = command("doctor", "-s", url_of(store))
            finally:
                connection.execute(f'DROP OWNED BY "{role}"; DROP ROLE "{role}"'.encode())
    assert said.code == 2
    assert "a GRANT is missing" in said.out
    assert "check that the server runs" not in said.out


@pytest.mark.server("mysql")
def test_settings_of_mysql_are_found(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    with opened("mysql", request, tmp_path) as store:
        assert isinstance(store, MySQLStore)
        ((kept,),) = run_sql(store.direct, "SELECT @@global.innodb_flush_log_at_trx_commit")
        try:
            for value, said in ((1, []), (0, ["warning"])):
                run_sql(store.direct, f"SET GLOBAL innodb_flush_log_at_trx_commit = {value}")
                found = examined(store, "--quick")
                assert severities(found, "innodb_flush_log_at_trx_commit") == said
                assert severities(found, "read-only") == []
            run_sql(store.direct, "SET GLOBAL read_only = ON")
            assert severities(examined(store, "--quick"), "read-only") == ["error"]
        finally:
            run_sql(store.direct, f"SET GLOBAL read_only = OFF; SET GLOBAL innodb_flush_log_at_trx_commit = {kept}")


def test_what_mysql_may_lose() -> None:
    well = {
        "innodb_flush_log_at_trx_commit": 1,
        "log_bin": 1,
        "sync_binlog": 1,
        "read_only": 0,
        "super_read_only": 0,
    }
    assert mysql.settings(well) == []
    assert [finding.severity for finding in mysql.settings(well | {"sync_binlog": 0})] == ["warning"]
    assert mysql.settings(well | {"sync_binlog": 0, "log_bin": 0}) == []
    assert mysql.replication(False, 2, {"Rpl_semi_sync_source_status": "ON"}) == []
    assert [finding.severity for finding in mysql.replication(True, 1, {})] == ["error", "warning"]


@pytest.mark.server("redis")
def test_settings_of_redis_are_found(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    with opened("redis", request, tmp_path) as store, store.client() as client:  # type: ignore[attr-defined]
        assert isinstance(store, RedisStore)
        names = ("maxmemory", "maxmemory-policy", "appendfsync", "appendonly")
        kept = {name: client.config_get(name)[name] for name in names}

        def found_with(**settings: str) -> dict[str, Any]:
            for name, value in settings.items():
                client.config_set(name.replace("_", "-"), value)
            return examined(store, "--quick")

        try:
            well = found_with(appendfsync="always", maxmemory_policy="noeviction")
            assert (well["findings"], well["healthy"]) == ([], True)
            assert severities(found_with(appendfsync="everysec"), "the last second") == ["warning"]
            assert severities(found_with(maxmemory_policy="allkeys-lru"), "throws keys away") == ["warning"]
            assert severities(found_with(maxmemory=str(1 << 34)), "throws keys away") == ["error"]
            assert severities(found_with(appendonly="no"), "keeps no log") == ["warning"]
        finally:
            for name, value in kept.items():
                client.config_set(name, value)


@pytest.mark.server("redis")
def test_a_redis_that_forbids_to_ask_says_so(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    with opened("redis", request, tmp_path) as store, store.client() as client:  # type: ignore[attr-defined]
        assert isinstance(store, RedisStore)
        name = store.prefix.replace(":", "")
        try:
            client.execute_command("ACL", "SETUSER", name, "on", ">secret", "~*", "&*", "+@all", "-config")
            url = store.url.replace("redis://", f"redis://{name}:secret@")
            said = command("doctor", "--json", "-s", url)
            assert severities(json.loads(said.out), "appendfsync") == ["note"]
            client.execute_command("ACL", "SETUSER", name, "-info")
            said = command("doctor", "--json", "-s", url)
            assert severities(json.loads(said.out), "how it is set up") == ["note"]
            assert "secret" not in said.out + said.err
        finally:
            client.execute_command("ACL", "DELUSER", name)


def test_replicas_of_redis() -> None:
    assert redis.standing({"role": "master", "connected_slaves": 0}) == []
    assert [finding.severity for finding in redis.standing({"role": "master", "connected_slaves": 1})] == ["warning"]
    assert [finding.severity for finding in redis.standing({"role": "slave"})] == ["error"]
    broken = redis.log_file({"aof_enabled": 1, "aof_last_write_status": "err"}, "always")
    assert [finding.severity for finding in broken] == ["error"]


def test_replicas_of_redis_that_a_save_waits_for() -> None:
    one, two = ({"role": "master", "connected_slaves": number} for number in (1, 2))
    assert redis.standing(one, 1) == redis.standing(two, 2) == []
    assert [finding.severity for finding in redis.standing(two, 1)] == ["note"]
    assert [finding.severity for finding in redis.standing(one, 2)] == ["error"]
    alone = {"role": "master", "connected_slaves": 0}
    assert [finding.severity for finding in redis.standing(alone, 1)] == ["error"]
    assert [finding.severity for finding in redis.standing(alone, sentinels=True)] == ["warning"]
    assert [[finding.severity for finding in redis.alone(said)] for said in ("0", "1", None)] == [
        ["warning"],
        [],
        ["note"],
    ]


def test_an_index_of_opensearch_without_replicas() -> None:
    without = {"index.number_of_replicas": "0"}
    assert [finding.severity for finding in opensearch.settings(without)] == ["note"]
    assert [finding.severity for finding in opensearch.settings(without, nodes=3)] == ["warning"]
    assert opensearch.settings({"index.number_of_replicas": "1"}, nodes=3) == []


@pytest.mark.server("opensearch")
def test_settings_of_opensearch_are_found(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    with opened("opensearch", request, tmp_path) as store:
        assert isinstance(store, OpenSearchStore)
        found = examined(store)
        assert [one["severity"] for one in found["findings"]] == ["note"], found
        assert severities(found, "no replicas") == ["note"]

        def found_with(**settings: Any) -> dict[str, Any]:
            named = {f"index.{name.replace('__', '.')}": value for name, value in settings.items()}
            ask(store.server_url, "PUT", f"{store.index}/_settings", named)
            return examined(store, "--quick")

        assert severities(found_with(translog__durability="async"), "translog.durability") == ["warning"]
        assert severities(found_with(blocks__read_only_allow_delete=True), "almost full") == ["error"]
        assert severities(found_with(blocks__read_only_allow_delete=None, blocks__write=True), "blocked") == ["error"]
        expanded = found_with(blocks__write=None, auto_expand_replicas=False, number_of_replicas=1)
        assert severities(expanded, "yellow") == ["warning"]
    assert [finding.severity for finding in opensearch.health({"status": "red"})] == ["error"]


# Damaged threads.


async def _readable(store: TestStore) -> dict[tuple[str, str], object]:
    """Everything that can be loaded."""
    found: dict[tuple[str, str], object] = {}
    async with store.open() as checkpointer:
        for thread in ("a", "b"):
            for turn in range(4):
                async with checkpointer.store.using() as engine:
                    try:
                        stored = await engine.read(thread, "default", f"cp-{turn}")
                    except CorruptCheckpointError:
                        continue
                    if stored is not None and content(stored) is not None:
                        found[thread, f"cp-{turn}"] = content(stored)
    return found


def damage_row(store: TestStore, seq: int) -> None:
    """Damage the run that a checkpoint of thread `a` brought."""
    where = "thread = (SELECT id FROM locus_threads WHERE thread_id = 'a') AND seq = "
    if isinstance(store, SQLiteStore):
        with closing(sqlite3.connect(store.path)) as connection, connection:
            connection.execute(f"UPDATE locus_runs SET items = '[1]' WHERE {where} {seq}")
    elif isinstance(store, PostgreSQLStore):
        with store.connection() as connected:
            connected.execute(f"""UPDATE locus_runs SET items = '{{"no": "list"}}' WHERE {where} {seq}""".encode())
    elif isinstance(store, MySQLStore):
        name = store.table_name
        thread = f"thread = (SELECT id FROM {name}_threads WHERE thread_id = 'a')"
        run_sql(store.direct, f"""UPDATE {name}_runs SET items = '{{"no": 1}}' WHERE {thread} AND seq = {seq}""")
    elif isinstance(store, RedisStore):
        with store.client() as client:
            (key,) = [key for key in store.stored_keys() if key.endswith(":r:a")]
            runs = sorted((field, text) for field, text in client.hgetall(key).items() if b" " in field)
            client.hset(key, runs[seq - 1][0], runs[seq - 1][1][:-2])
    else:
        assert isinstance(store, FileStore)
        log = log_of(store)
        lines = log.read_bytes().split(b"\n")
        at = [number for number, line in enumerate(lines) if line.startswith(b'{"seal":"checkpoint"')][seq - 1]
        start = len(b"\n".join(lines[:at])) - 10
        data = bytearray(log.read_bytes())
        data[start] ^= 1
        log.write_bytes(data)


def log_of(store: FileStore) -> Path:
    return store.log("a")


@pytest.mark.parametrize("seq", [1, 3, 4])
@pytest.mark.parametrize(
    "name",
    [
        "sqlite",
        "file",
        pytest.param("postgresql", marks=pytest.mark.server("postgresql")),
        pytest.param("mysql", marks=pytest.mark.server("mysql")),
        pytest.param("redis", marks=pytest.mark.server("redis")),
    ],
)
def test_a_repair_keeps_all_that_can_be_read(
    name: str, seq: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with opened(name, request, tmp_path) as store:
        whole = asyncio.run(_readable(store))
        assert len(whole) == 8
        damage_row(store, seq)
        before = asyncio.run(_readable(store))
        lost = [f"cp-{turn}" for turn in range(seq - 1, 4)]
        assert sorted(whole.keys() - before.keys()) == [("a", one) for one in lost]
        found = examined(store)
        ((_, said),) = [(one["thread_id"], one["checkpoints"]) for one in found["damaged"]]
        assert sorted(one for _, one in said) == lost
        shown = examined(store, "--repair")
        (repair,) = shown["repairs"]
        assert asyncio.run(_readable(store)) == before
        assert shown["dry_run"]
        if seq == 1:
            # Nothing is left that a repair could keep.
            assert "backup" in repair["left_alone"]
            examined(store, "--repair", "--apply")
            assert asyncio.run(_readable(store)) == before
            return
        assert sorted(one for _, one in repair["lost"]) == lost
        (done,) = examined(store, "--repair", "--apply")["repairs"]
        assert (done["left_alone"], sorted(one for _, one in done["lost"])) == ("", lost)
        assert asyncio.run(_readable(store)) == before
        again = examined(store)
        assert (again["damaged"], again["checkpoints"]) == ([], len(before))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("s3", marks=pytest.mark.server("s3")),
        pytest.param("opensearch", marks=pytest.mark.server("opensearch")),
        pytest.param("http", marks=pytest.mark.http),
    ],
)
def test_a_repair_elsewhere_loses_nothing_that_can_be_read(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with opened(name, request, tmp_path) as store:
        asyncio.run(store.corrupt("a"))
        before = asyncio.run(_readable(store))
        assert len(before) < 8
        (done,) = examined(store, "--repair", "--apply")["repairs"]
        assert (done["thread_id"], bool(done["left_alone"] or done["lost"])) == ("a", True)
        assert asyncio.run(_readable(store)) == before


def test_a_repair_is_told_to_people(locus: Commands, tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path)
    asyncio.run(_story(store))
    damage_row(store, 4)
    locus.environment = {"LOCUS_STORE": url_of(store), "NO_COLOR": "1"}
    shown = locus.on_terminal("doctor", "--repair", columns=120)
    assert shown.code == 1
    assert "error: 1 of 4 checkpoints of a cannot be read" in shown.out
    assert "would do: remove 1 checkpoints that cannot be read, and keep 3 (a)" in shown.lines
    assert "    lost: cp-3" in shown.lines
    assert "nothing was changed: --apply does it" in shown.out
    done = locus.piped("doctor", "--repair", "--apply")
    assert "done: remove 1 checkpoints" in done.out
    assert locus.piped("doctor").lines[-1] == "all is well"
    assert locus.piped("doctor", "--repair").lines[-1] == "there is nothing that can be repaired"


@pytest.mark.parametrize("at", ["a seal in the middle", "the end"])
def test_what_stands_around_the_damage_of_a_log_is_kept(tmp_path: Path, at: str) -> None:
    store = FileStore(tmp_path)
    asyncio.run(_story(store))
    whole = asyncio.run(_readable(store))
    log = log_of(store)
    data = log.read_bytes()
    if at == "the end":
        # The last seal was changed after it was written: nothing of the thread can be read now.
        data = data[:-4] + b"x" + data[-3:]
        kept = {key: value for key, value in whole.items() if key != ("a", "cp-3")}
    else:
        data = data.replace(b'"checkpoint_id":"cp-1"', b'"checkpoint_id":"cp-x"', 1)
        kept = {
            key: value for key, value in whole.items() if key in (("a", "cp-0"), *(("b", f"cp-{n}") for n in range(4)))
        }
    log.write_bytes(data)
    before = asyncio.run(_readable(store))
    (shown,) = examined(store, "--repair")["repairs"]
    assert "put the damaged log aside" in shown["what"]
    assert log.read_bytes() == data
    examined(store, "--repair", "--apply")
    assert log.with_name("a.jsonl.damaged").read_bytes() == data
    after = asyncio.run(_readable(store))
    assert before.items() <= after.items()
    assert after == kept
    assert examined(store)["damaged"] == []


def test_a_log_of_another_thread_is_left_alone(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    asyncio.run(_story(store))
    log = log_of(store)
    shutil.copy(log.with_name("b.jsonl"), log)
    content = log.read_bytes()
    (done,) = examined(store, "--repair", "--apply")["repairs"]
    assert done["left_alone"]
    assert log.read_bytes() == content
    assert not list(log.parent.glob("*.damaged*"))


def test_a_damaged_sqlite_file_is_found(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path)
    asyncio.run(_story(store))
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'locus_writes_by_task'"
        ).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    data = bytearray(store.path.read_bytes())
    data[(page - 1) * size : (page - 1) * size + 64] = b"\xff" * 64
    store.path.write_bytes(data)
    assert severities(examined(store, "--quick"), "finds the file damaged") == ["error"]


# Formats.


async def _told() -> Told:
    with repeatable():
        return await tell(MemoryCheckpointer())


async def _all_is_there(checkpointer: Checkpointer) -> None:
    async with checkpointer:
        for (thread_id, namespace, checkpoint_id), state in (await _told()).items():
            assert await checkpointer.load(thread_id, checkpoint_id, namespace=namespace) == state


def document(said: Said) -> dict[str, Any]:
    assert said.code == 0, said
    found: dict[str, Any] = json.loads(said.out)
    return found


@pytest.mark.parametrize("version", [1, 2])
def test_an_old_sqlite_file_is_migrated(tmp_path: Path, version: int) -> None:
    store = SQLiteStore(tmp_path)
    shutil.copy(DATA / f"sqlite-{version}.db", store.path)
    before = store.path.read_bytes()
    assert severities(examined(store), f"format {version}") == ["note"]
    said = command("migrate", "-s", url_of(store))
    assert f"would migrate from format {version} to {len(MIGRATIONS)}" in said.out
    assert "ALTER TABLE locus_runs ADD COLUMN" in said.out
    assert store.path.read_bytes() == before
    copy = tmp_path / "by hand.db"
    shutil.copy(store.path, copy)
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        connection.executescript(said.out.partition("\n")[2])
    assert document(command("migrate", "--json", "-s", f"sqlite:{copy}"))["format"]["found"] == len(MIGRATIONS)
    assert (
        command("migrate", "--apply", "-s", url_of(store)).out
        == f"migrated from format {version} to {len(MIGRATIONS)}\n"
    )
    assert document(command("migrate", "--json", "-s", url_of(store)))["format"]["found"] == len(MIGRATIONS)
    asyncio.run(_all_is_there(store.open()))
    assert examined(store)["healthy"]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.server("postgresql")
def test_old_tables_in_postgresql_are_migrated(request: pytest.FixtureRequest, tmp_path: Path, version: int) -> None:
    with store_on_server("postgresql", request, tmp_path) as store:
        assert isinstance(store, PostgreSQLStore)
        data = Path(__file__).parents[1] / "backends" / "postgresql" / "data" / f"format-{version}.sql"
        with store.connection() as connection:
            connection.execute(f'CREATE SCHEMA "{store.schema}"'.encode())
            connection.execute(data.read_bytes())
            assert severities(examined(store), f"have format {version}") == ["error"]
            said = command("migrate", "-s", url_of(store))
            assert f"would migrate from format {version} to {schema.FORMAT}" in said.out
            assert "ADD COLUMN items_before" in said.out
            assert connection.execute("SELECT version FROM locus_format").fetchall() == [(version,)]
            # What is shown is a script that does it.
            with pytest.raises(psycopg.errors.RaiseException), connection.transaction():
                script = said.out.partition("\n")[2].replace("BEGIN;", "").replace("COMMIT;", "")
                connection.execute(f"{script}; DO $$ BEGIN RAISE 'undone'; END $$".encode())
        assert command("migrate", "--apply", "-s", url_of(store)).out == (
            f"migrated from format {version} to {schema.FORMAT}\n"
        )
        assert document(command("migrate", "--json", "-s", url_of(store)))["format"]["found"] == schema.FORMAT
        asyncio.run(_all_is_there(store.open()))
        assert [one for one in examined(store)["findings"] if one["severity"] == "error"] == []


@pytest.mark.server("redis")
def test_an_older_format_in_redis_is_migrated(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    with opened("redis", request, tmp_path) as store:
        assert isinstance(store, RedisStore)
        with store.client() as client:
            client.hset(f"{store.prefix}format", "version", 1)
            assert severities(examined(store), "format 1") == ["note"]
            assert command("migrate", "-s", url_of(store)).out == "would migrate from format 1 to 3\n"
            assert client.hget(f"{store.prefix}format", "version") == b"1"
            assert command("migrate", "-s", url_of(store), "--apply").out == "migrated from format 1 to 3\n"
            assert client.hget(f"{store.prefix}format", "version") == b"3"
        assert examined(store)["checkpoints"] == 8


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("mysql", marks=pytest.mark.server("mysql")),
        pytest.param("opensearch", marks=pytest.mark.server("opensearch")),
        pytest.param("oracle", marks=[pytest.mark.server("postgresql"), pytest.mark.oracle]),
    ],
)
def test_the_format_is_told(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    async def told(store: TestStore) -> list[StoredFormat | None]:
        async with store.open() as checkpointer:
            first = await stored_format(checkpointer.store)
            await checkpointer.save(AgentState(), "a")
            return [first, await stored_format(checkpointer.store)]

    with store_on_server(name, request, tmp_path) as store:
        before, after = asyncio.run(told(store))
    assert before is not None
    assert before.found == 0
    assert after == StoredFormat(before.newest, before.newest)
