"""Reads the tables of locus-sdk 3 in PostgreSQL, MySQL and Oracle Database.

    PostgreSQLBackend, MySQLBackend, OracleBackend
                            a row for every key: thread_id (the key), checkpoint_id, data, metadata, updated_at
    PgCheckpointer          a row for every checkpoint: tenant, thread_id, checkpoint_id, seq, data, metadata,
                            created_at
    OracleCheckpointSaver   a row for every checkpoint: thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id,
                            checkpoint_data, metadata, created_at; and one for every pending write, in a second table

Nothing is written to them. Oracle Database stores JSON as text, in CLOBs. Its times have the time zone of the server,
and are read in UTC.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from datetime import datetime
from typing import Any

from locus.errors import ConfigurationError, ConflictError
from locus.memory.model.codec import decode, encode
from locus.memory.model.records import Write, writes_order
from locus.memory.store import SPECIAL_CHANNELS
from locus.transfer.content import MovedCheckpoint, WholeContent
from locus.transfer.sources import Source
from locus.transfer.sources.locus_sdk.key_value import OldKeyValueStore, plain_checkpoint
from locus.transfer.sources.locus_sdk.source import OldCheckpoint, OldStore, as_dict, moment
from locus.transfer.sources.sql import ServerReader, TableSource

TABLE, TENANT_TABLE = "checkpoints", "locus_checkpoints"
_OF_KEYS = {"thread_id", "data", "updated_at"}
_OF_TENANTS = {"tenant", "seq", "thread_id", "data"}
_OF_SAVER = {"thread_id", "checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "checkpoint_data", "created_at"}


async def open_tables(server: ServerReader, tenant: str) -> Source:
    """Open the store in an SQL server. The columns of its table tell which of the three layouts it has.

    `?table_name=…` is the name that version 3 was given. A saver in Oracle Database appends a suffix to it.
    """
    names = [TENANT_TABLE] if server.is_oracle else [TABLE, TENANT_TABLE]
    if server.table:
        names = [server.table, f"{server.table}_checkpoints"] if server.is_oracle else [server.table]
    try:
        for name in names:
            place, columns = server.place(name), await server.columns(name)
            if columns >= _OF_TENANTS:
                return OldTenantTable(server, place, tenant)
            if columns >= _OF_SAVER:
                return OldSaverTables(server, place)
            if columns >= _OF_KEYS:
                return OldTable(server, place)
        raise ConfigurationError(
            f"there is no table {server.table or ' or '.join(names)} of locus-sdk 3 at {server.name}: "
            "name another with ?table_name=… in the URL, and its schema with ?schema_name=…, if it has one of its own"
        )
    except BaseException:
        await server.close()  # the caller gets no source to close
        raise


class ServerTable(TableSource):
    """A table in an SQL server."""

    def __init__(self, server: ServerReader, table: str) -> None:
        super().__init__(server)
        self._server = server
        self._table = table

    @property
    def name(self) -> str:
        return f"{self._server.name}/{self._table}"

    def _read_dict(self, value: Any, key: str) -> dict[str, Any]:
        return as_dict(self._server.read_json(value), key)


class OldTable(ServerTable, OldKeyValueStore):
    """A table with one row per key."""

    async def all_keys(self) -> list[str]:
        return [str(key) for (key,) in await self._server.all(f"SELECT thread_id FROM {self._table}")]

    async def value(self, key: str) -> tuple[dict[str, Any], datetime | None] | None:
        row = await self._row(key)
        return None if row is None else (self._read_dict(row[0], key), moment(row[1]))

    async def plain(self, key: str) -> OldCheckpoint | None:
        row = await self._row(key, "checkpoint_id", self._server.engine.sql.json_column("metadata"))
        if row is None:
            return None
        text, at, checkpoint_id, metadata = row
        about = self._read_dict(metadata or "{}", key)
        return plain_checkpoint(self._read_dict(text, key), moment(at), about, checkpoint_id or "import")

    async def _row(self, key: str, *more: str) -> Sequence[Any] | None:
        time = "SYS_EXTRACT_UTC(updated_at)" if self._server.is_oracle else "updated_at"
        columns = ", ".join(("thread_id", self._server.engine.sql.json_column("data"), time, *more))
        rows = await self._server.all(f"SELECT {columns} FROM {self._table} WHERE thread_id = ?", (key,))
        # A case-insensitive collation may find other keys as well.
        return next((row[1:] for row in rows if row[0] == key), None)


class OldTenantTable(ServerTable, OldStore):
    """The rows of one tenant in the table of `PgCheckpointer`, whose row policy requires the tenant to be set."""

    def __init__(self, server: ServerReader, table: str, tenant: str) -> None:
        super().__init__(server, table)
        self._tenant = tenant

    @property
    def name(self) -> str:
        return f"{super().name} ({self._tenant})"

    async def _rows(self, columns: str, condition: str, *values: Any) -> list[Any]:
        return await self._server.engine.ask(
            ("SELECT set_config('locus.tenant', ?, true)", (self._tenant,)),
            (f"SELECT {columns} FROM {self._table} WHERE tenant = ? {condition}", (self._tenant, *values)),
        )

    async def ids(self) -> Iterable[str]:
        return [str(name) for (name,) in await self._rows("DISTINCT thread_id", "")]

    async def old_checkpoints(self, thread_id: str) -> AsyncGenerator[OldCheckpoint, None]:
        columns = "checkpoint_id, created_at, metadata::text, data::text"
        for (seq,) in await self._rows("seq", "AND thread_id = ? ORDER BY seq", thread_id):
            for name, at, metadata, data in await self._rows(columns, "AND thread_id = ? AND seq = ?", thread_id, seq):
                yield OldCheckpoint(name, moment(at), as_dict(decode(metadata), name), as_dict(decode(data), name))


class OldSaverTables(ServerTable):
    """The tables of `OracleCheckpointSaver`. Any `CheckpointSaver` of Locus continues its threads."""

    async def ids(self) -> Iterable[str]:
        return [str(name) for (name,) in await self._server.all(f"SELECT DISTINCT thread_id FROM {self._table}")]

    async def checkpoints(self, thread_id: str) -> AsyncGenerator[MovedCheckpoint, None]:
        places = await self._server.all(
            f"SELECT checkpoint_ns, checkpoint_id FROM {self._table} WHERE thread_id = ?"
            " ORDER BY created_at, checkpoint_ns, checkpoint_id",
            (thread_id,),
        )
        for namespace, checkpoint_id in places:
            yield await self._checkpoint(thread_id, namespace, checkpoint_id)

    async def _checkpoint(self, thread_id: str, namespace: str, checkpoint_id: str) -> MovedCheckpoint:
        place = thread_id, namespace, checkpoint_id
        columns = "parent_checkpoint_id, SYS_EXTRACT_UTC(created_at), metadata, checkpoint_data"
        rows = await self._select(f"{columns} FROM {self._table}", *place)
        if not rows:
            raise ConflictError(f"thread {thread_id!r} was changed while it was read; try again")
        ((parent_id, at, metadata, data),) = rows
        return MovedCheckpoint(
            namespace=namespace,
            checkpoint_id=checkpoint_id,
            parent_id=parent_id,
            created_at=moment(at),
            metadata=encode(self._read_dict(metadata or "{}", checkpoint_id), ("metadata",)),
            content=WholeContent(self._read_dict(data or "null", checkpoint_id)),
            writes=await self._read_writes(*place),
        )

    async def _read_writes(self, *place: str) -> tuple[Write, ...]:
        table = f"{self._table.removesuffix('_checkpoints')}_writes"
        writes = [
            # Oracle Database stores empty text as NULL.
            Write(task_id, "", SPECIAL_CHANNELS.get(channel, int(idx)), channel or "", encode(decode(value or "null")))
            for task_id, idx, channel, value in await self._select(f"task_id, idx, channel, value FROM {table}", *place)
        ]
        return tuple(sorted(writes, key=writes_order))

    async def _select(self, what: str, *place: str) -> list[Any]:
        condition = "thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
        return await self._server.all(f"SELECT {what} WHERE {condition}", place)
