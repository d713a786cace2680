"""Checkpointers: they keep the states of agents, by thread.

`BaseCheckpointer` is the contract, for anyone who writes a checkpointer. `Checkpointer` is the implementation for all
backends of Locus: it keeps `AgentState` in a `CheckpointStore`. `StoreVerbs` has the methods that are the same for
states and for plain dicts; storage backends, which keep dicts, share them.

Every backend of Locus keeps these laws:

- A save is atomic. After a crash at any instant the whole checkpoint is there, or nothing of it.
- A load returns a state equal to the saved one. For values that JSON cannot hold, `SerializationError` has the path.
- Every checkpoint stays loadable until it is deleted, and deleting one never breaks another.
- Order is the order of commits, whatever the clocks say; "latest" is the newest commit that is left.
- `None`, `False` and an empty list mean "not there". If that could not be found out, an error is raised.
- Ids and metadata keys are data, never syntax. Loaded data is never executed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, Self

from locus.core.frozen import Items, ThreadKey
from locus.core.state import AgentState
from locus.errors import CapabilityError, CheckpointNotFoundError, CorruptCheckpointError
from locus.memory.cache import CacheInfo
from locus.memory.diffs import StateDiff, checkpoint_diff, diff_of_payloads
from locus.memory.engine import CheckpointerCapabilities
from locus.memory.model.arguments import SEARCH_SECONDS
from locus.memory.model.changes import PAGE, PayloadDiff, checked_page
from locus.memory.model.codec import decode, encode
from locus.memory.model.ids import check_ids
from locus.memory.model.parts import ItemPage, Window, checked_last, checked_range, page_of, page_of_value
from locus.memory.model.records import ANY, DEFAULT_NAMESPACE, CheckpointKey, Entry, Stored, Unset
from locus.memory.model.retention import VacuumProgress
from locus.memory.model.sizes import ThreadSizes
from locus.memory.model.states import STATE_LISTS, STATES, loaded_state, state_payload
from locus.memory.model.trace import Trace
from locus.memory.runtime.once import made_once
from locus.memory.store import CheckpointStore
from locus.memory.titles import titles_of

if TYPE_CHECKING:
    from locus.memory.sync import SyncCheckpointer


Metadata = Mapping[str, Any]
"""The type of metadata. Locus itself does not use this name, but programs may import it."""


@dataclass(frozen=True)
class HistoryEntry:
    """One checkpoint of a thread's history, without its payload."""

    thread_id: str
    checkpoint_id: str
    parent_id: str | None
    seq: int
    created_at: datetime
    metadata: dict[str, Any]
    namespace: str = DEFAULT_NAMESPACE


@dataclass(frozen=True)
class ThreadSummary:
    """An entry in a list of threads: the last checkpoint of the thread, and its title."""

    thread_id: str
    last: HistoryEntry
    """The newest checkpoint of the thread, in any namespace."""
    count: int
    """The sequence number of `last`: how many saves the thread has had, in all namespaces, deleted ones included."""
    title: str | None = None
    """The beginning of the first message of a user. None if there is none, or without `titles=True`."""


@dataclass(frozen=True)
class RecentThreads:
    """A page of threads, the one with the newest checkpoint first."""

    threads: tuple[ThreadSummary, ...]
    more: bool
    """Whether another page may follow. Even a page with too few threads, or none, can be followed by one: a thread with
    very many checkpoints shortens it."""
    next: str | None
    """The value of `before` for the next page; None if no page follows."""


@dataclass(frozen=True)
class PendingWrite:
    """A value that a task wrote before its step was complete."""

    task_id: str
    idx: int
    channel: str
    value: Any
    task_path: str = ""


def _key(name: str) -> Any:
    """An attribute of a dict that has this key."""
    return property(itemgetter(name))


