"""Long-term memory keeps its laws on every store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from locus.testing import LongTermLaws, LongTermProcessLaws
from locus.testing.data import HOSTILE_IDS
from locus.testing.stores import DurableTestStore, TestStore
from tests.backends.embedded import FileStore, SQLiteStore
from tests.backends.every_store import SERVERS, MemoryStore, store_on_server
from tests.backends.opensearch.store import OpenSearchStore
from tests.backends.oracle.stores import OracleStore, new_name
from tests.servers.opensearch import OpenSearchServer
from tests.servers.oracle.fixtures import database_in
from tests.servers.proxy import Proxy


class TestMemoryInMemory(LongTermLaws):
    item_ids = HOSTILE_IDS

    @pytest.fixture
    def store(self) -> TestStore:
        return MemoryStore()


class TestMemoryInFiles(LongTermProcessLaws):
    @pytest.fixture
    def store(self, tmp_path: Path) -> DurableTestStore:
        return FileStore(tmp_path)


class TestMemoryInSQLite(LongTermProcessLaws):
    @pytest.fixture
    def store(self, tmp_path: Path) -> DurableTestStore:
        return SQLiteStore(tmp_path)


BEHIND_A_PROXY = ("opensearch", "oracle")
"""The stores that `store_on_server` reaches directly. Only a proxy can make them unreachable."""

MADE_UNREACHABLE = (
    "test_no_memory_answers_what_it_could_not_find_out",
    "test_a_process_that_is_killed_loses_nothing_it_has_acknowledged",
)


@contextmanager
def behind_a_proxy(name: str, request: pytest.FixtureRequest) -> Iterator[DurableTestStore]:
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
            yield OracleStore(database, proxy, f"{database.prefix}{new_name()}")


class TestMemoryOnServers(LongTermProcessLaws):
    item_ids = ("'", "%", "a_b", "*", "\\", "a:b", "a/b", "..", "a", "a ", "\0", "Alice", "alice", "ß", "ss", "x" * 255)
    memory_kills = 2
    counted_at_once = 5

    @pytest.fixture(params=SERVERS)
    def store(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DurableTestStore]:
        if request.param in BEHIND_A_PROXY and request.node.originalname in MADE_UNREACHABLE:
            with behind_a_proxy(request.param, request) as store:
                yield store
            return
        with store_on_server(request.param, request, tmp_path) as other:
            assert isinstance(other, DurableTestStore)
            yield other
