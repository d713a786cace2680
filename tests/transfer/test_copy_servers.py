"""Copies to servers and back: what only a server can get wrong."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from locus.errors import ConfigurationError
from locus.memory import LongTermMemory, get_checkpointer
from locus.memory.backends import sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer, StoreVerbs
from locus.transfer import copy_store
from tests.backends.embedded import SQLiteStore
from tests.backends.http.store import StoreOverHTTP, server_process
from tests.backends.mysql.stores import MySQLStore, drop_tables, new_name
from tests.backends.opensearch.store import OpenSearchStore
from tests.backends.oracle import stores as oracle
from tests.backends.oracle.fixtures import oracle_place
from tests.backends.postgresql.store import new_store
from tests.backends.redis.stores import RedisStore
from tests.backends.s3.store import S3Store, set_credentials
from tests.servers.mysql import MySQLServer
from tests.servers.opensearch import OpenSearchServer
from tests.servers.oracle.fixtures import OracleDatabase
from tests.servers.postgresql import PostgreSQLServer
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisServer
from tests.servers.seaweedfs import SeaweedServer
from tests.transfer.support import contents, fill

__all__ = ["oracle_place"]


def opened(url: str) -> Checkpointer:
    handle = get_checkpointer(url)
    assert isinstance(handle, StoreVerbs)
    return Checkpointer(handle.store)


async def there_and_back(url: str, folder: Path) -> None:
    """From SQLite to the store and from there to another SQLite file: in two portions, and once more."""
    source, back = f"sqlite:{folder / 'a.db'}", f"sqlite:{folder / 'b.db'}"
    async with sqlite_checkpointer(folder / "a.db", durability="normal") as handle:
        await fill(handle, small=True)
        first = await copy_store(source, url)
        state = await handle.load("forks", "c5")
        assert state is not None
        await handle.save(state.with_error("later"), "forks", "later")
        expected = await contents(handle)
        memory = LongTermMemory(handle)
        for text in ("first", "second"):
            await memory.put(("acme",), "k", text, source="forks", ttl_seconds=3_600)
        items = await memory.history(("acme",), "k")
    assert first.ok, first.problems
    for origin, target in ((source, url), (url, back)):
        report = await copy_store(origin, target)
        assert report.ok, report.problems
        assert report.verified == sum(map(len, expected.values()))
        assert report.moved == (1 if target == url else report.verified)
        async with opened(target) as handle:
            assert await contents(handle) == expected
            assert await LongTermMemory(handle).history(("acme",), "k") == items
    again = await copy_store(source, url, dry_run=True)
    assert (again.ok, again.moved) == (True, 0)


async def nothing_is_made(url: str, folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="no threads were ever kept in"):
        await copy_store(url, f"sqlite:{folder / 'b.db'}")
    assert not (folder / "b.db").exists()


@pytest.mark.postgresql
async def test_postgresql(postgresql_server: PostgreSQLServer, tmp_path: Path) -> None:
    with Proxy(postgresql_server.port) as proxy, new_store(postgresql_server.url, proxy) as store:
        await nothing_is_made(store.url, tmp_path)
        with store.connection() as connection:
            schemas = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (store.schema,))
            assert schemas.fetchone() is None
        await there_and_back(store.url, tmp_path)


@pytest.mark.mysql
async def test_mysql(mysql_server: MySQLServer, tmp_path: Path) -> None:
    name = new_name()
    with Proxy(mysql_server.port) as proxy:
        store = MySQLStore(mysql_server.url, proxy, name)
        await nothing_is_made(store.url, tmp_path)
        await there_and_back(store.url, tmp_path)
    drop_tables(mysql_server.url, name)


@pytest.fixture
def tables(oracle_place: OracleDatabase) -> Iterator[oracle.OracleStore]:
    store = oracle.OracleStore(oracle_place, None, f"{oracle_place.prefix}{oracle.new_name()}")
    yield store
    oracle.drop_tables(oracle_place, store.table_name)


@pytest.mark.oracle
async def test_oracle(tables: oracle.OracleStore, tmp_path: Path) -> None:
    await nothing_is_made(tables.url, tmp_path)
    assert oracle.tables_of(tables.direct, tables.table_name) == []
    await there_and_back(tables.url, tmp_path)


@pytest.mark.redis
async def test_redis(redis_server: RedisServer, tmp_path: Path) -> None:
    with Proxy(redis_server.port) as proxy:
        store = RedisStore(redis_server, proxy)
        await nothing_is_made(store.url, tmp_path)
        with store.client() as client:
            assert client.keys(f"{store.prefix}*") == []
        await there_and_back(store.url, tmp_path)


@pytest.fixture
def index(opensearch_server: OpenSearchServer) -> Iterator[OpenSearchStore]:
    store = OpenSearchStore(opensearch_server.url)
    yield store
    store.remove()


@pytest.mark.opensearch
async def test_opensearch(index: OpenSearchStore, tmp_path: Path) -> None:
    await nothing_is_made(index.url, tmp_path)
    assert index.ask("GET", f"_cat/indices/{index.index}*?format=json") == []
    await there_and_back(index.url, tmp_path)


@pytest.fixture
def bucket(s3_server: SeaweedServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Store]:
    set_credentials(s3_server, monkeypatch)
    with Proxy(s3_server.port) as proxy:
        store = S3Store(s3_server, proxy)
        yield store
        store.remove()


@pytest.mark.s3
async def test_s3(bucket: S3Store, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no thread in s3"):
        await copy_store(bucket.url, f"sqlite:{tmp_path / 'b.db'}")
    await there_and_back(bucket.url, tmp_path)


@pytest.mark.http
async def test_http(tmp_path: Path) -> None:
    name = f"store{secrets.token_hex(4)}"
    with server_process(tmp_path) as server:
        (server.folder / name).mkdir()
        store = StoreOverHTTP(server, "sqlite", name, SQLiteStore(server.folder / name))
        with pytest.raises(ConfigurationError, match="there is no thread in http:"):
            await copy_store(store.url, f"sqlite:{tmp_path / 'b.db'}")
        await there_and_back(store.url, tmp_path)
        store.close()
