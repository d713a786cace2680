"""LangGraph's own suite for savers, all of it, on every backend."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import validate
from langgraph.checkpoint.conformance.initializer import RegisteredCheckpointer

from locus.integrations.langgraph.saver import LocusSaver
from locus.memory.backends import MemoryCheckpointer
from locus.memory.checkpointer import Checkpointer
from locus.testing.stores import TestStore
from tests.backends.embedded import FileStore, SQLiteStore
from tests.backends.http.store import StoreOverHTTP, server_process
from tests.backends.mysql.stores import MySQLStore, drop_tables, new_name
from tests.backends.opensearch.store import OpenSearchStore
from tests.backends.oracle.fixtures import oracle_place, oracle_proxy, oracle_store, oracle_tables
from tests.backends.oracle.stores import OracleStore
from tests.backends.postgresql.store import new_store
from tests.backends.redis.stores import RedisStore
from tests.backends.s3.store import S3Store, set_credentials
from tests.servers.mysql import MySQLServer
from tests.servers.opensearch import OpenSearchServer
from tests.servers.postgresql import PostgreSQLServer
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisServer
from tests.servers.seaweedfs import SeaweedServer

__all__ = ["oracle_place", "oracle_proxy", "oracle_store", "oracle_tables"]

TESTS = {
    "put": 17,
    "put_writes": 10,
    "get_tuple": 10,
    "list": 16,
    "delete_thread": 5,
    "delete_for_runs": 7,
    "copy_thread": 8,
    "prune": 8,
}
"""How many there are of each capability: a suite that has become shorter proves less."""


class Conformance:
    @pytest.fixture
    @abstractmethod
    def store(self) -> TestStore:
        """An empty store."""

    async def test_every_test_of_every_capability_passes(self, store: TestStore) -> None:
        async def savers() -> AsyncGenerator[BaseCheckpointSaver[int], None]:
            async with store.open() as checkpointer:
                yield LocusSaver(checkpointer)

        report = await validate(RegisteredCheckpointer("LocusSaver", savers))
        assert {name: result.failures for name, result in report.results.items() if result.failures} == {}
        assert {name: result.tests_passed for name, result in report.results.items()} == TESTS
        assert sum(TESTS.values()) == 81
        assert report.passed_all()
        assert all(result.detected for result in report.results.values())


class MemoryStore(TestStore):
    def __init__(self) -> None:
        self._kept = MemoryCheckpointer()

    def open(self, *, ttl_seconds: float | None = None) -> Checkpointer:
        return self._kept

    async def corrupt(self, thread_id: str) -> None:
        raise NotImplementedError


class TestMemory(Conformance):
    @pytest.fixture
    def store(self) -> TestStore:
        return MemoryStore()


class TestFile(Conformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> TestStore:
        return FileStore(tmp_path)


class TestSQLite(Conformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> TestStore:
        return SQLiteStore(tmp_path)


@pytest.mark.postgresql
class TestPostgreSQL(Conformance):
    @pytest.fixture
    def store(self, postgresql_server: PostgreSQLServer) -> Iterator[TestStore]:
        with Proxy(postgresql_server.port) as proxy, new_store(postgresql_server.url, proxy) as store:
            yield store


@pytest.mark.mysql
class TestMySQL(Conformance):
    @pytest.fixture
    def store(self, mysql_server: MySQLServer) -> Iterator[TestStore]:
        with Proxy(mysql_server.port) as proxy:
            store = MySQLStore(mysql_server.url, proxy, new_name())
            yield store
            drop_tables(mysql_server.url, store.table_name)


@pytest.mark.oracle
class TestOracle(Conformance):
    @pytest.fixture
    def store(self, oracle_store: OracleStore) -> TestStore:
        return oracle_store


@pytest.mark.redis("redis")
class TestRedis(Conformance):
    @pytest.fixture
    def store(self, redis_server: RedisServer) -> Iterator[TestStore]:
        with Proxy(redis_server.port) as proxy:
            store = RedisStore(redis_server, proxy)
            yield store
            store.remove()


@pytest.mark.opensearch
class TestOpenSearch(Conformance):
    @pytest.fixture
    def store(self, opensearch_server: OpenSearchServer) -> Iterator[TestStore]:
        store = OpenSearchStore(opensearch_server.url)
        store.make()
        yield store
        store.remove()


@pytest.mark.s3
class TestS3(Conformance):
    @pytest.fixture
    def store(self, s3_server: SeaweedServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestStore]:
        set_credentials(s3_server, monkeypatch)
        with Proxy(s3_server.port) as proxy:
            store = S3Store(s3_server, proxy)
            yield store
            store.remove()


@pytest.mark.http
class TestHTTP(Conformance):
    """Through our server, in a process of its own."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[TestStore]:
        with server_process(tmp_path) as server:
            (tmp_path / "one").mkdir()
            store = StoreOverHTTP(server, "sqlite", "one", SQLiteStore(tmp_path / "one"))
            yield store
            store.close()
