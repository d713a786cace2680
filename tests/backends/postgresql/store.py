"""Stores in a PostgreSQL server: a schema for each test, or one that is emptied after each."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg

from locus.memory.backends import postgresql_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.testing.stores import DurableTestStore, Stall, StallTestStore
from tests.backends.stalls import stalling_on_the_way
from tests.servers.proxy import Proxy

_OPEN = "SELECT 1 FROM pg_stat_activity WHERE application_name = %s LIMIT 1"


class PostgreSQLStore(DurableTestStore, StallTestStore):
    """A schema, reached through a proxy that can be shut. Its connections have a name that no other store's have."""

    def __init__(self, server_url: str, schema: str, proxy: Proxy, partitions: int = 0) -> None:
        self.server_url = server_url
        self.schema = schema
        self.proxy = proxy
        self.partitions = partitions
        self._application = f"a_{secrets.token_hex(6)}"
        self.dsn = self._through(proxy.port)

    def _through(self, port: int) -> str:
        parts = urlsplit(self.server_url)
        host = f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{port}"
        return parts._replace(netloc=host, query=f"application_name={self._application}").geturl()

    @property
    def url(self) -> str:
        partitions = f"&partitions={self.partitions}" if self.partitions else ""
        return f"{self.dsn}&schema_name={self.schema}&retry_seconds=0.1&connect_timeout=5{partitions}"

    def open(self, *, ttl_seconds: float | None = None) -> Checkpointer:
        return postgresql_checkpointer(
            dsn=self.dsn,
            schema_name=self.schema,
            ttl_seconds=ttl_seconds,
            retry_seconds=0.1,
            connect_timeout=5,
            partitions=self.partitions,
        )

    def open_after_kill(self) -> Checkpointer:
        end = time.monotonic() + 30
        with self.connection() as connection:
            while connection.execute(_OPEN, (self._application,)).fetchone() is not None:
                assert time.monotonic() < end, "a connection of a process that was killed does not end"
                time.sleep(0.002)
        return self.open()

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
        """Behind the backend's back."""
        with psycopg.connect(
            self.server_url, autocommit=True, options=f"-c search_path={self.schema} -c client_min_messages=warning"
        ) as connection:
            yield connection

    def empty(self) -> None:
        with self.connection() as connection, connection.transaction():
            found = connection.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = %s", (self.schema,)
            ).fetchall()
            for (table,) in found:
                if table != "locus_format":
                    connection.execute(f"DELETE FROM {table}".encode())

    async def corrupt(self, thread_id: str) -> None:
        """jsonb is always JSON: what can happen to it is that something is not what it was."""
        with self.connection() as connection:
            changed = connection.execute(
                """UPDATE locus_runs SET items = '{"not": "a list"}'
                WHERE thread = (SELECT id FROM locus_threads WHERE thread_id = %s)""",
                (thread_id,),
            )
            assert changed.rowcount > 0

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        self.proxy.refuse()
        self.proxy.cut()
        try:
            yield
        finally:
            self.proxy.accept()

    @asynccontextmanager
    async def stalling(self, seconds: float) -> AsyncIterator[Stall]:
        def open_through(port: int) -> Checkpointer:
            options: dict[str, Any] = {"schema_name": self.schema, "command_timeout": seconds, "retry_seconds": 0}
            return postgresql_checkpointer(dsn=self._through(port), **options)

        host, port = self.proxy.target
        async with stalling_on_the_way(port, open_through, host) as stall:
            yield stall


@contextmanager
def new_store(server_url: str, proxy: Proxy, partitions: int = 0) -> Iterator[PostgreSQLStore]:
    """A store that is dropped in the end."""
    store = PostgreSQLStore(server_url, f"t_{secrets.token_hex(6)}", proxy, partitions)
    try:
        yield store
    finally:
        with store.connection() as connection:
            connection.execute(f'DROP SCHEMA IF EXISTS "{store.schema}" CASCADE')


@contextmanager
def used_store(server_url: str, schema: str, proxy: Proxy, partitions: int = 0) -> Iterator[PostgreSQLStore]:
    """A store that others have used before, and that is emptied in the end: five times as quick as a new one."""
    store = PostgreSQLStore(server_url, schema, proxy, partitions)
    try:
        yield store
    finally:
        store.empty()
