"""Fixtures for all tests that use Oracle Database: a user, its tables, and the proxy in front of the server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.backends.oracle.stores import OracleStore, drop_tables, new_name
from tests.servers.oracle.fixtures import OracleDatabase, database_in
from tests.servers.oracle.server import OracleServer
from tests.servers.proxy import Proxy

__all__ = ["oracle_place", "oracle_proxy", "oracle_store", "oracle_tables"]


@pytest.fixture(scope="module")
def oracle_place(oracle_home: OracleServer | None) -> Iterator[OracleDatabase]:
    """One user for a whole module."""
    yield from database_in(oracle_home)


@pytest.fixture(scope="module")
def oracle_proxy(oracle_home: OracleServer | None) -> Iterator[Proxy | None]:
    """Before the stand-in; a real database is not cut off from anybody."""
    if oracle_home is None:
        yield None
        return
    with Proxy(oracle_home.port) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def oracle_tables(oracle_place: OracleDatabase) -> Iterator[str]:
    """Made once: creating tables takes longer than most tests."""
    name = f"{oracle_place.prefix}{new_name()}"
    yield name
    drop_tables(oracle_place, name)


@pytest.fixture
def oracle_store(oracle_place: OracleDatabase, oracle_proxy: Proxy | None, oracle_tables: str) -> Iterator[OracleStore]:
    """Empty, in tables that are there already."""
    store = OracleStore(oracle_place, oracle_proxy, oracle_tables)
    yield store
    if oracle_proxy is not None:
        oracle_proxy.accept()
    store.empty()
