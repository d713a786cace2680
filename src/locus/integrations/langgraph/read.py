"""Reads checkpoints from a store, as LangGraph wants them: one, several, a listing, or the ancestors of one.

Ancestors are needed for delta channels. Such a channel is stored in few checkpoints. In all others its value is that of
the nearest ancestor that has it, plus everything that was written to it since. So pruning has to keep the checkpoints
in between.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple, DeltaChannelHistory

from locus.errors import CorruptCheckpointError
from locus.integrations.langgraph.codec import TAG, NotAllowedError, TypedCodec
from locus.integrations.langgraph.copies import DecodedTexts
from locus.integrations.langgraph.payloads import (
    VALUES,
    checkpoint_of,
    is_langgraph,
    namespace_of,
    stored_namespace,
    valued_channels,
)
from locus.integrations.langgraph.standard_types import patterns_counted
from locus.threads import (
    Ancestor,
    EncodedDocument,
    Entry,
    ItemDecoder,
    ReadVersion,
    ThreadStore,
    VersionWithWrites,
    Write,
)
from locus.threads.ids import MAX_ID_LENGTH, check_ids, digest
from locus.threads.json import decode
from locus.threads.limits import UNLIMITED

LONG_PATH = "write"
"""The tag of a value whose task path is too long to be stored as one."""
_MARK = f'"{LONG_PATH}"'

PendingWrites = list[tuple[str, str, Any]]


def config_of(thread_id: str, namespace: str, checkpoint_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}}


def stored_path(task_path: str) -> str:
    """The stored form of a task path. A long path is cut, and kept whole with the value (see `stored_value`)."""
    return task_path if len(task_path) <= MAX_ID_LENGTH else task_path[:200] + digest(task_path)


def stored_value(value: Any, task_path: str) -> Any:
    return value if stored_path(task_path) == task_path else {TAG: LONG_PATH, "path": task_path, "value": value}


MOST_LINES = 1_024
"""Of how many namespaces a reader remembers the line that was read last."""
MOST_SEED_BYTES = 256 * 1024 * 1024
"""How many bytes of snapshots a reader keeps as texts, so that they need not be read for every turn."""


class LineStep(NamedTuple):
    """An ancestor of a checkpoint, and the channels that it has values of."""

    ancestor: Ancestor
    valued: frozenset[str]


class Reader:
    """Reads LangGraph's checkpoints from one store."""

    def __init__(self, store: ThreadStore, codec: TypedCodec) -> None:
        self.store = store
        self.codec = codec
        self._texts = DecodedTexts(codec)
        self._lines: dict[tuple[str, str], dict[str, frozenset[str]]] = {}
        """By thread and namespace, the line that was read last: by rev, the channels that have values."""
        self._seeds: dict[str, ReadVersion] = {}
        """By the rev of a checkpoint, what was read of it to start from."""

    def decoder(self) -> ItemDecoder:
        """A decoder for the checkpoints of one thread."""
        return ItemDecoder(self.codec.decode, self._texts.value)

    async def one(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> VersionWithWrites | None:
        """Read one checkpoint, by default the latest."""
        return await self.store.encoded_document(thread_id, namespace).read_with_writes(checkpoint_id)

    async def ancestors(
        self, document: EncodedDocument, checkpoint_id: str, channels: Collection[str], distance: int | None = None
    ) -> AsyncIterator[LineStep]:
        """The ancestors of a checkpoint that are LangGraph's, its parent first, with what tasks wrote to channels.

        The first `distance` of them are asked for at once. The valued channels of the line are remembered, because the
        next one who asks will most likely ask for the same line, and a little more.
        """
        key = (document.thread_id, document.namespace)
        known, line = self._lines.get(key, {}), dict[str, frozenset[str]]()
        size = FIRST_ANCESTORS if distance is None else distance
        while True:
            size = min(max(size, 1), MOST_ANCESTORS)
            page = await document.ancestors(checkpoint_id, limit=size, channels=channels, known=known.keys())
            steps: list[LineStep] = []
            for ancestor in page:
                version, rev = ancestor.version, ancestor.rev
                if version is None or is_langgraph(version):
                    line[rev] = known[rev] if version is None else valued_channels(version)
                    steps.append(LineStep(ancestor, line[rev]))
            if len(self._lines) >= MOST_LINES:
                self._lines.clear()
            self._lines[key] = line.copy()
            for step in steps:
                yield step
            if len(page) < size:
                return
            checkpoint_id = page[-1].checkpoint_id
            size = max(4 * size, FIRST_ANCESTORS)

    async def values(self, document: EncodedDocument, seeds: Mapping[str, Ancestor]) -> dict[str, Any] | None:
        """The values of channels, each in one of these checkpoints; None if one of those is not the same any more."""
        values: dict[str, Any] = {}
        for seed in {seed.rev: seed for seed in seeds.values()}.values():
            channels = [channel for channel, other in seeds.items() if other.rev == seed.rev]
            version = self._seeds.get(seed.rev) or await document.read(seed.checkpoint_id)
            if version is None or version.rev != seed.rev:
                return None
            self._keep_seed(version)
            found = checkpoint_of(version, self.codec, self.decoder(), channels)[VALUES]
            values |= {channel: found[channel] for channel in channels}
        return values

    def _keep_seed(self, version: ReadVersion) -> None:
        """Keep what was read of a checkpoint as texts: others will be told by it, too, until the next snapshot."""
        if version.rev in self._seeds or 4 * version.size > MOST_SEED_BYTES:
            return
        if sum([seed.size for seed in self._seeds.copy().values()]) + version.size > MOST_SEED_BYTES:
            self._seeds.clear()
        self._seeds[version.rev] = version

    async def many(self, entries: Sequence[Entry]) -> list[VersionWithWrites]:
        """Read those of these checkpoints that still exist and are LangGraph's, in the same order."""
        return [found for found in await self.store.read_versions(entries) if is_langgraph(found.version)]

    def tuple_of(self, found: VersionWithWrites, decoder: ItemDecoder | None = None) -> CheckpointTuple:
        try:
            with patterns_counted():
                return self._tuple_of(found, decoder or self.decoder())
        except NotAllowedError as error:
            raise error.naming(self._unknown(found)) from None

    def _unknown(self, found: VersionWithWrites) -> Iterator[str]:
        """The types of a checkpoint that are not allowed, as far as they can be told."""
        texts = (found.version.entry.metadata, *(write.value for write in found.writes))
        for value in (found.version.content(), *map(decode, texts)):
            yield from (name for name in self.codec.unknown(value) if name != LONG_PATH)

    def _tuple_of(self, found: VersionWithWrites, decoder: ItemDecoder) -> CheckpointTuple:
        version, writes = found
        entry, namespace = version.entry, namespace_of(version)
        parent = entry.parent_id
        return CheckpointTuple(
            config=config_of(entry.thread_id, namespace, entry.checkpoint_id),
            checkpoint=checkpoint_of(version, self.codec, decoder),
            metadata=self.metadata_of(entry),
            parent_config=None if parent is None else config_of(entry.thread_id, namespace, parent),
            pending_writes=self.pending(writes),
        )

    def metadata_of(self, entry: Entry) -> Any:
        return self.codec.decode(decode(entry.metadata), ("metadata",))

    def pending(self, writes: Iterable[Write], channels: Collection[str] | None = None) -> PendingWrites:
        """The pending writes of tasks (to some channels), in the order in which the graph applies them."""
        found = [
            (*self._path_and_value(write), write) for write in writes if channels is None or write.channel in channels
        ]
        found.sort(key=lambda one: (one[0], one[2].task_id, one[2].idx))
        return [(write.task_id, write.channel, value) for _, value, write in found]

    def _path_and_value(self, write: Write) -> tuple[str, Any]:
        """The task path and the value of a write."""
        where = ("writes", write.idx, write.channel)
        if _MARK not in write.value:
            return write.task_path, self._texts.value(
                write.value, lambda: self.codec.decode(decode(write.value), where)
            )
        path, value = _long_path_and_value(write)
        return path, self.codec.decode(value, where)


def _long_path_and_value(write: Write) -> tuple[str, Any]:
    """The task path and the value, not decoded yet, of a write whose task path may have been too long."""
    value = decode(write.value)
    if isinstance(value, Mapping) and value.get(TAG) == LONG_PATH:
        if "path" not in value or "value" not in value:
            raise CorruptCheckpointError("a pending write is damaged: it has no path, or no value")
        return str(value["path"]), value["value"]
    return write.task_path, value


def _key_of(entry: Entry) -> tuple[str, str, str]:
    return entry.thread_id, entry.namespace, entry.checkpoint_id


MOST_REMEMBERED = 10_000
"""Of how many checkpoints a reader remembers which channels have values."""
FIRST, MOST = 4, 16
"""How many checkpoints are read at once: few at first, because many callers only want the newest."""
PAGE = 200


class Listing:
    """A listing of checkpoints, newest first. Each call of `next` returns some more; in the end, an empty list.

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
        self._last: Entry | None = None
        """Where the next page begins: behind this one."""
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
                decoders = {one.version.entry.thread_id: self._reader.decoder() for one in found}
                return [self._reader.tuple_of(one, decoders[one.version.entry.thread_id]) for one in found]
        return []

    async def _page(self, count: int) -> list[Entry]:
        """The next entries to filter."""
        if self._thread_id is None:
            return await self._page_of_all()
        if self._checkpoint_id is not None and self._namespace is not None:
            self._ended = True
            entry = await self._reader.store.entry(self._thread_id, self._namespace, self._checkpoint_id)
            return [] if entry is None else [entry]
        await self._find_start(self._thread_id)
        size = PAGE if self._where or self._before or self._checkpoint_id else count
        entries = await self._reader.store.history(self._thread_id, self._namespace, size, self._last)
        self._ended = len(entries) < size
        self._last = entries[-1] if entries else None
        return entries

    async def _find_start(self, thread_id: str) -> None:
        if self._before is None or self._last is not None or self._namespace is None:
            return
        entry = await self._reader.store.entry(thread_id, self._namespace, self._before)
        if entry is not None:
            self._before, self._last = None, entry

    async def _page_of_all(self) -> list[Entry]:
        """The next entries of all threads, found by the filter's metadata if the store can do that."""
        store = self._reader.store
        text = next((item for item in self._where.items() if isinstance(item[1], str)), None)
        if text is not None and store.capabilities.metadata_query:
            self._ended = True
            return await store.find(*text)
        size = PAGE * (1 + len(self._seen)) if not self._where else None
        entries = await store.newest_checkpoints(size)
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


COUNTERS = "counters_since_delta_snapshot"
"""The key in a checkpoint's metadata with the delta channels that the checkpoint does not contain."""
FIRST_ANCESTORS, MOST_ANCESTORS = 32, 500
"""How many ancestors are read at once, if nothing says how far it is to the last snapshot: few at first."""


async def channel_history(
    reader: Reader, document: EncodedDocument, checkpoint_id: str, channels: Sequence[str], distance: int | None = None
) -> dict[str, DeltaChannelHistory]:
    """For each channel, what was written to it on the way to a checkpoint, and the value that it started from.

    `distance` is how many ancestors that most likely takes.
    """
    while channels:
        writes: dict[str, list[Any]] = {channel: [] for channel in channels}
        seeds: dict[str, Ancestor] = {}
        with patterns_counted():
            async for ancestor, valued in reader.ancestors(document, checkpoint_id, channels, distance):
                missing = writes.keys() - seeds.keys()
                for write in reversed(reader.pending(ancestor.writes, missing)) if ancestor.writes else ():
                    writes[write[1]].append(write)
                if not missing.isdisjoint(valued):
                    seeds |= dict.fromkeys(missing & valued, ancestor)
                    if len(seeds) == len(writes):
                        break
            values = await reader.values(document, seeds)
        if values is not None:
            return _histories(channels, writes, values)
    return {}


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
    deltas = {channel for known in entries for channel in counted(reader.metadata_of(known))}
    found = await reader.many([entry]) if deltas else []
    if not found:
        return set()
    versions = checkpoint_of(found[0].version, reader.codec, reader.decoder(), ())["channel_versions"]
    missing = (deltas & versions.keys()) - valued_channels(found[0].version)
    spared: set[str] = set()
    if not missing:
        return spared
    document = reader.store.encoded_document(entry.thread_id, entry.namespace)
    async for ancestor, valued in reader.ancestors(document, entry.checkpoint_id, ()):
        spared.add(ancestor.checkpoint_id)
        missing -= valued
        if not missing:
            break
    return spared


def counted(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """The delta channels that a checkpoint does not contain, and how often each was written to since its snapshot, in
    how many steps."""
    counters = metadata.get(COUNTERS)
    return counters if isinstance(counters, Mapping) else {}
