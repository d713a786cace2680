"""Reads the tables of locus-sdk 3 in Oracle Database.

    OracleBackend           a row for every key: thread_id (the key), checkpoint_id, data, metadata, updated_at
    OracleCheckpointSaver   a row for every checkpoint: thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id,
                            checkpoint_data, metadata, created_at; and one for every pending write, in a second table

JSON is stored as text, in CLOBs. Times have the time zone of the server, and are read in UTC.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from locus.errors import ConfigurationError, ConflictError
from locus.memory.backends.sql.engine import SQLServerEngine
from locus.memory.model.codec import decode, encode
from locus.memory.model.ids import Pattern
from locus.memory.model.records import Write, writes_order
from locus.memory.store import SPECIAL_CHANNELS
from locus.transfer.content import MovedCheckpoint, WholeContent
from locus.transfer.move import Source
from locus.transfer.sources.locus_sdk.source import as_dict, moment
from locus.transfer.sources.locus_sdk.sql import OldTable
from locus.transfer.sources.sql import closed_on_failure, column_names, read_json, server_name, sql_engine

TABLE = "locus_checkpoints"
_OF_BACKEND = {"thread_id", "checkpoint_id", "data", "metadata", "updated_at"}
_OF_SAVER = {"thread_id", "checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "checkpoint_data", "created_at"}


async def open_oracle(url: str) -> Source:
    """Open the store in an Oracle Database. The columns of its table tell which of the two layouts it has.

    `?table_name=…` is the name that version 3 was given. A saver appends a suffix to it.
    """
    engine, given, schema = sql_engine(url)
    async with closed_on_failure(engine):
        for name in (given, f"{given}_checkpoints") if given else (TABLE,):
            place = f"{schema}.{name}" if schema else name
            columns = await column_names(engine, name, schema)
            if columns >= _OF_SAVER:
                return OldSaverTables(engine, place, f"{place.removesuffix('_checkpoints')}_writes")
            if columns >= _OF_BACKEND:
                return OldTable(engine, place, time="SYS_EXTRACT_UTC(updated_at)")
        raise ConfigurationError(
            f"there is no table {given or TABLE} of locus-sdk 3 at {server_name(engine)}: "
            "name another with ?table_name=… and ?schema_name=… in the URL"
        )


class OldSaverTables:
    """The tables of `OracleCheckpointSaver`. Any `CheckpointSaver` of Locus continues its threads."""

    def __init__(self, engine: SQLServerEngine[Any], checkpoints: str, writes: str) -> None:
        self._engine = engine
        self._checkpoints = checkpoints
        self._writes = writes

    @property
    def name(self) -> str:
        return f"{server_name(self._engine)}/{self._checkpoints}"

    async def threads(self, pattern: Pattern) -> list[str]:
        rows = await self._engine.ask((f"SELECT DISTINCT thread_id FROM {self._checkpoints}", ()))
        return sorted(filter(pattern.matches, (str(name) for (name,) in rows)))

    async def checkpoints(self, thread_id: str) -> AsyncGenerator[MovedCheckpoint, None]:
        places = await self._engine.ask(
            (
                f"SELECT checkpoint_ns, checkpoint_id FROM {self._checkpoints} WHERE thread_id = ?"
                " ORDER BY created_at, checkpoint_ns, checkpoint_id",
                (thread_id,),
            )
        )
        for namespace, checkpoint_id in places:
            yield await self._checkpoint(thread_id, namespace, checkpoint_id)

    async def _checkpoint(self, thread_id: str, namespace: str, checkpoint_id: str) -> MovedCheckpoint:
        rows = await self._select(
            f"parent_checkpoint_id, SYS_EXTRACT_UTC(created_at), metadata, checkpoint_data FROM {self._checkpoints}",
            thread_id,
            namespace,
            checkpoint_id,
        )
        if not rows:
            raise ConflictError(f"thread {thread_id!r} was changed while it was read; try again")
        ((parent_id, at, metadata, data),) = rows
        return MovedCheckpoint(
            namespace=namespace,
            checkpoint_id=checkpoint_id,
            parent_id=parent_id,
            created_at=moment(at),
            metadata=encode(as_dict(read_json(self._engine, metadata or "{}"), checkpoint_id), ("metadata",)),
            content=WholeContent(as_dict(read_json(self._engine, data or "null"), checkpoint_id)),
            writes=await self._read_writes(thread_id, namespace, checkpoint_id),
        )

    async def _read_writes(self, thread_id: str, namespace: str, checkpoint_id: str) -> tuple[Write, ...]:
        rows = await self._select(
            f"task_id, idx, channel, value FROM {self._writes}", thread_id, namespace, checkpoint_id
        )
        writes = [
            # Oracle Database stores empty text as NULL.
            Write(task_id, "", SPECIAL_CHANNELS.get(channel, int(idx)), channel or "", encode(decode(value or "null")))
            for task_id, idx, channel, value in rows
        ]
        return tuple(sorted(writes, key=writes_order))

    async def _select(self, what: str, *place: str) -> list[Any]:
        condition = "thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
        return await self._engine.ask((f"SELECT {what} WHERE {condition}", place))

    async def close(self) -> None:
        await self._engine.close()
