"""Threads of LangGraph's own savers, in SQLite and PostgreSQL; `LocusSaver` goes on with them.

Every checkpoint is put, as it comes, by a `LocusSaver` into a store in memory, and what that makes of it is moved: so
it is exactly what the saver would have saved. The order is that of the checkpoints' ids, which is LangGraph's own.

The tables of LangGraph's savers, and how they are read.

SQLite      checkpoints  thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata
            writes       thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value
PostgreSQL  checkpoints  the same, with the checkpoint as JSON, without most of its values
            checkpoint_blobs   thread_id, checkpoint_ns, channel, version, type, blob
            checkpoint_writes  as `writes`, with the value in `blob`
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from locus.errors import ConfigurationError, ConflictError, CorruptCheckpointError
from locus.extras import require
from locus.memory.backends.memory import MemoryCheckpointer
from locus.memory.backends.sql.engine import SQLServerEngine
from locus.memory.engine import Exports
from locus.memory.model.codec import decode
from locus.memory.model.ids import Pattern
from locus.transfer.content import Checkpoint, Records
from locus.transfer.items import Shelf
from locus.transfer.sources.langgraph_values import EMPTY, Values
from locus.transfer.sources.sql import SQLiteReading, columns_of, place_of, sqlite_path
from locus.transfer.write import in_positions

TASKS = "__pregel_tasks"
"""The channel of what is to be sent to nodes."""


class RawWrite(NamedTuple):
    """A pending write of LangGraph's."""

    task_id: str
    task_path: str
    idx: int
    channel: str
    value: Any


@dataclass(frozen=True)
class RawCheckpoint:
    """A checkpoint of LangGraph's, with its values."""

    namespace: str
    checkpoint_id: str
    parent_id: str | None
    checkpoint: dict[str, Any]
    metadata: dict[str, Any]
    writes: Sequence[RawWrite] = field(default_factory=list)


Place = tuple[str, str, str]
"""Thread id, namespace and checkpoint id."""

Channels = dict[str, dict[str, tuple[str, Any]]]
"""By namespace and channel: the version of a value that was read, and the value."""


class Found(NamedTuple):
    """The row of a checkpoint."""

    parent_id: str | None
    checkpoint: dict[str, Any]
    metadata: dict[str, Any]


class SavedGraphs(ABC):
    """The tables of one of LangGraph's savers. They are read one checkpoint after another, because those are large."""

    @property
    @abstractmethod
    def name(self) -> str:
        """For people; it holds no secret."""

    @abstractmethod
    async def threads(self, pattern: Pattern) -> list[str]:
        """The ids of threads that match, in order."""

    @abstractmethod
    async def places(self, thread_id: str) -> list[Place]:
        """Where the checkpoints of a thread are, in order."""

    @abstractmethod
    async def found(self, place: Place, channels: Channels) -> Found | None:
        """The checkpoint at a place. `channels` are values that were read before in this thread."""

    @abstractmethod
    async def writes(self, place: Place) -> list[RawWrite]:
        """The pending writes of a checkpoint, in their order."""

    @abstractmethod
    async def close(self) -> None:
        """Release what was opened."""

    async def checkpoints(self, thread_id: str) -> AsyncGenerator[RawCheckpoint, None]:
        """The checkpoints of a thread, in order."""
        channels: Channels = {}
        for place in await self.places(thread_id):
            found = await self.found(place, channels)
            if found is None:
                raise ConflictError(f"thread {thread_id!r} was changed while it was read; try again")
            parent, checkpoint, metadata = found
            if parent and checkpoint.get("v", 0) < 4:
                before = await self.writes((thread_id, place[1], parent))
                checkpoint = _with_sends(checkpoint, [write.value for write in before if write.channel == TASKS])
            yield RawCheckpoint(place[1], place[2], parent, checkpoint, metadata, await self.writes(place))


