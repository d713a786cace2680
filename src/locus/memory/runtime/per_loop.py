"""A resource for each event loop: connections belong to the loop that opened them, and to the process.

A handle may serve several loops, one after another or at once, and may be carried across a fork. So whatever holds
sockets is kept here, by loop:

- It is made when a loop first asks for it.
- It is closed with the handle, each in its own loop; and if its loop ends first, then with the loop.
- A forked child starts with nothing. What it inherited is neither used, nor closed, nor dropped: the sockets are the
  parent's, and closing them properly would say goodbye in the parent's name.
- If the handle becomes garbage, what is left is abandoned: let go without a goodbye, which would need the loop.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable
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
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        # No lock guards it, because one that is held during a fork stays so in the child; each step is atomic.
        self._resources: _Resources[R] = {}
        self._finalizer = weakref.finalize(self, _abandon_all, self._resources, self._abandon, self._pid)

    def current(self) -> R:
        """The resource of the running loop."""
        if self._pid != os.getpid():
            self._finalizer.detach()
            _inherited.append(self._resources)
            self._begin()
        loop = asyncio.get_running_loop()
        kept = self._resources.get(loop)
        return self._open(loop) if kept is None else kept.resource

    def _open(self, loop: asyncio.AbstractEventLoop) -> R:
        for other in [other for other in list(self._resources) if other.is_closed()]:
            self._drop(other)
        resource = self._make()
        keeper = _keeper(self._resources, loop, self._close) if self._until_loop_ends else None
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
        if self._pid != os.getpid():
            return
        here = asyncio.get_running_loop()
        for loop in list(self._resources):
            if loop is here:
                await _end(self._resources, loop, self._close)
            elif loop.is_running():
                await self._close_elsewhere(loop)
            else:
                self._drop(loop)

    async def _close_elsewhere(self, loop: asyncio.AbstractEventLoop) -> None:
        ending = _end(self._resources, loop, self._close)
        try:
            future = asyncio.run_coroutine_threadsafe(ending, loop)
        except RuntimeError:  # the loop was closed just now
            ending.close()
            self._drop(loop)
            return
        await asyncio.wait([asyncio.wrap_future(future)], timeout=CLOSING_SECONDS)


# These do not know the owner: what a finalizer or a loop holds on to must not keep the owner alive.


async def _end(
    resources: _Resources[R], loop: asyncio.AbstractEventLoop, close: Callable[[R], Awaitable[None]]
) -> None:
    kept = resources.get(loop)
    if kept is None:
        return
    if kept.keeper is not None:
        await kept.keeper.aclose()
    else:
        del resources[loop]
        await close(kept.resource)


async def _keeper(
    resources: _Resources[R], loop: asyncio.AbstractEventLoop, close: Callable[[R], Awaitable[None]]
) -> AsyncGenerator[None, None]:
    """Waits for its end, which a loop brings about before it is closed."""
    try:
        yield
    finally:
        kept = resources.pop(loop, None)
        if kept is not None:
            await close(kept.resource)


def _abandon_all(resources: _Resources[R], abandon: Callable[[R], None], pid: int) -> None:
    if pid == os.getpid():
        while resources:
            abandon(resources.popitem()[1].resource)
