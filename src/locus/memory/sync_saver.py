"""The versioned saver for code that is not async: the same methods, blocking, from any thread."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Self

from locus.memory.checkpointer import ANY, DEFAULT_NAMESPACE, CheckpointerCapabilities, Unset
from locus.memory.saver import CheckpointInfo, CheckpointSaver, SavedCheckpoint, SavedWrite
from locus.memory.sync import PORTAL, SyncBackend


class SyncCheckpointSaver:
    """A `CheckpointSaver`, blocking. What the methods do is said there."""

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
        return f"{type(self).__name__}({type(self._saver.threads.engine).__name__})"
