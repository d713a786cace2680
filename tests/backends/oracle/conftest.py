"""The fixtures of these tests: a database, tables, and names of tables."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.backends.oracle.fixtures import oracle_place, oracle_proxy, oracle_store, oracle_tables
from tests.backends.oracle.stores import drop_tables, new_name
from tests.servers.oracle.fixtures import OracleDatabase

__all__ = ["oracle_place", "oracle_proxy", "oracle_store", "oracle_tables"]


@pytest.fixture
def table_name(oracle_place: OracleDatabase) -> Iterator[str]:
    """A name that no table has yet."""
    name = f"{oracle_place.prefix}{new_name()}"
    yield name
    drop_tables(oracle_place, name)
