"""Blocking versions of the async classes, for code that is not async. Any thread may call them.

Each method is made of the async method of the same name, whose parameters and docstring it has.

On memory, files and SQLite, a call runs in the thread of its caller (`runtime.direct`). All others run on one event
loop, on a thread of its own (`runtime.portal`). That loop lives on between calls, so the next call can use the
connections and pools that an earlier one opened.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from locus.memory.cache import CacheInfo
from locus.memory.checkpointer import Checkpointer, StoreVerbs
from locus.memory.engine import CheckpointerCapabilities
from locus.memory.model.records import DEFAULT_NAMESPACE
from locus.memory.runtime.direct import run
from locus.memory.saver import CheckpointSaver
from locus.memory.storage import StorageBackend

if TYPE_CHECKING:
    from locus.core.state import AgentState

P = ParamSpec("P")
R = TypeVar("R")
W = TypeVar("W", bound=StoreVerbs | CheckpointSaver)
V = TypeVar("V", bound=StoreVerbs)


def blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[Any, P], R]:
    """A method that calls the async method of this name on the wrapped object, and waits for its result."""
    name = method.__name__

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        # By its name, because the class of the wrapped object may override it.
        result: R = self._run(getattr(self._wrapped, name)(*args, **kwargs))
        return result

    return call


class Blocking(Generic[W]):
    """An object with async methods, as one with blocking methods."""

    def __init__(self, wrapped: W) -> None:
        self._wrapped = wrapped

    def _run(self, call: Coroutine[Any, Any, R]) -> R:
        return run(call, self._wrapped.store.engine)

    @property
    def capabilities(self) -> CheckpointerCapabilities:
        """The features that this store has beyond saving, loading and listing."""
        return self._wrapped.capabilities

    close = blocking(StoreVerbs.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class SyncStoreVerbs(Blocking[V]):
    """The methods that checkpointers and storage backends share, as blocking calls."""

    list_checkpoints = blocking(StoreVerbs.list_checkpoints)
    history = blocking(StoreVerbs.history)
    delete = blocking(StoreVerbs.delete)
    exists = blocking(StoreVerbs.exists)
    search = blocking(StoreVerbs.search)
    query_by_metadata = blocking(StoreVerbs.query_by_metadata)
    get_metadata = blocking(StoreVerbs.get_metadata)
    vacuum = blocking(StoreVerbs.vacuum)
    sizes = blocking(StoreVerbs.sizes)
    copy_thread = blocking(StoreVerbs.copy_thread)
    list_threads = blocking(StoreVerbs.list_threads)
    list_namespaces = blocking(StoreVerbs.list_namespaces)
    list_with_metadata = blocking(StoreVerbs.list_with_metadata)
    recent_threads = blocking(StoreVerbs.recent_threads)
    read_items = blocking(StoreVerbs.read_items)
    payload_diff = blocking(StoreVerbs.payload_diff)
    put_writes = blocking(StoreVerbs.put_writes)
    get_writes = blocking(StoreVerbs.get_writes)

    def cache_info(self) -> CacheInfo:
        """How many loads used the cache of this handle, and how large the cache is. See `cache_mb`."""
        return self._wrapped.cache_info()

    def cache_clear(self) -> None:
        """Empty the cache of this handle. The next load of each thread reads all of it."""
        self._wrapped.cache_clear()


class SyncCheckpointer(SyncStoreVerbs[Checkpointer]):
    """A checkpointer with blocking methods."""

    save = blocking(Checkpointer.save)
    load = blocking(Checkpointer.load)
    diff = blocking(Checkpointer.diff)

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


class SyncBackend(SyncStoreVerbs[StorageBackend]):
    """A storage backend with blocking methods."""

    save = blocking(StorageBackend.save)
    load = blocking(StorageBackend.load)
    diff = SyncStoreVerbs.payload_diff
    """Another name of `payload_diff`, which `StorageBackend` has as well."""


class SyncCheckpointSaver(Blocking[CheckpointSaver]):
    """A `CheckpointSaver` with blocking methods."""

    def __init__(self, store: Any) -> None:
        super().__init__(store if isinstance(store, CheckpointSaver) else CheckpointSaver(store))

    @property
    def backend(self) -> SyncBackend:
        """A blocking storage backend on the same store."""
        return self._wrapped.backend.sync

    put = blocking(CheckpointSaver.put)
    get = blocking(CheckpointSaver.get)
    list_checkpoints = blocking(CheckpointSaver.list_checkpoints)
    history = blocking(CheckpointSaver.history)
    diff = blocking(CheckpointSaver.diff)
    put_writes = blocking(CheckpointSaver.put_writes)
    get_writes = blocking(CheckpointSaver.get_writes)
    delete_thread = blocking(CheckpointSaver.delete_thread)
    delete_checkpoint = blocking(CheckpointSaver.delete_checkpoint)
    delete_checkpoints = blocking(CheckpointSaver.delete_checkpoints)
    copy_thread = blocking(CheckpointSaver.copy_thread)
    list_threads = blocking(CheckpointSaver.list_threads)
    recent_threads = blocking(CheckpointSaver.recent_threads)
    list_namespaces = blocking(CheckpointSaver.list_namespaces)
    close = blocking(CheckpointSaver.close)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self._wrapped.store.engine).__name__})"