class LangGraphSource:
    """The threads of such tables."""

    def __init__(self, tables: SavedGraphs, allowed_types: Iterable[type] = ()) -> None:
        require("langgraph.checkpoint.base", "langgraph")
        self._tables = tables
        self._allowed = tuple(allowed_types)

    @property
    def name(self) -> str:
        return self._tables.name

    async def threads(self, pattern: Pattern) -> list[str]:
        return await self._tables.threads(pattern)

    async def checkpoints(self, thread_id: str) -> AsyncGenerator[Checkpoint, None]:
        made = _Made(thread_id, self._allowed)
        async with aclosing(self._tables.checkpoints(thread_id)) as found:
            async for raw in found:
                yield await made.checkpoint(raw)

    async def close(self) -> None:
        await self._tables.close()


class _Made:
    """The checkpoints of one thread as a saver of ours has saved them."""

    def __init__(self, thread_id: str, allowed: Sequence[type]) -> None:
        from locus.integrations.langgraph.saver import LocusSaver

        self._thread_id = thread_id
        store = MemoryCheckpointer()
        engine = store.store.engine
        assert isinstance(engine, Exports)
        self._engine = engine
        self._saver = LocusSaver(store, allowed_types=allowed)
        self._shelf = Shelf()
        self._seq = 0

    async def checkpoint(self, raw: RawCheckpoint) -> Checkpoint:
        await self._put(raw)
        page = await self._engine.export(self._thread_id, self._seq, 1, self._shelf.known)
        self._shelf.add(page.runs)
        (stored,) = page.checkpoints
        self._seq = stored.entry.seq
        writes = page.writes.get((stored.entry.namespace, stored.entry.checkpoint_id), ())
        if {(write.task_id, write.idx) for write in writes} != {(write.task_id, write.idx) for write in raw.writes}:
            raise CorruptCheckpointError(
                f"the pending writes of checkpoint {raw.checkpoint_id!r} of thread {self._thread_id!r} are not "
                "numbered as LangGraph numbers them"
            )
        return Checkpoint(
            namespace=stored.entry.namespace,
            checkpoint_id=stored.entry.checkpoint_id,
            parent_id=stored.entry.parent_id,
            created_at=_moment(raw, self._thread_id),
            metadata=stored.entry.metadata,
            content=Records(stored.head, stored.manifest, self._shelf),
            writes=tuple(writes),
        )

    async def _put(self, raw: RawCheckpoint) -> None:
        place: dict[str, Any] = {"thread_id": self._thread_id, "checkpoint_ns": raw.namespace}
        before = place | ({"checkpoint_id": raw.parent_id} if raw.parent_id else {})
        checkpoint: Any = {**raw.checkpoint, "id": raw.checkpoint_id}
        metadata: Any = raw.metadata
        await self._saver.aput({"configurable": before}, checkpoint, metadata, checkpoint.get("channel_versions", {}))
        here: Any = {"configurable": place | {"checkpoint_id": raw.checkpoint_id}}
        tasks: dict[tuple[str, str], list[RawWrite]] = {}
        for write in raw.writes:
            tasks.setdefault((write.task_id, write.task_path), []).append(write)
        for (task_id, task_path), writes in tasks.items():
            pairs = [(write.channel, write.value) for write in in_positions(writes)]
            await self._saver.aput_writes(here, pairs, task_id, task_path)


def _moment(raw: RawCheckpoint, thread_id: str) -> datetime:
    try:
        found = datetime.fromisoformat(raw.checkpoint["ts"])
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptCheckpointError(
            f"checkpoint {raw.checkpoint_id!r} of thread {thread_id!r} has no time that can be read"
        ) from error
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _with_sends(checkpoint: dict[str, Any], sends: Sequence[Any]) -> dict[str, Any]:
    """A checkpoint of a version before 4, which kept what was to be sent as writes of its parent."""
    if not sends:
        return checkpoint
    versions = checkpoint.get("channel_versions") or {}
    values = checkpoint.get("channel_values") or {}
    return {
        **checkpoint,
        "channel_values": {**values, TASKS: [*sends]},
        "channel_versions": {**versions, TASKS: max(versions.values()) if versions else 1},
    }


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
