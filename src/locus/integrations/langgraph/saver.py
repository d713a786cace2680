"""`LocusSaver`: LangGraph's checkpointer on every backend.

A thread of a graph is a Locus thread, its `checkpoint_ns` is a namespace (`""` for the graph itself), and its pending
writes are pending writes. `payloads` describes what a checkpoint looks like, and `codec` how its values are written.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import (
    AsyncIterator,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from datetime import datetime
from typing import Any, Literal, Self, TypeVar, cast

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
from locus.integrations.langgraph.cache import SaverCache, saved_checkpoint
from locus.integrations.langgraph.classes import declare, refused_types, typed_codec
from locus.integrations.langgraph.codec import NotAllowedError, TypedCodec
from locus.integrations.langgraph.fallback import BringOver, Fallback
from locus.integrations.langgraph.held_writes import HeldWrites, WritesWaitingRoom
from locus.integrations.langgraph.items import ListEncoder, returned
from locus.integrations.langgraph.payloads import CheckpointEncoder, loaded_lists, stored_namespace
from locus.integrations.langgraph.read import (
    Listing,
    Reader,
    channel_history,
    config_of,
    counted,
    delta_ancestors,
    stored_path,
    stored_value,
)
from locus.integrations.langgraph.schemas import (
    DeclaredClasses,
    calling_graph,
    listed_classes,
    named_classes,
    stored_names,
)
from locus.integrations.langgraph.standard_types import patterns_counted
from locus.threads import ANY, SPECIAL_CHANNELS, BothWaysStoreUser, Entry, TaskWrites, Unset
from locus.threads.blocking import run
from locus.threads.json import decode, encode

Version = int | str | float
T = TypeVar("T")

_OWN_OPTIONS = ("allowed_types", "fallback")
MOST_HELD = 1_000_000
"""How many characters of writes wait for a checkpoint. More of them are a commit of their own."""
MOST_ASKED = 10_000
"""For how many threads a saver remembers that it has asked the fallback for them."""


class LocusSaver(BothWaysStoreUser, BaseCheckpointSaver[Any]):
    """A LangGraph checkpointer on any Locus store, for sync and async graphs, usable from any OS thread.

    `store` is a checkpointer, a storage backend, or a name or URL with its `options`. `close` closes a store that was
    opened here by name, and leaves others open. Using the saver again reopens it.

    A state may contain plain Python types, LangChain's and LangGraph's own classes, and the Pydantic models,
    dataclasses, enums and named tuples that the graph declares: in its state, its input and output, its context and the
    inputs of its nodes. `allowed_types` are other classes of yours. A `TypedDict` or a graph among them stands for all
    classes that it declares. A mapping, in their place or among them, has classes that have moved or were renamed by
    the names under which their instances are stored: `{"old_app.Ticket": Ticket}`.

    `fallback` is the saver that you are moving from. Whatever it has of a thread is brought over when the thread is
    touched, and `bring_over` brings all of it. It is never written to, except that what is deleted here is deleted
    there. Without it, a store is not begun where another framework keeps its threads: `fallback="none"` allows that.

    The sync methods run their async counterparts on a background event loop.
    """

    def __init__(
        self,
        store: Any,
        *,
        allowed_types: Iterable[Any] = (),
        fallback: BaseCheckpointSaver[Any] | Literal["none"] | None = None,
        **options: Any,
    ) -> None:
        self._open(store, options, _OWN_OPTIONS)
        self.store = self._handle._store  # as a checkpointer has it
        if not self._store.keeps_writes:
            raise CapabilityError(f"{self._store.kind} keeps no pending writes, and LangGraph needs them")
        allowed = allowed_types if isinstance(allowed_types, Mapping) else list(allowed_types)
        self._codec = typed_codec(listed_classes(allowed), stored_names(allowed))
        self._declared = DeclaredClasses()
        super().__init__(serde=JSONSerializer(self._codec))
        self._reader = Reader(self._store, self._codec)
        self._cache = SaverCache()
        self._waiting = WritesWaitingRoom()
        if fallback is not None:
            self._store.begin_beside()
        no_saver = fallback is None or fallback == "none"
        self._moving = None if no_saver else BringOver(Fallback(cast(Any, fallback)), self, self._store)
        self._asked: OrderedDict[str, None] = OrderedDict()

    @classmethod
    def from_conn_string(cls, conn_string: str, **options: Any) -> Self:
        """A saver on the store with this name or URL, for a `with` or an `async with`, as LangGraph's are made."""
        return cls(conn_string, **options)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that the config names, or the latest; `None` if there is none. Raises if the store is down."""
        self._allow_declared(calling_graph())
        thread_id, namespace = _thread_and_namespace(config)
        key, checkpoint_id = (thread_id, stored_namespace(namespace)), _checkpoint_id(config)
        if checkpoint_id is None:
            await self._touch(thread_id, namespace)
        stored = await self._reader.one(*key, checkpoint_id)
        if stored is None and checkpoint_id is not None and self._moving is not None:
            await self._touch(thread_id, namespace)
            stored = await self._reader.one(*key, checkpoint_id)
        if stored is None:
            return None
        loaded = self._reader.tuple_of(stored)
        self._cache.load(key, stored.version, loaded_lists(stored.version, loaded.checkpoint))
        self._cache.note_counters(key, stored.version.checkpoint_id, counted(loaded.metadata))
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

        `filter` is metadata that must be equal. `before` names a checkpoint; only older ones are listed.
        """
        self._allow_declared(calling_graph())
        await self._touch_listed(config)
        listing = self._listing(config, filter, before, limit)
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
        """Save a checkpoint. It is durable when this returns."""
        thread_id, namespace = _thread_and_namespace(config)
        await self._touch(thread_id, namespace, again=False)
        return await self._put(config, checkpoint, metadata)

    async def _put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        *,
        created_at: datetime | None = None,
        if_latest: str | Unset = ANY,
    ) -> RunnableConfig:
        thread_id, namespace = _thread_and_namespace(config)
        key = (thread_id, stored_namespace(namespace))
        parent = _checkpoint_id(config)
        store = self._store
        encoder = ListEncoder(self._codec, sort_keys=await store.sorts_keys())
        known = self._cache.get(key).at(parent)
        encoding = CheckpointEncoder(self._codec, encoder, known.lists, self._cache.touched(key, parent))
        about = get_serializable_checkpoint_metadata(config, metadata)
        try:
            with patterns_counted():
                head, fields = encoding.head(checkpoint, namespace), encoding.fields(checkpoint)
                encoded = self._codec.encode(about, ("metadata",))
        except NotAllowedError as error:
            raise error.naming(refused_types(self._codec, [checkpoint, about])) from None
        with self._waiting.saving((*key, checkpoint["id"])), self._waiting.taken_along((*key, parent)) as writes:
            saved = await store.encoded_document(*key).save(
                fields,
                head=head,
                after=known.base(parent),
                metadata=encoded,
                checkpoint_id=checkpoint["id"],
                parent=parent,
                parent_as_named=True,
                if_latest=if_latest,
                created_at=created_at,
                writes=writes,
            )
        self._cache.put(key, saved_checkpoint(saved, encoding.lists))
        self._cache.note_deltas(key, counted(metadata))
        return config_of(thread_id, namespace, checkpoint["id"])

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Save what a task wrote. The checkpoint it belongs to need not be saved yet."""
        task = self._task_writes(config, writes, task_id, task_path)
        held = self._hold(task)
        if held is not None:
            written = await held.awaited()
            if written is None and not self._waiting.leave(held):
                written = await held.awaited_outcome()
            if written:
                return
        await self._store.send_writes(task)

    async def receive_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> None:
        """Save what a task wrote at once: no checkpoint will follow that it could share a commit with."""
        await self._store.send_writes(self._task_writes(config, writes, task_id, task_path))

    def _task_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> TaskWrites:
        thread_id, namespace = _thread_and_namespace(config)
        checkpoint_id = _checkpoint_id(config)
        if checkpoint_id is None:
            raise ConfigurationError("put_writes needs the id of a checkpoint: config['configurable']['checkpoint_id']")
        self._cache.touch((thread_id, stored_namespace(namespace)), checkpoint_id, returned(v for _, v in writes))
        try:
            with patterns_counted():
                encoded = [
                    (channel, stored_value(self._codec.encode(value, ("writes", index, channel)), task_path))
                    for index, (channel, value) in enumerate(writes)
                ]
        except NotAllowedError as error:
            raise error.naming(refused_types(self._codec, [value for _, value in writes])) from None
        return self._store.task_writes(
            thread_id,
            stored_namespace(namespace),
            checkpoint_id,
            task_id,
            encoded,
            task_path=stored_path(task_path),
            keep_numbered=bool(writes) and all(channel in SPECIAL_CHANNELS for channel, _ in writes),
        )

    def _hold(self, task: TaskWrites) -> HeldWrites | None:
        """Let writes wait for the checkpoint that follows. None if there is nothing to be had from it.

        LangGraph itself waits for the writes to a delta channel before it saves the checkpoint that follows. None
        follows on an interrupt or an error.
        """
        deltas = self._cache.deltas((task.thread_id, task.namespace))
        if not self._store.commits_with_writes or task.keep_numbered:
            return None
        if any(write.channel in deltas for write in task.writes) or sum(len(w.value) for w in task.writes) > MOST_HELD:
            return None
        return self._waiting.hold(task)

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread with the checkpoints and pending writes of all its namespaces."""
        if self._moving is not None:
            await self._moving.fallback.delete_thread(str(thread_id))
        await self._store.delete(str(thread_id))
        self._cache.drop_thread(str(thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of these runs in all threads. Later checkpoints continue from what came before."""
        if self._moving is not None:
            await self._moving.fallback.delete_for_runs(run_ids)
        deleted: dict[str, list[Entry]] = {}
        for run_id in run_ids:
            for entry in await self._store.find("run_id", str(run_id)):
                deleted.setdefault(entry.thread_id, []).append(entry)
        for thread_id, entries in deleted.items():
            await self._delete(thread_id, entries)
        await self._store.confirm_deletions()  # an earlier call may have removed what this one does not find

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a whole thread to a new id. Raises `ConflictError` if the id is in use."""
        for thread_id in (source_thread_id, target_thread_id):
            await self._touch(str(thread_id), "")
        await self._store.copy(str(source_thread_id), str(target_thread_id))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete all but the latest checkpoint of each namespace of these threads; with `strategy="delete"`, all.

        Checkpoints that a delta channel of the latest one depends on are kept as well.
        """
        if strategy not in ("keep_latest", "delete"):
            raise ConfigurationError(f'strategy is "keep_latest" or "delete", got {strategy!r:.40}')
        for thread_id in map(str, thread_ids):
            if strategy == "delete":
                await self.adelete_thread(thread_id)
                continue
            if self._moving is not None:
                await self._touch(thread_id, "")
                await self._moving.fallback.prune([thread_id], strategy)
            await self._keep_latest(thread_id)

    async def _keep_latest(self, thread_id: str) -> None:
        entries = await self._store.history(thread_id, None)
        deleted: list[Entry] = []
        for namespace in {entry.namespace for entry in entries}:
            latest, *others = [entry for entry in entries if entry.namespace == namespace]
            kept = await delta_ancestors(self._reader, latest, [latest, *others])
            deleted += [entry for entry in others if entry.checkpoint_id not in kept]
        await self._delete(thread_id, deleted)

    async def _delete(self, thread_id: str, entries: Sequence[Entry]) -> None:
        await self._store.delete_entries(thread_id, None, entries)
        self._cache.drop_thread(thread_id)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """The writes to delta channels on the way to a checkpoint, and the values that they started from."""
        thread_id, namespace = _thread_and_namespace(config)
        await self._touch(thread_id, namespace)
        checkpoint_id, stored = _checkpoint_id(config), stored_namespace(namespace)
        if checkpoint_id is None:
            entry = await self._store.entry(thread_id, stored)
            if entry is None:
                return {channel: {"writes": []} for channel in channels}
            checkpoint_id = entry.checkpoint_id
        document = self._store.encoded_document(thread_id, stored)
        distance = self._cache.distance((thread_id, stored), checkpoint_id, channels)
        return await channel_history(self._reader, document, checkpoint_id, channels, distance)

    def get_next_version(self, current: Version | None, channel: None) -> Version:
        """Versions are numbers. A thread of another saver may have texts, `"0…07.0123"`, and continues with those."""
        if isinstance(current, str):
            return f"{int(current.partition('.')[0]) + 1:032}.{0:016}"
        return 1 if current is None else current + 1

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> Self:
        """This saver, which now allows these classes of data, if the program has imported them.

        LangGraph calls it in its strict mode, with the classes that a graph declares.
        """
        declare(self._codec, named_classes(extra_allowlist))
        if self._moving is not None:
            self._moving.fallback.allow(extra_allowlist)
        return self

    def _allow_declared(self, graph: Any) -> None:
        """Allow the classes that a graph declares."""
        kinds = None if graph is None else self._declared.of_another(graph)
        if kinds is None:
            return
        declare(self._codec, kinds)
        if self._moving is not None and isinstance(self._moving.fallback.saver, LocusSaver):
            self._moving.fallback.saver._allow_declared(graph)  # it is called from another thread, and cannot see it

    async def _touch(self, thread_id: str, namespace: str, *, again: bool = True) -> None:
        """Bring a thread over from the fallback. Without `again`, only if this process has not asked for it yet."""
        if self._moving is None or (not again and thread_id in self._asked):
            return
        await self._moving.at_touch(thread_id, namespace)
        self._asked[thread_id] = None
        while len(self._asked) > MOST_ASKED:
            self._asked.popitem(last=False)

    async def _touch_listed(self, config: RunnableConfig | None) -> None:
        """Bring over the threads of a listing: one, or all of them."""
        named = (config or {}).get("configurable", {})
        if self._moving is not None and named.get("thread_id") is None:
            await self.abring_over()
        elif self._moving is not None:
            await self._touch(str(named["thread_id"]), str(named.get("checkpoint_ns") or ""))

    async def abring_over(self, thread_ids: Iterable[str] | None = None) -> int:
        """Bring over all that the fallback has of these threads, or of all, and return the number of checkpoints.

        Run it once after the last program that writes to the fallback has ended. Then you need the fallback no more.
        """
        if self._moving is None:
            raise ConfigurationError("there is no fallback to bring threads over from: LocusSaver(…, fallback=…)")
        chosen = await self._moving.fallback.threads() if thread_ids is None else map(str, thread_ids)
        return sum([await self._moving.whole(thread_id) for thread_id in chosen])

    async def loaded(self, thread_id: str, namespace: str, checkpoint_id: str) -> CheckpointTuple | None:
        """A checkpoint of this store. The namespace is the stored one."""
        found = await self._reader.one(thread_id, namespace, checkpoint_id)
        return None if found is None else self._reader.tuple_of(found)

    async def receive(
        self,
        found: CheckpointTuple,
        *,
        created_at: datetime | None = None,
        more: Mapping[str, Any] = {},
        if_latest: str | Unset = ANY,
    ) -> None:
        """Save a checkpoint as it is, with the time when it was made and more metadata."""
        thread_id, namespace = _thread_and_namespace(found.config)
        parent = None if found.parent_config is None else _checkpoint_id(found.parent_config)
        before: RunnableConfig = {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace}}
        if parent is not None:
            before["configurable"]["checkpoint_id"] = parent
        metadata: Any = {**found.metadata, **more}
        await self._put(before, found.checkpoint, metadata, created_at=created_at, if_latest=if_latest)

    def _listing(
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

    def __repr__(self) -> str:
        return f"LocusSaver({self._store.identity!r})"

    def bring_over(self, thread_ids: Iterable[str] | None = None) -> int:
        return self._run(self.abring_over(thread_ids))

    def close(self) -> None:
        """End the use, and close the store if it was opened here by name. The fallback stays open."""
        super()._run(self._end())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a method that may need the fallback."""
        if self._moving is None:
            return super()._run(work)
        try:
            self._moving.fallback.check_blocking_call()
        except ConfigurationError:
            work.close()
            raise
        return run(work)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        self._allow_declared(calling_graph())
        return self._run(self.aget_tuple(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        self._allow_declared(calling_graph())
        self._run(self._touch_listed(config))
        listing = self._listing(config, filter, before, limit)
        while some := self._run(listing.next()):
            yield from some

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return self._run(self.aput(config, checkpoint, metadata, new_versions))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        task = self._task_writes(config, writes, task_id, task_path)
        held = self._hold(task)
        if held is not None:
            written = held.wait()
            if written is None and not self._waiting.leave(held):
                written = held.outcome()
            if written:
                return
        self._run(self._store.send_writes(task))

    def delete_thread(self, thread_id: str) -> None:
        self._run(self.adelete_thread(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        self._run(self.adelete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self._run(self.acopy_thread(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        self._run(self.aprune(thread_ids, strategy=strategy))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return self._run(self.aget_delta_channel_history(config=config, channels=channels))


def _thread_and_namespace(config: RunnableConfig) -> tuple[str, str]:
    """The thread id and namespace in a config."""
    named = config.get("configurable", {})
    thread_id = named.get("thread_id")
    if thread_id is None:
        raise ConfigurationError("a checkpointer needs a thread: config={'configurable': {'thread_id': '…'}}")
    return str(thread_id), str(named.get("checkpoint_ns") or "")


def _checkpoint_id(config: RunnableConfig) -> str | None:
    found = config.get("configurable", {}).get("checkpoint_id")
    return str(found) if found else None


SERIALIZER_KIND = "locus-json"


class JSONSerializer(SerializerProtocol):
    """LangGraph's serializer interface to the codec, for its cache and other tools."""

    def __init__(self, codec: TypedCodec) -> None:
        self._codec = codec

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        with patterns_counted():
            return SERIALIZER_KIND, encode(self._codec.encode(obj)).encode()

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        kind, text = data
        if kind != SERIALIZER_KIND:
            raise CorruptCheckpointError(f"a value of kind {kind!r:.40} was written by another serializer")
        with patterns_counted():
            return self._codec.decode(decode(text))
