"""Reads the checkpoints of a Locus store in the order of their commits, and each item only once."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing

from locus.errors import CorruptCheckpointError
from locus.looking.reading import exported_pages
from locus.memory.model.ids import Pattern
from locus.memory.model.records import Stored, Write
from locus.memory.store import CheckpointStore
from locus.transfer.content import MovedCheckpoint, StoredContent
from locus.transfer.items import ThreadItems
from locus.transfer.sources import Source


class StoreSource(Source):
    """A Locus store to move threads from."""

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store

    @property
    def name(self) -> str:
        return self._store.engine.identity

    async def ids(self) -> Iterable[str]:
        return await self.threads(Pattern())

    async def threads(self, pattern: Pattern) -> list[str]:
        """The ids of the threads that match, chosen by the store itself."""
        async with self._store.using() as engine:
            return await engine.threads(pattern, None)

    def checkpoints(self, thread_id: str) -> AsyncGenerator[MovedCheckpoint, None]:
        return checkpoints(self._store, thread_id)

    async def close(self) -> None:
        await self._store.close()


async def checkpoints(store: CheckpointStore, thread_id: str) -> AsyncGenerator[MovedCheckpoint, None]:
    """The checkpoints of a thread, in all its namespaces, oldest first."""
    items = ThreadItems()
    async with aclosing(exported_pages(store, thread_id, lambda: items.known)) as pages:
        async for page in pages:
            items.add(page.runs)
            for stored in page.checkpoints:
                yield stored_checkpoint(stored, items, page.writes)


def stored_checkpoint(
    stored: Stored, items: ThreadItems, writes: Mapping[tuple[str, str], Sequence[Write]]
) -> MovedCheckpoint:
    """A checkpoint as a store has exported it, with those of the pending writes that are its own."""
    entry = stored.entry
    try:
        content = StoredContent(stored.head, stored.manifest, items)
    except CorruptCheckpointError as error:
        raise CorruptCheckpointError(
            f"checkpoint {entry.checkpoint_id!r} of thread {entry.thread_id!r} cannot be read: {error}"
        ) from error
    return MovedCheckpoint(
        namespace=entry.namespace,
        checkpoint_id=entry.checkpoint_id,
        parent_id=entry.parent_id,
        created_at=entry.created_at,
        metadata=entry.metadata,
        content=content,
        writes=tuple(writes.get((entry.namespace, entry.checkpoint_id), ())),
    )
