"""A schema for a whole module, and an empty table with one of each kind of column for each test."""

from __future__ import annotations

from collections.abc import Iterator

import oracledb
import pytest

from tests.servers.oracle.fixtures import OracleDatabase, database_in
from tests.servers.oracle.server import OracleServer


@pytest.fixture(scope="module")
def database(oracle_home: OracleServer | None) -> Iterator[OracleDatabase]:
    yield from database_in(oracle_home)


@pytest.fixture
def connection(database: OracleDatabase) -> Iterator[oracledb.Connection]:
    with oracledb.connect(**database.parameters) as made:
        yield made


@pytest.fixture
def other(database: OracleDatabase) -> Iterator[oracledb.Connection]:
    """Another session."""
    with oracledb.connect(**database.parameters) as made:
        yield made


@pytest.fixture(scope="module")
def things(database: OracleDatabase) -> str:
    """The name of a table; `cursor` empties it."""
    name = f"{database.prefix}things"
    with oracledb.connect(**database.parameters) as connection, connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TABLE {name} (id NUMBER(9) CONSTRAINT {name}_key PRIMARY KEY, name VARCHAR2(10),"
            " wide VARCHAR2(10 CHAR), part NUMBER(6, 2), doc JSON, text CLOB, data BLOB, bits RAW(20),"
            " moment TIMESTAMP, zoned TIMESTAMP WITH TIME ZONE, day DATE, real BINARY_DOUBLE, truth BOOLEAN,"
            f" parent NUMBER(9) CONSTRAINT {name}_parent REFERENCES {name} (id),"
            f" needed VARCHAR2(5) DEFAULT 'x' NOT NULL, CONSTRAINT {name}_names UNIQUE (name))"
        )
    return name


@pytest.fixture
def cursor(connection: oracledb.Connection, things: str) -> Iterator[oracledb.Cursor]:
    with connection.cursor() as made:
        made.execute(f"DELETE FROM {things}")
        connection.commit()
        yield made
        connection.rollback()
