"""`SyncLongTermMemory`: long-term memory with blocking methods, which any thread may call."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any, Self, TypeVar

from locus.memory.long_term.memory import LongTermMemory
from locus.memory.runtime.direct import run
from locus.memory.sync import blocking

R = TypeVar("R")


class SyncLongTermMemory:
    """A `LongTermMemory` with blocking methods."""

    def __init__(self, wrapped: LongTermMemory) -> None:
        self._wrapped = wrapped

    def _run(self, call: Coroutine[Any, Any, R]) -> R:
        return run(call, self._wrapped.engine)

    setup = blocking(LongTermMemory.setup)
    ddl = blocking(LongTermMemory.ddl)
    put = blocking(LongTermMemory.put)
    get = blocking(LongTermMemory.get)
    get_item = blocking(LongTermMemory.get_item)
    exists = blocking(LongTermMemory.exists)
    delete = blocking(LongTermMemory.delete)
    history = blocking(LongTermMemory.history)
    list_keys = blocking(LongTermMemory.list_keys)
    list_namespaces = blocking(LongTermMemory.list_namespaces)
    search = blocking(LongTermMemory.search)
    batch = blocking(LongTermMemory.batch)
    put_batch = blocking(LongTermMemory.put_batch)
    get_batch = blocking(LongTermMemory.get_batch)
    reindex = blocking(LongTermMemory.reindex)
    owed = blocking(LongTermMemory.owed)
    refresh = blocking(LongTermMemory.refresh)
    erase = blocking(LongTermMemory.erase)
    sweep = blocking(LongTermMemory.sweep)
    close = blocking(LongTermMemory.close)

    def scoped(self, namespace: Iterable[str]) -> SyncLongTermMemory:
        """This memory below a namespace. See `LongTermMemory.scoped`."""
        return self._wrapped.scoped(namespace).sync

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self._wrapped.engine).__name__})"
