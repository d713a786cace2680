"""A store as an adapter sees it: opened in any form in which a user may name it, and closed by whoever opened it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from locus.core.protocols import CheckpointerCapabilities
from locus.errors import CheckpointNotFoundError
from locus.hints import options_of_open_store, with_own_options
from locus.memory.checkpointer import Checkpointer
from locus.memory.item_log import ItemLog
from locus.memory.model.arguments import checked_limit
from locus.memory.model.ids import check_id, check_ids
from locus.memory.model.records import Entry, NewestThreads, TaskWrites, Write
from locus.memory.origins import Origin, note_origin
from locus.memory.registry import get_checkpointer
from locus.memory.runtime.direct import run
from locus.memory.saver import store_of
from locus.memory.store import CheckpointStore
from locus.threads.document import Document, Lists
from locus.threads.encoded import EncodedDocument, VersionWithWrites, read_versions

if TYPE_CHECKING:
    from locus.memory.long_term import LongTermMemory

T = TypeVar("T")

_MOST_DOCUMENTS = 1_024
_MOST_LOGS = 256
"""How many documents and logs a store remembers, with what they know of their latest checkpoint."""


class ThreadStore:
    """An open store: its threads, their documents and logs, and operations on whole threads.

    A thread has namespaces, and each of them a history of checkpoints. `open` takes a checkpointer, a storage backend,
    or a name or URL. `close` closes a store that was opened by name, and leaves others open.
    """

    def __init__(self, store: CheckpointStore, *, is_owner: bool = False, lender: ThreadStore | None = None) -> None:
        self._store = store
        self._is_owner = is_owner
        self._lender = lender
        self._is_closed = False
        self._spaces: dict[str, ThreadStore] = {}
        self._documents = lru_cache(maxsize=_MOST_DOCUMENTS)(partial(Document, store))
        self._encoded = lru_cache(maxsize=_MOST_DOCUMENTS)(partial(EncodedDocument, store))
        self._logs = lru_cache(maxsize=_MOST_LOGS)(partial(ItemLog, store))

    @classmethod
    def open(
        cls, store: Any, options: Mapping[str, Any] = {}, *, owner: str = "ThreadStore", own: Sequence[str] = ()
    ) -> ThreadStore:
        """Open a store by its name or URL with its options, or take one that is open.

        `owner` is the class that the user has called, and `own` are the options that this class takes itself; both are
        for errors.
        """
        if isinstance(store, str | PurePath):
            with with_own_options(owner, own):
                return cls(store_of(get_checkpointer(store, **options)), is_owner=True)
        if options:
            raise options_of_open_store(options, own)
        return cls(store_of(store))

    def begin_beside(self) -> None:
        """Allow a new store to begin where another framework keeps its threads. Call it before the first use."""
        self._store.engine.begins_beside = True

    def key_space(self, name: str) -> ThreadStore:
        """Another space of keys in this store, for threads that no list of this one shows. It ends with this one."""
        space = self._spaces.get(name)
        if space is None:
            space = self._spaces.setdefault(name, ThreadStore(self._store.key_space(name), lender=self))
        return space

    def lent(self) -> ThreadStore:
        """This store for a further user, who does not close it."""
        return ThreadStore(self._store, lender=self if self._is_owner else self._lender)

    async def setup(self) -> None:
        """Connect, and make what the database needs. The first call that uses the store does it otherwise."""
        async with self._store.using():
            pass

    async def close(self) -> None:
        """End the use, and close the store if it was opened here by name. A later call opens it again."""
        self._is_closed = True
        self._documents.cache_clear()
        self._encoded.cache_clear()
        self._logs.cache_clear()
        if self._is_owner:
            await self._store.close()

    @property
    def is_closed(self) -> bool:
        """Whether this user has closed the store, or the user who opened it has."""
        return self._is_closed or (self._lender is not None and self._lender._is_closed)

    @property
    def identity(self) -> str:
        """A name of the stored data, without secrets: equal for all handles on the same store."""
        return self._store.engine.identity

    @property
    def kind(self) -> str:
        """The name of the engine's class, for errors and representations."""
        return type(self._store.engine).__name__

    @property
    def capabilities(self) -> CheckpointerCapabilities:
        """The features of the store beyond keeping threads."""
        return self._store.capabilities

    @property
    def keeps_writes(self) -> bool:
        """Whether the store keeps the pending writes of tasks."""
        return self._store.keeps_writes

    @property
    def commits_with_writes(self) -> bool:
        """Whether a save can take pending writes along in the same commit (`EncodedDocument.save`)."""
        return self._store.commits_with_writes

    async def keeps_lists(self) -> bool:
        """Whether a save stores only the new items of a list.

        Other stores take the whole payload with every save, and have one namespace.
        """
        async with self._store.using() as engine:  # some know it only once they are connected
            return engine.keeps_runs

    async def sorts_keys(self) -> bool:
        """Whether the database gives the keys of objects back in another order.

        Then the text of an item, by which it is recognised, is the one with sorted keys (`encode(…, sort_keys=True)`).
        """
        async with self._store.using() as engine:  # some know it only once they are connected
            return not engine.dialect.exact

    def document(self, thread_id: str, namespace: str, lists: Lists = ()) -> Document:
        """The document in a namespace of a thread. While it is remembered, the same call returns the same handle."""
        if type(thread_id) is not str:
            check_id(thread_id)  # what cannot be hashed is refused here, everything else by the handle
        return self._documents(thread_id, namespace, lists)

    def encoded_document(self, thread_id: str, namespace: str) -> EncodedDocument:
        """A namespace of a thread as fields whose lists the caller encodes (see `locus.threads.encoded`)."""
        if type(thread_id) is not str:
            check_id(thread_id)
        return self._encoded(thread_id, namespace)

    def log(self, thread_id: str, namespace: str) -> ItemLog:
        """The log in a namespace of a thread. While it is remembered, the same call returns the same handle."""
        if type(thread_id) is not str:
            check_id(thread_id)
        return self._logs(thread_id, namespace)

    def long_term_memory(self, **options: Any) -> LongTermMemory:
        """The long-term memory in this store, with the options of `LongTermMemory`. It ends with this store."""
        from locus.memory.long_term import LongTermMemory  # few adapters need it

        return LongTermMemory(Checkpointer(self._store), **options)

    async def entry(self, thread_id: str, namespace: str, checkpoint_id: str | None = None) -> Entry | None:
        """A checkpoint without its payload, by default the latest; None if it is not there."""
        return await self._store.entry(thread_id, checkpoint_id, namespace)

    async def history(
        self, thread_id: str, namespace: str | None, limit: int | None = None, before: str | Entry | None = None
    ) -> list[Entry]:
        """Entries of a thread, newest first: of one namespace, or of all if none is named.

        With `before`, only what is older than a checkpoint. It is named by its entry, or by its id in the namespace:
        then `CheckpointNotFoundError` is raised if it is not there.
        """
        if not isinstance(before, Entry):
            return await self._store.history(thread_id, limit, before, namespace)
        check_ids(thread_id, None, namespace or "")
        async with self._store.using() as engine:
            return await engine.history(thread_id, namespace, checked_limit(limit, None), before.seq)

    async def read_versions(self, entries: Sequence[Entry]) -> list[VersionWithWrites]:
        """Read the versions of these entries that still exist, with their pending writes, in the same order.

        What neighbours in the history of a thread share is read once, if the store can do that.
        """
        return await read_versions(self._store, entries)

    async def not_found(self, thread_id: str, namespace: str, checkpoint_id: str) -> CheckpointNotFoundError:
        """The error for a checkpoint that is not there. It says if the thread is in another namespace."""
        return await self._store.not_found(thread_id, checkpoint_id, namespace)

    async def list_threads(
        self, limit: int | None = None, pattern: str = "*", *, after: str | None = None, prefix: str = ""
    ) -> list[str]:
        """The ids of threads that match a pattern (`*` any text, `?` one character), in the order of code points.

        Only those behind `after`, and that start with `prefix`, a text in which nothing is syntax.
        """
        return await self._store.list_threads(limit, pattern, after=after, prefix=prefix)

    async def newest_threads(
        self, limit: int | None = None, before: str | None = None, prefix: str = ""
    ) -> NewestThreads:
        """Threads, the one that was saved to last first, each with its newest checkpoint of any namespace.

        `before` is `next` of the page before.
        """
        return await self._store.newest_threads(limit, before, prefix)

    async def newest_checkpoints(self, limit: int | None = None, prefix: str = "") -> list[Entry]:
        """The newest checkpoints of all threads whose ids start with `prefix`, newest first."""
        return await self._store.recent(limit, prefix)

    async def find(self, key: str, value: Any, limit: int | None = None, prefix: str = "") -> list[Entry]:
        """Checkpoints whose metadata has exactly this value under this key, newest first.

        `CapabilityError` if the store cannot look for it (`capabilities.metadata_query`).
        """
        return await self._store.find(key, value, limit, prefix)

    async def namespaces(self, thread_id: str) -> list[str]:
        """The namespaces in which a thread has checkpoints, sorted by name."""
        return await self._store.namespaces(thread_id)

    async def copy(self, source: str, dest: str) -> bool:
        """Copy a thread with all its namespaces and pending writes. False if there is nothing to copy.

        `ConflictError` if the new id is in use.
        """
        return await self._store.copy(source, dest, None, "")

    async def fork(
        self,
        source: str,
        dest: str,
        namespace: str,
        checkpoint_id: str | None = None,
        *,
        ancestors: int | Literal["all"] = "all",
    ) -> bool:
        """Begin a thread with a checkpoint of another one, by default the latest of the namespace, and its ancestors.

        False if there is no such checkpoint; `ConflictError` if the new id is in use.
        """
        if checkpoint_id is None:
            latest = await self._store.entry(source, None, namespace)
            if latest is None:
                return False
            checkpoint_id = latest.checkpoint_id
        copied = await self._store.copy(source, dest, checkpoint_id, namespace, ancestors)
        if copied:
            await self.note_origin(dest, source, namespace, checkpoint_id)
        return copied

    async def note_origin(self, dest: str, source: str, namespace: str, checkpoint_id: str | None = None) -> None:
        """Note that a thread came from a checkpoint of another one, by default the latest of the namespace.

        `fork` does that. It is for frameworks that make their forks themselves.
        """
        if checkpoint_id is None:
            latest = await self._store.entry(source, None, namespace)
            if latest is None:
                return
            checkpoint_id = latest.checkpoint_id
        await note_origin(self._store, dest, Origin(source, namespace, checkpoint_id))

    async def delete(self, thread_id: str, namespace: str | None = None, checkpoint_id: str | None = None) -> bool:
        """Delete a checkpoint of a namespace, or a whole namespace, or a whole thread. True if it was there."""
        return await self._store.delete(thread_id, checkpoint_id, namespace)

    async def delete_entries(self, thread_id: str, namespace: str | None, entries: Iterable[Entry]) -> int:
        """Delete checkpoints that were listed before, in one step; return how many still existed.

        One that was saved again under the same id since stays.
        """
        return await self._store.delete_found(thread_id, namespace, {entry.seq: entry.rev for entry in entries})

    async def confirm_deletions(self, thread_id: str | None = None) -> None:
        """Wait until earlier deletions from a thread, or from all threads, cannot come undone in a failover.

        A deletion that finds nothing to delete needs this: an earlier one may have removed it.
        """
        await self._store.confirm_deletions(thread_id)

    async def put_writes(
        self,
        thread_id: str,
        namespace: str,
        checkpoint_id: str,
        task_id: str,
        writes: Sequence[tuple[str, Any]],
        *,
        task_path: str = "",
        keep_numbered: bool = False,
    ) -> None:
        """Keep the writes of a task since a checkpoint, as `(channel, value)`. A second call replaces them.

        With `keep_numbered`, only the writes to special channels are replaced.
        """
        await self._store.put_writes(
            thread_id,
            checkpoint_id,
            task_id,
            writes,
            task_path=task_path,
            namespace=namespace,
            keep_numbered=keep_numbered,
        )

    def task_writes(
        self,
        thread_id: str,
        namespace: str,
        checkpoint_id: str,
        task_id: str,
        writes: Sequence[tuple[str, Any]],
        *,
        task_path: str = "",
        keep_numbered: bool = False,
    ) -> TaskWrites:
        """What `put_writes` would keep, encoded: for `send_writes`, or for a save that takes it along."""
        return self._store.task_writes(thread_id, namespace, checkpoint_id, task_id, writes, task_path, keep_numbered)

    async def send_writes(self, task: TaskWrites) -> None:
        """Keep what a task wrote."""
        await self._store.send_writes(task)

    async def get_writes(
        self, thread_id: str, namespace: str, checkpoint_id: str, task_id: str | None = None
    ) -> list[Write]:
        """The writes of all tasks, or of one, since a checkpoint, ordered by task path, task and index."""
        return await self._store.get_writes(thread_id, checkpoint_id, task_id=task_id, namespace=namespace)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.kind})"


