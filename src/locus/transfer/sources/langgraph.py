"""Reads threads of LangGraph's own savers, in SQLite and PostgreSQL. `LocusSaver` continues them.

A `LocusSaver` puts every checkpoint into a store in memory, and its result is moved. The destination therefore gets
exactly what the saver would have saved. Checkpoints are ordered by id, as LangGraph orders them.

The tables of the savers:

    SQLite      checkpoints  thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata
                writes       thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value
    PostgreSQL  checkpoints  as in SQLite, with the checkpoint as JSON, without most of its values
                checkpoint_blobs   thread_id, checkpoint_ns, channel, version, type, blob
                checkpoint_writes  as `writes`, with the value in `blob`
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from locus.errors import ConfigurationError, ConflictError, CorruptCheckpointError
from locus.memory.backends.memory import MemoryCheckpointer
from locus.memory.engine import Exports
from locus.memory.model.codec import decode
from locus.transfer.content import MovedCheckpoint
from locus.transfer.items import ThreadItems
from locus.transfer.read import stored_checkpoint
from locus.transfer.sources.langgraph_values import EMPTY, MissingClasses, ValueReader
from locus.transfer.sources.sql import SourceRow, TableReader, TableSource
from locus.transfer.write import in_positions

TASKS = "__pregel_tasks"
"""The channel of `Send` objects."""


class GraphWrite(NamedTuple):
    """A pending write of LangGraph."""

    task_id: str
    task_path: str
    idx: int
    channel: str
    value: Any


@dataclass(frozen=True)
class GraphCheckpoint:
    """A checkpoint of LangGraph, with the values of its channels."""

    namespace: str
    checkpoint_id: str
    parent_id: str | None
    checkpoint: dict[str, Any]
    metadata: dict[str, Any]
    writes: Sequence[GraphWrite] = field(default_factory=list)


class _Converter:
    """Converts the checkpoints of one thread, by saving them with `LocusSaver` into a store in memory."""

    def __init__(self, thread_id: str, allowed: Sequence[type]) -> None:
        from locus.integrations.langgraph.saver import LocusSaver

        self._thread_id = thread_id
        store = MemoryCheckpointer()
        engine = store.store.engine
        assert isinstance(engine, Exports)
        self._engine = engine
        self._saver = LocusSaver(store, allowed_types=allowed)
        self._items = ThreadItems()
        self._seq = 0

    async def checkpoint(self, raw: GraphCheckpoint) -> MovedCheckpoint:
        await self._put(raw)
        page = await self._engine.export(self._thread_id, self._seq, 1, self._items.known)
        self._items.add(page.runs)
        (stored,) = page.checkpoints
        self._seq = stored.entry.seq
        writes = page.writes.get((stored.entry.namespace, stored.entry.checkpoint_id), ())
        if {(write.task_id, write.idx) for write in writes} != {(write.task_id, write.idx) for write in raw.writes}:
            raise CorruptCheckpointError(
                f"the pending writes of checkpoint {raw.checkpoint_id!r} of thread {self._thread_id!r} are not "
                "numbered as LangGraph numbers them"
            )
        return replace(stored_checkpoint(stored, self._items, page.writes), created_at=_moment(raw, self._thread_id))

    async def _put(self, raw: GraphCheckpoint) -> None:
        namespace: dict[str, Any] = {"thread_id": self._thread_id, "checkpoint_ns": raw.namespace}
        before = namespace | ({"checkpoint_id": raw.parent_id} if raw.parent_id else {})
        checkpoint: Any = {**raw.checkpoint, "id": raw.checkpoint_id}
        metadata: Any = raw.metadata
        await self._saver.aput({"configurable": before}, checkpoint, metadata, checkpoint.get("channel_versions", {}))
        here: Any = {"configurable": namespace | {"checkpoint_id": raw.checkpoint_id}}
        tasks: dict[tuple[str, str], list[GraphWrite]] = {}
        for write in raw.writes:
            tasks.setdefault((write.task_id, write.task_path), []).append(write)
        for (task_id, task_path), writes in tasks.items():
            pairs = [(write.channel, write.value) for write in in_positions(writes)]
            await self._saver.aput_writes(here, pairs, task_id, task_path)


def _moment(raw: GraphCheckpoint, thread_id: str) -> datetime:
    try:
        moment = datetime.fromisoformat(raw.checkpoint["ts"])
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptCheckpointError(
            f"checkpoint {raw.checkpoint_id!r} of thread {thread_id!r} has no time that can be read"
        ) from error
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


SaverKey = tuple[str, str, str]
"""Thread id, namespace and checkpoint id."""

Channels = dict[str, dict[str, tuple[str, Any]]]
"""The version and the value that were read last, by namespace and channel."""


class SaverRow(NamedTuple):
    """The row of a checkpoint, decoded."""

    parent_id: str | None
    checkpoint: dict[str, Any]
    metadata: dict[str, Any]


class SaverTables(TableSource):
    """The threads in the tables of one of LangGraph's savers. Checkpoints are large, so they are read one by one.

    `allowed_types` are the classes that states may contain, beyond those that LangGraph considers safe, and `aliases`
    the names from which some of them have moved.
    """

    def __init__(
        self, database: TableReader, allowed_types: Collection[type], aliases: Mapping[tuple[str, str], type]
    ) -> None:
        super().__init__(database)
        self._allowed = tuple(allowed_types)
        self._values = ValueReader(allowed_types, aliases)
        self._missing: dict[str, MissingClasses] = {}
        """The classes that are not allowed, by thread id."""

    @property
    def missing(self) -> list[str]:
        """The classes, as `module:name`, that the threads read so far contain and that are not allowed."""
        return sorted({name for missing in self._missing.values() for name in missing.places})

    async def ids(self) -> Iterable[str]:
        await self._check()
        rows = await self._database.all(f"SELECT DISTINCT thread_id FROM {self._database.place('checkpoints')}")
        return [str(name) for (name,) in rows]

    @abstractmethod
    async def _check(self) -> None:
        """Raise `ConfigurationError` if these are not the tables of the saver."""

    @abstractmethod
    async def _keys(self, thread_id: str) -> list[SaverKey]:
        """The keys of the checkpoints of a thread, in order."""

    @abstractmethod
    async def _checkpoint_row(self, key: SaverKey, channels: Channels, missing: MissingClasses) -> SaverRow | None:
        """Read a checkpoint. `channels` has the values read before in this thread, and is updated."""

    @abstractmethod
    async def _write_rows(self, key: SaverKey) -> list[SourceRow]:
        """The rows of the pending writes of a checkpoint, in their order, with the columns of a `GraphWrite`.

        The value is two columns, its type and its bytes.
        """

    async def checkpoints(self, thread_id: str) -> AsyncGenerator[MovedCheckpoint, None]:
        """The checkpoints of a thread, oldest first.

        All are converted before the first is moved, because a graph must never continue from the middle of a thread
        that could not be moved completely. They are in memory anyway.
        """
        converter = _Converter(thread_id, self._allowed)
        async with aclosing(self._graph_checkpoints(thread_id)) as raw_checkpoints:
            converted = [await converter.checkpoint(raw) async for raw in raw_checkpoints]
        for checkpoint in converted:
            yield checkpoint

    async def _graph_checkpoints(self, thread_id: str) -> AsyncGenerator[GraphCheckpoint, None]:
        """The checkpoints of a thread, in order. After a class that is not allowed, it goes on only to find others."""
        channels: Channels = {}
        missing = self._missing[thread_id] = MissingClasses()
        for key in await self._keys(thread_id):
            row = await self._checkpoint_row(key, channels, missing)
            if row is None:
                raise ConflictError(f"thread {thread_id!r} was changed while it was read; try again")
            parent, checkpoint, metadata = row
            if parent and checkpoint.get("v", 0) < 4:
                before = await self._writes((thread_id, key[1], parent), missing)
                checkpoint = _with_sends(checkpoint, [write.value for write in before if write.channel == TASKS])
            writes = await self._writes(key, missing)
            if not missing.places:
                yield GraphCheckpoint(key[1], key[2], parent, checkpoint, metadata, writes)
        missing.check()
        del self._missing[thread_id]

    async def _writes(self, key: SaverKey, missing: MissingClasses) -> list[GraphWrite]:
        writes = []
        for task_id, task_path, idx, channel, kind, data in await self._write_rows(key):
            where = f"what was written to channel {channel!r} after {_described(key)}"
            value = self._values.read(kind, data, where, missing)
            writes.append(GraphWrite(task_id, task_path, idx, channel, value))
        return writes


def _with_sends(checkpoint: dict[str, Any], sends: Sequence[Any]) -> dict[str, Any]:
    """Add `Send` objects to a checkpoint of a format before 4, which kept them as writes of its parent."""
    if not sends:
        return checkpoint
    versions = checkpoint.get("channel_versions") or {}
    values = checkpoint.get("channel_values") or {}
    return {
        **checkpoint,
        "channel_values": {**values, TASKS: [*sends]},
        "channel_versions": {**versions, TASKS: max(versions.values()) if versions else 1},
    }


_WHERE_KEY = "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"


class SQLiteTables(SaverTables):
    """The tables of `SqliteSaver` and `AsyncSqliteSaver`."""

    async def _check(self) -> None:
        columns = await self._database.columns("checkpoints")
        if not {"thread_id", "checkpoint_ns", "type", "checkpoint", "metadata"} <= columns:
            path = self._database.name.removeprefix("sqlite:")
            raise ConfigurationError(f"{path!r} has no table checkpoints of LangGraph's SqliteSaver")

    async def _keys(self, thread_id: str) -> list[SaverKey]:
        rows = await self._database.all(
            "SELECT checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = ?"
            " ORDER BY checkpoint_id, checkpoint_ns",
            (thread_id,),
        )
        return [(thread_id, namespace, checkpoint_id) for namespace, checkpoint_id in rows]

    async def _checkpoint_row(self, key: SaverKey, channels: Channels, missing: MissingClasses) -> SaverRow | None:
        rows = await self._database.all(
            f"SELECT parent_checkpoint_id, type, checkpoint, metadata FROM checkpoints {_WHERE_KEY}", key
        )
        for parent, kind, data, metadata in rows:
            value = self._values.read(kind, data, _described(key), missing)
            checkpoint = _as_dict({} if missing.places else value, _described(key))
            about = {} if metadata is None else decode(metadata)
            return SaverRow(parent or None, checkpoint, _as_dict(about, f"the metadata of {_described(key)}"))
        return None

    async def _write_rows(self, key: SaverKey) -> list[SourceRow]:
        # A file that only an older LangGraph has opened lacks task paths.
        path = "task_path" if "task_path" in await self._database.columns("writes") else "''"
        columns = f"task_id, {path}, idx, channel, type, value"
        return await self._database.all(f"SELECT {columns} FROM writes {_WHERE_KEY} ORDER BY 2, 1, 3", key)


class PostgreSQLTables(SaverTables):
    """The tables of `PostgresSaver` and `AsyncPostgresSaver`."""

    @property
    def name(self) -> str:
        return f"{self._database.name}/{self._database.place('checkpoints')}"

    async def _check(self) -> None:
        blobs = await self._database.columns("checkpoint_blobs")
        writes = await self._database.columns("checkpoint_writes")
        if not {"thread_id", "checkpoint_ns", "channel", "version", "blob"} <= blobs or "task_path" not in writes:
            raise ConfigurationError(
                f"{self._database.name} has no tables {self._database.place('checkpoint_blobs')} and checkpoint_writes "
                "of LangGraph's PostgresSaver, or older ones: name their schema with ?schema_name=… in the URL, if "
                "they have one of their own; and let a recent PostgresSaver run its setup() once, if they are old"
            )

    async def _keys(self, thread_id: str) -> list[SaverKey]:
        rows = await self._database.all(
            f"SELECT checkpoint_ns, checkpoint_id FROM {self._database.place('checkpoints')} WHERE thread_id = ?"
            ' ORDER BY checkpoint_id COLLATE "C", checkpoint_ns COLLATE "C"',
            (thread_id,),
        )
        return [(thread_id, namespace, checkpoint_id) for namespace, checkpoint_id in rows]

    async def _checkpoint_row(self, key: SaverKey, channels: Channels, missing: MissingClasses) -> SaverRow | None:
        columns = "parent_checkpoint_id, checkpoint::text, metadata::text"
        rows = await self._database.all(
            f"SELECT {columns} FROM {self._database.place('checkpoints')} {_WHERE_KEY}", key
        )
        for parent, text, metadata in rows:
            checkpoint = _as_dict(decode(text), _described(key))
            known = channels.setdefault(key[1], {})
            await self._update_channels(key, checkpoint.get("channel_versions") or {}, known, missing)
            values = {channel: value for channel, (_, value) in known.items()}
            whole = {**checkpoint, "channel_values": {**(checkpoint.get("channel_values") or {}), **values}}
            return SaverRow(parent or None, whole, _as_dict(decode(metadata), f"the metadata of {_described(key)}"))
        return None

    async def _update_channels(
        self,
        key: SaverKey,
        versions: dict[str, Any],
        known: dict[str, tuple[str, Any]],
        missing: MissingClasses,
    ) -> None:
        """Read the values of channels whose version has changed, and drop those of channels that are gone."""
        wanted = {channel: str(version) for channel, version in versions.items()}
        for channel in [name for name, (version, _) in known.items() if wanted.get(name) != version]:
            del known[channel]
        for channel in wanted.keys() - known.keys():
            rows = await self._database.all(
                f"SELECT type, blob FROM {self._database.place('checkpoint_blobs')}"
                " WHERE thread_id = ? AND checkpoint_ns = ? AND channel = ? AND version = ?",
                (*key[:2], channel, wanted[channel]),
            )
            for kind, data in rows:
                if kind != EMPTY:
                    where = f"channel {channel!r} of {_described(key)}"
                    known[channel] = (wanted[channel], self._values.read(kind, data, where, missing))

    async def _write_rows(self, key: SaverKey) -> list[SourceRow]:
        columns, table = "task_id, task_path, idx, channel, type, blob", self._database.place("checkpoint_writes")
        return await self._database.all(f"SELECT {columns} FROM {table} {_WHERE_KEY} ORDER BY 2, 1, 3", key)


def _described(key: SaverKey) -> str:
    return f"checkpoint {key[2]!r} of thread {key[0]!r}"


def _as_dict(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CorruptCheckpointError(f"{where} is not what LangGraph writes")
    return value
