"""Reads the threads that are stored at the end of a round, with a new handle that remembers nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from locus.errors import BackendUnavailableError, CorruptCheckpointError
from locus.memory.checkpointer import Checkpointer, HistoryEntry
from locus.memory.model.manifest import wanted
from locus.memory.model.records import DEFAULT_NAMESPACE
from locus.memory.model.retention import unneeded_runs
from locus.testing.campaign.history import History
from locus.testing.campaign.recorded import writes_digest
from locus.testing.processes.jobs import digest

PAGE: Final = 500
AT_ONCE: Final = 8
"""How many threads are read at the same time."""
READINGS: Final = 10
"""How often a thread is read until it is at rest: a server may still carry out requests of killed clients."""
WAIT_SECONDS: Final = 60.0
"""How long a store may be unreachable after its faults are over."""


@dataclass(frozen=True)
class FoundCheckpoint:
    """A stored checkpoint, loaded by its id."""

    checkpoint_id: str
    parent_id: str | None
    seq: int
    op: str | None
    """The name of the save that sent it, from its metadata."""
    digest: str | None
    """The digest of its state; None if it cannot be loaded."""
    damage: str = ""
    created_at: float = 0.0
    """The time of the checkpoint in the store, in seconds since 1970."""


@dataclass(frozen=True)
class FoundThread:
    """A stored thread. Its checkpoints are in the order of their sequence numbers."""

    thread_id: str
    checkpoints: tuple[FoundCheckpoint, ...] = ()
    latest: str | None = None
    """The digest of the state that a load without an id returns."""
    listed: tuple[str, ...] = ()
    """The ids that `list_checkpoints` returns, newest first."""
    writes: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """The digests of pending writes, by checkpoint id and task."""
    orphaned_runs: int = 0
    """How many runs no checkpoint needs. Only the SQL databases and Redis list all runs of a thread."""
    damage: str = ""
    """The reason why the thread cannot be read as a whole; empty if it can."""


def ancestors(thread: FoundThread, checkpoint_id: str) -> list[FoundCheckpoint]:
    """A checkpoint of a thread and its ancestors, newest first."""
    by_id = {checkpoint.checkpoint_id: checkpoint for checkpoint in thread.checkpoints}
    line: list[FoundCheckpoint] = []
    at: str | None = checkpoint_id
    while at is not None and at in by_id:
        line.append(by_id.pop(at))
        at = line[-1].parent_id
    return line


def places_of_writes(history: History) -> dict[str, set[tuple[str, str]]]:
    """The checkpoints and tasks for which clients have put pending writes, by thread."""
    places: dict[str, set[tuple[str, str]]] = {}
    for operation in history.of_kind("writes"):
        if operation.facts["namespace"] == DEFAULT_NAMESPACE:
            places.setdefault(operation.thread, set()).add((operation.facts["id"], operation.facts["task"]))
    return places


async def find_threads(
    checkpointer: Checkpointer, prefix: str, writes: Mapping[str, Collection[tuple[str, str]]]
) -> dict[str, FoundThread]:
    """Read all threads whose ids start with a prefix. `writes` has the places to look for pending writes in."""
    threads: dict[str, FoundThread] = {}
    after: str | None = None
    while page := await checkpointer.list_threads(PAGE, prefix=prefix, after=after):
        threads |= await read_threads(checkpointer, {thread_id: writes.get(thread_id, ()) for thread_id in page})
        after = page[-1]
    return threads


async def read_threads(
    checkpointer: Checkpointer, threads: Mapping[str, Collection[tuple[str, str]]]
) -> dict[str, FoundThread]:
    """Read threads, a few at a time. `threads` maps each to the places to look for its pending writes in."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def read(thread_id: str) -> FoundThread:
        async with turns:
            return await find_thread(checkpointer, thread_id, threads[thread_id])

    return dict(zip(threads, await asyncio.gather(*map(read, threads)), strict=True))


async def find_thread(
    checkpointer: Checkpointer, thread_id: str, writes: Collection[tuple[str, str]] = ()
) -> FoundThread:
    """Read a thread when it is at rest."""
    for reading in range(READINGS):
        try:
            before = await checkpointer.history(thread_id, None)
            thread = await _read(checkpointer, thread_id, before, writes)
            if await checkpointer.history(thread_id, None) == before:
                return thread
        except CorruptCheckpointError as error:
            if reading:
                return FoundThread(thread_id, damage=str(error))
        await asyncio.sleep(0.1 * reading)
    return FoundThread(thread_id, damage="it changes although nobody uses it")


async def _read(
    checkpointer: Checkpointer, thread_id: str, entries: list[HistoryEntry], writes: Collection[tuple[str, str]]
) -> FoundThread:
    checkpoints = [await _checkpoint(checkpointer, entry) for entry in reversed(entries)]
    async with checkpointer.store.using() as engine:
        measured = await engine.measure(thread_id)
    manifests = () if measured is None else (checkpoint.manifest for checkpoint in measured.checkpoints)
    extents = [extent for manifest in manifests for extent in wanted(manifest)]
    return FoundThread(
        thread_id,
        tuple(checkpoints),
        digest(await checkpointer.load(thread_id)),
        tuple(await checkpointer.list_checkpoints(thread_id, limit=len(entries) + 1)),
        {place: text for place in writes if (text := await _written(checkpointer, thread_id, *place)) is not None},
        0 if measured is None else len(unneeded_runs(extents, measured.runs)),
    )


async def _checkpoint(checkpointer: Checkpointer, entry: HistoryEntry) -> FoundCheckpoint:
    loaded, damage = None, ""
    try:
        loaded = digest(await checkpointer.load(entry.thread_id, entry.checkpoint_id))
    except CorruptCheckpointError as error:
        damage = str(error)
    op: Any = entry.metadata.get("op")
    return FoundCheckpoint(
        entry.checkpoint_id,
        entry.parent_id,
        entry.seq,
        op if isinstance(op, str) else None,
        loaded,
        damage,
        entry.created_at.timestamp(),
    )


async def _written(checkpointer: Checkpointer, thread_id: str, checkpoint_id: str, task: str) -> str | None:
    writes = await checkpointer.get_writes(thread_id, checkpoint_id, task)
    return writes_digest([(write.channel, write.value) for write in writes]) if writes else None


async def wait_until_reachable(checkpointer: Checkpointer) -> None:
    """Wait until a store answers, since a new server may take a moment. After a while, the outage is raised."""
    loop = asyncio.get_running_loop()
    end = loop.time() + WAIT_SECONDS
    while True:
        try:
            await checkpointer.list_threads(1)
            return
        except BackendUnavailableError:
            if loop.time() > end:
                raise
            await asyncio.sleep(0.2)
