"""Reads checkpoints from a store, as LangGraph wants them: one, several, a listing, or the ancestors of one.

Ancestors are needed for delta channels. Such a channel is stored in few checkpoints. In all others its value is that of
the nearest ancestor that has it, plus everything that was written to it since. So pruning has to keep the checkpoints
in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple, DeltaChannelHistory

from locus.errors import CorruptCheckpointError
from locus.integrations.langgraph.codec import TAG, NotAllowedError, TypedCodec
from locus.integrations.langgraph.payloads import (
    VALUES,
    SharedItems,
    checkpoint_of,
    is_langgraph,
    namespace_of,
    stored_namespace,
)
from locus.memory.engine import Exports, FindsMetadata
from locus.memory.model.arguments import UNLIMITED
from locus.memory.model.codec import decode
from locus.memory.model.ids import MAX_ID_LENGTH, check_ids, digest
from locus.memory.model.manifest import by_branch
from locus.memory.model.records import Entry, Stored, Write
from locus.memory.model.warm import TEXTS
from locus.memory.store import CheckpointStore

AT_ONCE = 8
"""How many checkpoints are read at the same time, if they are not exported together."""
LONG_PATH = "write"
"""The tag of a value whose task path is too long to be stored as one."""

PendingWrites = list[tuple[str, str, Any]]
StoredWithWrites = tuple[Stored, list[Write]]


def config_of(thread_id: str, namespace: str, checkpoint_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}}


def stored_path(task_path: str) -> str:
    """A task path as it is stored. A long one is cut, and stored whole with the value (see `stored_value`)."""
    return task_path if len(task_path) <= MAX_ID_LENGTH else task_path[:200] + digest(task_path)


def stored_value(value: Any, task_path: str) -> Any:
    return value if stored_path(task_path) == task_path else {TAG: LONG_PATH, "path": task_path, "value": value}


class Reader:
    """Reads from one store."""

    def __init__(self, store: CheckpointStore, codec: TypedCodec) -> None:
        self.store = store
        self.codec = codec

    async def one(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> StoredWithWrites | None:
        """This checkpoint, or the latest."""
        loaded = await self.store.load(thread_id, checkpoint_id, namespace, TEXTS)
        return None if loaded is None else (loaded.value, await self._writes(loaded.value.entry))

    async def _writes(self, entry: Entry) -> list[Write]:
        key = (entry.thread_id, entry.checkpoint_id)
        return await self.store.get_writes(*key, task_id=None, namespace=entry.namespace)

    async def many(self, entries: Sequence[Entry]) -> list[StoredWithWrites]:
        """Those of these checkpoints that still exist and are LangGraph's, in the same order."""
        found: dict[tuple[str, str, str], StoredWithWrites] = {}
        for thread_id, some in groupby(entries, key=lambda entry: entry.thread_id):
            for stored, writes in await self._of_thread(thread_id, list(some)):
                found[_key_of(stored.entry)] = (stored, writes)
        return [found[key] for key in map(_key_of, entries) if key in found and is_langgraph(found[key][0])]

    async def _of_thread(self, thread_id: str, entries: list[Entry]) -> list[StoredWithWrites]:
        low, high = min(entry.seq for entry in entries), max(entry.seq for entry in entries)
        if self.store.engine.offers(Exports) and high - low < 4 * len(entries):
            return await self._exported(thread_id, low, high - low + 1)
        found: list[StoredWithWrites | None] = []
        for start in range(0, len(entries), AT_ONCE):
            part = entries[start : start + AT_ONCE]
            found += await asyncio.gather(*(self.one(thread_id, e.namespace, e.checkpoint_id) for e in part))
        return [pair for pair in found if pair is not None]

    async def _exported(self, thread_id: str, seq: int, count: int) -> list[StoredWithWrites]:
        """`count` checkpoints from a number on. They share most of their items, which are read once."""
        async with self.store.using() as engine:
            assert isinstance(engine, Exports)
            pages = [await engine.export(thread_id, seq - 1, count, {})]
            # A server decides what it sends: a page with nothing on it is the last one, whatever it says.
            while (
                pages[-1].more
                and pages[-1].checkpoints
                and (found := sum(len(page.checkpoints) for page in pages)) < count
            ):
                known = {run.branch: run.number for page in pages for run in sorted(page.runs, key=itemgetter(1))}
                after = pages[-1].checkpoints[-1].entry.seq
                pages.append(await engine.export(thread_id, after, count - found, known))
        runs = by_branch(run for page in pages for run in page.runs)
        return [
            (
                Stored(row.entry, row.head, row.manifest, runs, row.passed),
                page.writes.get((row.entry.namespace, row.entry.checkpoint_id), []),
            )
            for page in pages
            for row in page.checkpoints
        ]

    def tuple_of(self, found: StoredWithWrites, shared: SharedItems | None = None) -> CheckpointTuple:
        try:
            return self._tuple_of(found, shared)
        except NotAllowedError as error:
            raise error.naming(self._unknown(*found)) from None

    def _unknown(self, stored: Stored, writes: Iterable[Write]) -> Iterator[str]:
        """The types of a checkpoint that are not allowed, as far as they can be found out."""
        runs = (run.items for some in stored.runs.values() for run in some)
        texts = (stored.head, *runs, stored.entry.metadata, *(write.value for write in writes))
        for text in texts:
            yield from (name for name in self.codec.unknown(decode(text)) if name != LONG_PATH)

    def _tuple_of(self, found: StoredWithWrites, shared: SharedItems | None) -> CheckpointTuple:
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
        """What tasks wrote (to these channels), in the order in which the graph applies it."""
        found = [(*_path_and_value(write), write) for write in writes if channels is None or write.channel in channels]
        found.sort(key=lambda one: (one[0], one[2].task_id, one[2].idx))
        return [
            (write.task_id, write.channel, self.codec.decode(value, ("writes", write.idx, write.channel)))
            for _, value, write in found
        ]


