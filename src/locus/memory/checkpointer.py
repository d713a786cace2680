"""Checkpointers: agent state by thread.

`BaseCheckpointer` is the contract, for anyone who writes a checkpointer. `Checkpointer` is the one that Locus has for
every backend: `AgentState` over a `CheckpointStore`. `StoreVerbs` has the methods that do not depend on what is saved;
the storage backends, which keep plain dicts, share them.

Every backend of Locus keeps these laws:

- A save is atomic. After a crash at any instant the whole checkpoint is there, or nothing of it.
- What was saved comes back equal. What JSON cannot hold raises `SerializationError` with its path.
- Every checkpoint stays loadable until it is deleted, and deleting one never breaks another.
- Order is the order of commits, whatever the clocks say; "latest" is the newest commit that is left.
- `None`, `False` and an empty list mean "not there". What could not be found out is raised.
- Ids and metadata keys are data, never syntax. Nothing that is loaded is ever executed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
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
"""What metadata is to type checkers. Nothing here needs the name, but programs may import it."""


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
    """A thread in a list: its last checkpoint, and what it is about."""

    thread_id: str
    last: HistoryEntry
    """Its newest checkpoint, of any namespace."""
    count: int
    """The sequence number of that checkpoint: how many saves the thread has had until then, in all namespaces.
    Checkpoints that were deleted since count, too."""
    title: str | None = None
    """The beginning of the first message of a user, if it was asked for and there is one (see `titles`)."""


@dataclass(frozen=True)
class RecentThreads:
    """A page of threads, the one with the newest checkpoint first."""

    threads: tuple[ThreadSummary, ...]
    more: bool
    """Whether there may be more. A page can have fewer threads than were asked for, or none, and this be true: then a
    thread with very many checkpoints was in the way."""
    next: str | None
    """What to give as `before` for the next page; None if there are no more."""


@dataclass(frozen=True)
class PendingWrite:
    """Something a task wrote before the step that it belongs to was complete."""

    task_id: str
    idx: int
    channel: str
    value: Any
    task_path: str = ""


class SearchHits(list[dict[str, Any]]):
    """What a search found: a list of dicts, best first.

    `complete` is False if the time of the search was up before it had looked at everything. What it found until then is
    in the list, and an empty list does not mean that there is nothing.
    """

    def __init__(self, found: Iterable[dict[str, Any]] = (), complete: bool = True) -> None:
        super().__init__(found)
        self.complete = complete


class BaseCheckpointer(ABC):
    """Keeps `AgentState` by thread. Look at `capabilities` before calling the methods below `close`."""

    @property
    def capabilities(self) -> CheckpointerCapabilities:
        """What this checkpointer can do. Subclasses say more than the default, which is nothing."""
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
        """The state of that checkpoint, or of the latest; `None` if there is none."""

    @abstractmethod
    async def list_checkpoints(self, thread_id: str, limit: int = 10) -> list[str]:
        """The ids of a thread's checkpoints, newest first."""

    async def delete(self, thread_id: str, checkpoint_id: str | None = None) -> bool:
        """Delete one checkpoint, or the whole thread. True if there was something to delete."""
        self._cannot("delete")

    async def exists(self, thread_id: str, checkpoint_id: str | None = None) -> bool:
        """Whether that checkpoint, or any checkpoint of the thread, is there."""
        return await self.load(thread_id, checkpoint_id) is not None

    async def close(self) -> None:
        """Release what this checkpointer opened itself. It may be used again, and opens anew."""

    async def search(self, query: str, limit: int = 10, *, prefix: str = "") -> list[dict[str, Any]]:
        """Checkpoints that contain all words of `query`, best first, each with a `score` and a `snippet`.

        With a `prefix`: only of threads whose ids start with it; what others hold has no influence.
        """
        self._cannot("search")

    async def query_by_metadata(
        self, key: str, value: Any, limit: int = 100, *, prefix: str = ""
    ) -> list[dict[str, Any]]:
        """Checkpoints whose metadata has exactly this value under this key, newest first.

        With a `prefix`: only of threads whose ids start with it.
        """
        self._cannot("metadata_query")

    async def get_metadata(self, thread_id: str, checkpoint_id: str | None = None) -> dict[str, Any] | None:
        """The metadata of that checkpoint, or of the latest; `None` if there is none."""
        self._cannot("metadata_query")

    async def vacuum(self, older_than_days: int = 30) -> int:
        """Delete checkpoints older than this, and return how many."""
        self._cannot("vacuum")

    async def sizes(self, thread_id: str) -> ThreadSizes | None:
        """What a thread takes, in bytes; `None` if there is no such thread."""
        self._cannot("sizes")

    async def copy_thread(self, source_thread_id: str, dest_thread_id: str) -> bool:
        """Copy a thread with its history under a new id. False if there is nothing to copy."""
        self._cannot("branching")

    async def list_threads(
        self, limit: int = 100, pattern: str = "*", *, after: str | None = None, prefix: str = ""
    ) -> list[str]:
        """The ids of threads that match a pattern (`*` any text, `?` one character), in the order of code points.

        `after` is the last id of the page before: only ids behind it, whether or not that thread still exists.
        `prefix` is what ids have to start with, a text in which nothing is syntax.
        """
        self._cannot("list_threads")

    async def list_namespaces(self, thread_id: str) -> list[str]:
        """The namespaces in which a thread has checkpoints, in order; empty if there is no such thread."""
        self._cannot("namespaces")

    async def list_with_metadata(self, limit: int = 100, *, prefix: str = "") -> list[dict[str, Any]]:
        """The newest checkpoints of all threads, with `thread_id`, `checkpoint_id`, `metadata` and more.

        They may all be of one busy thread: `recent_threads` has each thread once. With a `prefix`: only of threads
        whose ids start with it.
        """
        self._cannot("list_with_metadata")

    async def recent_threads(
        self, limit: int = 50, *, before: str | None = None, prefix: str = "", titles: bool = False
    ) -> RecentThreads:
        """The threads that were saved to last, newest first, each once, with its last checkpoint.

        `before` is `next` of the page before. `prefix` is what ids have to start with, a text in which nothing is
        syntax. `titles=True` also reads the beginning of what the user of each thread said first.

        A page costs no more in a large store than in a small one, so it is put together from the newest checkpoints,
        and from a limited number of them: look at `more`. At most 2,000 threads are on a page.
        """
        self._cannot("recent_threads")

    async def history(self, thread_id: str, limit: int | None = 10, before: str | None = None) -> list[HistoryEntry]:
        """A thread's checkpoints without their payloads, newest first.

        `before` is a checkpoint id: only what is older than it. `limit=None` gives all.
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
        """Some items of one list of a checkpoint, as plain JSON values, and how many there are.

        `None` if the checkpoint is not there. `path` names the fields that lead to the list. A negative `start` counts
        from the end.
        """
        part = checked_range(path, start, count)
        state = await self.load(thread_id, checkpoint_id)
        return None if state is None else page_of_value(state.to_checkpoint(), part)

    async def put_writes(
        self, thread_id: str, checkpoint_id: str, task_id: str, writes: Sequence[tuple[str, Any]]
    ) -> None:
        """Keep what a task wrote since a checkpoint. Repeating it replaces the task's earlier set."""
        self._cannot("pending writes")

    async def get_writes(self, thread_id: str, checkpoint_id: str, task_id: str | None = None) -> list[PendingWrite]:
        """What tasks wrote since a checkpoint, ordered by task path, task and index."""
        self._cannot("pending writes")

    async def diff(self, thread_id: str, a: str, b: str) -> StateDiff:
        """What changed between two checkpoints of a thread."""
        self._cannot("diff")

    async def payload_diff(
        self, thread_id: str, a: str, b: str, *, other_thread: str | None = None, start: int = 0, limit: int = PAGE
    ) -> PayloadDiff:
        """What changed between two checkpoints, as plain JSON values: a page of it.

        `b` is a checkpoint of `other_thread`, if that is given.
        """
        first, most = checked_page(start, limit)
        found: list[Stored] = []
        for thread, checkpoint_id in ((thread_id, a), (other_thread or thread_id, b)):
            state = await self.load(thread, checkpoint_id)
            if state is None:
                raise CheckpointNotFoundError(f"thread {thread!r} has no checkpoint {checkpoint_id!r}")
            entry = Entry(thread, "", checkpoint_id, None, 0, "", state.updated_at, "{}")
            found.append(Stored(entry, encode(state.to_checkpoint()), "[]"))
        return diff_of_payloads(found[0], found[1], first, most)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    def _cannot(self, what: str) -> NoReturn:
        raise CapabilityError(
            f"{type(self).__name__} does not support {what}; check `.capabilities` first, or use another backend"
        )


