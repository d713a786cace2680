"""Blocking versions of the async classes, for code that is not async. Any thread may call them.

The docstring of a method here is the first line of the async method's, which has the rest.

On memory, files and SQLite, a call runs in the thread of its caller (`runtime.direct`). All others run on one event
loop, on a thread of its own (`runtime.portal`). That loop lives on between calls, so the next call can use the
connections and pools that an earlier one opened.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar

from locus.memory.cache import CacheInfo
from locus.memory.checkpointer import (
    THIRTY_DAYS,
    Checkpointer,
    HistoryEntry,
    PendingWrite,
    RecentThreads,
    SearchHits,
    StoreVerbs,
)
from locus.memory.engine import CheckpointerCapabilities
from locus.memory.model.arguments import SEARCH_SECONDS
from locus.memory.model.changes import PAGE, PayloadDiff
from locus.memory.model.parts import ItemPage
from locus.memory.model.records import ANY, DEFAULT_NAMESPACE, Unset
from locus.memory.model.retention import VacuumProgress
from locus.memory.model.sizes import ThreadSizes
from locus.memory.runtime.direct import run
from locus.memory.saver import CheckpointInfo, CheckpointSaver, SavedCheckpoint, SavedWrite
from locus.memory.storage import StorageBackend

if TYPE_CHECKING:
    from locus.core.state import AgentState
    from locus.memory.diffs import StateDiff

T = TypeVar("T")
V = TypeVar("V", bound=StoreVerbs)


class SyncStoreVerbs(Generic[V]):
    """The methods that checkpointers and storage backends share, as blocking calls."""

    def __init__(self, wrapped: V) -> None:
        self._wrapped = wrapped

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return run(call, self._wrapped.store.engine)

    @property
    def capabilities(self) -> CheckpointerCapabilities:
        """The features that this store has beyond saving, loading and listing."""
        return self._wrapped.capabilities

    def list_checkpoints(self, thread_id: str, limit: int = 10, *, namespace: str = DEFAULT_NAMESPACE) -> list[str]:
        """The ids of a thread's checkpoints, newest first."""
        return self._run(self._wrapped.list_checkpoints(thread_id, limit, namespace=namespace))

    def history(
        self,
        thread_id: str,
        limit: int | None = 10,
        before: str | None = None,
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> list[HistoryEntry]:
        """A thread's checkpoints without their payloads, newest first. See `BaseCheckpointer.history`."""
        return self._run(self._wrapped.history(thread_id, limit, before, namespace=namespace))

    def delete(self, thread_id: str, checkpoint_id: str | None = None, *, namespace: str | None = None) -> bool:
        """Delete one checkpoint, or the whole thread; with a namespace but no id, that namespace."""
        return self._run(self._wrapped.delete(thread_id, checkpoint_id, namespace=namespace))

    def exists(self, thread_id: str, checkpoint_id: str | None = None, *, namespace: str | None = None) -> bool:
        """Whether a checkpoint exists. Without an id: whether the thread, or its namespace, has any."""
        return self._run(self._wrapped.exists(thread_id, checkpoint_id, namespace=namespace))

    def search(
        self, query: str, limit: int = 10, *, prefix: str = "", timeout_seconds: float = SEARCH_SECONDS
    ) -> SearchHits:
        """Checkpoints that contain all words of `query`, best first, each with a `score` and a `snippet`.

        See `Checkpointer.search`.
        """
        return self._run(self._wrapped.search(query, limit, prefix=prefix, timeout_seconds=timeout_seconds))

    def query_by_metadata(self, key: str, value: Any, limit: int = 100, *, prefix: str = "") -> list[dict[str, Any]]:
        """Checkpoints whose metadata has exactly this value under this key, newest first.

        See `BaseCheckpointer.query_by_metadata`.
        """
        return self._run(self._wrapped.query_by_metadata(key, value, limit, prefix=prefix))

    def get_metadata(
        self, thread_id: str, checkpoint_id: str | None = None, *, namespace: str = DEFAULT_NAMESPACE
    ) -> dict[str, Any] | None:
        """The metadata of a checkpoint, by default the latest; `None` if there is none."""
        return self._run(self._wrapped.get_metadata(thread_id, checkpoint_id, namespace=namespace))

    def vacuum(
        self,
        older_than_days: float = THIRTY_DAYS,
        *,
        keep_last: int | None = None,
        dry_run: bool = False,
        progress: Callable[[VacuumProgress], None] | None = None,
    ) -> int:
        """Delete old checkpoints, and return how many. See `Checkpointer.vacuum`."""
        return self._run(self._wrapped.vacuum(older_than_days, keep_last=keep_last, dry_run=dry_run, progress=progress))

    def sizes(
        self,
        thread_id: str,
        *,
        older_than_days: float | None = None,
        keep_last: int | None = None,
        deleting: Collection[str] = (),
        namespace: str = DEFAULT_NAMESPACE,
    ) -> ThreadSizes | None:
        """The space that a thread takes, in bytes; `None` if there is no such thread. See `Checkpointer.sizes`."""
        return self._run(
            self._wrapped.sizes(
                thread_id,
                older_than_days=older_than_days,
                keep_last=keep_last,
                deleting=deleting,
                namespace=namespace,
            )
        )

    def copy_thread(
        self,
        source_thread_id: str,
        dest_thread_id: str,
        checkpoint_id: str | None = None,
        *,
        ancestors: int | Literal["all"] = "all",
        namespace: str = DEFAULT_NAMESPACE,
    ) -> bool:
        """Copy a thread under a new id: whole, or one checkpoint with its ancestors. See `Checkpointer.copy_thread`."""
        return self._run(
            self._wrapped.copy_thread(
                source_thread_id, dest_thread_id, checkpoint_id, ancestors=ancestors, namespace=namespace
            )
        )

    def list_threads(
        self, limit: int | None = 100, pattern: str = "*", *, after: str | None = None, prefix: str = ""
    ) -> list[str]:
        """The ids of threads that match a pattern (`*` any text, `?` one character), in the order of code points.

        See `BaseCheckpointer.list_threads`.
        """
        return self._run(self._wrapped.list_threads(limit, pattern, after=after, prefix=prefix))

    def list_namespaces(self, thread_id: str) -> list[str]:
        """The namespaces in which a thread has checkpoints, in order; empty if there is no such thread.

        See `Checkpointer.list_namespaces`.
        """
        return self._run(self._wrapped.list_namespaces(thread_id))

    def list_with_metadata(self, limit: int = 100, *, prefix: str = "") -> list[dict[str, Any]]:
        """The newest checkpoints of all threads, with `thread_id`, `checkpoint_id`, `metadata` and more.

        See `BaseCheckpointer.list_with_metadata`.
        """
        return self._run(self._wrapped.list_with_metadata(limit, prefix=prefix))

    def recent_threads(
        self, limit: int = 50, *, before: str | None = None, prefix: str = "", titles: bool = False
    ) -> RecentThreads:
        """The threads that were saved most recently, newest first. Each is listed once, with its last checkpoint.

        See `BaseCheckpointer.recent_threads`.
        """
        return self._run(self._wrapped.recent_threads(limit, before=before, prefix=prefix, titles=titles))

    def read_items(
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
        return self._run(
            self._wrapped.read_items(thread_id, checkpoint_id, path=path, start=start, count=count, namespace=namespace)
        )

    def payload_diff(
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

        See `Checkpointer.payload_diff`.
        """
        return self._run(
            self._wrapped.payload_diff(
                thread_id,
                a,
                b,
                namespace=namespace,
                other_thread=other_thread,
                other_namespace=other_namespace,
                start=start,
                limit=limit,
            )
        )

    def put_writes(
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
        self._run(
            self._wrapped.put_writes(
                thread_id, checkpoint_id, task_id, writes, task_path=task_path, namespace=namespace
            )
        )

    def get_writes(
        self,
        thread_id: str,
        checkpoint_id: str,
        task_id: str | None = None,
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> list[PendingWrite]:
        """The writes of tasks since a checkpoint, ordered by task path, task and index."""
        return self._run(self._wrapped.get_writes(thread_id, checkpoint_id, task_id, namespace=namespace))

    def cache_info(self) -> CacheInfo:
        """How many loads used the cache of this handle, and how large the cache is. See `cache_mb`."""
        return self._wrapped.cache_info()

    def cache_clear(self) -> None:
        """Empty the cache of this handle. The next load of each thread reads all of it."""
        self._wrapped.cache_clear()

    def close(self) -> None:
        """Close all that this handle opened itself. A later use opens it again."""
        self._run(self._wrapped.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class SyncCheckpointer(SyncStoreVerbs[Checkpointer]):
    """A checkpointer with blocking methods."""

    def save(
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
        """Keep a state as the newest checkpoint of a thread, and return its id. See `Checkpointer.save`."""
        return self._run(
            self._wrapped.save(
                state,
                thread_id,
                checkpoint_id,
                metadata,
                namespace=namespace,
                parent=parent,
                if_latest=if_latest,
            )
        )

    def load(
        self,
        thread_id: str,
        checkpoint_id: str | None = None,
        *,
        last: int | None = None,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> AgentState | None:
        """Load the state of a checkpoint, by default the latest; `None` if there is none. See `Checkpointer.load`."""
        return self._run(self._wrapped.load(thread_id, checkpoint_id, last=last, namespace=namespace))

    def origin(self, state: AgentState, thread_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> str | None:
        """The id of the checkpoint of this thread that a state was last loaded from or saved as.

        See `Checkpointer.origin`.
        """
        return self._wrapped.origin(state, thread_id, namespace=namespace)

    def follow_copy(self, state: AgentState, thread_id: str, copy: str, *, namespace: str = DEFAULT_NAMESPACE) -> None:
        """Let a state that came from a thread be saved in a copy of it, as if it had been loaded from there.

        See `Checkpointer.follow_copy`.
        """
        self._wrapped.follow_copy(state, thread_id, copy, namespace=namespace)

    def diff(
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

        See `Checkpointer.diff`.
        """
        return self._run(
            self._wrapped.diff(
                thread_id,
                a,
                b,
                namespace=namespace,
                other_thread=other_thread,
                other_namespace=other_namespace,
            )
        )


class SyncBackend(SyncStoreVerbs[StorageBackend]):
    """A storage backend with blocking methods."""

    def save(
        self,
        thread_id: str,
        data: dict[str, Any],
        checkpoint_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        parent: str | None | Unset = ANY,
        if_latest: str | None | Unset = ANY,
    ) -> str:
        """Keep a dict as the newest checkpoint of a thread, and return its id. See `StorageBackend.save`."""
        return self._run(
            self._wrapped.save(
                thread_id,
                data,
                checkpoint_id,
                metadata,
                namespace=namespace,
                parent=parent,
                if_latest=if_latest,
            )
        )

    def load(
        self, thread_id: str, checkpoint_id: str | None = None, *, namespace: str = DEFAULT_NAMESPACE
    ) -> dict[str, Any] | None:
        """Load the dict of a checkpoint, by default the latest; `None` if there is none."""
        return self._run(self._wrapped.load(thread_id, checkpoint_id, namespace=namespace))

    diff = SyncStoreVerbs.payload_diff
    """Another name of `payload_diff`, which `StorageBackend` has as well."""


class SyncCheckpointSaver:
    """A `CheckpointSaver` with blocking methods."""

    def __init__(self, store: Any) -> None:
        self._saver = store if isinstance(store, CheckpointSaver) else CheckpointSaver(store)

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return run(call, self._saver.store.engine)

    @property
    def capabilities(self) -> CheckpointerCapabilities:
        """The features that this store has beyond saving, loading and listing."""
        return self._saver.capabilities

    @property
    def backend(self) -> SyncBackend:
        """A blocking storage backend on the same store."""
        return self._saver.backend.sync

    def put(
        self,
        *,
        thread_id: str,
        checkpoint_id: str,
        checkpoint_data: dict[str, Any],
        checkpoint_ns: str = DEFAULT_NAMESPACE,
        parent_checkpoint_id: str | None | Unset = None,
        metadata: dict[str, Any] | None = None,
        if_latest: str | None | Unset = ANY,
    ) -> None:
        """Keep a dict as the newest checkpoint of a namespace. See `CheckpointSaver.put`."""
        self._run(
            self._saver.put(
                thread_id=thread_id,
                checkpoint_id=checkpoint_id,
                checkpoint_data=checkpoint_data,
                checkpoint_ns=checkpoint_ns,
                parent_checkpoint_id=parent_checkpoint_id,
                metadata=metadata,
                if_latest=if_latest,
            )
        )

    def get(
        self, *, thread_id: str, checkpoint_id: str | None = None, checkpoint_ns: str = DEFAULT_NAMESPACE
    ) -> SavedCheckpoint | None:
        """Load a checkpoint of a namespace, by default the latest; `None` if there is none."""
        return self._run(self._saver.get(thread_id=thread_id, checkpoint_id=checkpoint_id, checkpoint_ns=checkpoint_ns))

    def list_checkpoints(
        self,
        *,
        thread_id: str,
        checkpoint_ns: str = DEFAULT_NAMESPACE,
        limit: int | None = 10,
        before: str | None = None,
    ) -> list[SavedCheckpoint]:
        """The checkpoints of a namespace, newest first. With `before`, an id, only those older than it.

        See `CheckpointSaver.list_checkpoints`.
        """
        return self._run(
            self._saver.list_checkpoints(thread_id=thread_id, checkpoint_ns=checkpoint_ns, limit=limit, before=before)
        )

    def history(
        self,
        *,
        thread_id: str,
        checkpoint_ns: str = DEFAULT_NAMESPACE,
        limit: int | None = 10,
        before: str | None = None,
    ) -> list[CheckpointInfo]:
        """The checkpoints of a namespace without their payloads, newest first."""
        return self._run(
            self._saver.history(thread_id=thread_id, checkpoint_ns=checkpoint_ns, limit=limit, before=before)
        )

    def diff(
        self,
        *,
        thread_id: str,
        checkpoint_id: str,
        other_checkpoint_id: str,
        checkpoint_ns: str = DEFAULT_NAMESPACE,
        other_thread_id: str | None = None,
        other_checkpoint_ns: str | None = None,
        start: int = 0,
        limit: int = PAGE,
    ) -> PayloadDiff:
        """The changes from one checkpoint to another, of this thread and namespace unless others are named.

        See `CheckpointSaver.diff`.
        """
        return self._run(
            self._saver.diff(
                thread_id=thread_id,
                checkpoint_id=checkpoint_id,
                other_checkpoint_id=other_checkpoint_id,
                checkpoint_ns=checkpoint_ns,
                other_thread_id=other_thread_id,
                other_checkpoint_ns=other_checkpoint_ns,
                start=start,
                limit=limit,
            )
        )

    def put_writes(
        self,
        *,
        thread_id: str,
        checkpoint_id: str,
        task_id: str,
        writes: Sequence[tuple[str, Any]],
        checkpoint_ns: str = DEFAULT_NAMESPACE,
        task_path: str = "",
    ) -> None:
        """Keep the writes of a task since a checkpoint, as `(channel, value)`. A second call replaces them.

        See `CheckpointSaver.put_writes`.
        """
        self._run(
            self._saver.put_writes(
                thread_id=thread_id,
                checkpoint_id=checkpoint_id,
                task_id=task_id,
                writes=writes,
                checkpoint_ns=checkpoint_ns,
                task_path=task_path,
            )
        )

    def get_writes(
        self,
        *,
        thread_id: str,
        checkpoint_id: str,
        checkpoint_ns: str = DEFAULT_NAMESPACE,
        task_id: str | None = None,
    ) -> list[SavedWrite]:
        """The writes of tasks, or of one, since a checkpoint, ordered by task path, task and index."""
        return self._run(
            self._saver.get_writes(
                thread_id=thread_id, checkpoint_id=checkpoint_id, checkpoint_ns=checkpoint_ns, task_id=task_id
            )
        )

    def delete_thread(self, *, thread_id: str) -> None:
        """Delete a thread: the checkpoints and pending writes of all its namespaces."""
        self._run(self._saver.delete_thread(thread_id=thread_id))

    def delete_checkpoint(self, *, thread_id: str, checkpoint_id: str, checkpoint_ns: str = DEFAULT_NAMESPACE) -> bool:
        """Delete a checkpoint with its pending writes; its children get its parent. True if it existed."""
        return self._run(
            self._saver.delete_checkpoint(thread_id=thread_id, checkpoint_id=checkpoint_id, checkpoint_ns=checkpoint_ns)
        )

    def delete_checkpoints(
        self, *, thread_id: str, checkpoint_ids: Collection[str], checkpoint_ns: str = DEFAULT_NAMESPACE
    ) -> int:
        """Delete several checkpoints in one step, and return how many existed."""
        return self._run(
            self._saver.delete_checkpoints(
                thread_id=thread_id, checkpoint_ids=checkpoint_ids, checkpoint_ns=checkpoint_ns
            )
        )

    def copy_thread(
        self,
        *,
        source_thread_id: str,
        dest_thread_id: str,
        checkpoint_id: str | None = None,
        checkpoint_ns: str = DEFAULT_NAMESPACE,
        ancestors: int | Literal["all"] = "all",
    ) -> bool:
        """Copy a thread with all its namespaces and pending writes, or one checkpoint with its ancestors.

        See `CheckpointSaver.copy_thread`.
        """
        return self._run(
            self._saver.copy_thread(
                source_thread_id=source_thread_id,
                dest_thread_id=dest_thread_id,
                checkpoint_id=checkpoint_id,
                checkpoint_ns=checkpoint_ns,
                ancestors=ancestors,
            )
        )

    def list_threads(
        self, *, limit: int | None = 100, pattern: str = "*", after: str | None = None, prefix: str = ""
    ) -> list[str]:
        """The ids of threads that match a pattern (`*` any text, `?` one character), in the order of code points.

        See `CheckpointSaver.list_threads`.
        """
        return self._run(self._saver.list_threads(limit=limit, pattern=pattern, after=after, prefix=prefix))

    def recent_threads(
        self, *, limit: int = 50, before: str | None = None, prefix: str = "", titles: bool = False
    ) -> RecentThreads:
        """The threads that were saved most recently, newest first, each once. See `BaseCheckpointer.recent_threads`."""
        return self._run(self._saver.recent_threads(limit=limit, before=before, prefix=prefix, titles=titles))

    def list_namespaces(self, *, thread_id: str) -> list[str]:
        """The namespaces in which a thread has checkpoints, in order."""
        return self._run(self._saver.list_namespaces(thread_id=thread_id))

    def close(self) -> None:
        """Close the store. A later use opens it again."""
        self._run(self._saver.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self._saver.store.engine).__name__})"