def _path_and_value(write: Write) -> tuple[str, Any]:
    """The task path and the value of a write."""
    value = decode(write.value)
    if isinstance(value, Mapping) and value.get(TAG) == LONG_PATH:
        if "path" not in value or "value" not in value:
            raise CorruptCheckpointError("a pending write is damaged: it has no path, or no value")
        return str(value["path"]), value["value"]
    return write.task_path, value


def _key_of(entry: Entry) -> tuple[str, str, str]:
    return entry.thread_id, entry.namespace, entry.checkpoint_id


FIRST, MOST = 4, 16
"""How many checkpoints are read at once: few at first, because many callers only want the newest."""
PAGE = 200


class Listing:
    """One listing, newest first. `next` returns some more of it, and an empty list at the end.

    Without a thread id it lists all threads. `before` is the id of a checkpoint. If that is not in the namespace, it
    stands for the time at which it was made, which ids begin with: LangGraph passes the id of a graph's checkpoint to
    find those of a subgraph.
    """

    def __init__(
        self,
        reader: Reader,
        thread_id: str | None,
        namespace: str | None,
        checkpoint_id: str | None,
        *,
        where: Mapping[str, Any] | None,
        before: str | None,
        limit: int | None,
    ) -> None:
        if thread_id is not None:
            check_ids(thread_id, checkpoint_id, "")
        self._reader = reader
        self._thread_id = thread_id
        self._namespace = None if namespace is None else stored_namespace(namespace)
        self._checkpoint_id = checkpoint_id
        # Compared as stored, because stored metadata need not be decodable: another program may have written it.
        self._where = {key: reader.codec.encode(value, ("filter", key)) for key, value in (where or {}).items()}
        self._before = before
        self._left = UNLIMITED if limit is None else max(0, limit)
        self._size = FIRST if limit is None else MOST
        self._before_seq: int | None = None
        self._waiting: list[Entry] = []
        self._ended = False
        self._seen: set[tuple[str, str, str]] = set()

    async def next(self) -> list[CheckpointTuple]:
        while self._left and not (self._ended and not self._waiting):
            count = min(self._size, self._left)
            while len(self._waiting) < count and not self._ended:
                self._waiting += [entry for entry in await self._page(count) if self._matches(entry)]
            part, self._waiting = self._waiting[:count], self._waiting[count:]
            self._size = MOST
            found = await self._reader.many(part)
            self._left -= len(found)
            if found:
                shared: dict[str, SharedItems] = {}
                return [self._tuple_of(one, shared) for one in found]
        return []

    def _tuple_of(self, found: StoredWithWrites, shared: dict[str, SharedItems]) -> CheckpointTuple:
        items = shared.setdefault(found[0].entry.thread_id, SharedItems(self._reader.codec))
        return self._reader.tuple_of(found, items)

    async def _page(self, count: int) -> list[Entry]:
        """The next entries to filter."""
        if self._thread_id is None:
            return await self._page_of_all()
        if self._checkpoint_id is not None and self._namespace is not None:
            self._ended = True
            entry = await self._reader.store.entry(self._thread_id, self._checkpoint_id, self._namespace)
            return [] if entry is None else [entry]
        await self._find_start(self._thread_id)
        size = PAGE if self._where or self._before or self._checkpoint_id else count
        async with self._reader.store.using() as engine:
            entries = await engine.history(self._thread_id, self._namespace, size, self._before_seq)
        self._ended = len(entries) < size
        self._before_seq = entries[-1].seq if entries else None
        return entries

    async def _find_start(self, thread_id: str) -> None:
        if self._before is None or self._before_seq is not None or self._namespace is None:
            return
        entry = await self._reader.store.entry(thread_id, self._before, self._namespace)
        if entry is not None:
            self._before, self._before_seq = None, entry.seq

    async def _page_of_all(self) -> list[Entry]:
        """Entries of all threads. If the store can find metadata and the filter has a text, only entries with that."""
        store = self._reader.store
        text = next((item for item in self._where.items() if isinstance(item[1], str)), None)
        if text is not None and isinstance(store.engine, FindsMetadata):
            self._ended = True
            return await store.find(*text, None)
        size = PAGE * (1 + len(self._seen)) if not self._where else None
        entries = await store.recent(size)
        self._ended = size is None or len(entries) < size
        fresh = [entry for entry in entries if _key_of(entry) not in self._seen]
        self._seen.update(map(_key_of, fresh))
        return fresh

    def _matches(self, entry: Entry) -> bool:
        if self._checkpoint_id is not None and entry.checkpoint_id != self._checkpoint_id:
            return False
        if self._thread_id is None and self._namespace not in (None, entry.namespace):
            return False
        if self._before is not None and entry.checkpoint_id >= self._before:
            return False
        if not self._where:
            return True
        metadata = decode(entry.metadata)
        if metadata.get(TAG) == "dict" and "items" in metadata:
            metadata = {key: value for key, value in metadata["items"] if isinstance(key, str)}
        return all(metadata.get(key) == value for key, value in self._where.items())