class SearchHit(dict[str, Any]):
    """A checkpoint that a search has found: a dict, whose usual keys are also attributes."""

    thread_id: str = _key("thread_id")
    checkpoint_id: str = _key("checkpoint_id")
    created_at: datetime = _key("created_at")
    metadata: dict[str, Any] = _key("metadata")
    namespace: str = _key("namespace")
    score: float = _key("score")
    snippet: str = _key("snippet")


class SearchHits(list[SearchHit]):
    """The hits of a search: a list of `SearchHit`, best first.

    `complete` is False if the time of the search was up before it had looked at everything. The list then has the hits
    up to that moment, and being empty does not mean that there are none.
    """

    def __init__(self, found: Iterable[dict[str, Any]] = (), complete: bool = True) -> None:
        super().__init__(map(SearchHit, found))
        self.complete = complete


class BaseCheckpointer(ABC):
    """Keeps `AgentState` by thread. Look at `capabilities` before calling the methods below `close`."""

    @property
    def capabilities(self) -> CheckpointerCapabilities:
        """The features of this checkpointer. By default there are none; a subclass names those it has."""
        return CheckpointerCapabilities()

    @abstractmethod
    async def save(
        self,
        state: AgentState,
        thread_id: str,
        checkpoint_id: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> str:
        """Keep a state as the newest checkpoint of a thread, and return the checkpoint's id.

        Without a `checkpoint_id` a new one is made. Saving an equal state under an id that exists changes
        nothing, so a save can be repeated safely; a different one replaces it and becomes the newest.
        """

    @abstractmethod
    async def load(self, thread_id: str, checkpoint_id: str | None = None) -> AgentState | None:
        """Load the state of a checkpoint, by default the latest; `None` if there is none."""

    @abstractmethod
    async def list_checkpoints(self, thread_id: str, limit: int = 10) -> list[str]:
        """The ids of a thread's checkpoints, newest first."""

    async def delete(self, thread_id: str, checkpoint_id: str | None = None) -> bool:
        """Delete one checkpoint, or the whole thread. True if there was something to delete."""
        self._cannot("delete")

    async def exists(self, thread_id: str, checkpoint_id: str | None = None) -> bool:
        """Whether a checkpoint exists. Without an id: whether the thread has any."""
        return await self.load(thread_id, checkpoint_id) is not None

    async def close(self) -> None:
        """Close all that this checkpointer opened itself. A later use opens it again."""

    async def search(self, query: str, limit: int = 10, *, prefix: str = "") -> Sequence[dict[str, Any]]:
        """Checkpoints that contain all words of `query`, best first, each with a `score` and a `snippet`.

        With a `prefix`, it searches only threads whose ids start with it; the content of others has no influence.
        """
        self._cannot("search")

    async def query_by_metadata(
        self, key: str, value: Any, limit: int = 100, *, prefix: str = ""
    ) -> list[dict[str, Any]]:
        """Checkpoints whose metadata has exactly this value under this key, newest first.

        With a `prefix`, it looks only at threads whose ids start with it.
        """
        self._cannot("metadata_query")

    async def get_metadata(self, thread_id: str, checkpoint_id: str | None = None) -> dict[str, Any] | None:
        """The metadata of a checkpoint, by default the latest; `None` if there is none."""
        self._cannot("metadata_query")

    async def vacuum(self, older_than_days: int = 30) -> int:
        """Delete checkpoints older than this, and return how many."""
        self._cannot("vacuum")

    async def sizes(self, thread_id: str) -> ThreadSizes | None:
        """The space that a thread takes, in bytes; `None` if there is no such thread."""
        self._cannot("sizes")

    async def copy_thread(self, source_thread_id: str, dest_thread_id: str) -> bool:
        """Copy a thread with its history under a new id. False if there is nothing to copy."""
        self._cannot("branching")

    async def list_threads(
        self, limit: int = 100, pattern: str = "*", *, after: str | None = None, prefix: str = ""
    ) -> list[str]:
        """The ids of threads that match a pattern (`*` any text, `?` one character), in the order of code points.

        `after` is the last id of the page before: the list begins behind it, whether or not that thread still exists.
        `prefix` is plain text that ids must start with.
        """
        self._cannot("list_threads")

    async def list_namespaces(self, thread_id: str) -> list[str]:
        """The namespaces in which a thread has checkpoints, in order; empty if there is no such thread."""
        self._cannot("namespaces")

    async def list_with_metadata(self, limit: int = 100, *, prefix: str = "") -> list[dict[str, Any]]:
        """The newest checkpoints of all threads, with `thread_id`, `checkpoint_id`, `metadata` and more.

        They may all be of one busy thread: `recent_threads` has each thread once. With a `prefix`, only threads whose
        ids start with it count.
        """
        self._cannot("list_with_metadata")

    async def recent_threads(
        self, limit: int = 50, *, before: str | None = None, prefix: str = "", titles: bool = False
    ) -> RecentThreads:
        """The threads that were saved most recently, newest first. Each is listed once, with its last checkpoint.

        `before` is `next` of the page before. `prefix` is plain text that ids must start with. `titles=True` also reads
        the beginning of the first message of each thread's user.

        A page costs the same in a large store and in a small one, because it looks at a limited number of the newest
        checkpoints: `more` says whether another page may follow. A page has at most 2,000 threads.
        """
        self._cannot("recent_threads")

    async def history(self, thread_id: str, limit: int | None = 10, before: str | None = None) -> list[HistoryEntry]:
        """A thread's checkpoints without their payloads, newest first.

        With `before`, the id of a checkpoint, only those older than it. `limit=None` returns all.
        """
        self._cannot("history")

    async def read_items(
        self,
        thread_id: str,
        checkpoint_id: str | None = None,
        *,
        path: Sequence[str] = ("messages",),
        start: int = 0,
        count: int = 50,
    ) -> ItemPage | None:
        """A range of items of one list of a checkpoint, as plain JSON values, and the length of the list.

        `None` if the checkpoint is not there. `path` names the fields that lead to the list. A negative `start` counts
        from the end.
        """
        part = checked_range(path, start, count)
        state = await self.load(thread_id, checkpoint_id)
        return None if state is None else page_of_value(state.to_checkpoint(), part)

    async def put_writes(
        self, thread_id: str, checkpoint_id: str, task_id: str, writes: Sequence[tuple[str, Any]]
    ) -> None:
        """Keep the writes of a task since a checkpoint. A second call replaces the task's earlier writes."""
        self._cannot("pending writes")

    async def get_writes(self, thread_id: str, checkpoint_id: str, task_id: str | None = None) -> list[PendingWrite]:
        """The writes of tasks since a checkpoint, ordered by task path, task and index."""
        self._cannot("pending writes")

    async def diff(self, thread_id: str, a: str, b: str) -> StateDiff:
        """The changes between two checkpoints of a thread."""
        self._cannot("diff")

    async def payload_diff(
        self, thread_id: str, a: str, b: str, *, other_thread: str | None = None, start: int = 0, limit: int = PAGE
    ) -> PayloadDiff:
        """The changes between two checkpoints, as plain JSON values and in pages.

        `b` is a checkpoint of `other_thread`, if that is given.
        """
        first, most = checked_page(start, limit)
        pair: list[Stored] = []
        for thread, checkpoint_id in ((thread_id, a), (other_thread or thread_id, b)):
            state = await self.load(thread, checkpoint_id)
            if state is None:
                raise CheckpointNotFoundError(f"thread {thread!r} has no checkpoint {checkpoint_id!r}")
            entry = Entry(thread, "", checkpoint_id, None, 0, "", state.updated_at, "{}")
            pair.append(Stored(entry, encode(state.to_checkpoint()), "[]"))
        return diff_of_payloads(pair[0], pair[1], first, most)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    def _cannot(self, what: str) -> NoReturn:
        raise CapabilityError(
            f"{type(self).__name__} does not support {what}; check `.capabilities` first, or use another backend"
        )


class _DefaultDays(int):
    """A number that can be told from an equal one: it shows that an age is the default, and not a caller's."""


THIRTY_DAYS: Final = _DefaultDays(30)
"""The default age of a vacuum. With `keep_last`, an age counts only if the caller has given it."""


class StoreVerbs:
    """The methods of a store that are the same for states and plain dicts. A subclass sets `self.store`."""

    if TYPE_CHECKING:  # a subclass that is a pydantic model would make a field of it
        store: CheckpointStore

    @property
    def capabilities(self) -> CheckpointerCapabilities:
        """The features that this store has beyond saving, loading and listing."""
        return self.store.capabilities

    async def list_checkpoints(
        self, thread_id: str, limit: int = 10, *, namespace: str = DEFAULT_NAMESPACE
    ) -> list[str]:
        """The ids of a thread's checkpoints, newest first."""
        return [entry.checkpoint_id for entry in await self.store.history(thread_id, limit, None, namespace)]

    async def history(
        self,
        thread_id: str,
        limit: int | None = 10,
        before: str | None = None,
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> list[HistoryEntry]:
        """A thread's checkpoints without their payloads, newest first. See `BaseCheckpointer.history`."""
        return [history_entry(entry) for entry in await self.store.history(thread_id, limit, before, namespace)]

    async def delete(self, thread_id: str, checkpoint_id: str | None = None, *, namespace: str | None = None) -> bool:
        """Delete one checkpoint, or the whole thread; with a namespace but no id, that namespace."""
        if checkpoint_id is not None and namespace is None:
            namespace = DEFAULT_NAMESPACE
        return await self.store.delete(thread_id, checkpoint_id, namespace)

    async def exists(self, thread_id: str, checkpoint_id: str | None = None, *, namespace: str | None = None) -> bool:
        """Whether a checkpoint exists. Without an id: whether the thread, or its namespace, has any."""
        if checkpoint_id is None:
            return bool(await self.store.history(thread_id, 1, None, namespace))
        return (
            await self.store.entry(thread_id, checkpoint_id, DEFAULT_NAMESPACE if namespace is None else namespace)
            is not None
        )

    async def search(
        self, query: str, limit: int = 10, *, prefix: str = "", timeout_seconds: float = SEARCH_SECONDS
    ) -> SearchHits:
        """Checkpoints that contain all words of `query`, best first, each with a `score` and a `snippet`.

        After `timeout_seconds` it returns the hits so far; `complete` of the list says whether it has looked at
        everything.
        """
        found = await self.store.search(query, limit, prefix, timeout_seconds=timeout_seconds)
        return SearchHits(
            ({**entry_dict(hit.entry), "score": hit.score, "snippet": hit.snippet} for hit in found), found.complete
        )

    async def query_by_metadata(
        self, key: str, value: Any, limit: int = 100, *, prefix: str = ""
    ) -> list[dict[str, Any]]:
        """Checkpoints whose metadata has exactly this value under this key, newest first.

        See `BaseCheckpointer.query_by_metadata`.
        """
        return [entry_dict(entry) for entry in await self.store.find(key, value, limit, prefix)]

    async def get_metadata(
        self, thread_id: str, checkpoint_id: str | None = None, *, namespace: str = DEFAULT_NAMESPACE
    ) -> dict[str, Any] | None:
        """The metadata of a checkpoint, by default the latest; `None` if there is none."""
        entry = await self.store.entry(thread_id, checkpoint_id, namespace)
        return None if entry is None else metadata_of(entry)

    async def vacuum(
        self,
        older_than_days: float = THIRTY_DAYS,
        *,
        keep_last: int | None = None,
        dry_run: bool = False,
        progress: Callable[[VacuumProgress], None] | None = None,
    ) -> int:
        """Delete old checkpoints, and return how many.

        A checkpoint is old by age (`older_than_days`) or by number (beyond the newest `keep_last` of its line of
        history; every fork is a line of its own). If both are given, both must hold. A thread without any checkpoint
        left is gone. Pending writes whose checkpoint was never saved are deleted if they are older than a day and than
        that age. `dry_run=True` only counts. `progress` is called repeatedly, with a `VacuumProgress`.

        A damaged thread does not stop the vacuum. Its error is raised when all other threads are done.
        """
        by_number_only = keep_last is not None and older_than_days is THIRTY_DAYS
        return await self.store.vacuum(None if by_number_only else older_than_days, keep_last, dry_run, progress)

    async def sizes(
        self,
        thread_id: str,
        *,
        older_than_days: float | None = None,
        keep_last: int | None = None,
        deleting: Collection[str] = (),
        namespace: str = DEFAULT_NAMESPACE,
    ) -> ThreadSizes | None:
        """The space that a thread takes, in bytes; `None` if there is no such thread.

        `freed` says how much a vacuum with `older_than_days` or `keep_last` would free, or deleting the checkpoints
        `deleting` of the namespace. No item is read for that.
        """
        return await self.store.sizes(thread_id, older_than_days, keep_last, deleting, namespace)

    async def copy_thread(
        self,
        source_thread_id: str,
        dest_thread_id: str,
        checkpoint_id: str | None = None,
        *,
        ancestors: int | Literal["all"] = "all",
        namespace: str = DEFAULT_NAMESPACE,
    ) -> bool:
        """Copy a thread under a new id: whole, or one checkpoint with its ancestors.

        `ancestors` is how many of those are copied, the nearest first; with 0, the checkpoint alone. The farthest then
        has no parent. False if there is nothing to copy; `ConflictError` if the new id is in use.
        """
        return await self.store.copy(source_thread_id, dest_thread_id, checkpoint_id, namespace, ancestors)

    async def list_threads(
        self, limit: int | None = 100, pattern: str = "*", *, after: str | None = None, prefix: str = ""
    ) -> list[str]:
        """The ids of threads that match a pattern (`*` any text, `?` one character), in the order of code points.

        See `BaseCheckpointer.list_threads`.
        """
        return await self.store.list_threads(limit, pattern, after=after, prefix=prefix)

    async def list_namespaces(self, thread_id: str) -> list[str]:
        """The namespaces in which a thread has checkpoints, in order; empty if there is no such thread.

        A checkpointer saves in `"default"`. LangGraph's graphs are in `""` and below, and OpenAI's sessions in
        `"openai-agents"`.
        """
        return await self.store.namespaces(thread_id)

    async def read_items(
        self,
        thread_id: str,
        checkpoint_id: str | None = None,
        *,
        path: Sequence[str] = ("messages",),
        start: int = 0,
        count: int = 50,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> ItemPage | None:
        """A range of items of one list of a checkpoint, as plain JSON values, and the length of the list.

        See `BaseCheckpointer.read_items`.
        """
        part = checked_range(path, start, count)
        stored = await self.store.read_part(thread_id, checkpoint_id, namespace, part)
        return None if stored is None else page_of(stored, part)

    async def payload_diff(
        self,
        thread_id: str,
        a: str,
        b: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        other_thread: str | None = None,
        other_namespace: str | None = None,
        start: int = 0,
        limit: int = PAGE,
    ) -> PayloadDiff:
        """The changes from checkpoint `a` to checkpoint `b`, as plain JSON values and in pages.

        The payloads may be of any shape. Parts that the checkpoints share are not read, so the cost is that of the
        differences. `b` may be of another thread or namespace. `start` and `limit` choose the page; `limit=0` only
        counts.
        """
        old = CheckpointKey(thread_id, namespace, a)
        return await self.store.diff(old, compared_with(old, b, other_thread, other_namespace), start, limit)

    async def list_with_metadata(self, limit: int = 100, *, prefix: str = "") -> list[dict[str, Any]]:
        """The newest checkpoints of all threads, with `thread_id`, `checkpoint_id`, `metadata` and more.

        See `BaseCheckpointer.list_with_metadata`.
        """
        return [entry_dict(entry) for entry in await self.store.recent(limit, prefix)]

    async def recent_threads(
        self, limit: int = 50, *, before: str | None = None, prefix: str = "", titles: bool = False
    ) -> RecentThreads:
        """The threads that were saved most recently, newest first. Each is listed once, with its last checkpoint.

        See `BaseCheckpointer.recent_threads`.
        """
        return await recent_threads(self.store, limit, before, prefix, titles=titles)

    async def put_writes(
        self,
        thread_id: str,
        checkpoint_id: str,
        task_id: str,
        writes: Sequence[tuple[str, Any]],
        *,
        task_path: str = "",
        namespace: str = DEFAULT_NAMESPACE,
    ) -> None:
        """Keep the writes of a task since a checkpoint. A second call replaces the task's earlier writes."""
        await self.store.put_writes(thread_id, checkpoint_id, task_id, writes, task_path=task_path, namespace=namespace)

    async def get_writes(
        self,
        thread_id: str,
        checkpoint_id: str,
        task_id: str | None = None,
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> list[PendingWrite]:
        """The writes of tasks since a checkpoint, ordered by task path, task and index."""
        writes = await self.store.get_writes(thread_id, checkpoint_id, task_id=task_id, namespace=namespace)
        return [
            PendingWrite(write.task_id, write.idx, write.channel, decode(write.value), write.task_path)
            for write in writes
        ]

    def cache_info(self) -> CacheInfo:
        """How many loads used the cache of this handle, and how large the cache is. See `cache_mb`."""
        return self.store.cache.info()

    def cache_clear(self) -> None:
        """Empty the cache of this handle. The next load of each thread reads all of it."""
        self.store.cache.clear()

    async def close(self) -> None:
        """Close all that this handle opened itself. A later use opens it again."""
        await self.store.close()


class Checkpointer(StoreVerbs, BaseCheckpointer):
    """Keeps `AgentState` in a `CheckpointStore`. The checkpointers of all backends are of this class."""

    def __init__(self, store: CheckpointStore) -> None:
        self.store = store

    async def save(  # keyword-only parameters are those that the contract does not have
        self,
        state: AgentState,
        thread_id: str,
        checkpoint_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        parent: str | None | Unset = ANY,
        if_latest: str | None | Unset = ANY,
    ) -> str:
        """Keep a state as the newest checkpoint of a thread, and return its id.

        `if_latest` names the checkpoint that must still be the latest (`None`: the thread must be new). If it is not,
        `ConflictError` is raised and nothing is written. The parent is the checkpoint that the state was loaded from or
        saved as, or else the latest, unless `parent` names another.
        """
        payload = state_payload(state)
        saved = await self.store.save(
            thread_id,
            payload,
            namespace=namespace,
            checkpoint_id=checkpoint_id,
            metadata=metadata,
            parent=parent,
            if_latest=if_latest,
        )
        state._keep_at(self._key(thread_id, namespace), saved.trace)
        for value in payload.fields.values():
            if isinstance(value, Items):
                value.anchor()  # what is derived from it can later be compared with it
        return saved.checkpoint_id

    async def load(
        self,
        thread_id: str,
        checkpoint_id: str | None = None,
        *,
        last: int | None = None,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> AgentState | None:
        """Load the state of a checkpoint, by default the latest; `None` if there is none.

        `last=n` loads a window: the last n items of each list of the state, at a cost that does not grow with the
        thread. `state.omitted` says how many others there are. They stay when the state, or one made from it, is saved.
        A store that keeps every checkpoint whole loads all of it (see `capabilities.windows`).
        """
        if last is None:
            loaded = await self.store.load(thread_id, checkpoint_id, namespace, STATES)
            state_and_trace = None if loaded is None else loaded.value
        else:
            window = Window(checked_last(last), STATE_LISTS)
            stored = await self.store.read_part(thread_id, checkpoint_id, namespace, window)
            shown = window if self.store.engine.keeps_runs else None
            state_and_trace = None if stored is None else loaded_state(stored, shown)
        if state_and_trace is None:
            return None
        state, trace = state_and_trace
        state._keep_at(self._key(thread_id, namespace), trace)
        return state

    def origin(self, state: AgentState, thread_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> str | None:
        """The id of the checkpoint of this thread that a state was last loaded from or saved as.

        Use it with `if_latest`: `save(changed, thread_id, if_latest=cp.origin(state, thread_id))`.
        """
        check_ids(thread_id, None, namespace)
        trace: Trace | None = state._kept_at(self._key(thread_id, namespace))
        return None if trace is None else trace.base.checkpoint_id

    def follow_copy(self, state: AgentState, thread_id: str, copy: str, *, namespace: str = DEFAULT_NAMESPACE) -> None:
        """Let a state that came from a thread be saved in a copy of it, as if it had been loaded from there.

        A window needs this: the items that it left out are in the copy, too.
        """
        check_ids(thread_id, None, namespace)
        check_ids(copy, None, namespace)
        trace = state._kept_at(self._key(thread_id, namespace))
        if trace is not None:
            state._keep_at(self._key(copy, namespace), trace)

    def _key(self, thread_id: str, namespace: str) -> ThreadKey:
        """Names a thread to a state. The ids are checked by now."""
        return self.store.engine.identity, thread_id, namespace

    async def diff(
        self,
        thread_id: str,
        a: str,
        b: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        other_thread: str | None = None,
        other_namespace: str | None = None,
    ) -> StateDiff:
        """The changes from checkpoint `a` to checkpoint `b`, which may be of another thread or namespace.

        Messages that both have are not read. `payload_diff` compares payloads of any shape, in pages.
        """
        old = CheckpointKey(thread_id, namespace, a)
        new = compared_with(old, b, other_thread, other_namespace)
        if old == new and await self.load(thread_id, a, namespace=namespace) is None:
            raise await self.store.not_found(thread_id, a, namespace)
        return await self.store.compare(old, new, checkpoint_diff)

    @made_once
    def sync(self) -> SyncCheckpointer:
        """This checkpointer with blocking methods, which any thread may call."""
        from locus.memory.sync import SyncCheckpointer

        return SyncCheckpointer(self)


async def recent_threads(
    store: CheckpointStore, limit: int, before: str | None, prefix: str, *, titles: bool
) -> RecentThreads:
    """A page of the newest threads of a store."""
    page = await store.newest_threads(limit, before, prefix)
    named = await titles_of(store, page.entries) if titles else [None] * len(page.entries)
    threads = (
        ThreadSummary(entry.thread_id, history_entry(entry), entry.seq, title)
        for entry, title in zip(page.entries, named, strict=True)
    )
    return RecentThreads(tuple(threads), page.next is not None, page.next)


def compared_with(
    old: CheckpointKey, checkpoint_id: str, thread_id: str | None, namespace: str | None
) -> CheckpointKey:
    """The key of the checkpoint to compare with `old`: in the same thread and namespace, unless others are given."""
    return CheckpointKey(
        old.thread_id if thread_id is None else thread_id,
        old.namespace if namespace is None else namespace,
        checkpoint_id,
    )


def metadata_of(entry: Entry) -> dict[str, Any]:
    metadata = decode(entry.metadata)
    if not isinstance(metadata, dict):
        raise CorruptCheckpointError(f"the metadata of checkpoint {entry.seq} is no object")
    return metadata


def history_entry(entry: Entry) -> HistoryEntry:
    return HistoryEntry(
        thread_id=entry.thread_id,
        checkpoint_id=entry.checkpoint_id,
        parent_id=entry.parent_id,
        seq=entry.seq,
        created_at=entry.created_at,
        metadata=metadata_of(entry),
        namespace=entry.namespace,
    )


def entry_dict(entry: Entry) -> dict[str, Any]:
    return dict(vars(history_entry(entry)))
