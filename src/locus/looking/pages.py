"""Reads a thread in the order of its commits, each item once, on any store."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Final

from locus.errors import ConflictError
from locus.memory.engine import Exports, KeepsWrites
from locus.memory.model.records import Entry, Exported, Write
from locus.memory.store import CheckpointStore

PAGE: Final = 500
"""How many checkpoints are read in one request, if they are not large."""


async def exported_pages(
    store: CheckpointStore, thread_id: str, known: Callable[[], Mapping[str, int]], *, whole: bool = True
) -> AsyncGenerator[Exported, None]:
    """The checkpoints of a thread, of all its namespaces, oldest first.

    `known` is asked before each page: the newest run of each branch that the caller has already. `ConflictError` if the
    thread is deleted between two pages, and perhaps written again: what was read is not all, or is of two threads.
    Without `whole`, that is no error.
    """
    async with store.using() as engine:
        # Some engines know what they offer only once they are connected.
        exports = engine.offers(Exports)
    if not isinstance(engine, Exports) or not exports:
        async for page in _one_by_one(store, thread_id):
            yield page
        return
    last: Entry | None = None
    is_full = False
    while True:
        async with store.using():
            page = await engine.export(thread_id, 0 if last is None else last.seq, PAGE, known())
        if whole and last is not None and (page.checkpoints or is_full):
            # Asked after the page was read, so that it tells of what was there then.
            there = await store.entry(thread_id, last.checkpoint_id, last.namespace)
            if there is None or there.rev != last.rev:
                raise _changed(thread_id)
        if not page.checkpoints:
            break
        yield page
        last = page.checkpoints[-1].entry
        is_full = page.more or len(page.checkpoints) >= PAGE


async def _one_by_one(store: CheckpointStore, thread_id: str) -> AsyncGenerator[Exported, None]:
    """For stores that return one checkpoint at a time, with all of its items."""
    for entry in reversed(await store.history(thread_id, None, None, None)):
        key = (entry.namespace, entry.checkpoint_id)
        stored = await store.read(thread_id, entry.checkpoint_id, entry.namespace)
        if stored is None or stored.entry.rev != entry.rev:
            raise _changed(thread_id)
        writes: list[Write] = []
        if isinstance(store.engine, KeepsWrites) and store.keeps_writes:
            writes = await store.get_writes(thread_id, entry.checkpoint_id, task_id=None, namespace=entry.namespace)
        yield Exported([stored], [run for runs in stored.runs.values() for run in runs], {key: writes})


def _changed(thread_id: str) -> ConflictError:
    return ConflictError(f"thread {thread_id!r} was changed while it was read; try again")