HISTORY_PAGE = 64
COUNTERS = "counters_since_delta_snapshot"
"""The key in a checkpoint's metadata with the delta channels that the checkpoint does not contain."""


class Ancestors:
    """Reads the ancestors of a checkpoint, from its parent on, a page at a time."""

    def __init__(self, reader: Reader, entry: Entry) -> None:
        self._reader = reader
        self._target = entry
        self._known: dict[str, Entry] = {}
        self._before_seq: int | None = entry.seq

    async def read(self) -> AsyncIterator[StoredWithWrites]:
        at, passed = self._target.parent_id, {self._target.checkpoint_id}
        part: list[Entry] = []
        while at is not None and at not in passed:
            entry = await self._entry(at)
            if entry is None:
                break
            passed.add(at)
            part.append(entry)
            at = entry.parent_id
            if len(part) == HISTORY_PAGE:
                for found in await self._reader.many(part):
                    yield found
                part = []
        for found in await self._reader.many(part):
            yield found

    async def _entry(self, checkpoint_id: str) -> Entry | None:
        """The entry of an ancestor. Most ancestors directly precede a checkpoint, so entries are read in pages."""
        namespace = self._target.namespace
        while checkpoint_id not in self._known and self._before_seq is not None:
            async with self._reader.store.using() as engine:
                page = await engine.history(self._target.thread_id, namespace, HISTORY_PAGE, self._before_seq)
            self._known |= {entry.checkpoint_id: entry for entry in page}
            self._before_seq = page[-1].seq if len(page) == HISTORY_PAGE else None
        if checkpoint_id in self._known:
            return self._known[checkpoint_id]
        # A checkpoint that was put again is newer than its children.
        return await self._reader.store.entry(self._target.thread_id, checkpoint_id, namespace)


async def channel_history(reader: Reader, entry: Entry, channels: Sequence[str]) -> dict[str, DeltaChannelHistory]:
    """For each channel, what was written to it on the way to a checkpoint, and the value that it started from."""
    if not channels:
        return {}
    writes: dict[str, list[Any]] = {channel: [] for channel in channels}
    seeds: dict[str, Any] = {}
    shared = SharedItems(reader.codec)
    async for stored, pending in Ancestors(reader, entry).read():
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


async def delta_ancestors(reader: Reader, entry: Entry, entries: Collection[Entry]) -> set[str]:
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
    async for stored, _ in Ancestors(reader, entry).read():
        spared.add(stored.entry.checkpoint_id)
        missing -= checkpoint_of(stored, reader.codec, shared, missing)[VALUES].keys()
        if not missing:
            break
    return spared


def _counted(metadata: Mapping[str, Any]) -> Collection[str]:
    counters = metadata.get(COUNTERS)
    return counters.keys() if isinstance(counters, Mapping) else ()
