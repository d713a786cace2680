"""A schema for each test, and a proxy to reach the server through."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scripts.servers.postgresql import PostgreSQLServer
from scripts.servers.proxy import Proxy
from tests.contract.postgresql import PostgreSQLStore, new_store


@pytest.fixture(scope="module")
def proxy(postgresql_server: PostgreSQLServer) -> Iterator[Proxy]:
    with Proxy(postgresql_server.port) as proxy:
        yield proxy


@pytest.fixture
def store(postgresql_server: PostgreSQLServer, proxy: Proxy) -> Iterator[PostgreSQLStore]:
    with new_store(postgresql_server.url, proxy) as store:
        yield store
