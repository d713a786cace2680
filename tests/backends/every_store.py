"""An empty store of each kind, for tests of what is built on stores: those that need no server, and those that do.

@pytest.fixture(params=EMBEDDED)
def store(request, tmp_path):
    return embedded_store(request.param, tmp_path)

@pytest.fixture(params=SERVERS)
def server_store(request, tmp_path):
    with store_on_server(request.param, request, tmp_path) as store:
        yield store
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from locus.memory.backends import MemoryCheckpointer
from locus.memory.checkpointer import Checkpointer
from locus.testing.stores import DurableTestStore, TestStore
from tests.backends.embedded import FileStore, SQLiteStore
from tests.backends.http.store import StoreOverHTTP, server_process
from tests.backends.mysql.stores import MySQLStore, drop_tables, new_name
from tests.backends.oci.test_contract import OCIStore
from tests.backends.opensearch.store import OpenSearchStore
from tests.backends.oracle.stores import OracleStore
from tests.backends.oracle.stores import new_name as oracle_name
from tests.backends.postgresql.store import new_store
from tests.backends.redis.stores import RedisStore
from tests.backends.s3.store import S3Store, set_credentials
from tests.servers.mysql import MySQLServer
from tests.servers.opensearch import OpenSearchServer
from tests.servers.oracle.fixtures import database_in
from tests.servers.postgresql import PostgreSQLServer
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisServer
from tests.servers.seaweedfs import SeaweedServer

EMBEDDED = ("memory", "file", "sqlite")
SERVERS = (
    *(
        pytest.param(name, marks=pytest.mark.server(name))
        for name in ("postgresql", "mysql", "redis", "opensearch", "s3")
    ),
    # Its stand-in needs PostgreSQL.
    pytest.param("oracle", marks=[pytest.mark.server("postgresql"), pytest.mark.oracle]),
    pytest.param("oci", marks=pytest.mark.oci),
    pytest.param("http", marks=pytest.mark.http),
)


class MemoryStore(TestStore):
    """Memory is what one checkpointer has, so every handle is the same one."""

    def __init__(self) -> None:
        self._kept = MemoryCheckpointer()

    def open(self, *, ttl_seconds: float | None = None) -> Checkpointer:
        return self._kept

    async def corrupt(self, thread_id: str) -> None:
        raise NotImplementedError


def embedded_store(name: str, folder: Path) -> TestStore:
    stores: dict[str, Callable[[], TestStore]] = {
        "memory": MemoryStore,
        "file": lambda: FileStore(folder),
        "sqlite": lambda: SQLiteStore(folder),
    }
    return stores[name]()


@contextmanager
def _postgresql(request: pytest.FixtureRequest, _folder: Path) -> Iterator[TestStore]:
    server: PostgreSQLServer = request.getfixturevalue("postgresql_server")
    with Proxy(server.port) as proxy, new_store(server.url, proxy) as store:
        yield store


@contextmanager
def _mysql(request: pytest.FixtureRequest, _folder: Path) -> Iterator[TestStore]:
    server: MySQLServer = request.getfixturevalue("mysql_server")
    with Proxy(server.port) as proxy:
        store = MySQLStore(server.url, proxy, new_name())
        yield store
        drop_tables(server.url, store.table_name)


@contextmanager
def _redis(request: pytest.FixtureRequest, _folder: Path) -> Iterator[TestStore]:
    server: RedisServer = request.getfixturevalue("redis_server")
    with Proxy(server.port) as proxy:
        store = RedisStore(server, proxy)
        yield store
        store.remove()


@contextmanager
def _opensearch(request: pytest.FixtureRequest, _folder: Path) -> Iterator[TestStore]:
    server: OpenSearchServer = request.getfixturevalue("opensearch_server")
    store = OpenSearchStore(server.url)
    yield store
    store.remove()


@contextmanager
def _s3(request: pytest.FixtureRequest, _folder: Path) -> Iterator[TestStore]:
    server: SeaweedServer = request.getfixturevalue("s3_server")
    set_credentials(server, request.getfixturevalue("monkeypatch"))
    with Proxy(server.port) as proxy:
        store = S3Store(server, proxy)
        yield store
        store.remove()


@contextmanager
def _oracle(request: pytest.FixtureRequest, _folder: Path) -> Iterator[TestStore]:
    with contextmanager(database_in)(request.getfixturevalue("oracle_home")) as database:
        yield OracleStore(database, None, f"{database.prefix}{oracle_name()}")


@contextmanager
def _oci(request: pytest.FixtureRequest, _folder: Path) -> Iterator[TestStore]:
    yield OCIStore(request.getfixturevalue("oci_server"), request.getfixturevalue("oci_prefix"))


@contextmanager
def _http(_request: pytest.FixtureRequest, folder: Path) -> Iterator[TestStore]:
    (folder / "store").mkdir()
    with server_process(folder) as server:
        store = StoreOverHTTP(server, "sqlite", "store", SQLiteStore(folder / "store"))
        yield store
        store.close()


_ON_SERVERS = {
    "postgresql": _postgresql,
    "mysql": _mysql,
    "redis": _redis,
    "opensearch": _opensearch,
    "s3": _s3,
    "oracle": _oracle,
    "oci": _oci,
    "http": _http,
}


def store_on_server(name: str, request: pytest.FixtureRequest, folder: Path) -> AbstractContextManager[TestStore]:
    return _ON_SERVERS[name](request, folder)


@pytest.fixture(params=EMBEDDED)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> TestStore:
    return embedded_store(request.param, tmp_path)


@pytest.fixture(params=SERVERS)
def server_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TestStore]:
    with store_on_server(request.param, request, tmp_path) as store:
        yield store


@pytest_asyncio.fixture
async def handle(store: TestStore) -> AsyncIterator[Checkpointer]:
    """An open handle on `store`."""
    async with store.open() as handle:
        yield handle


REACHED_DIRECTLY = ("opensearch", "oracle")
"""The stores that `store_on_server` reaches directly. Only a proxy can make them unreachable."""


@contextmanager
def durable_store(
    name: str, request: pytest.FixtureRequest, folder: Path, *, behind_proxy: bool
) -> Iterator[DurableTestStore]:
    """A store on a server that other processes can open; with `behind_proxy` it can be made unreachable, too."""
    if behind_proxy and name in REACHED_DIRECTLY:
        with _behind_a_proxy(name, request) as store:
            yield store
        return
    with store_on_server(name, request, folder) as other:
        assert isinstance(other, DurableTestStore)
        yield other


@contextmanager
def _behind_a_proxy(name: str, request: pytest.FixtureRequest) -> Iterator[DurableTestStore]:
    if name == "opensearch":
        server: OpenSearchServer = request.getfixturevalue("opensearch_server")
        with Proxy(urlsplit(server.url).port or 80) as proxy:
            store = OpenSearchStore(server.url, None, proxy)
            yield store
            OpenSearchStore(server.url, store.index).remove()
        return
    with contextmanager(database_in)(request.getfixturevalue("oracle_home")) as database:
        port = int(database.dsn.rpartition(":")[2].partition("/")[0])
        with Proxy(port) as proxy:
            yield OracleStore(database, proxy, f"{database.prefix}{oracle_name()}")
