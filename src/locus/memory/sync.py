"""Blocking calls, from any thread, over one event loop that lives on between them.

One thread of the process runs that loop, so that connections and pools opened by one call serve the next.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from locus.memory.checkpointer import (
    ANY,
    DEFAULT_NAMESPACE,
    CheckpointerCapabilities,
    HistoryEntry,
    PendingWrite,
    Unset,
)
from locus.memory.faces import THIRTY_DAYS, ThreadsFace

if TYPE_CHECKING:
    from locus.core.state import AgentState
    from locus.memory.diffs import StateDiff
    from locus.memory.storage import StorageBackend  # noqa: F401 - named below, as text
    from locus.memory.thread_checkpointer import ThreadCheckpointer  # noqa: F401

T = TypeVar("T")


class Portal:
    """An event loop on a thread of its own, started when it is first needed, and anew after a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = 0
        if hasattr(os, "register_at_fork"):
            # A child that inherited the lock while another thread held it would wait for ever.
            release = self._lock.release
            os.register_at_fork(before=self._lock.acquire, after_in_parent=release, after_in_child=release)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, and return its result."""
        loop = self._running()
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("a blocking call from inside the portal would wait for itself: await it instead")
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result()
        except BaseException:
            # The caller is interrupted (Ctrl-C): what has not begun yet must not begin behind its back.
            future.cancel()
            raise

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._loop = asyncio.new_event_loop()
                self._pid = os.getpid()
                self._thread = threading.Thread(target=self._loop.run_forever, name="locus-portal", daemon=True)
                self._thread.start()
            return self._loop


PORTAL = Portal()


F = TypeVar("F", bound=ThreadsFace)


class SyncFace(Generic[F]):
    """The verbs of `ThreadsFace`, blocking. What they do is said there."""

    def __init__(self, face: F) -> None:
        self._face = face

    @property
    def capabilities(self) -> CheckpointerCapabilities:
        return self._face.capabilities

    def list_checkpoints(self, thread_id: str, limit: int = 10, *, namespace: str = DEFAULT_NAMESPACE) -> list[str]:
        return PORTAL.run(self._face.list_checkpoints(thread_id, limit, namespace=namespace))

    def history(
        self,
        thread_id: str,
        limit: int | None = 10,
        before: str | None = None,
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> list[HistoryEntry]:
        return PORTAL.run(self._face.history(thread_id, limit, before, namespace=namespace))

    def delete(self, thread_id: str, checkpoint_id: str | None = None, *, namespace: str | None = None) -> bool:
        return PORTAL.run(self._face.delete(thread_id, checkpoint_id, namespace=namespace))

    def exists(self, thread_id: str, checkpoint_id: str | None = None, *, namespace: str | None = None) -> bool:
        return PORTAL.run(self._face.exists(thread_id, checkpoint_id, namespace=namespace))

    def search(self, query: str, limit: int = 10) -> list[dict[str, Any]]:
        return PORTAL.run(self._face.search(query, limit))

    def query_by_metadata(self, key: str, value: Any, limit: int = 100) -> list[dict[str, Any]]:
        return PORTAL.run(self._face.query_by_metadata(key, value, limit))

    def get_metadata(
        self, thread_id: str, checkpoint_id: str | None = None, *, namespace: str = DEFAULT_NAMESPACE
    ) -> dict[str, Any] | None:
        return PORTAL.run(self._face.get_metadata(thread_id, checkpoint_id, namespace=namespace))

    def vacuum(
        self, older_than_days: float = THIRTY_DAYS, *, keep_last: int | None = None, dry_run: bool = False
    ) -> int:
        return PORTAL.run(self._face.vacuum(older_than_days, keep_last=keep_last, dry_run=dry_run))

    def copy_thread(
        self,
        source_thread_id: str,
        dest_thread_id: str,
        checkpoint_id: str | None = None,
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> bool:
        return PORTAL.run(self._face.copy_thread(source_thread_id, dest_thread_id, checkpoint_id, namespace=namespace))

    def list_threads(self, limit: int | None = 100, pattern: str = "*") -> list[str]:
        return PORTAL.run(self._face.list_threads(limit, pattern))

    def list_with_metadata(self, limit: int = 100) -> list[dict[str, Any]]:
        return PORTAL.run(self._face.list_with_metadata(limit))

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
            self._face.put_writes(thread_id, checkpoint_id, task_id, writes, task_path=task_path, namespace=namespace)
        )

    def get_writes(
        self,
        thread_id: str,
        checkpoint_id: str,
        task_id: str | None = None,
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> list[PendingWrite]:
        return PORTAL.run(self._face.get_writes(thread_id, checkpoint_id, task_id, namespace=namespace))

    def close(self) -> None:
        PORTAL.run(self._face.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class SyncCheckpointer(SyncFace["ThreadCheckpointer"]):
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
            self._face.save(
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
        self, thread_id: str, checkpoint_id: str | None = None, *, namespace: str = DEFAULT_NAMESPACE
    ) -> AgentState | None:
        return PORTAL.run(self._face.load(thread_id, checkpoint_id, namespace=namespace))

    def origin(self, state: AgentState, thread_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> str | None:
        return self._face.origin(state, thread_id, namespace=namespace)

    def diff(self, thread_id: str, a: str, b: str, *, namespace: str = DEFAULT_NAMESPACE) -> StateDiff:
        return PORTAL.run(self._face.diff(thread_id, a, b, namespace=namespace))


class SyncBackend(SyncFace["StorageBackend"]):
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
            self._face.save(
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
        return PORTAL.run(self._face.load(thread_id, checkpoint_id, namespace=namespace))