class StoreUser:
    """The base of classes that work on a store. Whoever opens the store closes it.

    A subclass calls `_open` in its constructor and uses `_store`. Most refuse every call after their end, because it
    would open the store again, and nobody would close it: `_closed_error` says with which error. Names begin with an
    underscore because a framework may have others like them.
    """

    _handle: ThreadStore

    def _open(self, store: Any, options: Mapping[str, Any], own: Collection[str]) -> None:
        """Open a store by its name or URL, or take an open one. `own` are the caller's own options, for errors."""
        self._handle = ThreadStore.open(store, options, owner=type(self).__name__, own=list(own))

    @property
    def _store(self) -> ThreadStore:
        if self._handle.is_closed:
            self._check_open()
        return self._handle

    def _check_open(self) -> None:
        error = self._closed_error(type(self).__name__) if self._handle.is_closed else None
        if error is not None:
            raise error

    def _closed_error(self, name: str) -> Exception | None:
        """The error that every call after `close` raises. None if a call opens the store again."""
        return None

    async def _end(self) -> None:
        """Close the store if it was opened here: the part of `close` that both kinds of users share."""
        await self._handle.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._handle.kind})"


class AsyncStoreUser(StoreUser):
    """A user of a store that is closed by `await user.close()`, or at the end of an `async with`."""

    async def close(self) -> None:
        """End the use, and close the store if it was opened here by name."""
        await self._end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()


class BlockingStoreUser(StoreUser):
    """A user of a store that is closed by `user.close()`, which blocks, or at the end of a `with`."""

    def close(self) -> None:
        """End the use, and close the store if it was opened here by name."""
        self._run(self._end())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine that uses the store, and nothing else for which it would have to wait, to its end."""
        return run(work, self._handle._store.engine)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class BothWaysStoreUser(BlockingStoreUser):
    """A user of a store for blocking and for async programs: `aclose` and `async with` beside `close` and `with`."""

    def setup(self) -> Awaitable[None]:
        """Connect, and make the tables. The first use does it otherwise.

        It is done when this returns or, on an event loop, when it has been awaited.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._run(self._set_up())
        return _Setup(self._set_up)

    async def _set_up(self) -> None:
        await self._store.setup()

    async def aclose(self) -> None:
        """End the use, and close the store if it was opened here by name."""
        await self._end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()


class _Setup:
    """What `setup` returns: some programs await it, and others do not."""

    def __init__(self, set_up: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._set_up = set_up

    def __await__(self) -> Generator[Any, None, None]:
        return self._set_up().__await__()
