"""A resource for each event loop: connections belong to the loop that opened them, and to the process.

A handle may serve several loops, one after another or at once, and may be carried across a fork. So whatever holds
sockets is kept here, by loop:

- It is made when a loop first asks for it.
- It is closed with the handle, each in its own loop; and if its loop ends first, then with the loop.
- A forked child starts with nothing. What it inherited is neither used, nor closed, nor dropped: the sockets are the
  parent's, and closing them properly would say goodbye in the parent's name.
- If the handle becomes garbage, what is left is abandoned: let go without a goodbye, which would need the loop. Only
  what would be closed with its loop is closed there.

`LoopLocks` is for locks, which belong to a loop too, but need no closing.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeVar

R = TypeVar("R")

CLOSING_SECONDS = 5.0
"""How long closing waits for another loop, which may be busy, or just ending."""


class _Kept(NamedTuple, Generic[R]):
    resource: R
    keeper: AsyncGenerator[None, None] | None


_Resources = dict[asyncio.AbstractEventLoop, _Kept[R]]

_inherited: list[_Resources[Any]] = []
"""What this process has of its parent's."""


def _nothing(_resource: Any) -> None:
    """For resources that need no more than to be dropped."""


class PerLoop(Generic[R]):
    """`make` opens the resource of a loop, `close` ends it there, `abandon` lets it go where its loop is no more.

    With `until_loop_ends` a loop that ends before the handle closes its own: `asyncio.run` waits for that.
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
        # No lock guards it: each step is atomic, and only its own loop adds to it.
        self._resources: _Resources[R] = {}
        finalizer = weakref.finalize(self, _let_all_go, self._resources, abandon)
        finalizer.atexit = not until_loop_ends  # by then most loops have ended
        _owners.add(self)

    def current(self) -> R:
        """The resource of the running loop."""
        loop = asyncio.get_running_loop()
        kept = self._resources.get(loop)
        return self._open(loop) if kept is None else kept.resource

    def _open(self, loop: asyncio.AbstractEventLoop) -> R:
        for other in [other for other in list(self._resources) if other.is_closed()]:
            self._drop(other)
        resource = self._make()
        keeper = _keeper(self._resources, loop, resource, self._close) if self._until_loop_ends else None
        self._resources[loop] = _Kept(resource, keeper)
        if keeper is not None:
            with suppress(StopIteration):
                keeper.__anext__().send(None)  # to its yield, which makes it known to the loop
        return resource

    def _drop(self, loop: asyncio.AbstractEventLoop) -> None:
        kept = self._resources.pop(loop, None)
        if kept is not None:
            self._abandon(kept.resource)

    async def close(self) -> None:
        """Close all, each in its own loop. A later use opens anew."""
        here = asyncio.get_running_loop()
        for loop in list(self._resources):
            if loop is here:
                await self.close_here()
            elif loop.is_running():
                await self._close_elsewhere(loop)
            else:
                self._drop(loop)

    async def close_here(self) -> None:
        """Close that of the running loop, and leave other loops theirs."""
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


# These do not know the owner: what a finalizer or a loop holds on to must not keep the owner alive.


async def _end(
    resources: _Resources[R], loop: asyncio.AbstractEventLoop, close: Callable[[R], Awaitable[None]]
) -> None:
    kept = resources.pop(loop, None)
    if kept is None:
        return
    if kept.keeper is not None:
        await kept.keeper.aclose()
    else:
        await close(kept.resource)


async def _keeper(
    resources: _Resources[R], loop: asyncio.AbstractEventLoop, resource: R, close: Callable[[R], Awaitable[None]]
) -> AsyncGenerator[None, None]:
    """Waits for its end, which a loop brings about before it is closed, and when nobody holds the keeper any more."""
    pid = os.getpid()
    try:
        yield
    finally:
        if pid == os.getpid():
            resources.pop(loop, None)
            await close(resource)


def _let_all_go(resources: _Resources[R], abandon: Callable[[R], None]) -> None:
    while resources:
        _, kept = resources.popitem()
        if kept.keeper is None:
            abandon(kept.resource)


class LoopLocks:
    """Locks between the tasks of one event loop, by key. A lock lives while a task holds it or waits for it."""

    def __init__(self) -> None:
        self._by_loop: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, weakref.WeakValueDictionary[Hashable, asyncio.Lock]
        ] = weakref.WeakKeyDictionary()

    def current(self, key: Hashable) -> asyncio.Lock:
        """The lock of the running loop."""
        locks = self._by_loop.setdefault(asyncio.get_running_loop(), weakref.WeakValueDictionary())
        return locks.setdefault(key, asyncio.Lock())
