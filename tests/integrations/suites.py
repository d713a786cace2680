"""The suite of a framework's sessions, on every store. A framework's `test_sessions.py` is three classes:

class TestSessions(EveryLaw):
    adapter = "tests.integrations.my_framework.sessions:MySessions"

class TestSessionsElsewhere(OnOtherStores):
    adapter = TestSessions.adapter

class TestSessionsInMemory(InMemory):
    adapter = TestSessions.adapter
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import pytest

from locus.memory.backends.sqlite.engine import SQLiteEngine
from locus.testing.framework_sessions import (
    FrameworkSessions,
    SessionLaws,
    SessionOutageLaws,
    SessionRaceLaws,
    SessionRoundTripLaws,
)
from locus.testing.framework_sessions.laws import SessionsUnderTest
from locus.testing.stores import TestStore
from tests.backends.embedded import FileStore, SQLiteStore
from tests.backends.every_store import MemoryStore
from tests.backends.http.store import ServerProcess, StoreOverHTTP
from tests.backends.mysql.stores import MySQLStore
from tests.backends.oci.test_contract import OCIStore
from tests.backends.opensearch.store import OpenSearchStore
from tests.backends.oracle.stores import OracleStore
from tests.backends.postgresql.store import used_store
from tests.backends.redis.stores import RedisStore
from tests.backends.s3.store import S3Store, set_credentials
from tests.servers.mysql import MySQLServer
from tests.servers.oracle.fixtures import OracleDatabase
from tests.servers.oracle.server import OracleServer
from tests.servers.postgresql import PostgreSQLServer
from tests.servers.proxy import NoProxy, Proxy
from tests.servers.redis import RedisServer
from tests.servers.seaweedfs import SeaweedServer

_numbers = count()


def _proxy(request: pytest.FixtureRequest, port: int) -> Proxy:
    """In front of the server, for tests that cut connections or wait for those of the dead."""
    test = request.node.originalname
    return Proxy(port) if "outage" in test or "killed" in test else NoProxy(port)


@contextmanager
def _sqlite(_request: pytest.FixtureRequest, folder: Path) -> Iterator[TestStore]:
    yield SQLiteStore(folder)


@contextmanager
def _file(_request: pytest.FixtureRequest, folder: Path) -> Iterator[TestStore]:
    yield FileStore(folder)


@contextmanager
def _postgresql(request: pytest.FixtureRequest, _folder: Path) -> Iterator[TestStore]:
    server: PostgreSQLServer = request.getfixturevalue("postgresql_server")
    schema: str = request.getfixturevalue("sessions_schema")
    with _proxy(request, server.port) as proxy, used_store(server.url, schema, proxy) as store:
        yield store


@contextmanager
def _mysql(request: pytest.FixtureRequest, _folder: Path) -> Iterator[TestStore]:
    server: MySQLServer = request.getfixturevalue("mysql_server")
    with _proxy(request, server.port) as proxy:
        store = MySQLStore(server.url, proxy, request.getfixturevalue("sessions_tables"))
        yield store
        store.empty()


@contextmanager
def _redis(request: pytest.FixtureRequest, _folder: Path) -> Iterator[TestStore]:
    server: RedisServer = request.getfixturevalue("redis_server")
    with _proxy(request, server.port) as proxy:
        store = RedisStore(server, proxy)
        yield store
        store.remove()


@contextmanager
def _opensearch(request: pytest.FixtureRequest, _folder: Path) -> Iterator[TestStore]:
    used: OpenSearchStore = request.getfixturevalue("sessions_index")
    with _proxy(request, request.getfixturevalue("opensearch_server").port) as proxy:
        yield OpenSearchStore(used.server_url, used.index, proxy)
    used.empty()


@contextmanager
def _s3(request: pytest.FixtureRequest, _folder: Path) -> Iterator[TestStore]:
    server: SeaweedServer = request.getfixturevalue("s3_server")
    set_credentials(server, request.getfixturevalue("monkeypatch"))
    with _proxy(request, server.port) as proxy:
        store = S3Store(server, proxy)
        yield store
        store.remove()


@contextmanager
def _oracle(request: pytest.FixtureRequest, _folder: Path) -> Iterator[TestStore]:
    home: OracleServer | None = request.getfixturevalue("oracle_home")
    database: OracleDatabase = request.getfixturevalue("sessions_database")
    tables: str = request.getfixturevalue("sessions_oracle_tables")
    if home is None:  # a real database is not cut off from anybody
        store = OracleStore(database, None, tables)
        yield store
        store.empty()
        return
    with _proxy(request, home.port) as proxy:
        store = OracleStore(database, proxy, tables)
        yield store
        store.empty()


@contextmanager
def _oci(request: pytest.FixtureRequest, _folder: Path) -> Iterator[TestStore]:
    yield OCIStore(request.getfixturevalue("oci_server"), request.getfixturevalue("oci_prefix"))


@contextmanager
def _http(request: pytest.FixtureRequest, _folder: Path) -> Iterator[TestStore]:
    server: ServerProcess = request.getfixturevalue("sessions_server")
    name = f"sessions{next(_numbers)}"
    (server.folder / name).mkdir()
    store = StoreOverHTTP(server, "sqlite", name, SQLiteStore(server.folder / name))
    yield store
    store.close()


STORES: dict[str, Callable[[pytest.FixtureRequest, Path], AbstractContextManager[TestStore]]] = {
    "sqlite": _sqlite,
    "postgresql": _postgresql,
    "redis": _redis,
    "file": _file,
    "mysql": _mysql,
    "opensearch": _opensearch,
    "oracle": _oracle,
    "s3": _s3,
    "oci": _oci,
    "http": _http,
}

ON_SERVERS = 200
"""How many turns a session has on a server, where its costs are compared with those of a short one."""

FULL = ("sqlite", "postgresql", "redis")
OTHERS = ("file", "mysql", "opensearch", "s3", "oracle", "oci", "http")

_MARKS = {
    **{name: [pytest.mark.server(name)] for name in ("postgresql", "redis", "mysql", "opensearch", "s3")},
    # Its stand-in needs PostgreSQL.
    "oracle": [pytest.mark.server("postgresql"), pytest.mark.oracle],
    "oci": [pytest.mark.oci],
    "http": [pytest.mark.http],
}


def _marked(names: tuple[str, ...]) -> list[Any]:
    return [pytest.param(name, marks=_MARKS.get(name, [])) for name in names]


class OnStores(SessionsUnderTest):
    """A part of the suite, on the stores that it names."""

    backends: ClassVar[tuple[str, ...]]


class EveryLaw(OnStores, SessionLaws):
    """SQLite, PostgreSQL and Redis: one file, one database of tables, one of keys."""

    backends = FULL

    def turns(self, sessions: FrameworkSessions) -> int:
        """1,000 on SQLite. Elsewhere the same code asks for the same, so that fewer show whether the answers grow."""
        turns = super().turns(sessions)
        return turns if isinstance(sessions.store.store.engine, SQLiteEngine) else min(turns, ON_SERVERS)

    @pytest.fixture(params=_marked(FULL))
    def store(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TestStore]:
        with STORES[request.param](request, tmp_path) as store:
            yield store


class OnOtherStores(OnStores, SessionRaceLaws, SessionOutageLaws, SessionRoundTripLaws):
    """What another store could get wrong: who wins, what is not there, and what is stored."""

    backends = OTHERS

    @pytest.fixture(params=_marked(OTHERS))
    def store(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TestStore]:
        with STORES[request.param](request, tmp_path) as store:
            yield store


class OnOtherStoresToo(OnOtherStores):
    """For further kinds of sessions of a framework.

    All of them commit with `CheckpointStore`. What lets one of two writers win on a store was raced thirty times for
    the first kind, and a few rounds show that another kind asks for it.
    """

    rounds = 10


class InMemory(OnStores, SessionRaceLaws, SessionRoundTripLaws):
    """There is nothing to be out of reach, and no other process."""

    backends = ("memory",)

    @pytest.fixture
    def store(self) -> TestStore:
        return MemoryStore()


@pytest.fixture(params=_marked(("postgresql", "mysql", "redis", "opensearch", "s3", "oracle", "oci", "http")))
def server_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TestStore]:
    """An empty store on each server, in the place that all tests of frameworks share."""
    with STORES[request.param](request, tmp_path) as store:
        yield store
