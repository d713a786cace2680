"""MySQL on this machine, over loopback, with an fsync for every commit."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from benchmarks.subjects.base import Occupied, Subject
from benchmarks.subjects.floors import Floor
from locus.extras import require
from locus.memory.backends import mysql_checkpointer
from locus.memory.checkpointer import Checkpointer
from tests.servers.mysql import MySQLServer

aiomysql = require("aiomysql", "mysql")
pymysql = require("pymysql", "mysql")


@cache
def shared_server() -> MySQLServer:
    """One for all; it ends with this process."""
    server = MySQLServer(Path(tempfile.mkdtemp(prefix="locus-bench-mysql-")) / "server", durable=True)
    server.start()
    return server


def place_of(server: MySQLServer) -> dict[str, Any]:
    parts = urlsplit(server.url)
    return {"host": "127.0.0.1", "port": server.port, "user": parts.username, "password": parts.password}


def run_sql(server: MySQLServer, *statements: str) -> list[tuple[Any, ...]]:
    """The rows of the last statement."""
    connection = pymysql.connect(**place_of(server), database="locus", autocommit=True)
    with connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall())


class MySQLFloor(Floor):
    """One INSERT and one COMMIT with the same driver, on a connection for each thread."""

    def __init__(self, server: MySQLServer, table: str) -> None:
        self._server = server
        self._table = table
        self._numbers: dict[str, int] = {}
        self._connections: dict[str, Any] = {}
        columns = "thread_id varchar(255), number int, body longtext, PRIMARY KEY (thread_id, number)"
        run_sql(server, f"CREATE TABLE {table} ({columns})")

    async def append(self, thread_id: str, body: str) -> None:
        connection = self._connections.get(thread_id)
        if connection is None:
            connection = self._connections[thread_id] = await aiomysql.connect(**place_of(self._server), db="locus")
        number = self._numbers[thread_id] = self._numbers.get(thread_id, 0) + 1
        async with connection.cursor() as cursor:
            await cursor.execute(f"INSERT INTO {self._table} VALUES (%s, %s, %s)", (thread_id, number, body))
        await connection.commit()

    def stored_bytes(self) -> int:
        return stored_bytes(self._server, [self._table])

    async def close(self) -> None:
        for connection in self._connections.values():
            await connection.ensure_closed()


class MySQLSubject(Subject):
    """Occupied: the pages of the tables and their indexes, as InnoDB counts them."""

    name = "mysql"
    cold_load_limit = 1.8
    save_limit = 1.8
    many_limit = 0.7

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._server = shared_server()
        self._name = f"b{uuid4().hex[:12]}"

    def open(self) -> Checkpointer:
        return mysql_checkpointer(dsn=self._server.url, table_name=self._name)

    def floor(self) -> Floor:
        return MySQLFloor(self._server, f"{self._name}_floor")

    def occupied(self) -> Occupied:
        content = [f"{self._name}_{table}" for table in ("threads", "checkpoints", "runs", "writes")]
        return Occupied(stored_bytes(self._server, content), stored_bytes(self._server, [f"{self._name}_search"]))

    async def remove(self) -> None:
        names = ("threads", "checkpoints", "runs", "writes", "search", "format", "floor")
        tables = ", ".join(f"{self._name}_{name}" for name in names)
        run_sql(self._server, f"DROP TABLE IF EXISTS {tables}")


def stored_bytes(server: MySQLServer, tables: Iterable[str]) -> int:
    """Pages that hold something: a table is given them a megabyte at a time, which would hide what a save adds."""
    names = list(tables)
    ((size,),) = run_sql(
        server,
        f"ANALYZE TABLE {', '.join(names)}",
        "SELECT SUM(stat_value) * @@innodb_page_size FROM mysql.innodb_index_stats WHERE stat_name = 'n_leaf_pages'"
        f" AND database_name = 'locus' AND table_name IN ({', '.join(repr(name) for name in names)})",
    )
    return int(size)