class _DefaultDays(int):
    """Tells the default from the same number given by a caller."""


THIRTY_DAYS: Final = _DefaultDays(30)
"""The default age of a vacuum. With `keep_last` it does not count; an age that the caller gives does."""


class StoreVerbs:
    """The methods over `self.store` that do not depend on what a payload is."""

    if TYPE_CHECKING:  # a subclass that is a pydantic model would make a field of it
        store: CheckpointStore

    @property
    def capabilities(self) -> CheckpointerCapabilities:
        """What this store can do."""
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
        """Whether that checkpoint, or any of the thread (or of that namespace of it), is there."""
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

        After `timeout_seconds` it gives what was found so far; `complete` of the list says whether that is all.
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
        """The metadata of that checkpoint, or of the latest; `None` if there is none."""
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

        By age (`older_than_days`), by number (`keep_last` of each line of history; every fork is a line of
        its own), or by both, and then both must hold. Threads that have nothing left are gone, and so are pending
        writes whose checkpoint never came, if they are known to be a day old and as old as that.
        `dry_run=True` only counts. `progress` is called with a `VacuumProgress` again and again.

        A thread that is damaged does not stop it. The error is raised when all others are done.
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
        """What a thread takes, in bytes; `None` if there is no such thread.

        With `older_than_days` or `keep_last`, `freed` says what such a vacuum would free of it; with `deleting`, what
        deleting these checkpoints of a namespace would. No item is read for it.
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

        `ancestors` is how many of those come along, the nearest first; with 0 the checkpoint comes alone. The last one
        then has no parent. False if there is nothing to copy; `ConflictError` if the new id is in use.
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

        A checkpointer saves in `"default"`; LangGraph's graphs live in `""` and below, OpenAI's sessions in
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
        """Some items of one list of a checkpoint, as plain JSON values, and how many there are.

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
        """What changed from checkpoint `a` to checkpoint `b`, as plain JSON values: a page of it.

        The payloads may be of any shape. What the checkpoints share is not read, so it costs what differs. `b` may be
        of another thread, or of another namespace. `start` and `limit` choose the page; `limit=0` only counts.
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
        """The threads that were saved to last, newest first, each once, with its last checkpoint.

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
        """Keep what a task wrote since a checkpoint. Repeating it replaces the task's earlier set."""
        await self.store.put_writes(thread_id, checkpoint_id, task_id, writes, task_path=task_path, namespace=namespace)

    async def get_writes(
        self,
        thread_id: str,
        checkpoint_id: str,
        task_id: str | None = None,
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> list[PendingWrite]:
        """What tasks wrote since a checkpoint, ordered by task path, task and index."""
        writes = await self.store.get_writes(thread_id, checkpoint_id, task_id=task_id, namespace=namespace)
        return [
            PendingWrite(write.task_id, write.idx, write.channel, decode(write.value), write.task_path)
            for write in writes
        ]

    def cache_info(self) -> CacheInfo:
        """How often loads could do with what this handle holds in memory, and how much that is. See `cache_mb`."""
        return self.store.cache.info()

    def cache_clear(self) -> None:
        """Let go of what this handle holds in memory. The next load of each thread reads all of it."""
        self.store.cache.clear()

    async def close(self) -> None:
        """Release what this handle opened itself. It may be used again, and opens anew."""
        await self.store.close()


class Checkpointer(StoreVerbs, BaseCheckpointer):
    """Keeps `AgentState` in a `CheckpointStore`. The checkpointers of all backends are of this class."""

    def __init__(self, store: CheckpointStore) -> None:
        self.store = store

    async def save(  # the contract's parameters; what only these stores can do is added by keyword
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

        `if_latest` names the checkpoint that must still be the latest (`None`: the thread must be new), else
        `ConflictError` is raised and nothing is written. The parent is the checkpoint that this state was
        loaded from or saved as, else the latest; `parent` says otherwise.
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
        """The state of that checkpoint, or of the latest; `None` if there is none.

        `last` loads a window: the last so many items of each list of the state, at a cost that does not grow with the
        thread. `state.omitted` says how many others there are, and saving the state, or one made from it, keeps them.
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

        A window needs that: what it left out is in the copy, too.
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
        """What changed from checkpoint `a` to checkpoint `b`, which may be of another thread or namespace.

        Messages that both have are not read. `payload_diff` does the same for payloads of any shape, in pages.
        """
        old = CheckpointKey(thread_id, namespace, a)
        new = compared_with(old, b, other_thread, other_namespace)
        if old == new and await self.load(thread_id, a, namespace=namespace) is None:
            raise await self.store.not_found(thread_id, a, namespace)
        return await self.store.compare(old, new, checkpoint_diff)

    @made_once
    def sync(self) -> SyncCheckpointer:
        """The same checkpointer for code that is not async, from any thread."""
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
    """The checkpoint that another is compared with: of the same thread and namespace, unless others are named."""
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
