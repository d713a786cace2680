"""A schema for each test, and a proxy to reach the server through."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.backends.postgresql.store import PostgreSQLStore, new_store
from tests.servers.postgresql import PostgreSQLServer
from tests.servers.proxy import Proxy


@pytest.fixture(scope="module")
def proxy(postgresql_server: PostgreSQLServer) -> Iterator[Proxy]:
    with Proxy(postgresql_server.port) as proxy:
        yield proxy


@pytest.fixture
def store(postgresql_server: PostgreSQLServer, proxy: Proxy) -> Iterator[PostgreSQLStore]:
    with new_store(postgresql_server.url, proxy) as store:
        yield store
