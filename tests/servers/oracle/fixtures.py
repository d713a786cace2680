"""The stand-in for Oracle Database, for tests: one a session, and a user with an empty schema for each test.

`ORACLE_DSN`, `ORACLE_USER` and `ORACLE_PASSWORD` (and `ORACLE_WALLET`, its folder, with `ORACLE_WALLET_PASSWORD`)
name a real database instead. Its user's schema is shared then, so each test has names with a prefix of its own,
and what bears it is dropped at the end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest

from tests.servers.fixtures import POOL
from tests.servers.oracle.server import ADMIN, OracleServer
from tests.servers.pool import ServerPool
from tests.servers.postgresql import PostgreSQLServer

REAL = "ORACLE_DSN" in os.environ


@dataclass(frozen=True)
class OracleDatabase:
    """Where a test connects to. What it creates has names that begin with `prefix`."""

    dsn: str
    user: str
    password: str = field(repr=False)
    prefix: str
    wallet_location: str | None = None
    wallet_password: str | None = field(default=None, repr=False)

    @property
    def parameters(self) -> dict[str, Any]:
        """For `oracledb.connect` and its like."""
        wallet = (
            {"wallet_location": self.wallet_location, "config_dir": self.wallet_location}
            if self.wallet_location
            else {}
        )
        if self.wallet_password:
            wallet["wallet_password"] = self.wallet_password
        return {"dsn": self.dsn, "user": self.user, "password": self.password, **wallet}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and "oracle_server" in getattr(item, "fixturenames", ()):
        report.sections.append(("log of oracle", item.config.stash[POOL].log_tail("oracle")))
    return report


@pytest.fixture(scope="session")
def oracle_server(server_pool: ServerPool, postgresql_server: PostgreSQLServer) -> OracleServer:
    """The stand-in itself, for a test that stops, kills or pauses it."""
    if REAL:
        pytest.skip("needs a server that the tests have started themselves")
    return server_pool.add("oracle", lambda folder: OracleServer(folder, postgresql_server))


if REAL:

    @pytest.fixture(scope="session")
    def oracle_home() -> OracleServer | None:
        """What a fixture with a database depends on, so that its tests run where the server is."""
        return None

else:

    @pytest.fixture(scope="session")
    def oracle_home(oracle_server: OracleServer) -> OracleServer | None:
        return oracle_server


@pytest.fixture
def oracle_database(oracle_home: OracleServer | None) -> Iterator[OracleDatabase]:
    yield from database_in(oracle_home)


GONE = 30
"""ORA-00030: there is no session of this number any more."""
SESSIONS = "SELECT sid, serial# FROM v$session WHERE username = :1"


def database_for(request: pytest.FixtureRequest) -> Iterator[OracleDatabase]:
    """The body of a fixture, of any scope; the fixture itself names `oracle_home`."""
    yield from database_in(request.getfixturevalue("oracle_home"))


def database_in(server: OracleServer | None) -> Iterator[OracleDatabase]:
    if server is None:
        yield from _in_real_database()
        return
    user, password = f"T_{uuid4().hex[:12].upper()}", uuid4().hex
    admin = OracleDatabase(server.dsn, ADMIN, server.password, "")
    run(admin, f'CREATE USER {user} IDENTIFIED BY "{password}"')
    run(admin, f"GRANT CONNECT, RESOURCE TO {user}")
    yield OracleDatabase(server.dsn, user, password, "locus_")
    if server.is_running and not server.is_paused:
        end_sessions(admin, user)
        while run(admin, SESSIONS, user):
            time.sleep(0.01)  # on a busy machine, a session that was ended is there for a moment longer
        run(admin, f"DROP USER {user} CASCADE")


def _in_real_database() -> Iterator[OracleDatabase]:
    wallet = os.environ.get("ORACLE_WALLET")
    found = OracleDatabase(
        os.environ["ORACLE_DSN"],
        os.environ["ORACLE_USER"],
        os.environ["ORACLE_PASSWORD"],
        f"locus_t{uuid4().hex[:10]}_",
        wallet,
        os.environ.get("ORACLE_WALLET_PASSWORD"),
    )
    yield found
    tables = run(found, "SELECT table_name FROM user_tables WHERE table_name LIKE :1", f"{found.prefix.upper()}%")
    for (table,) in tables:
        run(found, f'DROP TABLE "{table}" CASCADE CONSTRAINTS PURGE')


def end_sessions(admin: OracleDatabase, user: str) -> None:
    """As an administrator does it. One of them may end by itself in the meantime."""
    import oracledb

    for sid, serial in run(admin, SESSIONS, user):
        try:
            run(admin, f"ALTER SYSTEM KILL SESSION '{sid},{serial}' IMMEDIATE")
        except oracledb.DatabaseError as error:
            if error.args[0].code != GONE:
                raise


def run(database: OracleDatabase, statement: str, *values: Any) -> list[Any]:
    """One statement, in a session of its own that commits it."""
    import oracledb

    with oracledb.connect(**database.parameters) as connection, connection.cursor() as cursor:
        cursor.execute(statement, values)
        rows = cursor.fetchall() if cursor.description else []
        connection.commit()
    return rows
