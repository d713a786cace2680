"""The road of blocking calls, for the contract suite: an engine that works in place keeps the laws on it, too."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Self

from locus.memory.checkpointer import Checkpointer
from locus.memory.runtime.direct import CallersLoop, run
from locus.memory.store import CheckpointStore


def blocking(handle: Checkpointer) -> Checkpointer:
    """Let every operation on the store of a handle be a blocking call, on an OS thread that has no event loop.

    Calls that are made at once are made by several threads at once. A call that is cancelled ends first, because nobody
    can cancel a thread.
    """
    handle.store = BlockingStore(handle.store)
    return handle


class BlockingStore(CheckpointStore):
    """A store whose operations are blocking calls, made on other OS threads. It is the other one in all else."""

    def __init__(self, inner: CheckpointStore) -> None:
        self.__dict__.update(inner.__dict__)
        self._inner = inner

    def key_space(self, name: str) -> Self:
        return type(self)(self._inner.key_space(name))


def _on_a_thread(name: str, verb: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(verb)
    async def call(self: BlockingStore, *args: Any, **options: Any) -> Any:
        work: Coroutine[Any, Any, Any] = getattr(self._inner, name)(*args, **options)
        if isinstance(asyncio.get_running_loop(), CallersLoop):
            return await work  # the caller is blocked already
        blocked = asyncio.ensure_future(asyncio.to_thread(run, work, self.engine))
        try:
            return await asyncio.shield(blocked)
        except asyncio.CancelledError:
            await asyncio.wait([blocked])
            raise

    return call


for _name, _verb in inspect.getmembers(CheckpointStore, inspect.iscoroutinefunction):
    if not _name.startswith("_"):
        setattr(BlockingStore, _name, _on_a_thread(_name, _verb))
