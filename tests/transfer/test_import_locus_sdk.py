"""Threads of locus-sdk 3, moved in and gone on with.

In the samples of keys a list lacks a checkpoint, as concurrent saves leave it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb
from redis import Redis

from locus.errors import BackendUnavailableError, ConfigurationError
from locus.testing.laws.base import dicts
from locus.transfer.sources.locus_sdk.sql import open_tables
from locus.transfer.sources.sql import ServerReader
from tests.backends.mysql.stores import run_sql
from tests.servers.mysql import MySQLServer
from tests.servers.postgresql import PostgreSQLServer
from tests.servers.redis import RedisServer
from tests.transfer.locus_sdk_samples import KEYS, SAMPLES, by_key, check, moved, opened


async def test_a_folder(tmp_path: Path) -> None:
    folder, url = tmp_path / "old", f"sqlite:{tmp_path / 'agents.db'}"
    shutil.copytree(SAMPLES / "folder", folder)
    files = [json.loads(path.read_text()) for path in (folder / "t-1").glob("*.json")]
    before = {path: path.read_bytes() for path in folder.rglob("*.json")}
    report = await moved(f"file:{folder}", url)
    assert report.ok, report.problems
    assert (report.threads, report.moved, report.verified) == (3, 5, 5)
    assert {path: path.read_bytes() for path in folder.rglob("*.json")} == before
    assert sorted(folder.rglob("*")) == sorted([*before, *(path for path in folder.iterdir())])
    await check(url, {one["checkpoint_id"]: one for one in sorted(files, key=lambda one: str(one["created_at"]))})
    again = await moved(str(folder), url)
    assert (again.ok, again.moved, again.present) == (True, 0, 5)
    async with opened(url) as handle:
        assert await handle.list_threads(None) == ["t-1", "tenant/a", "tenant_a"], "they shared a folder"


async def test_damaged_files_are_told(tmp_path: Path) -> None:
    folder, url = tmp_path / "old", f"sqlite:{tmp_path / 'agents.db'}"
    shutil.copytree(SAMPLES / "folder", folder)
    torn = folder / "t-1" / "c2.json"
    torn.write_bytes(torn.read_bytes()[:-30])
    (folder / "gone").mkdir()
    (folder / "gone" / "x.json").write_text("{")
    report = await moved(str(folder), url)
    assert {problem.thread for problem in report.problems} == {"t-1", "gone"}
    assert all("cannot be read" in problem.message for problem in report.problems)
    assert report.done == 2
    (folder / "gone" / "x.json").write_text(
        '{"checkpoint_id": "x", "thread_id": "gone", "created_at": "now", "state": 1}'
    )
    assert {problem.thread for problem in (await moved(str(folder), url)).problems} == {"t-1", "gone"}


async def test_what_is_no_state_is_told(tmp_path: Path) -> None:
    folder, url = tmp_path / "old", f"sqlite:{tmp_path / 'agents.db'}"
    shutil.copytree(SAMPLES / "folder", folder)
    path = folder / "t-1" / "c1.json"
    data = json.loads(path.read_text())
    data["state"]["messages"] = "none"
    path.write_text(json.dumps(data))
    (problem,) = (await moved(str(folder), url)).problems
    assert "checkpoint 'c1' of thread 't-1' is not a state" in problem.message


@pytest.mark.parametrize("source", ["none", "file:none", "http://h/x", "sqlite:old.db"])
async def test_what_is_no_such_store_is_told(tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=r"there is no folder|this is read from file"):
        await moved(source, f"sqlite:{tmp_path / 'agents.db'}")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def old_keys(redis_server: RedisServer) -> Iterator[str]:
    """The samples as keys of a Redis server; a prefix of their own, with characters that mean something to Redis."""
    prefix = f"old[{uuid4().hex[:8]}]:"
    with Redis(port=redis_server.port) as client:
        for key, data in KEYS.items():
            client.set(prefix + key, json.dumps(data))
        client.set(f"{prefix}bare", json.dumps({"plain": [1, 2]}))
        client.set("somebody:else", "x")
        client.hset(f"{prefix}hash", "x", "y")
        before = {key: client.dump(key) for key in client.keys("*")}
        yield f"redis://127.0.0.1:{redis_server.port}/0?prefix={prefix}"
        assert {key: client.dump(key) for key in client.keys("*")} == before
        client.delete(*(key for key in before if key.startswith((prefix.encode(), b"somebody"))))


@pytest.mark.redis
async def test_redis(old_keys: str, tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'agents.db'}"
    report = await moved(old_keys, url)
    assert report.ok, report.problems
    assert (report.threads, report.moved) == (4, 6)
    await check(url, by_key())
    async with opened(url) as handle:
        assert await handle.list_threads(None) == ["bare", "t-1", "tenant/a", "tenant_a"]
        assert await dicts(handle).load("bare") == {"plain": [1, 2]}
    again = await moved(old_keys, url)
    assert (again.ok, again.moved) == (True, 0)


@pytest.mark.redis
async def test_redis_with_the_prefixes_that_locus_sdk_uses_itself(redis_server: RedisServer, tmp_path: Path) -> None:
    source, url = f"redis://127.0.0.1:{redis_server.port}/7", f"sqlite:{tmp_path / 'agents.db'}"
    with Redis(port=redis_server.port, db=7) as client:
        client.set("locus:state:a", '{"n": 1}')
        assert (await moved(source, url)).ok
        client.set("locus:checkpoint:b", '{"n": 2}')
        with pytest.raises(ConfigurationError, match="locus:state: and locus:checkpoint:: say which with"):
            await moved(source, url)
        assert (await moved(f"{source}?prefix=locus:checkpoint:", url)).ok
        client.flushdb()
    async with opened(url) as handle:
        assert [await dicts(handle).load(name) for name in ("a", "b")] == [{"n": 1}, {"n": 2}]


@pytest.fixture
def old_schema(postgresql_server: PostgreSQLServer) -> Iterator[str]:
    """The samples in PostgreSQL, in both of the layouts that locus-sdk 3 has there."""
    schema = f"old_{uuid4().hex[:8]}"
    with psycopg.connect(postgresql_server.url, autocommit=True) as database:
        database.execute(f"CREATE SCHEMA {schema}")
        database.execute(
            f"CREATE TABLE {schema}.checkpoints (thread_id TEXT PRIMARY KEY, checkpoint_id TEXT, data JSONB NOT NULL,"
            " created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(), updated_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),"
            " metadata JSONB DEFAULT '{}'::jsonb)"
        )
        database.execute(
            f"CREATE TABLE {schema}.locus_checkpoints (tenant text NOT NULL, thread_id text NOT NULL,"
            " checkpoint_id text NOT NULL, seq bigint GENERATED BY DEFAULT AS IDENTITY, data jsonb NOT NULL,"
            " metadata jsonb NOT NULL DEFAULT '{}'::jsonb, oldest_at timestamptz,"
            " created_at timestamptz NOT NULL DEFAULT now(), updated_at timestamptz NOT NULL DEFAULT now(),"
            " PRIMARY KEY (tenant, thread_id, checkpoint_id))"
        )
        for statement in (
            "ENABLE ROW LEVEL SECURITY",
            "FORCE ROW LEVEL SECURITY",
        ):
            database.execute(f"ALTER TABLE {schema}.locus_checkpoints {statement}")
        database.execute(
            f"CREATE POLICY tenant_isolation ON {schema}.locus_checkpoints"
            " USING (tenant = current_setting('locus.tenant', true))"
        )
        for key, data in KEYS.items():
            database.execute(f"INSERT INTO {schema}.checkpoints (thread_id, data) VALUES (%s, %s)", (key, Jsonb(data)))
        database.execute(
            f"INSERT INTO {schema}.checkpoints (thread_id, checkpoint_id, data, metadata) VALUES (%s, %s, %s, %s)",
            ("bare", "b1", Jsonb({"plain": [1, 2]}), Jsonb({"by": "hand"})),
        )
        for tenant in ("acme", "other"):
            for name, one in by_key().items():
                database.execute(
                    f"INSERT INTO {schema}.locus_checkpoints (tenant, thread_id, checkpoint_id, data, metadata,"
                    " created_at) VALUES (%s, %s, %s, %s, %s, %s)",
                    (tenant, f"{tenant}-1", name, Jsonb(one["state"]), Jsonb(one["metadata"]), one["created_at"]),
                )
        database.execute("CREATE ROLE tenant_reader LOGIN PASSWORD 'x'")
        database.execute(f"GRANT USAGE ON SCHEMA {schema} TO tenant_reader")
        database.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO tenant_reader")
        yield f"{postgresql_server.url}?schema_name={schema}"
        database.execute(f"DROP SCHEMA {schema} CASCADE")
        database.execute("DROP ROLE tenant_reader")


@pytest.mark.postgresql
async def test_postgresql(old_schema: str, tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'agents.db'}"
    report = await moved(old_schema, url)
    assert report.ok, report.problems
    assert (report.threads, report.moved) == (4, 6)
    await check(url, by_key())
    async with opened(url) as handle:
        assert await dicts(handle).load("bare", "b1") == {"plain": [1, 2]}
        assert [entry.metadata for entry in await handle.history("bare")] == [{"by": "hand"}]
    tenants = f"{old_schema}&table_name=locus_checkpoints"
    with pytest.raises(ConfigurationError, match="there is no thread in"):
        await moved(tenants, url)
    tenants = tenants.replace(urlsplit(tenants).netloc.partition("@")[0], "tenant_reader:x")
    report = await moved(tenants, url, tenant="acme")
    assert (report.ok, report.threads, report.moved) == (True, 1, 3)
    await check(url, by_key(), "acme-1")
    with pytest.raises(ConfigurationError, match="there is no table nothing of locus-sdk 3"):
        await moved(f"{old_schema}&table_name=nothing", url)


@pytest.fixture
def old_tables(mysql_server: MySQLServer) -> Iterator[str]:
    name = f"old_{uuid4().hex[:8]}"
    run_sql(
        mysql_server.url,
        f"CREATE TABLE {name} (thread_id VARCHAR(512) PRIMARY KEY, checkpoint_id VARCHAR(128), data JSON NOT NULL,"
        " created_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),"
        " updated_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), metadata JSON NULL)"
        " DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci",
    )
    for key, data in KEYS.items():
        text = json.dumps(data).replace("\\", "\\\\").replace("'", "''")
        run_sql(mysql_server.url, f"INSERT INTO {name} (thread_id, data) VALUES ('{key}', '{text}')")
    run_sql(mysql_server.url, f"INSERT INTO {name} (thread_id, data) VALUES ('bare', '{{\"plain\": [1, 2]}}')")
    separator = "&" if "?" in mysql_server.url else "?"
    yield f"{mysql_server.url}{separator}table_name={name}"
    run_sql(mysql_server.url, f"DROP TABLE {name}")


@pytest.mark.mysql
async def test_mysql(old_tables: str, tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'agents.db'}"
    report = await moved(old_tables, url)
    assert report.ok, report.problems
    assert (report.threads, report.moved) == (4, 6)
    await check(url, by_key())
    async with opened(url) as handle:
        assert await dicts(handle).load("bare", "import") == {"plain": [1, 2]}


class Failing(ServerReader):
    """A server that goes away before a table is found."""

    name, table, is_oracle, closed = "postgresql:host/app", None, False, False

    def __init__(self) -> None:
        """Open nothing."""

    def place(self, table: str) -> str:
        return table

    async def columns(self, table: str) -> set[str]:
        raise BackendUnavailableError("the server has gone away")

    async def close(self) -> None:
        self.closed = True


async def test_an_engine_that_fails_while_tables_are_looked_for_is_closed() -> None:
    server = Failing()
    with pytest.raises(BackendUnavailableError):
        await open_tables(server, "tenant")
    assert server.closed
