"""Keeps one resource per event loop, because connections belong to the loop and the process that opened them.

A handle may serve several loops, one after another or at once, and may live on in a forked child. `PerLoop` keeps what
holds its sockets, by loop:

- A resource is made when its loop first needs it.
- Closing the handle closes each resource in its own loop. If the loop ends first, the resource is closed with it.
- A forked child starts without resources. Those that it inherited belong to the parent: they are not used, closed or
  dropped, because closing a connection sends a goodbye on the parent's socket.
- If the handle is garbage-collected, its resources are abandoned: dropped without a goodbye, which would need the loop.
  Only those that are closed with their loop are still closed there.

`LoopLocks` is for locks, which belong to a loop, too, but need no closing.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeVar

from locus.errors import ConfigurationError

R = TypeVar("R")

CLOSING_SECONDS = 5.0
"""How long closing waits for another loop, which may be busy or about to end."""


class _Kept(NamedTuple, Generic[R]):
    resource: R
    keeper: AsyncGenerator[None, None] | None


_Resources = dict[asyncio.AbstractEventLoop, _Kept[R]]

_inherited: list[_Resources[Any]] = []
"""The resources of the parent process, kept so that they are never closed here."""


def _nothing(_resource: Any) -> None:
    """Abandon a resource that needs no cleaning up."""


class PerLoop(Generic[R]):
    """One resource per event loop.

    `make` opens a resource in the running loop, `close` closes it there, and `abandon` drops it if its loop has ended.
    With `until_loop_ends`, a loop that ends before the handle closes its resource; `asyncio.run` waits for that.
    """

    def __init__(
        self,
        make: Callable[[], R],
        close: Callable[[R], Awaitable[None]],
        *,
        abandon: Callable[[R], None] = _nothing,
        until_loop_ends: bool = False,
    ) -> None:
        self._make = make
        self._close = close
        self._abandon = abandon
        self._until_loop_ends = until_loop_ends
        # It needs no lock: each step is atomic, and only a loop itself adds its resource.
        self._resources: _Resources[R] = {}
        finalizer = weakref.finalize(self, _let_all_go, self._resources, abandon)
        finalizer.atexit = not until_loop_ends  # by then most loops have ended
        _owners.add(self)

    def current(self) -> R:
        """The resource of the running loop, made if it has none yet."""
        loop = asyncio.get_running_loop()
        entry = self._resources.get(loop)
        return self._open(loop) if entry is None else entry.resource

    def _open(self, loop: asyncio.AbstractEventLoop) -> R:
        for other in [other for other in list(self._resources) if other.is_closed()]:
            self._drop(other)
        resource = self._make()
        keeper = _keeper(self._resources, loop, resource, self._close) if self._until_loop_ends else None
        self._resources[loop] = _Kept(resource, keeper)
        if keeper is not None:
            with suppress(StopIteration):
                keeper.__anext__().send(None)  # runs it up to its yield; from then on the loop knows the generator
        return resource

    def _drop(self, loop: asyncio.AbstractEventLoop) -> None:
        entry = self._resources.pop(loop, None)
        if entry is not None:
            self._abandon(entry.resource)

    async def close(self) -> None:
        """Close all resources, each in its own loop. A later use makes new ones."""
        here = asyncio.get_running_loop()
        for loop in list(self._resources):
            if loop is here:
                await self.close_here()
            elif loop.is_running():
                await self._close_elsewhere(loop)
            else:
                self._drop(loop)

    async def close_here(self) -> None:
        """Close the resource of the running loop. Other loops keep theirs."""
        await _end(self._resources, asyncio.get_running_loop(), self._close)

    async def _close_elsewhere(self, loop: asyncio.AbstractEventLoop) -> None:
        ending = _end(self._resources, loop, self._close)
        try:
            future = asyncio.run_coroutine_threadsafe(ending, loop)
        except RuntimeError:  # the loop was closed just now
            ending.close()
            self._drop(loop)
            return
        await asyncio.wait([asyncio.wrap_future(future)], timeout=CLOSING_SECONDS)


_owners: weakref.WeakSet[PerLoop[Any]] = weakref.WeakSet()


def _begin_in_child() -> None:
    for owner in list(_owners):
        _inherited.append(owner._resources.copy())
        owner._resources.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_in_child)


# These functions take no owner: a finalizer or a loop that held it would keep it alive.


async def _end(
    resources: _Resources[R], loop: asyncio.AbstractEventLoop, close: Callable[[R], Awaitable[None]]
) -> None:
    entry = resources.pop(loop, None)
    if entry is None:
        return
    if entry.keeper is not None:
        await entry.keeper.aclose()
    else:
        await close(entry.resource)


async def _keeper(
    resources: _Resources[R], loop: asyncio.AbstractEventLoop, resource: R, close: Callable[[R], Awaitable[None]]
) -> AsyncGenerator[None, None]:
    """A generator that closes a resource when it ends.

    A loop ends its generators before it is closed. It also ends one that nobody refers to any more.
    """
    pid = os.getpid()
    try:
        yield
    finally:
        if pid == os.getpid():
            resources.pop(loop, None)
            await close(resource)


def _let_all_go(resources: _Resources[R], abandon: Callable[[R], None]) -> None:
    while resources:
        _, entry = resources.popitem()
        if entry.keeper is None:
            abandon(entry.resource)


def running_loop() -> asyncio.AbstractEventLoop:
    """The event loop that runs the caller. `ConfigurationError` if it is not one of asyncio's."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise ConfigurationError(
            "Locus needs asyncio, and no event loop of asyncio is running here. Under trio, run the program with "
            'asyncio: anyio.run(main, backend="asyncio")'
        ) from None


class LoopLocks:
    """Locks between the tasks of one event loop, by key. A lock exists while a task holds it or waits for it."""

    def __init__(self) -> None:
        self._by_loop: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, weakref.WeakValueDictionary[Hashable, asyncio.Lock]
        ] = weakref.WeakKeyDictionary()

    def current(self, key: Hashable) -> asyncio.Lock:
        """The lock for a key in the running loop."""
        loop = running_loop()
        locks = self._by_loop.get(loop)
        if locks is None:
            locks = self._by_loop.setdefault(loop, weakref.WeakValueDictionary())
        return locks.setdefault(key, asyncio.Lock())
