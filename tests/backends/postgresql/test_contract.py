"""The contract, kept by PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from locus.testing import REQUIRED
from locus.testing.contract import DurableContract, StallLaws
from tests.backends.effort import FewerRepetitions
from tests.backends.postgresql.store import PostgreSQLStore, new_store, used_store
from tests.backends.proxied import proxy_for
from tests.servers.postgresql import PostgreSQLServer
from tests.servers.proxy import NoProxy, Proxy


@pytest.fixture
def proxy(postgresql_server: PostgreSQLServer, request: pytest.FixtureRequest) -> Iterator[Proxy]:
    with proxy_for(request, postgresql_server.port) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def used_schema(postgresql_server: PostgreSQLServer) -> Iterator[str]:
    """Made once: creating tables takes longer than most of these tests."""
    with new_store(postgresql_server.url, NoProxy(postgresql_server.port)) as store:
        yield store.schema


@pytest.mark.postgresql
class TestPostgreSQL(FewerRepetitions, DurableContract, StallLaws):
    required = REQUIRED["postgresql"]

    @pytest.fixture
    def store(
        self, postgresql_server: PostgreSQLServer, proxy: Proxy, used_schema: str, request: pytest.FixtureRequest
    ) -> Iterator[PostgreSQLStore]:
        # Those that are about a store that is not there yet get one.
        is_new = "new_store" in request.node.name or "first_uses" in request.node.name
        url = postgresql_server.url
        with new_store(url, proxy) if is_new else used_store(url, used_schema, proxy) as store:
            yield store
