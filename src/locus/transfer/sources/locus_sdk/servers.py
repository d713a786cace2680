"""The servers that locus-sdk 3 may have kept its threads in: Redis, PostgreSQL and MySQL. Nothing is written there."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from locus.errors import BackendUnavailableError, ConfigurationError
from locus.extras import require
from locus.memory.backends.sql.engine import SQLServerEngine
from locus.memory.model.codec import decode
from locus.memory.model.ids import Pattern
from locus.transfer.sources.locus_sdk.keys import OldKeys, as_dict, moment, plain
from locus.transfer.sources.locus_sdk.source import OldCheckpoint, OldStore
from locus.transfer.sources.sql import columns_of, json_in, place_of, sql_engine

TABLE, TENANT_TABLE = "checkpoints", "locus_checkpoints"
PREFIXES = ("locus:state:", "locus:checkpoint:")
"""Those of `redis_checkpointer` and of a bare `RedisBackend`. Our own keys may begin so, too, but are no strings."""


class OldRedis(OldKeys):
    """A key for every checkpoint."""

    def __init__(self, url: str) -> None:
        redis = require("redis.asyncio", "redis")
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query))
        given = options.pop("prefix", None)
        self._prefixes = (given,) if given else PREFIXES
        self._prefix = self._prefixes[0]
        self._name = f"{parts.scheme}://{parts.hostname or 'localhost'}:{parts.port or 6379}{parts.path}"
        try:
            self._client: Any = redis.Redis.from_url(parts._replace(query=urlencode(options)).geturl())
        except ValueError as error:
            raise ConfigurationError("the URL of Redis cannot be read: redis://user:password@host:6379/0") from error
        self._errors: type[Exception] = require("redis", "redis").RedisError

    @property
    def name(self) -> str:
        return self._name

    async def all_keys(self) -> list[str]:
        found = {prefix: keys for prefix in self._prefixes if (keys := await self._begin_with(prefix))}
        if len(found) > 1:
            raise ConfigurationError(f"{self._name} has keys under {' and '.join(found)}: say which with ?prefix=…")
        for self._prefix, keys in found.items():
            return keys
        return []

    async def _begin_with(self, prefix: str) -> list[str]:
        pattern = "".join(f"\\{char}" if char in "*?[]\\" else char for char in prefix) + "*"
        start = len(prefix.encode())
        try:
            found = {bytes(key) async for key in self._client.scan_iter(pattern, count=1_000, _type="STRING")}
        except (self._errors, OSError) as error:
            raise self._unreachable(error) from error
        return [key[start:].decode() for key in found]

    async def value(self, key: str) -> tuple[dict[str, Any], datetime | None] | None:
        try:
            text = await self._client.get(self._prefix + key)
        except (self._errors, OSError) as error:
            raise self._unreachable(error) from error
        return None if text is None else (as_dict(decode(text), key), None)

    def _unreachable(self, error: Exception) -> BackendUnavailableError:
        return BackendUnavailableError(f"{self._name} cannot be read now: {type(error).__name__}")

    async def close(self) -> None:
        await self._client.aclose()


class OldTable(OldKeys):
    """A row for every checkpoint, in PostgreSQL, MySQL or Oracle Database. `time` is when it was written, in UTC."""

    def __init__(self, engine: SQLServerEngine[Any], table: str, *, time: str = "updated_at") -> None:
        self._engine = engine
        self._table = table
        self._time = time

    @property
    def name(self) -> str:
        return f"{place_of(self._engine)}/{self._table}"

    async def all_keys(self) -> list[str]:
        return [str(key) for (key,) in await self._engine.ask((f"SELECT thread_id FROM {self._table}", ()))]

    async def value(self, key: str) -> tuple[dict[str, Any], datetime | None] | None:
        found = await self._row(key)
        return None if found is None else (as_dict(json_in(self._engine, found[0]), key), moment(found[1]))

    async def bare(self, key: str) -> OldCheckpoint | None:
        found = await self._row(key, "checkpoint_id", self._engine.sql.json_column("metadata"))
        if found is None:
            return None
        text, at, checkpoint_id, metadata = found
        about = as_dict(json_in(self._engine, metadata or "{}"), key)
        return plain(as_dict(json_in(self._engine, text), key), moment(at), about, checkpoint_id or "import")

    async def _row(self, key: str, *more: str) -> Sequence[Any] | None:
        columns = ", ".join(("thread_id", self._engine.sql.json_column("data"), self._time, *more))
        rows = await self._engine.ask((f"SELECT {columns} FROM {self._table} WHERE thread_id = ?", (key,)))
        # A collation may take one key for another.
        return next((row[1:] for row in rows if row[0] == key), None)

    async def close(self) -> None:
        await self._engine.close()


class OldTenant(OldStore):
    """The rows of one tenant in the table of `PgCheckpointer`. Its policy shows them to who names the tenant."""

    def __init__(self, engine: SQLServerEngine[Any], table: str, tenant: str) -> None:
        self._engine = engine
        self._table = table
        self._tenant = tenant

    @property
    def name(self) -> str:
        return f"{place_of(self._engine)}/{self._table} ({self._tenant})"

    async def _rows(self, columns: str, condition: str, *values: Any) -> list[Any]:
        return await self._engine.ask(
            ("SELECT set_config('locus.tenant', ?, true)", (self._tenant,)),
            (f"SELECT {columns} FROM {self._table} WHERE tenant = ? {condition}", (self._tenant, *values)),
        )

    async def threads(self, pattern: Pattern) -> list[str]:
        rows = await self._rows("DISTINCT thread_id", "")
        return sorted(filter(pattern.matches, (str(name) for (name,) in rows)))

    async def checkpoints(self, thread_id: str) -> AsyncGenerator[OldCheckpoint, None]:
        columns = "checkpoint_id, created_at, metadata::text, data::text"
        for (seq,) in await self._rows("seq", "AND thread_id = ? ORDER BY seq", thread_id):
            for name, at, metadata, data in await self._rows(columns, "AND thread_id = ? AND seq = ?", thread_id, seq):
                yield OldCheckpoint(name, moment(at), as_dict(decode(metadata), name), as_dict(decode(data), name))

    async def close(self) -> None:
        await self._engine.close()


async def old_table(url: str, tenant: str) -> OldStore:
    """What is in an SQL server: one of the two layouts, told apart by the columns."""
    engine, table, schema = sql_engine(url)
    for name in (table,) if table else (TABLE, TENANT_TABLE):
        place = f'"{schema}"."{name}"' if schema else name
        columns = await columns_of(engine, name, schema)
        if {"tenant", "seq", "thread_id", "data"} <= columns:
            return OldTenant(engine, place, tenant)
        if {"thread_id", "data", "updated_at"} <= columns:
            return OldTable(engine, place)
    await engine.close()
    raise ConfigurationError(
        f"there is no table {table or f'{TABLE} or {TENANT_TABLE}'} of locus-sdk 3 at {place_of(engine)}: "
        "name another with ?table_name=… in the URL"
    )
