"""Oracle's stand-in on this machine: what it shows is whether a save stays flat, and how it compares with the driver.

The times are those of an emulator, and say nothing about Oracle Database.
"""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from benchmarks.subjects.base import Occupied, Subject
from benchmarks.subjects.floors import Floor
from benchmarks.subjects.postgresql import run_sql
from benchmarks.subjects.postgresql import shared_server as shared_postgresql
from locus.extras import require
from locus.memory.backends import oracle_checkpointer
from locus.memory.checkpointer import Checkpointer
from tests.servers.oracle.server import ADMIN, OracleServer

oracledb = require("oracledb", "oracle")

TABLES = ("threads", "checkpoints", "runs", "writes", "pairs")


@cache
def shared_server() -> OracleServer:
    """One for all; it ends with this process."""
    folder = Path(tempfile.mkdtemp(prefix="locus-bench-oracle-"))
    server = OracleServer(folder / "server", shared_postgresql())
    server.start()
    return server


def place_of(server: OracleServer) -> dict[str, Any]:
    return {"dsn": server.dsn, "user": ADMIN, "password": server.password}


def run_oracle(server: OracleServer, *statements: str) -> None:
    with oracledb.connect(**place_of(server)) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


class OracleFloor(Floor):
    """One INSERT that commits by itself, with the same driver, on a connection for each thread."""

    def __init__(self, server: OracleServer, table: str) -> None:
        self._server = server
        self._table = table
        self._numbers: dict[str, int] = {}
        self._connections: dict[str, Any] = {}
        columns = "thread_id VARCHAR2(255 CHAR), num NUMBER(10), body JSON, PRIMARY KEY (thread_id, num)"
        run_oracle(server, f"CREATE TABLE {table} ({columns})")

    async def append(self, thread_id: str, body: str) -> None:
        connection = self._connections.get(thread_id)
        if connection is None:
            connection = self._connections[thread_id] = await oracledb.connect_async(**place_of(self._server))
            connection.autocommit = True
        number = self._numbers[thread_id] = self._numbers.get(thread_id, 0) + 1
        with connection.cursor() as cursor:
            cursor.setinputsizes(None, None, oracledb.DB_TYPE_JSON)
            await cursor.execute(
                f"INSERT INTO {self._table} VALUES (:1, :2, :3)", [thread_id, number, json.loads(body)]
            )

    def stored_bytes(self) -> int:
        return stored_bytes([self._table])

    async def close(self) -> None:
        for connection in self._connections.values():
            await connection.close()


class OracleSubject(Subject):
    """Occupied: the tables below the stand-in, with their indexes."""

    name = "oracle stand-in"
    longest_thread = 1_000
    save_limit = None

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._server = shared_server()
        self._name = f"b{uuid4().hex[:12]}"

    def open(self) -> Checkpointer:
        return oracle_checkpointer(**place_of(self._server), table_name=self._name)

    def floor(self) -> Floor:
        return OracleFloor(self._server, f"{self._name}_floor")

    def occupied(self) -> Occupied:
        names = [f"{self._name}_{table}" for table in TABLES]
        return Occupied(stored_bytes(names), stored_bytes([f"{self._name}_search"]))

    async def remove(self) -> None:
        names = ("search", "pairs", "writes", "runs", "checkpoints", "threads", "format", "floor")
        drop = "DROP TABLE IF EXISTS {} CASCADE CONSTRAINTS PURGE"
        run_oracle(self._server, *(drop.format(f"{self._name}_{name}") for name in names))


def stored_bytes(tables: list[str]) -> int:
    """As PostgreSQL counts them, below the stand-in."""
    names = ", ".join(f"'{table.upper()}'" for table in tables)
    ((size,),) = run_sql(
        shared_postgresql(),
        f"SELECT coalesce(sum(pg_total_relation_size(oid)), 0) FROM pg_class WHERE upper(relname) IN ({names})",
    )
    return int(size)
