"""Oracle Database for the tests: raw connections to it, and stores in tables that are emptied for each test.

It is the stand-in, unless `ORACLE_DSN`, `ORACLE_USER` and `ORACLE_PASSWORD` (and `ORACLE_WALLET`) name a real one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode
from uuid import uuid4

import oracledb
import pytest

from locus.memory.backends import OracleBackend, oracle_checkpointer
from locus.memory.backends.oracle.schema import OracleFlavour, tables
from locus.memory.checkpointer import Checkpointer
from locus.testing.stores import DurableTestStore, Stall, StallTestStore
from tests.backends.stalls import stalling_on_the_way
from tests.servers.oracle.fixtures import REAL, OracleDatabase
from tests.servers.proxy import Proxy


def through(database: OracleDatabase, port: int) -> OracleDatabase:
    """The same database, through something that listens on another port of this machine."""
    return replace(database, dsn=f"127.0.0.1:{port}/{database.dsn.rpartition('/')[2]}")


def place_of(database: OracleDatabase) -> dict[str, Any]:
    """The options of a backend that say where it is."""
    return database.parameters


def url_of(database: OracleDatabase, **options: Any) -> str:
    wallet = {name: value for name, value in database.parameters.items() if name not in ("dsn", "user", "password")}
    user = f"{quote(database.user, safe='')}:{quote(database.password, safe='')}"
    return f"oracle://{user}@{database.dsn}?{urlencode(wallet | options)}"


@contextmanager
def raw_cursor(database: OracleDatabase) -> Iterator[oracledb.Cursor]:
    """The driver, around the backend; committed at the end."""
    with oracledb.connect(**database.parameters) as connection, connection.cursor() as cursor:
        yield cursor
        connection.commit()


def run_sql(database: OracleDatabase, statement: str, *values: Any) -> list[Any]:
    with raw_cursor(database) as cursor:
        cursor.execute(statement, list(values))
        return cursor.fetchall() if cursor.description else []


def run_script(database: OracleDatabase, script: str) -> None:
    """What `OracleBackend.ddl` returns, as an administrator's tool runs it."""
    with raw_cursor(database) as cursor:
        for statement in script.split(";\n"):
            if statement.strip():
                cursor.execute(statement)


def new_name() -> str:
    return f"t{uuid4().hex[:12]}"


def tables_of(database: OracleDatabase, name: str) -> list[str]:
    rows = run_sql(database, "SELECT table_name FROM user_tables WHERE table_name LIKE :1", f"{name.upper()}%")
    return [table for (table,) in rows]


def drop_tables(database: OracleDatabase, name: str) -> None:
    there = set(tables_of(database, name))
    for table in reversed(tables(OracleFlavour(name))):
        if table.upper() in there:
            run_sql(database, f"DROP TABLE {table} CASCADE CONSTRAINTS PURGE")


class OracleStore(DurableTestStore, StallTestStore):
    """Tables of one name. Handles go through the proxy, if there is one, and everything else goes past it."""

    def __init__(self, database: OracleDatabase, proxy: Proxy | None, table_name: str) -> None:
        self.direct = database
        self.database = database if proxy is None else through(database, proxy.port)
        self.proxy = proxy
        self.table_name = table_name
        # Few retries: the laws of outages would wait for each of them.
        self.options: dict[str, Any] = {"table_name": table_name, "retry_seconds": 0.1, "connect_timeout": 20}

    @property
    def url(self) -> str:
        return url_of(self.database, **self.options)

    def open(self, *, ttl_seconds: float | None = None) -> Checkpointer:
        return oracle_checkpointer(**place_of(self.database), **self.options, ttl_seconds=ttl_seconds)

    def backend(self, **options: Any) -> OracleBackend:
        return OracleBackend(**place_of(self.database), **(self.options | options))

    def open_after_kill(self) -> Checkpointer:
        if not REAL:
            self._gate().wait_for_the_dead()
        return self.open()

    def _gate(self) -> Proxy:
        assert self.proxy is not None, "this test needs a store behind the proxy"
        return self.proxy

    def empty(self) -> None:
        """Everything of a thread goes with its row."""
        if f"{self.table_name}_threads".upper() in tables_of(self.direct, self.table_name):
            run_sql(self.direct, f"DELETE FROM {self.table_name}_threads")

    def corrupt_now(self, thread_id: str) -> None:
        name = self.table_name
        with raw_cursor(self.direct) as cursor:
            cursor.setinputsizes(oracledb.DB_TYPE_JSON, None)
            cursor.execute(
                f"UPDATE {name}_runs SET items = :1"
                f" WHERE thread = (SELECT t.id FROM {name}_threads t WHERE t.thread_id = :2)",
                [{"damaged": True}, thread_id],
            )
            assert cursor.rowcount > 0

    async def corrupt(self, thread_id: str) -> None:
        await asyncio.to_thread(self.corrupt_now, thread_id)

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        if REAL:
            pytest.skip("a database that somebody else runs is not cut off")
        proxy = self._gate()
        proxy.refuse()
        proxy.cut()
        try:
            yield
        finally:
            proxy.accept()

    @asynccontextmanager
    async def stalling(self, seconds: float) -> AsyncIterator[Stall]:
        if REAL:
            pytest.skip("a database that somebody else runs is reached directly")

        def open_through(port: int) -> Checkpointer:
            options = self.options | {"retry_seconds": 0, "command_timeout": seconds}
            return oracle_checkpointer(**place_of(through(self.direct, port)), **options)

        host, _, port = self.direct.dsn.partition("/")[0].rpartition(":")
        async with stalling_on_the_way(int(port), open_through, host) as stall:
            yield stall
