"""The versioned saver: it keeps checkpoints with parents, namespaces and pending writes, in the terms of LangGraph.

It is one more way to use a store, beside the checkpointer and the storage backend: each of them can load what another
has saved. All arguments are keywords.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict

from locus.errors import ConfigurationError
from locus.memory.checkpointer import RecentThreads, StoreVerbs, compared_with, metadata_of, recent_threads
from locus.memory.engine import CheckpointerCapabilities
from locus.memory.model.changes import PAGE, PayloadDiff
from locus.memory.model.codec import decode
from locus.memory.model.ids import check_id
from locus.memory.model.payloads import dict_from, dict_payload
from locus.memory.model.records import ANY, DEFAULT_NAMESPACE, CheckpointKey, Entry, Stored, Unset
from locus.memory.model.warm import TEXTS
from locus.memory.runtime.once import made_once
from locus.memory.storage import StorageBackend
from locus.memory.store import SPECIAL_CHANNELS, CheckpointStore

if TYPE_CHECKING:
    from locus.memory.sync import SyncCheckpointSaver

_AT_ONCE = 8


class CheckpointInfo(TypedDict):
    """The facts about a checkpoint, without its payload."""

    checkpoint_id: str
    parent_checkpoint_id: str | None
    metadata: dict[str, Any]
    created_at: datetime


class SavedCheckpoint(CheckpointInfo):
    """A checkpoint with its payload."""

    checkpoint: dict[str, Any]


class SavedWrite(TypedDict):
    """A value that a task wrote before its step was complete."""

    task_id: str
    idx: int
    channel: str
    value: Any
    task_path: str


class CheckpointSaver:
    """Keeps versions of dicts by thread and namespace, in any Locus store.

    `store` is a checkpointer, a storage backend, or a name or URL of the registry. The laws are those of
    `BaseCheckpointer`. `checkpoint_ns` may be any text: `""`, which LangGraph uses, is not the namespace `"default"`.
    """

    def __init__(self, store: Any) -> None:
        self.store = store_of(store)

    @property
    def capabilities(self) -> CheckpointerCapabilities:
        """The features that this store has beyond saving, loading and listing."""
        return self.store.capabilities

    @property
    def backend(self) -> StorageBackend:
        """A storage backend on the same store, for search, queries by metadata and vacuum."""
        return StorageBackend(self.store)

    async def put(
        self,
        *,
        thread_id: str,
        checkpoint_id: str,
        checkpoint_data: dict[str, Any],
        checkpoint_ns: str = DEFAULT_NAMESPACE,
        parent_checkpoint_id: str | None | Unset = None,
        metadata: dict[str, Any] | None = None,
        if_latest: str | None | Unset = ANY,
    ) -> None:
        """Keep a dict as the newest checkpoint of a namespace.

        The parent is kept as it is named, whether or not that checkpoint exists; `None` means no parent, and `ANY` the
        latest checkpoint. A put of equal data and metadata under an existing id changes nothing, so it can be repeated
        safely; a different one replaces the checkpoint, which becomes the newest. `if_latest` names the checkpoint that
        must still be the latest (`None`: there must be none). If it is not, `ConflictError` is raised and nothing is
        written.
        """
        await self.store.save(
            thread_id,
            dict_payload(checkpoint_data),
            namespace=checkpoint_ns,
            checkpoint_id=checkpoint_id,
            metadata={} if metadata is None else metadata,
            parent=parent_checkpoint_id,
            parent_as_named=True,
            if_latest=if_latest,
        )

    async def get(
        self, *, thread_id: str, checkpoint_id: str | None = None, checkpoint_ns: str = DEFAULT_NAMESPACE
    ) -> SavedCheckpoint | None:
        """Load a checkpoint of a namespace, by default the latest; `None` if there is none."""
        loaded = await self.store.load(thread_id, checkpoint_id, checkpoint_ns, TEXTS)
        return None if loaded is None else _checkpoint(loaded.value)

    async def list_checkpoints(
        self,
        *,
        thread_id: str,
        checkpoint_ns: str = DEFAULT_NAMESPACE,
        limit: int | None = 10,
        before: str | None = None,
    ) -> list[SavedCheckpoint]:
        """The checkpoints of a namespace, newest first. With `before`, an id, only those older than it.

        Each is read whole. `history` lists them without their payloads, and costs next to nothing.
        """
        entries = await self.store.history(thread_id, limit, before, checkpoint_ns)
        saved: list[SavedCheckpoint] = []
        for start in range(0, len(entries), _AT_ONCE):
            part = entries[start : start + _AT_ONCE]
            whole = await asyncio.gather(
                *(
                    self.get(thread_id=thread_id, checkpoint_id=e.checkpoint_id, checkpoint_ns=checkpoint_ns)
                    for e in part
                )
            )
            saved += [checkpoint for checkpoint in whole if checkpoint is not None]
        return saved

    async def history(
        self,
        *,
        thread_id: str,
        checkpoint_ns: str = DEFAULT_NAMESPACE,
        limit: int | None = 10,
        before: str | None = None,
    ) -> list[CheckpointInfo]:
        """The checkpoints of a namespace without their payloads, newest first."""
        return [_info(entry) for entry in await self.store.history(thread_id, limit, before, checkpoint_ns)]

    async def diff(
        self,
        *,
        thread_id: str,
        checkpoint_id: str,
        other_checkpoint_id: str,
        checkpoint_ns: str = DEFAULT_NAMESPACE,
        other_thread_id: str | None = None,
        other_checkpoint_ns: str | None = None,
        start: int = 0,
        limit: int = PAGE,
    ) -> PayloadDiff:
        """The changes from one checkpoint to another, of this thread and namespace unless others are named.

        The cost is that of the differences. They come in pages: `start` and `limit` choose one, `limit=0` only counts.
        """
        old = CheckpointKey(thread_id, checkpoint_ns, checkpoint_id)
        new = compared_with(old, other_checkpoint_id, other_thread_id, other_checkpoint_ns)
        return await self.store.diff(old, new, start, limit)

    async def put_writes(
        self,
        *,
        thread_id: str,
        checkpoint_id: str,
        task_id: str,
        writes: Sequence[tuple[str, Any]],
        checkpoint_ns: str = DEFAULT_NAMESPACE,
        task_path: str = "",
    ) -> None:
        """Keep the writes of a task since a checkpoint, as `(channel, value)`. A second call replaces them.

        Writes to the channels `__error__`, `__scheduled__`, `__interrupt__` and `__resume__` have negative indexes.
        They and the other writes, whose indexes count from 0, do not replace each other.
        """
        writes = list(writes)
        await self.store.put_writes(
            thread_id,
            checkpoint_id,
            task_id,
            writes,
            task_path=task_path,
            namespace=checkpoint_ns,
            keep_numbered=bool(writes) and all(channel in SPECIAL_CHANNELS for channel, _ in writes),
        )

    async def get_writes(
        self,
        *,
        thread_id: str,
        checkpoint_id: str,
        checkpoint_ns: str = DEFAULT_NAMESPACE,
        task_id: str | None = None,
    ) -> list[SavedWrite]:
        """The writes of tasks, or of one, since a checkpoint, ordered by task path, task and index."""
        pending = await self.store.get_writes(thread_id, checkpoint_id, task_id=task_id, namespace=checkpoint_ns)
        return [
            SavedWrite(
                task_id=write.task_id,
                idx=write.idx,
                channel=write.channel,
                value=decode(write.value),
                task_path=write.task_path,
            )
            for write in pending
        ]

    async def delete_thread(self, *, thread_id: str) -> None:
        """Delete a thread: the checkpoints and pending writes of all its namespaces."""
        await self.store.delete(thread_id, None, None)

    async def delete_checkpoint(
        self, *, thread_id: str, checkpoint_id: str, checkpoint_ns: str = DEFAULT_NAMESPACE
    ) -> bool:
        """Delete a checkpoint with its pending writes; its children get its parent. True if it existed."""
        return await self.store.delete(thread_id, checkpoint_id, checkpoint_ns)

    async def delete_checkpoints(
        self, *, thread_id: str, checkpoint_ids: Collection[str], checkpoint_ns: str = DEFAULT_NAMESPACE
    ) -> int:
        """Delete several checkpoints in one step, and return how many existed."""
        chosen = frozenset(checkpoint_ids)
        for checkpoint_id in chosen:
            check_id(checkpoint_id, "checkpoint_id")
        entries = await self.store.history(thread_id, None, None, checkpoint_ns)
        doomed = {entry.seq: entry.rev for entry in entries if entry.checkpoint_id in chosen}
        return await self.store.delete_found(thread_id, checkpoint_ns, doomed)

    async def copy_thread(
        self,
        *,
        source_thread_id: str,
        dest_thread_id: str,
        checkpoint_id: str | None = None,
        checkpoint_ns: str = DEFAULT_NAMESPACE,
        ancestors: int | Literal["all"] = "all",
    ) -> bool:
        """Copy a thread with all its namespaces and pending writes, or one checkpoint with its ancestors.

        `ancestors` is how many of those are copied, the nearest first; the farthest then has no parent. False if there
        is nothing to copy; `ConflictError` if the new id is in use.
        """
        return await self.store.copy(source_thread_id, dest_thread_id, checkpoint_id, checkpoint_ns, ancestors)

    async def list_threads(
        self, *, limit: int | None = 100, pattern: str = "*", after: str | None = None, prefix: str = ""
    ) -> list[str]:
        """The ids of threads that match a pattern (`*` any text, `?` one character), in the order of code points.

        With `after`, the last id of the page before, the list begins behind it. `prefix` is text that ids must start
        with.
        """
        return await self.store.list_threads(limit, pattern, after=after, prefix=prefix)

    async def recent_threads(
        self, *, limit: int = 50, before: str | None = None, prefix: str = "", titles: bool = False
    ) -> RecentThreads:
        """The threads that were saved most recently, newest first, each once. See `BaseCheckpointer.recent_threads`."""
        return await recent_threads(self.store, limit, before, prefix, titles=titles)

    async def list_namespaces(self, *, thread_id: str) -> list[str]:
        """The namespaces in which a thread has checkpoints, in order."""
        return await self.store.namespaces(thread_id)

    @made_once
    def sync(self) -> SyncCheckpointSaver:
        """This saver with blocking methods, which any thread may call."""
        from locus.memory.sync import SyncCheckpointSaver

        return SyncCheckpointSaver(self)

    async def close(self) -> None:
        """Close the store. A later use opens it again."""
        await self.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self.store.engine).__name__})"


def store_of(store: Any) -> CheckpointStore:
    """The store behind a checkpointer, a storage backend, a name or a URL."""
    if isinstance(store, StoreVerbs | CheckpointSaver):
        return store.store
    from locus.memory.registry import as_checkpointer

    found = as_checkpointer(store)
    if isinstance(found, StoreVerbs):
        return found.store
    raise ConfigurationError(
        f"a saver keeps dicts with parents and namespaces, and {type(found).__name__} keeps only AgentState: "
        "use a Locus backend, or an object with the methods of a storage backend"
    )


def _info(entry: Entry) -> CheckpointInfo:
    return CheckpointInfo(
        checkpoint_id=entry.checkpoint_id,
        parent_checkpoint_id=entry.parent_id,
        metadata=metadata_of(entry),
        created_at=entry.created_at,
    )


def _checkpoint(stored: Stored) -> SavedCheckpoint:
    return SavedCheckpoint(**_info(stored.entry), checkpoint=dict_from(stored))
