"""MySQL for the tests: raw connections to the server, and stores in tables that are emptied for each test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import pymysql  # type: ignore[import-untyped]
from pymysql.constants import CLIENT  # type: ignore[import-untyped]

from locus.memory.backends import mysql_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.testing.stores import DurableTestStore, Stall, StallTestStore
from tests.backends.stalls import stalling_on_the_way
from tests.servers.proxy import Proxy

TABLES = ("threads", "checkpoints", "runs", "writes", "search")


def with_port(url: str, port: int) -> str:
    """The same server, through something that listens on another port of this machine."""
    parts = urlsplit(url)
    return parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{port}").geturl()


def host_and_port(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "127.0.0.1", parts.port or 3306


@contextmanager
def raw_connection(url: str, **options: Any) -> Iterator[Any]:
    """PyMySQL, around the backend."""
    parts = urlsplit(url)
    place = {
        "host": parts.hostname,
        "port": parts.port or 3306,
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "database": parts.path.strip("/"),
        "autocommit": True,
        "client_flag": CLIENT.MULTI_STATEMENTS,
        # PyMySQL would read the certificates of the machine for each connection, and most tests make two.
        "ssl_disabled": "ssl" not in options,
    }
    connection = pymysql.connect(**(place | options))
    try:
        yield connection
    finally:
        connection.close()


def run_sql(url: str, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    with raw_connection(url) as connection:
        return run_on(connection, statement, *values)


def run_on(connection: Any, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)
        rows = list(cursor.fetchall())
        while cursor.nextset():
            rows += cursor.fetchall()
        return rows


def new_name() -> str:
    return f"t{uuid4().hex[:12]}"


def drop_tables(url: str, name: str) -> None:
    tables = ", ".join(f"{name}_{table}" for table in (*TABLES, "format"))
    run_sql(url, f"DROP TABLE IF EXISTS {tables}")


class MySQLStore(DurableTestStore, StallTestStore):
    """Tables of one name. Handles go through the proxy, and everything else goes past it."""

    def __init__(self, url: str, proxy: Proxy, table_name: str) -> None:
        self.direct = url
        self.proxy = proxy
        self.table_name = table_name

    @property
    def url(self) -> str:
        # Few retries: the laws of outages would wait for each of them.
        options = f"table_name={self.table_name}&retry_seconds=0.3&connect_timeout=20"
        return f"{with_port(self.direct, self.proxy.port)}?{options}"

    def open(self, *, ttl_seconds: float | None = None) -> Checkpointer:
        return mysql_checkpointer(dsn=self.url, ttl_seconds=ttl_seconds)

    def open_after_kill(self) -> Checkpointer:
        self.proxy.wait_for_the_dead()
        return self.open()

    def empty(self) -> None:
        with raw_connection(self.direct) as connection:
            present = run_on(connection, f"SHOW TABLES LIKE '{self.table_name}\\_%'")
            deletions = [f"DELETE FROM {name};" for (name,) in present if not name.endswith("_format")]
            run_on(connection, f"BEGIN; {' '.join(deletions)} COMMIT")

    async def corrupt(self, thread_id: str) -> None:
        name = self.table_name
        await asyncio.to_thread(
            run_sql,
            self.direct,
            f"UPDATE {name}_runs r JOIN {name}_threads t ON t.id = r.thread"
            """ SET r.items = '{"damaged": true}' WHERE t.thread_id = %s""",
            thread_id,
        )

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        self.proxy.refuse()
        self.proxy.cut()
        yield
        self.proxy.accept()

    @asynccontextmanager
    async def stalling(self, seconds: float) -> AsyncIterator[Stall]:
        def open_through(port: int) -> Checkpointer:
            options = f"table_name={self.table_name}&retry_seconds=0&command_timeout={seconds}"
            return mysql_checkpointer(dsn=f"{with_port(self.direct, port)}?{options}")

        host, port = self.proxy.target
        async with stalling_on_the_way(port, open_through, host) as stall:
            yield stall
