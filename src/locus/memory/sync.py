"""Blocking calls, from any thread, for code that is not async: the same methods as the async classes.

Every call runs on one event loop, on a thread of its own (`runtime.portal`). The loop lives on between calls, so
connections and pools that one call opens serve the next.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from locus.memory.cache import CacheInfo
from locus.memory.checkpointer import THIRTY_DAYS, Checkpointer, HistoryEntry, PendingWrite, StoreVerbs
from locus.memory.engine import CheckpointerCapabilities
from locus.memory.model.parts import ItemPage
from locus.memory.model.records import ANY, DEFAULT_NAMESPACE, Unset
from locus.memory.runtime.portal import PORTAL
from locus.memory.saver import CheckpointInfo, CheckpointSaver, SavedCheckpoint, SavedWrite
from locus.memory.storage import StorageBackend

if TYPE_CHECKING:
    from locus.core.state import AgentState
    from locus.memory.diffs import StateDiff

V = TypeVar("V", bound=StoreVerbs)


class SyncStoreVerbs(Generic[V]):
    """The methods of `StoreVerbs`, blocking. They are described there."""

    def __init__(self, wrapped: V) -> None:
        self._wrapped = wrapped

    @property
    def capabilities(self) -> CheckpointerCapabilities:
        return self._wrapped.capabilities

    def list_checkpoints(self, thread_id: str, limit: int = 10, *, namespace: str = DEFAULT_NAMESPACE) -> list[str]:
        return PORTAL.run(self._wrapped.list_checkpoints(thread_id, limit, namespace=namespace))

    def history(
        self,
        thread_id: str,
        limit: int | None = 10,
        before: str | None = None,
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> list[HistoryEntry]:
        return PORTAL.run(self._wrapped.history(thread_id, limit, before, namespace=namespace))

    def delete(self, thread_id: str, checkpoint_id: str | None = None, *, namespace: str | None = None) -> bool:
        return PORTAL.run(self._wrapped.delete(thread_id, checkpoint_id, namespace=namespace))

    def exists(self, thread_id: str, checkpoint_id: str | None = None, *, namespace: str | None = None) -> bool:
        return PORTAL.run(self._wrapped.exists(thread_id, checkpoint_id, namespace=namespace))

    def search(self, query: str, limit: int = 10) -> list[dict[str, Any]]:
        return PORTAL.run(self._wrapped.search(query, limit))

    def query_by_metadata(self, key: str, value: Any, limit: int = 100) -> list[dict[str, Any]]:
        return PORTAL.run(self._wrapped.query_by_metadata(key, value, limit))

    def get_metadata(
        self, thread_id: str, checkpoint_id: str | None = None, *, namespace: str = DEFAULT_NAMESPACE
    ) -> dict[str, Any] | None:
        return PORTAL.run(self._wrapped.get_metadata(thread_id, checkpoint_id, namespace=namespace))

    def vacuum(
        self, older_than_days: float = THIRTY_DAYS, *, keep_last: int | None = None, dry_run: bool = False
    ) -> int:
        return PORTAL.run(self._wrapped.vacuum(older_than_days, keep_last=keep_last, dry_run=dry_run))

    def copy_thread(
        self,
        source_thread_id: str,
        dest_thread_id: str,
        checkpoint_id: str | None = None,
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> bool:
        return PORTAL.run(
            self._wrapped.copy_thread(source_thread_id, dest_thread_id, checkpoint_id, namespace=namespace)
        )

    def list_threads(self, limit: int | None = 100, pattern: str = "*") -> list[str]:
        return PORTAL.run(self._wrapped.list_threads(limit, pattern))

    def list_namespaces(self, thread_id: str) -> list[str]:
        return PORTAL.run(self._wrapped.list_namespaces(thread_id))

    def list_with_metadata(self, limit: int = 100) -> list[dict[str, Any]]:
        return PORTAL.run(self._wrapped.list_with_metadata(limit))

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
        return PORTAL.run(
            self._wrapped.read_items(thread_id, checkpoint_id, path=path, start=start, count=count, namespace=namespace)
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
        PORTAL.run(
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
        return PORTAL.run(self._wrapped.get_writes(thread_id, checkpoint_id, task_id, namespace=namespace))

    def cache_info(self) -> CacheInfo:
        return self._wrapped.cache_info()

    def cache_clear(self) -> None:
        self._wrapped.cache_clear()

    def close(self) -> None:
        PORTAL.run(self._wrapped.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class SyncCheckpointer(SyncStoreVerbs[Checkpointer]):
    """A checkpointer, blocking."""

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
        return PORTAL.run(
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
        return PORTAL.run(self._wrapped.load(thread_id, checkpoint_id, last=last, namespace=namespace))

    def origin(self, state: AgentState, thread_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> str | None:
        return self._wrapped.origin(state, thread_id, namespace=namespace)

    def follow_copy(self, state: AgentState, thread_id: str, copy: str, *, namespace: str = DEFAULT_NAMESPACE) -> None:
        self._wrapped.follow_copy(state, thread_id, copy, namespace=namespace)

    def diff(self, thread_id: str, a: str, b: str, *, namespace: str = DEFAULT_NAMESPACE) -> StateDiff:
        return PORTAL.run(self._wrapped.diff(thread_id, a, b, namespace=namespace))


class SyncBackend(SyncStoreVerbs[StorageBackend]):
    """A storage backend, blocking."""

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
        return PORTAL.run(
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
        return PORTAL.run(self._wrapped.load(thread_id, checkpoint_id, namespace=namespace))


class SyncCheckpointSaver:
    """A `CheckpointSaver`, blocking. The methods are described there."""

    def __init__(self, store: Any) -> None:
        self._saver = store if isinstance(store, CheckpointSaver) else CheckpointSaver(store)

    @property
    def capabilities(self) -> CheckpointerCapabilities:
        return self._saver.capabilities

    @property
    def backend(self) -> SyncBackend:
        """The same store as a storage backend, blocking."""
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
        PORTAL.run(
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
        return PORTAL.run(
            self._saver.get(thread_id=thread_id, checkpoint_id=checkpoint_id, checkpoint_ns=checkpoint_ns)
        )

    def list_checkpoints(
        self,
        *,
        thread_id: str,
        checkpoint_ns: str = DEFAULT_NAMESPACE,
        limit: int | None = 10,
        before: str | None = None,
    ) -> list[SavedCheckpoint]:
        return PORTAL.run(
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
        return PORTAL.run(
            self._saver.history(thread_id=thread_id, checkpoint_ns=checkpoint_ns, limit=limit, before=before)
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
        PORTAL.run(
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
        return PORTAL.run(
            self._saver.get_writes(
                thread_id=thread_id, checkpoint_id=checkpoint_id, checkpoint_ns=checkpoint_ns, task_id=task_id
            )
        )

    def delete_thread(self, *, thread_id: str) -> None:
        PORTAL.run(self._saver.delete_thread(thread_id=thread_id))

    def delete_checkpoint(self, *, thread_id: str, checkpoint_id: str, checkpoint_ns: str = DEFAULT_NAMESPACE) -> bool:
        return PORTAL.run(
            self._saver.delete_checkpoint(thread_id=thread_id, checkpoint_id=checkpoint_id, checkpoint_ns=checkpoint_ns)
        )

    def delete_checkpoints(
        self, *, thread_id: str, checkpoint_ids: Collection[str], checkpoint_ns: str = DEFAULT_NAMESPACE
    ) -> int:
        return PORTAL.run(
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
    ) -> bool:
        return PORTAL.run(
            self._saver.copy_thread(
                source_thread_id=source_thread_id,
                dest_thread_id=dest_thread_id,
                checkpoint_id=checkpoint_id,
                checkpoint_ns=checkpoint_ns,
            )
        )

    def list_threads(self, *, limit: int | None = 100, pattern: str = "*") -> list[str]:
        return PORTAL.run(self._saver.list_threads(limit=limit, pattern=pattern))

    def list_namespaces(self, *, thread_id: str) -> list[str]:
        return PORTAL.run(self._saver.list_namespaces(thread_id=thread_id))

    def close(self) -> None:
        PORTAL.run(self._saver.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self._saver.store.engine).__name__})"
