"""The contract, kept by PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from locus.testing import REQUIRED
from locus.testing.contract import DurableContract, StallLaws
from tests.backends.postgresql.store import PostgreSQLStore, new_store
from tests.servers.postgresql import PostgreSQLServer
from tests.servers.proxy import Proxy


@pytest.fixture(scope="module")
def proxy(postgresql_server: PostgreSQLServer) -> Iterator[Proxy]:
    with Proxy(postgresql_server.port) as proxy:
        yield proxy


@pytest.mark.postgresql
class TestPostgreSQL(DurableContract, StallLaws):
    required = REQUIRED["postgresql"]
    # What is atomic here is the server's transaction; which line of ours comes after it matters less.
    line_samples = 8
    line_step = 8

    @pytest.fixture
    def store(self, postgresql_server: PostgreSQLServer, proxy: Proxy) -> Iterator[PostgreSQLStore]:
        with new_store(postgresql_server.url, proxy) as store:
            yield store
