"""PostgreSQL on this machine, over loopback, with an fsync for every commit."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg

from benchmarks.subjects.base import Occupied, Subject
from benchmarks.subjects.floors import Floor
from locus.memory.backends import postgresql_checkpointer
from locus.memory.checkpointer import Checkpointer
from tests.servers.postgresql import PostgreSQLServer


@cache
def shared_server() -> PostgreSQLServer:
    """One for all; it ends with this process."""
    server = PostgreSQLServer(Path(_open_folder()) / "server", durable=True)
    server.start()
    return server


def _open_folder() -> str:
    """The server runs as another user, who has to get through."""
    folder = tempfile.mkdtemp(prefix="locus-bench-postgresql-")
    Path(folder).chmod(0o711)
    return folder


def run_sql(server: PostgreSQLServer, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(server.url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


class PostgreSQLFloor(Floor):
    """One INSERT that commits by itself, with the same driver, prepared, on a connection for each thread."""

    def __init__(self, server: PostgreSQLServer, table: str) -> None:
        self._server = server
        self._table = table
        self._statement = f"INSERT INTO {table} VALUES (%s, %s, %s)".encode()
        self._numbers: dict[str, int] = {}
        self._connections: dict[str, psycopg.AsyncConnection[Any]] = {}
        columns = "thread_id text, number integer, body jsonb, PRIMARY KEY (thread_id, number)"
        run_sql(server, f"CREATE TABLE {table} ({columns})")

    async def append(self, thread_id: str, body: str) -> None:
        connection = self._connections.get(thread_id)
        if connection is None:
            connection = await psycopg.AsyncConnection.connect(self._server.url, autocommit=True)
            self._connections[thread_id] = connection
        number = self._numbers[thread_id] = self._numbers.get(thread_id, 0) + 1
        await connection.execute(self._statement, (thread_id, number, body))

    def stored_bytes(self) -> int:
        return stored_bytes(self._server, [self._table])

    async def close(self) -> None:
        for connection in self._connections.values():
            await connection.close()


class PostgreSQLSubject(Subject):
    """Occupied: the tables with their indexes and what is kept out of line."""

    name = "postgresql"
    cold_load_limit = 1.8
    save_limit = 1.7
    stored_limit = 1.5
    many_limit = 0.7

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._server = shared_server()
        self._name = f"b{uuid4().hex[:12]}"

    def open(self) -> Checkpointer:
        return postgresql_checkpointer(dsn=self._server.url, table_name=self._name)

    def floor(self) -> Floor:
        return PostgreSQLFloor(self._server, f"{self._name}_floor")

    def occupied(self) -> Occupied:
        content = [f"{self._name}_{table}" for table in ("threads", "checkpoints", "runs", "writes")]
        return Occupied(stored_bytes(self._server, content), stored_bytes(self._server, [f"{self._name}_search"]))

    async def remove(self) -> None:
        names = ("threads", "checkpoints", "runs", "writes", "search", "indexed", "format", "floor")
        run_sql(self._server, f"DROP TABLE IF EXISTS {', '.join(f'{self._name}_{name}' for name in names)}")


def stored_bytes(server: PostgreSQLServer, tables: Iterable[str]) -> int:
    sizes = " + ".join(f"pg_total_relation_size('{table}')" for table in tables)
    ((size,),) = run_sql(server, f"SELECT {sizes}")
    return int(size)


class OwnDatabase:
    """A database for somebody who can't be told to use a schema."""

    def __init__(self, server: PostgreSQLServer) -> None:
        self._server = server
        self._name = f"b{uuid4().hex[:12]}"
        run_sql(server, f"CREATE DATABASE {self._name}")
        self.url = urlsplit(server.url)._replace(path=f"/{self._name}").geturl()
        self._empty = self._size()

    def stored_bytes(self) -> int:
        """What it has grown by."""
        return self._size() - self._empty

    def _size(self) -> int:
        ((size,),) = run_sql(self._server, f"SELECT pg_database_size('{self._name}')")
        return int(size)

    def remove(self) -> None:
        run_sql(self._server, f"DROP DATABASE {self._name} WITH (FORCE)")


def schema_bytes(server: PostgreSQLServer, schema: str) -> int:
    """The tables of a schema, with their indexes and what is kept out of line."""
    where = f"pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = '{schema}' AND c.relkind = 'r'"
    ((size,),) = run_sql(server, f"SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c JOIN {where}")
    return int(size)


def asyncpg_url(url: str) -> str:
    """As SQLAlchemy takes it, for the driver that its users have."""
    return url.replace("postgresql://", "postgresql+asyncpg://", 1)


def server_version(server: PostgreSQLServer) -> str:
    ((version,),) = run_sql(server, "SHOW server_version")
    return str(version).split()[0]
