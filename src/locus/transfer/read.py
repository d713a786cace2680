"""Reads the checkpoints of a Locus store in the order of their commits, each item once."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

from locus.errors import ConflictError, CorruptCheckpointError
from locus.memory.engine import Exports, KeepsWrites
from locus.memory.model.ids import Pattern
from locus.memory.model.records import Exported, Stored, Write
from locus.memory.store import CheckpointStore
from locus.transfer.content import Checkpoint, StoredContent
from locus.transfer.items import ThreadItems

PAGE = 500
"""How many checkpoints are read in one request."""


class StoreSource:
    """A Locus store to move threads from."""

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store

    @property
    def name(self) -> str:
        return self._store.engine.identity

    async def threads(self, pattern: Pattern) -> list[str]:
        async with self._store.using() as engine:
            return await engine.threads(pattern, None)

    def checkpoints(self, thread_id: str) -> AsyncGenerator[Checkpoint, None]:
        return checkpoints(self._store, thread_id)

    async def close(self) -> None:
        await self._store.close()


async def checkpoints(store: CheckpointStore, thread_id: str) -> AsyncGenerator[Checkpoint, None]:
    """The checkpoints of a thread, in all its namespaces, oldest first."""
    items = ThreadItems()
    async with aclosing(_pages(store, thread_id, items)) as pages:
        async for page in pages:
            items.add(page.runs)
            for stored in page.checkpoints:
                yield _checkpoint(stored, items, page.writes)


def _checkpoint(stored: Stored, items: ThreadItems, writes: Mapping[tuple[str, str], Sequence[Write]]) -> Checkpoint:
    entry = stored.entry
    try:
        content = StoredContent(stored.head, stored.manifest, items)
    except CorruptCheckpointError as error:
        raise CorruptCheckpointError(
            f"checkpoint {entry.checkpoint_id!r} of thread {entry.thread_id!r} cannot be read: {error}"
        ) from error
    return Checkpoint(
        namespace=entry.namespace,
        checkpoint_id=entry.checkpoint_id,
        parent_id=entry.parent_id,
        created_at=entry.created_at,
        metadata=entry.metadata,
        content=content,
        writes=tuple(writes.get((entry.namespace, entry.checkpoint_id), ())),
    )


async def _pages(store: CheckpointStore, thread_id: str, items: ThreadItems) -> AsyncGenerator[Exported, None]:
    async with store.using() as engine:
        # Some engines know what they offer only once they are connected.
        exports = engine.offers(Exports)
    if not isinstance(engine, Exports) or not exports:
        async for page in _one_by_one(store, thread_id):
            yield page
        return
    after = 0
    while True:
        async with store.using():
            page = await engine.export(thread_id, after, PAGE, items.known)
        if not page.checkpoints:
            return
        yield page
        after = page.checkpoints[-1].entry.seq


async def _one_by_one(store: CheckpointStore, thread_id: str) -> AsyncGenerator[Exported, None]:
    """For stores that return one checkpoint at a time, with all of its items."""
    for entry in reversed(await store.history(thread_id, None, None, None)):
        key = (entry.namespace, entry.checkpoint_id)
        stored = await store.read(thread_id, entry.checkpoint_id, entry.namespace)
        if stored is None or stored.entry.rev != entry.rev:
            raise ConflictError(f"thread {thread_id!r} was changed while it was read; try again")
        writes: list[Write] = []
        if isinstance(store.engine, KeepsWrites) and store.keeps_writes:
            writes = await store.get_writes(thread_id, entry.checkpoint_id, task_id=None, namespace=entry.namespace)
        yield Exported([stored], [run for runs in stored.runs.values() for run in runs], {key: writes})
