"""Checkpoints, as LangGraph wants them, out of a store."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from locus.integrations.langgraph.codec import TAG, TypedCodec
from locus.integrations.langgraph.langgraph_shared import SharedItems
from locus.integrations.langgraph.payloads import checkpoint_of, is_ours, namespace_of
from locus.memory.engine import Exports
from locus.memory.model.codec import decode
from locus.memory.model.ids import MAX_ID_LENGTH, digest
from locus.memory.model.records import Entry, Run, Stored, Write
from locus.memory.store import Threads

AT_ONCE = 8
LONG_PATH = "write"
"""The tag around a value whose task path is too long to be kept as one."""

PendingWrites = list[tuple[str, str, Any]]
Found = tuple[Stored, list[Write]]


def config_of(thread_id: str, namespace: str, checkpoint_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}}


def kept_path(task_path: str) -> str:
    """A task path as it is kept: a long one is cut, and told whole beside the value."""
    return task_path if len(task_path) <= MAX_ID_LENGTH else task_path[:200] + digest(task_path)


def kept_value(value: Any, task_path: str) -> Any:
    return value if kept_path(task_path) == task_path else {TAG: LONG_PATH, "path": task_path, "value": value}


class Reader:
    """Reads from one store."""

    def __init__(self, threads: Threads, codec: TypedCodec) -> None:
        self.threads = threads
        self.codec = codec

    async def one(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Found | None:
        """That checkpoint, or the latest."""
        stored = await self.threads.read(thread_id, checkpoint_id, namespace)
        return None if stored is None else (stored, await self._writes(stored.entry))

    async def _writes(self, entry: Entry) -> list[Write]:
        place = (entry.thread_id, entry.checkpoint_id)
        return await self.threads.get_writes(*place, task_id=None, namespace=entry.namespace)

    async def many(self, entries: Sequence[Entry]) -> list[Found]:
        """Those of these checkpoints that are still there and are LangGraph's, in the same order."""
        found: dict[tuple[str, str, str], Found] = {}
        for thread_id, some in groupby(entries, key=lambda entry: entry.thread_id):
            for stored, writes in await self._of_thread(thread_id, list(some)):
                found[place_of(stored.entry)] = (stored, writes)
        return [found[place] for place in map(place_of, entries) if place in found and is_ours(found[place][0])]

    async def _of_thread(self, thread_id: str, entries: list[Entry]) -> list[Found]:
        low, high = min(entry.seq for entry in entries), max(entry.seq for entry in entries)
        if self.threads.engine.offers(Exports) and high - low < 4 * len(entries):
            return await self._exported(thread_id, low, high - low + 1)
        found: list[Found | None] = []
        for start in range(0, len(entries), AT_ONCE):
            part = entries[start : start + AT_ONCE]
            found += await asyncio.gather(*(self.one(thread_id, e.namespace, e.checkpoint_id) for e in part))
        return [pair for pair in found if pair is not None]

    async def _exported(self, thread_id: str, seq: int, count: int) -> list[Found]:
        """So many checkpoints from a number on. They share most of their items, which are read once."""
        async with self.threads.using() as engine:
            assert isinstance(engine, Exports)
            exported = await engine.export(thread_id, seq - 1, count, {})
        runs: dict[str, list[Run]] = {}
        for run in exported.runs:
            runs.setdefault(run.branch, []).append(run)
        return [
            (
                Stored(row.entry, row.head, row.manifest, runs, row.passed),
                exported.writes.get((row.entry.namespace, row.entry.checkpoint_id), []),
            )
            for row in exported.checkpoints
        ]

    def tuple_of(self, found: Found, shared: SharedItems | None = None) -> CheckpointTuple:
        stored, writes = found
        entry, namespace = stored.entry, namespace_of(stored)
        parent = entry.parent_id
        return CheckpointTuple(
            config=config_of(entry.thread_id, namespace, entry.checkpoint_id),
            checkpoint=checkpoint_of(stored, self.codec, shared or SharedItems(self.codec)),
            metadata=self.metadata_of(entry),
            parent_config=None if parent is None else config_of(entry.thread_id, namespace, parent),
            pending_writes=self.pending(writes),
        )

    def metadata_of(self, entry: Entry) -> Any:
        return self.codec.decode(decode(entry.metadata), ("metadata",))

    def pending(self, writes: Iterable[Write], channels: Collection[str] | None = None) -> PendingWrites:
        """What tasks wrote (to these channels), in the order that the graph applies it in."""
        found = [(*_whole(write), write) for write in writes if channels is None or write.channel in channels]
        found.sort(key=lambda one: (one[0], one[2].task_id, one[2].idx))
        return [
            (write.task_id, write.channel, self.codec.decode(value, ("writes", write.idx, write.channel)))
            for _, value, write in found
        ]


def _whole(write: Write) -> tuple[str, Any]:
    """The task path and the value of a write."""
    value = decode(write.value)
    if isinstance(value, Mapping) and value.get(TAG) == LONG_PATH:
        return str(value["path"]), value["value"]
    return write.task_path, value


def place_of(entry: Entry) -> tuple[str, str, str]:
    return entry.thread_id, entry.namespace, entry.checkpoint_id
