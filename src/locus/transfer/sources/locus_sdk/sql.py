"""Reads the tables of locus-sdk 3 in PostgreSQL and MySQL.

    PostgreSQLBackend, MySQLBackend
                     a row for every key: thread_id (the key), checkpoint_id, data, metadata, updated_at
    PgCheckpointer   a row for every checkpoint: tenant, thread_id, checkpoint_id, seq, data, metadata, created_at

Nothing is written to them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from typing import Any

from locus.errors import ConfigurationError
from locus.memory.backends.sql.engine import SQLServerEngine
from locus.memory.model.codec import decode
from locus.memory.model.ids import Pattern
from locus.transfer.sources.locus_sdk.key_value import OldKeyValueStore, plain_checkpoint
from locus.transfer.sources.locus_sdk.source import OldCheckpoint, OldStore, as_dict, moment
from locus.transfer.sources.sql import closed_on_failure, column_names, read_json, server_name, sql_engine

TABLE, TENANT_TABLE = "checkpoints", "locus_checkpoints"


async def open_tables(url: str, tenant: str) -> OldStore:
    """Open the store in an SQL server. The columns of its table tell which of the two layouts it has."""
    engine, table, schema = sql_engine(url)
    async with closed_on_failure(engine):
        for name in (table,) if table else (TABLE, TENANT_TABLE):
            place = f'"{schema}"."{name}"' if schema else name
            columns = await column_names(engine, name, schema)
            if {"tenant", "seq", "thread_id", "data"} <= columns:
                return OldTenantTable(engine, place, tenant)
            if {"thread_id", "data", "updated_at"} <= columns:
                return OldTable(engine, place)
        raise ConfigurationError(
            f"there is no table {table or f'{TABLE} or {TENANT_TABLE}'} of locus-sdk 3 at {server_name(engine)}: "
            "name another with ?table_name=… in the URL"
        )


class OldTable(OldKeyValueStore):
    """A table with one row per key. `time` is an SQL expression for the time of the last write, in UTC."""

    def __init__(self, engine: SQLServerEngine[Any], table: str, *, time: str = "updated_at") -> None:
        self._engine = engine
        self._table = table
        self._time = time

    @property
    def name(self) -> str:
        return f"{server_name(self._engine)}/{self._table}"

    async def all_keys(self) -> list[str]:
        return [str(key) for (key,) in await self._engine.ask((f"SELECT thread_id FROM {self._table}", ()))]

    async def value(self, key: str) -> tuple[dict[str, Any], datetime | None] | None:
        row = await self._row(key)
        return None if row is None else (as_dict(read_json(self._engine, row[0]), key), moment(row[1]))

    async def plain(self, key: str) -> OldCheckpoint | None:
        row = await self._row(key, "checkpoint_id", self._engine.sql.json_column("metadata"))
        if row is None:
            return None
        text, at, checkpoint_id, metadata = row
        about = as_dict(read_json(self._engine, metadata or "{}"), key)
        return plain_checkpoint(
            as_dict(read_json(self._engine, text), key), moment(at), about, checkpoint_id or "import"
        )

    async def _row(self, key: str, *more: str) -> Sequence[Any] | None:
        columns = ", ".join(("thread_id", self._engine.sql.json_column("data"), self._time, *more))
        rows = await self._engine.ask((f"SELECT {columns} FROM {self._table} WHERE thread_id = ?", (key,)))
        # A case-insensitive collation may find other keys as well.
        return next((row[1:] for row in rows if row[0] == key), None)

    async def close(self) -> None:
        await self._engine.close()


class OldTenantTable(OldStore):
    """The rows of one tenant in the table of `PgCheckpointer`, whose row policy requires the tenant to be set."""

    def __init__(self, engine: SQLServerEngine[Any], table: str, tenant: str) -> None:
        self._engine = engine
        self._table = table
        self._tenant = tenant

    @property
    def name(self) -> str:
        return f"{server_name(self._engine)}/{self._table} ({self._tenant})"

    async def _rows(self, columns: str, condition: str, *values: Any) -> list[Any]:
        return await self._engine.ask(
            ("SELECT set_config('locus.tenant', ?, true)", (self._tenant,)),
            (f"SELECT {columns} FROM {self._table} WHERE tenant = ? {condition}", (self._tenant, *values)),
        )

    async def threads(self, pattern: Pattern) -> list[str]:
        rows = await self._rows("DISTINCT thread_id", "")
        return sorted(filter(pattern.matches, (str(name) for (name,) in rows)))

    async def old_checkpoints(self, thread_id: str) -> AsyncGenerator[OldCheckpoint, None]:
        columns = "checkpoint_id, created_at, metadata::text, data::text"
        for (seq,) in await self._rows("seq", "AND thread_id = ? ORDER BY seq", thread_id):
            for name, at, metadata, data in await self._rows(columns, "AND thread_id = ? AND seq = ?", thread_id, seq):
                yield OldCheckpoint(name, moment(at), as_dict(decode(metadata), name), as_dict(decode(data), name))

    async def close(self) -> None:
        await self._engine.close()
