"""The contract, kept by PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from locus.testing import REQUIRED
from locus.testing.contract import DurableContract, StallLaws
from tests.backends.effort import FewerRepetitions
from tests.backends.postgresql.store import PostgreSQLStore, new_store
from tests.backends.proxied import proxy_for
from tests.servers.postgresql import PostgreSQLServer
from tests.servers.proxy import Proxy


@pytest.fixture
def proxy(postgresql_server: PostgreSQLServer, request: pytest.FixtureRequest) -> Iterator[Proxy]:
    with proxy_for(request, postgresql_server.port) as proxy:
        yield proxy


@pytest.mark.postgresql
class TestPostgreSQL(FewerRepetitions, DurableContract, StallLaws):
    required = REQUIRED["postgresql"]

    @pytest.fixture
    def store(self, postgresql_server: PostgreSQLServer, proxy: Proxy) -> Iterator[PostgreSQLStore]:
        with new_store(postgresql_server.url, proxy) as store:
            yield store
