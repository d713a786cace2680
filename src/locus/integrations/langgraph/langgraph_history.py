"""The line that a checkpoint came down: for LangGraph's delta channels, whose values are told by what was written.

Such a channel stands in few checkpoints. In all others its value is that of the nearest ancestor that has it, and
everything that was written to it since; so a prune has to spare the checkpoints in between.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Any

from langgraph.checkpoint.base import DeltaChannelHistory

from locus.integrations.langgraph.langgraph_shared import SharedItems
from locus.integrations.langgraph.payloads import VALUES, checkpoint_of
from locus.integrations.langgraph.read import Found, Reader
from locus.memory.model.records import Entry

PAGE = 64
COUNTERS = "counters_since_delta_snapshot"
"""Where LangGraph notes in a checkpoint's metadata which delta channels it does not hold."""


class Line:
    """The ancestors of a checkpoint, from its parent on, some at a time."""

    def __init__(self, reader: Reader, entry: Entry) -> None:
        self._reader = reader
        self._target = entry
        self._known: dict[str, Entry] = {}
        self._before_seq: int | None = entry.seq

    async def ancestors(self) -> AsyncIterator[Found]:
        at, passed = self._target.parent_id, {self._target.checkpoint_id}
        part: list[Entry] = []
        while at is not None and at not in passed:
            entry = await self._entry(at)
            if entry is None:
                break
            passed.add(at)
            part.append(entry)
            at = entry.parent_id
            if len(part) == PAGE:
                for found in await self._reader.many(part):
                    yield found
                part = []
        for found in await self._reader.many(part):
            yield found

    async def _entry(self, checkpoint_id: str) -> Entry | None:
        """An entry. Ancestors are mostly the ones just before, so these are fetched together."""
        namespace = self._target.namespace
        while checkpoint_id not in self._known and self._before_seq is not None:
            async with self._reader.threads.using() as engine:
                page = await engine.history(self._target.thread_id, namespace, PAGE, self._before_seq)
            self._known |= {entry.checkpoint_id: entry for entry in page}
            self._before_seq = page[-1].seq if len(page) == PAGE else None
        if checkpoint_id in self._known:
            return self._known[checkpoint_id]
        # One that was put again is newer than its children.
        return await self._reader.threads.entry(self._target.thread_id, checkpoint_id, namespace)


async def channel_history(reader: Reader, entry: Entry, channels: Sequence[str]) -> dict[str, DeltaChannelHistory]:
    """For each channel what was written to it on the way to a checkpoint, and the value that it began with."""
    if not channels:
        return {}
    writes: dict[str, list[Any]] = {channel: [] for channel in channels}
    seeds: dict[str, Any] = {}
    shared = SharedItems(reader.codec)
    async for stored, pending in Line(reader, entry).ancestors():
        missing = writes.keys() - seeds.keys()
        for write in reversed(reader.pending(pending, missing)):
            writes[write[1]].append(write)
        values = checkpoint_of(stored, reader.codec, shared, missing)[VALUES]
        seeds |= {channel: values[channel] for channel in missing if channel in values}
        if len(seeds) == len(writes):
            break
    return _histories(channels, writes, seeds)


def _histories(
    channels: Sequence[str], writes: Mapping[str, list[Any]], seeds: Mapping[str, Any]
) -> dict[str, DeltaChannelHistory]:
    found: dict[str, DeltaChannelHistory] = {}
    for channel in channels:
        found[channel] = {"writes": writes[channel][::-1]}
        if channel in seeds:
            found[channel]["seed"] = seeds[channel]
    return found


async def needed(reader: Reader, entry: Entry, entries: Collection[Entry]) -> set[str]:
    """The ids of the ancestors without which a checkpoint's delta channels would be lost."""
    deltas = {channel for known in entries for channel in _counted(reader.metadata_of(known))}
    found = await reader.many([entry]) if deltas else []
    if not found:
        return set()
    shared = SharedItems(reader.codec)
    checkpoint = checkpoint_of(found[0][0], reader.codec, shared, deltas)
    missing = (deltas & checkpoint["channel_versions"].keys()) - checkpoint[VALUES].keys()
    spared: set[str] = set()
    if not missing:
        return spared
    async for stored, _ in Line(reader, entry).ancestors():
        spared.add(stored.entry.checkpoint_id)
        missing -= checkpoint_of(stored, reader.codec, shared, missing)[VALUES].keys()
        if not missing:
            break
    return spared


def _counted(metadata: Mapping[str, Any]) -> Collection[str]:
    counters = metadata.get(COUNTERS)
    return counters.keys() if isinstance(counters, Mapping) else ()
