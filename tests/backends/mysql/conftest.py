"""Tables for the tests of MySQL that are not the contract's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.backends.mysql.stores import MySQLStore, drop_tables, new_name
from tests.servers.mysql import MySQLServer
from tests.servers.proxy import Proxy


@pytest.fixture
def table_name(mysql_server: MySQLServer) -> Iterator[str]:
    """A name that no table has yet."""
    name = new_name()
    yield name
    drop_tables(mysql_server.url, name)


@pytest.fixture
def url(mysql_server: MySQLServer, table_name: str) -> str:
    return f"{mysql_server.url}?table_name={table_name}&retry_seconds=2"


@pytest.fixture
def proxy(mysql_server: MySQLServer) -> Iterator[Proxy]:
    with Proxy(mysql_server.port) as proxy:
        yield proxy


@pytest.fixture
def store(mysql_server: MySQLServer, proxy: Proxy, table_name: str) -> MySQLStore:
    return MySQLStore(mysql_server.url, proxy, table_name)
