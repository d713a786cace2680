"""The contract, kept through a real socket by a real server process."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from locus.memory.backends.sqlite.engine import SQLiteEngine
from locus.memory.checkpointer import Checkpointer
from locus.memory.engine import Engine
from locus.testing import REQUIRED
from locus.testing.contract import DurableContract, StallLaws
from locus.testing.laws.durability.outage import OutageLaws
from locus.testing.laws.handles.capabilities import CapabilityLaws
from locus.testing.laws.saving.changes import ChangingConversationLaws
from locus.testing.laws.saving.conflicts import ConflictLaws
from locus.testing.laws.saving.round_trip import RoundTripLaws
from locus.testing.laws.saving.stale_bases import StaleBaseLaws
from locus.testing.laws.search.words import SearchLaws
from locus.testing.stateful import StatefulLaws
from tests.backends.effort import FewerRepetitions, FewestRepetitions
from tests.backends.embedded import SQLiteStore
from tests.backends.http.store import ServerProcess, StoreOverHTTP, server_process
from tests.backends.postgresql.store import new_store, used_store
from tests.backends.proxied import proxy_for
from tests.servers.postgresql import PostgreSQLServer
from tests.servers.proxy import NoProxy, Proxy

_numbers = count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with server_process(tmp_path_factory.mktemp("stores")) as server:
        yield server


@pytest.mark.http
class TestHTTPOnSQLite(FewerRepetitions, DurableContract, StallLaws):
    """What is atomic here is the server's commit; which line of the client comes after it matters less."""

    required = REQUIRED["http"]

    def _reads_less(self, checkpointer: Checkpointer, method: str) -> bool:
        """The server asks for what the client asked for, and its store reads as little as it can."""
        assert getattr(type(checkpointer.store.engine), method) is not getattr(Engine, method)
        return getattr(SQLiteEngine, method) is not getattr(Engine, method)

    @pytest.fixture
    def store(self, server: ServerProcess) -> Iterator[StoreOverHTTP]:
        name = f"store{next(_numbers)}"
        (server.folder / name).mkdir()
        store = StoreOverHTTP(server, "sqlite", name, SQLiteStore(server.folder / name))
        yield store
        store.close()


@pytest.fixture
def proxy(postgresql_server: PostgreSQLServer, request: pytest.FixtureRequest) -> Iterator[Proxy]:
    with proxy_for(request, postgresql_server.port) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def used_schema(postgresql_server: PostgreSQLServer) -> Iterator[str]:
    with new_store(postgresql_server.url, NoProxy(postgresql_server.port)) as store:
        yield store.schema


@pytest.mark.postgresql
class TestHTTPOnPostgreSQL(
    FewestRepetitions,
    CapabilityLaws,
    RoundTripLaws,  # the client plans for a store whose JSON is not the text that was sent
    ChangingConversationLaws,
    StaleBaseLaws,
    ConflictLaws,  # verdicts of another engine on the wire
    SearchLaws,  # its scores and snippets
    OutageLaws,  # the server answers, and the store behind it does not
    StallLaws,
    StatefulLaws,
):
    """Another store behind the same server: the laws that can differ for it.

    A killed client is the same for the server whatever it saves to, and a killed server is PostgreSQL's killed client.
    """

    required = REQUIRED["http"]

    @pytest.fixture
    def store(
        self, server: ServerProcess, postgresql_server: PostgreSQLServer, proxy: Proxy, used_schema: str
    ) -> Iterator[StoreOverHTTP]:
        name = f"store{next(_numbers)}"
        (server.folder / name).mkdir()
        with used_store(postgresql_server.url, used_schema, proxy) as inner:
            (server.folder / name / "url").write_text(inner.url)
            store = StoreOverHTTP(server, "url", name, inner)
            yield store
            store.close()
