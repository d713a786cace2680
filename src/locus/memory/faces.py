"""What both faces of a store, checkpointer and storage backend, have in common: everything but the payload."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from locus.errors import CorruptCheckpointError
from locus.memory.checkpointer import DEFAULT_NAMESPACE, CheckpointerCapabilities, HistoryEntry, PendingWrite
from locus.memory.model.codec import decode
from locus.memory.model.records import Entry
from locus.memory.store import Threads


class _Days(int):
    """A number of days that nobody asked for."""


THIRTY_DAYS: Final = _Days(30)
"""The default age. It gives way to `keep_last`, where an age that was asked for does not."""


class ThreadsFace:
    """The verbs over `self.threads` that do not depend on what a payload is."""

    if TYPE_CHECKING:  # as text only, or a face that is a pydantic model would have it for a field
        threads: Threads

    @property
    def capabilities(self) -> CheckpointerCapabilities:
        return self.threads.capabilities

    async def list_checkpoints(
        self, thread_id: str, limit: int = 10, *, namespace: str = DEFAULT_NAMESPACE
    ) -> list[str]:
        return [entry.checkpoint_id for entry in await self.threads.history(thread_id, limit, None, namespace)]

    async def history(
        self,
        thread_id: str,
        limit: int | None = 10,
        before: str | None = None,
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> list[HistoryEntry]:
        return [history_entry(entry) for entry in await self.threads.history(thread_id, limit, before, namespace)]

    async def delete(self, thread_id: str, checkpoint_id: str | None = None, *, namespace: str | None = None) -> bool:
        """Delete one checkpoint, or the whole thread; with a namespace but no id, that namespace."""
        if checkpoint_id is not None and namespace is None:
            namespace = DEFAULT_NAMESPACE
        return await self.threads.delete(thread_id, checkpoint_id, namespace)

    async def exists(self, thread_id: str, checkpoint_id: str | None = None, *, namespace: str | None = None) -> bool:
        """Whether that checkpoint, or any of the thread (or of that namespace of it), is there."""
        if checkpoint_id is None:
            return bool(await self.threads.history(thread_id, 1, None, namespace))
        return (
            await self.threads.entry(thread_id, checkpoint_id, DEFAULT_NAMESPACE if namespace is None else namespace)
            is not None
        )

    async def search(self, query: str, limit: int = 10) -> list[dict[str, Any]]:
        return [
            {**entry_dict(hit.entry), "score": hit.score, "snippet": hit.snippet}
            for hit in await self.threads.search(query, limit)
        ]

    async def query_by_metadata(self, key: str, value: Any, limit: int = 100) -> list[dict[str, Any]]:
        return [entry_dict(entry) for entry in await self.threads.find(key, value, limit)]

    async def get_metadata(
        self, thread_id: str, checkpoint_id: str | None = None, *, namespace: str = DEFAULT_NAMESPACE
    ) -> dict[str, Any] | None:
        entry = await self.threads.entry(thread_id, checkpoint_id, namespace)
        return None if entry is None else metadata_of(entry)

    async def vacuum(
        self, older_than_days: float = THIRTY_DAYS, *, keep_last: int | None = None, dry_run: bool = False
    ) -> int:
        """Delete old checkpoints, and return how many.

        By age (`older_than_days`), by number (`keep_last` of each line of history; every fork is a line of
        its own), or by both, and then both must hold. Threads that have nothing left are gone.
        `dry_run=True` only counts.
        """
        by_number_only = keep_last is not None and older_than_days is THIRTY_DAYS
        return await self.threads.vacuum(None if by_number_only else older_than_days, keep_last, dry_run)

    async def copy_thread(
        self,
        source_thread_id: str,
        dest_thread_id: str,
        checkpoint_id: str | None = None,
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> bool:
        """Copy a thread under a new id: whole, or one checkpoint with its ancestors.

        False if there is nothing to copy; `ConflictError` if the new id is in use.
        """
        return await self.threads.copy(source_thread_id, dest_thread_id, checkpoint_id, namespace)

    async def list_threads(self, limit: int | None = 100, pattern: str = "*") -> list[str]:
        return await self.threads.list_threads(limit, pattern)

    async def list_with_metadata(self, limit: int = 100) -> list[dict[str, Any]]:
        return [entry_dict(entry) for entry in await self.threads.recent(limit)]

    async def put_writes(
        self,
        thread_id: str,
        checkpoint_id: str,
        task_id: str,
        writes: Sequence[tuple[str, Any]],
        *,
        task_path: str = "",
        namespace: str = DEFAULT_NAMESPACE,
    ) -> None:
        await self.threads.put_writes(
            thread_id, checkpoint_id, task_id, writes, task_path=task_path, namespace=namespace
        )

    async def get_writes(
        self,
        thread_id: str,
        checkpoint_id: str,
        task_id: str | None = None,
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> list[PendingWrite]:
        writes = await self.threads.get_writes(thread_id, checkpoint_id, task_id=task_id, namespace=namespace)
        return [
            PendingWrite(write.task_id, write.idx, write.channel, decode(write.value), write.task_path)
            for write in writes
        ]

    async def close(self) -> None:
        await self.threads.close()


def metadata_of(entry: Entry) -> dict[str, Any]:
    metadata = decode(entry.metadata)
    if not isinstance(metadata, dict):
        raise CorruptCheckpointError(f"the metadata of checkpoint {entry.checkpoint_id!r} is no object")
    return metadata


def history_entry(entry: Entry) -> HistoryEntry:
    return HistoryEntry(
        thread_id=entry.thread_id,
        checkpoint_id=entry.checkpoint_id,
        parent_id=entry.parent_id,
        seq=entry.seq,
        created_at=entry.created_at,
        metadata=metadata_of(entry),
        namespace=entry.namespace,
    )


def entry_dict(entry: Entry) -> dict[str, Any]:
    return dict(vars(history_entry(entry)))
