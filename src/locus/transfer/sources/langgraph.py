"""Threads of LangGraph's own savers, in SQLite and PostgreSQL; `LocusSaver` goes on with them.

Every checkpoint is put, as it comes, by a `LocusSaver` into a store in memory, and what that makes of it is moved: so
it is exactly what the saver would have saved. The order is that of the checkpoints' ids, which is LangGraph's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from locus.errors import ConflictError, CorruptCheckpointError
from locus.extras import require
from locus.memory.backends.memory import MemoryCheckpointer
from locus.memory.engine import Exports
from locus.memory.model.ids import Pattern
from locus.transfer.content import Checkpoint, Records
from locus.transfer.items import Shelf
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
        engine = store.threads.engine
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
