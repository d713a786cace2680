"""Places on servers that are made once for all suites of sessions: making tables takes longer than a test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.backends.http.store import ServerProcess, server_process
from tests.backends.mysql.stores import drop_tables, new_name
from tests.backends.opensearch.store import OpenSearchStore
from tests.backends.oracle.stores import drop_tables as drop_oracle_tables
from tests.backends.oracle.stores import new_name as new_oracle_name
from tests.backends.postgresql.store import new_store
from tests.servers.mysql import MySQLServer
from tests.servers.opensearch import OpenSearchServer
from tests.servers.oracle.fixtures import OracleDatabase, database_in
from tests.servers.oracle.server import OracleServer
from tests.servers.postgresql import PostgreSQLServer
from tests.servers.proxy import NoProxy

if "LOCUS_SEEN" in os.environ:  # `tests.integrations.table` wants to know what passes
    from tests.integrations.recording import pytest_runtest_makereport, pytest_sessionfinish

    __all__ = ["pytest_runtest_makereport", "pytest_sessionfinish"]


@pytest.fixture(scope="session")
def sessions_schema(postgresql_server: PostgreSQLServer) -> Iterator[str]:
    with new_store(postgresql_server.url, NoProxy(postgresql_server.port)) as store:
        yield store.schema


@pytest.fixture(scope="session")
def sessions_tables(mysql_server: MySQLServer) -> Iterator[str]:
    name = new_name()
    yield name
    drop_tables(mysql_server.url, name)


@pytest.fixture(scope="session")
def sessions_index(opensearch_server: OpenSearchServer) -> Iterator[OpenSearchStore]:
    store = OpenSearchStore(opensearch_server.url)
    store.make()
    yield store
    store.remove()


@pytest.fixture(scope="session")
def sessions_database(oracle_home: OracleServer | None) -> Iterator[OracleDatabase]:
    yield from database_in(oracle_home)


@pytest.fixture(scope="session")
def sessions_oracle_tables(sessions_database: OracleDatabase) -> Iterator[str]:
    name = f"{sessions_database.prefix}{new_oracle_name()}"
    yield name
    drop_oracle_tables(sessions_database, name)


@pytest.fixture(scope="session")
def sessions_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with server_process(tmp_path_factory.mktemp("stores")) as server:
        yield server
