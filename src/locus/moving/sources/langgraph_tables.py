"""The tables of LangGraph's savers, and how they are read: one checkpoint after another, as they are large.

SQLite      checkpoints  thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata
            writes       thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value
PostgreSQL  checkpoints  the same, with the checkpoint as JSON, without most of its values
            checkpoint_blobs   thread_id, checkpoint_ns, channel, version, type, blob
            checkpoint_writes  as `writes`, with the value in `blob`
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from typing import Any

from locus.errors import ConfigurationError, CorruptCheckpointError
from locus.memory.backends.sql_server import SQLServerEngine
from locus.memory.codec import decode
from locus.memory.keys import Pattern
from locus.moving.sources.langgraph import TASKS, RawCheckpoint, RawWrite, SavedGraphs, with_sends
from locus.moving.sources.langgraph_values import EMPTY, Values
from locus.moving.sources.sql_reading import columns_of, place_of
from locus.moving.sources.sqlite_reading import SQLiteReading, sqlite_path

_ORDER = "ORDER BY checkpoint_id, checkpoint_ns"


class SQLiteGraphs(SavedGraphs):
    """What `SqliteSaver` and `AsyncSqliteSaver` have written."""

    def __init__(self, location: str, values: Values) -> None:
        self._file = SQLiteReading(sqlite_path(location))
        self._values = values

    @property
    def name(self) -> str:
        return self._file.name

    async def threads(self, pattern: Pattern) -> list[str]:
        columns = await self._file.columns("checkpoints")
        if not {"thread_id", "checkpoint_ns", "type", "checkpoint", "metadata"} <= columns:
            raise ConfigurationError(f"{self._file.path!r} has no table checkpoints of LangGraph's SqliteSaver")
        rows = await self._file.all("SELECT DISTINCT thread_id FROM checkpoints")
        return sorted(filter(pattern.matches, (str(name) for (name,) in rows)))

    async def checkpoints(self, thread_id: str) -> AsyncGenerator[RawCheckpoint, None]:
        rows = await self._file.all(
            f"SELECT checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = ? {_ORDER}", (thread_id,)
        )
        paths = "task_path" in await self._file.columns("writes")
        for namespace, checkpoint_id in rows:
            place = (thread_id, namespace, checkpoint_id)
            found = await self._file.all(
                "SELECT parent_checkpoint_id, type, checkpoint, metadata FROM checkpoints"
                " WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?",
                place,
            )
            for parent, kind, data, metadata in found:
                where = f"checkpoint {checkpoint_id!r} of thread {thread_id!r}"
                checkpoint = as_dict(self._values.read(kind, data, where), where)
                sends: list[Any] = []
                if parent and checkpoint.get("v", 0) < 4:
                    before = await self._writes((thread_id, namespace, parent), paths)
                    sends = [write.value for write in before if write.channel == TASKS]
                yield RawCheckpoint(
                    namespace,
                    checkpoint_id,
                    parent or None,
                    with_sends(checkpoint, sends),
                    as_dict(decode(metadata) if metadata is not None else {}, f"the metadata of {where}"),
                    await self._writes(place, paths),
                )

    async def _writes(self, place: tuple[str, str, str], paths: bool) -> list[RawWrite]:
        rows = await self._file.all(
            f"SELECT task_id, {'task_path' if paths else repr('')}, idx, channel, type, value FROM writes"
            " WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ? ORDER BY 2, 1, 3",
            place,
        )
        return writes_of(rows, place, self._values)

    async def close(self) -> None:
        await self._file.close()


class PostgreSQLGraphs(SavedGraphs):
    """What `PostgresSaver` and `AsyncPostgresSaver` have written."""

    def __init__(self, engine: SQLServerEngine[Any], schema: str | None, values: Values) -> None:
        self._engine = engine
        self._schema = schema
        self._prefix = f'"{schema}".' if schema else ""
        self._values = values

    @property
    def name(self) -> str:
        return f"{place_of(self._engine)}/{self._prefix}checkpoints"

    async def threads(self, pattern: Pattern) -> list[str]:
        columns = await columns_of(self._engine, "checkpoint_blobs", self._schema)
        if not {"thread_id", "checkpoint_ns", "channel", "version", "blob"} <= columns:
            raise ConfigurationError(
                f"{place_of(self._engine)} has no table {self._prefix}checkpoint_blobs of LangGraph's PostgresSaver: "
                "name its schema with ?schema_name=… in the URL, if it has one of its own"
            )
        rows = await self._engine.ask((f"SELECT DISTINCT thread_id FROM {self._prefix}checkpoints", ()))
        return sorted(filter(pattern.matches, (str(name) for (name,) in rows)))

    async def checkpoints(self, thread_id: str) -> AsyncGenerator[RawCheckpoint, None]:
        rows = await self._engine.ask(
            (
                f"SELECT checkpoint_ns, checkpoint_id FROM {self._prefix}checkpoints WHERE thread_id = ? ORDER BY"
                ' checkpoint_id COLLATE "C", checkpoint_ns COLLATE "C"',
                (thread_id,),
            )
        )
        paths = "task_path" in await columns_of(self._engine, "checkpoint_writes", self._schema)
        channels: dict[str, dict[str, tuple[str, Any]]] = {}
        for namespace, checkpoint_id in rows:
            place = (thread_id, namespace, checkpoint_id)
            found = await self._engine.ask(
                (
                    f"SELECT parent_checkpoint_id, checkpoint::text, metadata::text FROM {self._prefix}checkpoints"
                    " WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?",
                    place,
                )
            )
            for parent, text, metadata in found:
                where = f"checkpoint {checkpoint_id!r} of thread {thread_id!r}"
                checkpoint = as_dict(decode(text), where)
                known = channels.setdefault(namespace, {})
                blobs = await self._blobs(thread_id, namespace, checkpoint.get("channel_versions") or {}, known)
                inline = checkpoint.get("channel_values") or {}
                sends: list[Any] = []
                if parent and checkpoint.get("v", 0) < 4:
                    before = await self._writes((thread_id, namespace, parent), paths)
                    sends = [write.value for write in before if write.channel == TASKS]
                yield RawCheckpoint(
                    namespace,
                    checkpoint_id,
                    parent or None,
                    with_sends({**checkpoint, "channel_values": {**inline, **blobs}}, sends),
                    as_dict(decode(metadata), f"the metadata of {where}"),
                    await self._writes(place, paths),
                )

    async def _blobs(
        self, thread_id: str, namespace: str, versions: dict[str, Any], known: dict[str, tuple[str, Any]]
    ) -> dict[str, Any]:
        """The values of channels; those whose version is the same as before are not read again."""
        wanted = {channel: str(version) for channel, version in versions.items()}
        missing = [channel for channel, version in wanted.items() if known.get(channel, ("",))[0] != version]
        for channel in [*known]:
            if channel not in wanted or channel in missing:
                del known[channel]
        for channel in missing:
            rows = await self._engine.ask(
                (
                    f"SELECT type, blob FROM {self._prefix}checkpoint_blobs"
                    " WHERE thread_id = ? AND checkpoint_ns = ? AND channel = ? AND version = ?",
                    (thread_id, namespace, channel, wanted[channel]),
                )
            )
            for kind, data in rows:
                if kind != EMPTY:
                    where = f"channel {channel!r} of thread {thread_id!r}"
                    known[channel] = (wanted[channel], self._values.read(kind, data, where))
        return {channel: value for channel, (_, value) in known.items()}

    async def _writes(self, place: tuple[str, str, str], paths: bool) -> list[RawWrite]:
        rows = await self._engine.ask(
            (
                f"SELECT task_id, {'task_path' if paths else repr('')}, idx, channel, type, blob"
                f" FROM {self._prefix}checkpoint_writes"
                " WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ? ORDER BY 2, 1, 3",
                place,
            )
        )
        return writes_of(rows, place, self._values)

    async def close(self) -> None:
        await self._engine.close()


def writes_of(rows: Iterable[Any], place: tuple[str, str, str], values: Values) -> list[RawWrite]:
    thread_id, _, checkpoint_id = place
    where = f"what was written to channel {{!r}} after checkpoint {checkpoint_id!r} of thread {thread_id!r}"
    return [
        RawWrite(task_id, task_path, idx, channel, values.read(kind, data, where.format(channel)))
        for task_id, task_path, idx, channel, kind, data in rows
    ]


def as_dict(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CorruptCheckpointError(f"{where} is not what LangGraph writes")
    return value
