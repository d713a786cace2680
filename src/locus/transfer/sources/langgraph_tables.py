"""The tables of LangGraph's savers, and how they are read.

SQLite      checkpoints  thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata
            writes       thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value
PostgreSQL  checkpoints  the same, with the checkpoint as JSON, without most of its values
            checkpoint_blobs   thread_id, checkpoint_ns, channel, version, type, blob
            checkpoint_writes  as `writes`, with the value in `blob`
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from locus.errors import ConfigurationError, CorruptCheckpointError
from locus.memory.backends.sql.engine import SQLServerEngine
from locus.memory.model.codec import decode
from locus.memory.model.ids import Pattern
from locus.transfer.sources.langgraph import Channels, Found, Place, RawWrite, SavedGraphs
from locus.transfer.sources.langgraph_values import EMPTY, Values
from locus.transfer.sources.sql import columns_of, place_of
from locus.transfer.sources.sqlite_reading import SQLiteReading, sqlite_path

_PLACE = "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"


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

    async def places(self, thread_id: str) -> list[Place]:
        rows = await self._file.all(
            "SELECT thread_id, checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = ?"
            " ORDER BY checkpoint_id, checkpoint_ns",
            (thread_id,),
        )
        return [(thread_id, namespace, checkpoint_id) for _, namespace, checkpoint_id in rows]

    async def found(self, place: Place, channels: Channels) -> Found | None:
        rows = await self._file.all(
            f"SELECT parent_checkpoint_id, type, checkpoint, metadata FROM checkpoints {_PLACE}", place
        )
        for parent, kind, data, metadata in rows:
            checkpoint = as_dict(self._values.read(kind, data, named(place)), named(place))
            about = {} if metadata is None else decode(metadata)
            return Found(parent or None, checkpoint, as_dict(about, f"the metadata of {named(place)}"))
        return None

    async def writes(self, place: Place) -> list[RawWrite]:
        """Files of older versions, which nobody has opened with a newer one, have no task paths."""
        path = "task_path" if "task_path" in await self._file.columns("writes") else "''"
        columns = f"task_id, {path}, idx, channel, type, value"
        rows = await self._file.all(f"SELECT {columns} FROM writes {_PLACE} ORDER BY 2, 1, 3", place)
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
        blobs = await columns_of(self._engine, "checkpoint_blobs", self._schema)
        writes = await columns_of(self._engine, "checkpoint_writes", self._schema)
        if not {"thread_id", "checkpoint_ns", "channel", "version", "blob"} <= blobs or "task_path" not in writes:
            raise ConfigurationError(
                f"{place_of(self._engine)} has no tables {self._prefix}checkpoint_blobs and checkpoint_writes of "
                "LangGraph's PostgresSaver, or older ones: name their schema with ?schema_name=… in the URL, if they "
                "have one of their own; and let a recent PostgresSaver run its setup() once, if they are old"
            )
        rows = await self._engine.ask((f"SELECT DISTINCT thread_id FROM {self._prefix}checkpoints", ()))
        return sorted(filter(pattern.matches, (str(name) for (name,) in rows)))

    async def places(self, thread_id: str) -> list[Place]:
        rows = await self._engine.ask(
            (
                f"SELECT checkpoint_ns, checkpoint_id FROM {self._prefix}checkpoints WHERE thread_id = ? ORDER BY"
                ' checkpoint_id COLLATE "C", checkpoint_ns COLLATE "C"',
                (thread_id,),
            )
        )
        return [(thread_id, namespace, checkpoint_id) for namespace, checkpoint_id in rows]

    async def found(self, place: Place, channels: Channels) -> Found | None:
        columns = "parent_checkpoint_id, checkpoint::text, metadata::text"
        rows = await self._engine.ask((f"SELECT {columns} FROM {self._prefix}checkpoints {_PLACE}", place))
        for parent, text, metadata in rows:
            checkpoint = as_dict(decode(text), named(place))
            known = channels.setdefault(place[1], {})
            await self._read_on(place, checkpoint.get("channel_versions") or {}, known)
            values = {channel: value for channel, (_, value) in known.items()}
            whole = {**checkpoint, "channel_values": {**(checkpoint.get("channel_values") or {}), **values}}
            return Found(parent or None, whole, as_dict(decode(metadata), f"the metadata of {named(place)}"))
        return None

    async def _read_on(self, place: Place, versions: dict[str, Any], known: dict[str, tuple[str, Any]]) -> None:
        """Bring the values of channels to these versions; those that have not changed are not read again."""
        wanted = {channel: str(version) for channel, version in versions.items()}
        for channel in [name for name, (version, _) in known.items() if wanted.get(name) != version]:
            del known[channel]
        for channel in wanted.keys() - known.keys():
            rows = await self._engine.ask(
                (
                    f"SELECT type, blob FROM {self._prefix}checkpoint_blobs"
                    " WHERE thread_id = ? AND checkpoint_ns = ? AND channel = ? AND version = ?",
                    (*place[:2], channel, wanted[channel]),
                )
            )
            for kind, data in rows:
                if kind != EMPTY:
                    where = f"channel {channel!r} of {named(place)}"
                    known[channel] = (wanted[channel], self._values.read(kind, data, where))

    async def writes(self, place: Place) -> list[RawWrite]:
        columns = "task_id, task_path, idx, channel, type, blob"
        rows = await self._engine.ask(
            (f"SELECT {columns} FROM {self._prefix}checkpoint_writes {_PLACE} ORDER BY 2, 1, 3", place)
        )
        return writes_of(rows, place, self._values)

    async def close(self) -> None:
        await self._engine.close()


def named(place: Place) -> str:
    return f"checkpoint {place[2]!r} of thread {place[0]!r}"


def writes_of(rows: Iterable[Any], place: Place, values: Values) -> list[RawWrite]:
    return [
        RawWrite(
            task_id,
            task_path,
            idx,
            channel,
            values.read(kind, data, f"what was written to channel {channel!r} after {named(place)}"),
        )
        for task_id, task_path, idx, channel, kind, data in rows
    ]


def as_dict(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CorruptCheckpointError(f"{where} is not what LangGraph writes")
    return value
