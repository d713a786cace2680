"""LangGraph on every backend: `graph.compile(checkpointer=LocusSaver("sqlite:///agents.db"))`.

A graph's thread is a thread of ours, its `checkpoint_ns` a namespace (the graph's own is `""`), and its pending writes
are pending writes. See `langgraph_payloads` for what a checkpoint looks like, and `langgraph_types` for its values.

The saver for code that is not async: each call waits for the one that is, on an event loop that lives on.

The saver's way with values, in the shape that LangGraph expects of a serializer: for its cache, and other tools.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import (
    AsyncIterator,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, Self

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_serializable_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from locus.errors import CapabilityError, ConfigurationError, CorruptCheckpointError
from locus.integrations.langgraph.cache import Memory, saved
from locus.integrations.langgraph.classes import typed_codec
from locus.integrations.langgraph.codec import TypedCodec
from locus.integrations.langgraph.items import ListEncoder, returned
from locus.integrations.langgraph.payloads import Encoding, kept_namespace, loaded_lists
from locus.integrations.langgraph.read import (
    Listing,
    Reader,
    channel_history,
    config_of,
    kept_path,
    kept_value,
    needed,
)
from locus.memory.model.codec import decode, encode
from locus.memory.registry import get_checkpointer
from locus.memory.runtime.portal import PORTAL
from locus.memory.saver import store_of
from locus.memory.store import SPECIAL_CHANNELS


class BlockingSaver(BaseCheckpointSaver[Any]):
    """What the calls do is said at those that are awaited."""

    @abstractmethod
    def listing(
        self,
        config: RunnableConfig | None,
        where: Mapping[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> Listing:
        """What `list` and `alist` go through."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close what this saver opened."""

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return PORTAL.run(self.aget_tuple(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        listing = self.listing(config, filter, before, limit)
        while some := PORTAL.run(listing.next()):
            yield from some

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return PORTAL.run(self.aput(config, checkpoint, metadata, new_versions))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        PORTAL.run(self.aput_writes(config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        PORTAL.run(self.adelete_thread(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        PORTAL.run(self.adelete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        PORTAL.run(self.acopy_thread(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        PORTAL.run(self.aprune(thread_ids, strategy=strategy))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return PORTAL.run(self.aget_delta_channel_history(config=config, channels=channels))

    def close(self) -> None:
        PORTAL.run(self.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


KIND = "locus-json"


class JSONSerializer(SerializerProtocol):
    """JSON with explicit tags; nothing that is loaded is imported or called, unless it was allowed."""

    def __init__(self, codec: TypedCodec) -> None:
        self._codec = codec

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        return KIND, encode(self._codec.encode(obj)).encode()

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        kind, text = data
        if kind != KIND:
            raise CorruptCheckpointError(f"a value of kind {kind!r:.40} was written by another serializer")
        return self._codec.decode(decode(text))


Version = int | str | float


class LocusSaver(BlockingSaver):
    """A checkpoint saver of LangGraph's over any store of ours, for sync and async graphs, from any thread.

    `store` is a checkpointer, a storage backend, or a name or URL, with its `options`. What a name opens belongs to
    this saver, and `close` closes it; an open store is left open. `allowed_types` are classes of yours that a state may
    hold, beside what is always allowed: plain Python types, LangChain's messages and documents, LangGraph's own.
    """

    def __init__(self, store: Any, *, allowed_types: Iterable[type] = (), **options: Any) -> None:
        if options and not isinstance(store, str):
            raise ConfigurationError(
                f"options ({', '.join(options)}) belong to a name or URL; this store is open already"
            )
        self._owns = isinstance(store, str)
        self.store = store_of(get_checkpointer(store, **options) if isinstance(store, str) else store)
        if not self.store.keeps_writes:
            raise CapabilityError(
                f"{type(self.store.engine).__name__} keeps no pending writes, and LangGraph needs them"
            )
        self._codec = typed_codec(allowed_types)
        super().__init__(serde=JSONSerializer(self._codec))
        self._reader = Reader(self.store, self._codec)
        self._memory = Memory()

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that the config names, or the latest; `None` if there is none. An outage is raised."""
        thread_id, namespace = _place(config)
        kept = kept_namespace(namespace)
        found = await self._reader.one(thread_id, kept, _checkpoint_id(config))
        if found is None:
            return None
        loaded = self._reader.tuple_of(found)
        self._memory.load((thread_id, kept), found[0], loaded_lists(found[0], loaded.checkpoint))
        return loaded

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Checkpoints, newest first; without a thread in the config, those of all threads.

        `filter` has metadata that has to be equal, and `before` a checkpoint: only older ones.
        """
        listing = self.listing(config, filter, before, limit)
        while some := await listing.next():
            for found in some:
                yield found

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint. It is there, whole and durable, when this returns."""
        thread_id, namespace = _place(config)
        place = (thread_id, kept_namespace(namespace))
        parent = _checkpoint_id(config)
        async with self.store.using() as engine:
            # What a database does to the order of keys may be known only when it was asked.
            sort_keys = not engine.dialect.exact
        known = self._memory.get(place).at(parent, sort_keys)
        encoder = ListEncoder(self._codec, sort_keys=sort_keys)
        encoding = Encoding(self._codec, encoder, known.lists, self._memory.touched(place, parent))
        payload = encoding.payload(checkpoint, namespace)
        about = get_serializable_checkpoint_metadata(config, metadata)
        done = await self.store.save(
            thread_id,
            payload,
            namespace=place[1],
            checkpoint_id=checkpoint["id"],
            metadata=self._codec.encode(about, ("metadata",)),
            parent=parent,
            parent_as_named=True,
            known=known.base(parent),
        )
        self._memory.put(place, saved(done.trace, encoding.lists))
        return config_of(thread_id, namespace, checkpoint["id"])

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Save what a task wrote. The checkpoint that it belongs to may still be on its way."""
        thread_id, namespace = _place(config)
        checkpoint_id = _checkpoint_id(config)
        if checkpoint_id is None:
            raise ConfigurationError("put_writes needs the id of a checkpoint: config['configurable']['checkpoint_id']")
        self._memory.touch((thread_id, kept_namespace(namespace)), checkpoint_id, returned(v for _, v in writes))
        await self.store.put_writes(
            thread_id,
            checkpoint_id,
            task_id,
            [
                (channel, kept_value(self._codec.encode(value, ("writes", index, channel)), task_path))
                for index, (channel, value) in enumerate(writes)
            ],
            task_path=kept_path(task_path),
            namespace=kept_namespace(namespace),
            keep_numbered=bool(writes) and all(channel in SPECIAL_CHANNELS for channel, _ in writes),
        )

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread: the checkpoints and pending writes of all its namespaces."""
        await self.store.delete(str(thread_id), None, None)
        self._memory.forget_thread(str(thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of these runs, in all threads; what followed them goes on from what was before."""
        doomed: dict[str, dict[int, str]] = {}
        for run_id in run_ids:
            for entry in await self.store.find("run_id", str(run_id), None):
                doomed.setdefault(entry.thread_id, {})[entry.seq] = entry.rev
        for thread_id, seqs in doomed.items():
            await self._delete(thread_id, seqs)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread whole, under an id that is not in use; else `ConflictError` is raised."""
        await self.store.copy(str(source_thread_id), str(target_thread_id), None, "")

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete all but the latest checkpoint of each namespace of these threads; with `strategy="delete"`, all.

        Checkpoints that a delta channel of the latest is made from stay, too.
        """
        if strategy not in ("keep_latest", "delete"):
            raise ConfigurationError(f'strategy is "keep_latest" or "delete", got {strategy!r:.40}')
        for thread_id in map(str, thread_ids):
            if strategy == "delete":
                await self.adelete_thread(thread_id)
            else:
                await self._keep_latest(thread_id)

    async def _keep_latest(self, thread_id: str) -> None:
        entries = await self.store.history(thread_id, None, None, None)
        doomed: dict[int, str] = {}
        for namespace in {entry.namespace for entry in entries}:
            latest, *others = [entry for entry in entries if entry.namespace == namespace]
            spared = await needed(self._reader, latest, [latest, *others])
            doomed |= {entry.seq: entry.rev for entry in others if entry.checkpoint_id not in spared}
        if doomed:
            await self._delete(thread_id, doomed)

    async def _delete(self, thread_id: str, seqs: Mapping[int, str]) -> None:
        async with self.store.using() as engine:
            await engine.delete(thread_id, None, seqs)
        self._memory.forget_thread(thread_id)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """What was written to delta channels on the way to a checkpoint, and the values that they began with."""
        thread_id, namespace = _place(config)
        entry = await self.store.entry(thread_id, _checkpoint_id(config), kept_namespace(namespace))
        if entry is None:
            return {channel: {"writes": []} for channel in channels}
        return await channel_history(self._reader, entry, channels)

    def get_next_version(self, current: Version | None, channel: None) -> Version:
        """Numbers. A thread that was begun with another saver may have texts, `"0…07.0123"`, and goes on with them."""
        if isinstance(current, str):
            return f"{int(current.partition('.')[0]) + 1:032}.{0:016}"
        return 1 if current is None else current + 1

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> Self:
        """This saver as it is: it loads what it was told by `allowed_types`, and no class by its name."""
        return self

    def listing(
        self,
        config: RunnableConfig | None,
        where: Mapping[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> Listing:
        named = (config or {}).get("configurable", {})
        thread_id = named.get("thread_id")
        return Listing(
            self._reader,
            None if thread_id is None else str(thread_id),
            named.get("checkpoint_ns"),
            named.get("checkpoint_id"),
            where=where,
            before=None if before is None else _checkpoint_id(before),
            limit=limit,
        )

    async def aclose(self) -> None:
        """Close the store, if this saver opened it. Whoever uses it again opens it anew."""
        if self._owns:
            await self.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"LocusSaver({self.store.engine.identity!r})"


def _place(config: RunnableConfig) -> tuple[str, str]:
    """The thread and the namespace that a config names."""
    named = config.get("configurable", {})
    thread_id = named.get("thread_id")
    if thread_id is None:
        raise ConfigurationError("a checkpointer needs a thread: config={'configurable': {'thread_id': '…'}}")
    return str(thread_id), str(named.get("checkpoint_ns") or "")


def _checkpoint_id(config: RunnableConfig) -> str | None:
    found = config.get("configurable", {}).get("checkpoint_id")
    return str(found) if found else None
