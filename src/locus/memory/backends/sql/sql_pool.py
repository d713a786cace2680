"""Connections to a database server, kept open between uses: a pool for each event loop.

A pool has no tasks of its own, so nothing is left behind when a loop ends. A connection that the server has
closed meanwhile is noticed before it is used, and what goes wrong when one is opened reaches the caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from locus.memory.backends.sql.flavour import Row

CLOSING_SECONDS = 5.0
"""How long to wait for another event loop to close its connections."""


class Connection(ABC):
    """One connection; one task uses it at a time."""

    committing = False
    """Whether a commit was sent: if its answer is lost, nobody knows what became of the transaction."""

    @abstractmethod
    async def execute(self, statement: str, values: Sequence[Any]) -> list[Row]:
        """Carry out a statement, written with `?`, and return its rows (none if it has none)."""

    @abstractmethod
    async def begin(self, writing: bool) -> None:
        """Begin a transaction: one that writes, or one that reads everything as of one instant."""

    @abstractmethod
    async def commit(self) -> None: ...

    @abstractmethod
    async def rollback(self) -> None: ...

    @abstractmethod
    def in_transaction(self) -> bool:
        """Whether there is a transaction to roll back, on a connection that still works."""

    @abstractmethod
    def is_usable(self) -> bool:
        """Whether it is open and idle, as far as can be told without asking the server."""

    @abstractmethod
    def close(self) -> None:
        """Release it at once; its event loop may be closed already. Never raises."""

    async def quit(self) -> None:
        """Take leave of the server, and close. Never raises."""
        self.close()


def close_without_loop(transport: Any) -> None:
    """asyncio closes a socket in a callback of its event loop; for when that is closed already."""
    below = getattr(transport, "_ssl_protocol", None)
    if below is not None:
        transport = below._transport
    with contextlib.suppress(RuntimeError):
        transport._call_connection_lost(None)


C = TypeVar("C", bound=Connection)


@dataclass(frozen=True)
class PoolOptions:
    """`least` connections stay open however long nobody needs them, the others for `idle_seconds`."""

    least: int = 1
    most: int = 10
    wait_seconds: float = 10.0
    """How long to wait for a connection while all are in use."""
    idle_seconds: float = 300.0


class Pool(Generic[C]):
    """The connections of one event loop."""

    def __init__(self, connect: Callable[[], Awaitable[C]], options: PoolOptions) -> None:
        self._connect = connect
        self._options = options
        self._places = asyncio.Semaphore(options.most)
        self._idle: list[tuple[float, C]] = []
        self._closed = False

    async def take(self) -> C:
        """A connection; raises TimeoutError if all are in use for too long."""
        await self._place()
        try:
            while self._idle:
                _, connection = self._idle.pop()
                if connection.is_usable():
                    connection.committing = False
                    return connection
                connection.close()
            return await self._connect()
        except BaseException:
            self._places.release()
            raise

    async def _place(self) -> None:
        if not self._places.locked():
            await self._places.acquire()
            return
        try:
            async with asyncio.timeout(self._options.wait_seconds):
                await self._places.acquire()
        except TimeoutError as error:
            raise TimeoutError(
                f"all {self._options.most} connections were in use for {self._options.wait_seconds:g} s: "
                "raise max_pool_size, or have fewer tasks at once"
            ) from error

    def give_back(self, connection: C, *, sound: bool) -> None:
        """`sound`: it is in no transaction, and the next one may have it."""
        self._places.release()
        now = time.monotonic()
        if self._closed or not sound:
            connection.close()
        else:
            self._idle.append((now, connection))
        while len(self._idle) > self._options.least and now - self._idle[0][0] > self._options.idle_seconds:
            self._idle.pop(0)[1].close()

    async def close(self) -> None:
        """Close what is idle now, and what is in use when it is given back."""
        self._closed = True
        while self._idle:
            await self._idle.pop()[1].quit()

    def abandon(self) -> None:
        """The same, from anywhere and at once: for a loop that is closed."""
        self._closed = True
        while self._idle:
            self._idle.pop()[1].close()


class Borrowed(AbstractAsyncContextManager[C]):
    """A connection of a pool, for a while; it is closed if something was raised, unless it is at rest.

    A class, because every save passes through here, and a generator would cost it three times as much.
    """

    __slots__ = ("_connection", "_pool")

    def __init__(self, pool: Pool[C]) -> None:
        self._pool = pool
        self._connection: C | None = None

    async def __aenter__(self) -> C:
        connection = self._connection = await self._pool.take()
        return connection

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        connection = self._connection
        assert connection is not None
        sound = error is None or (isinstance(error, Exception) and connection.is_usable())
        self._pool.give_back(connection, sound=sound)


Pools = dict[asyncio.AbstractEventLoop, Pool[C]]

_inherited: list[Pools[Any]] = []
"""What a forked child has of its parent's: to close that, or to drop it, would end the parent's connections."""


class LoopPools(Generic[C]):
    """A pool for each event loop that asks. Those of a closed loop are released when the next one is made."""

    def __init__(self, connect: Callable[[], Awaitable[C]], options: PoolOptions) -> None:
        self._connect = connect
        self._options = options
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._pid = os.getpid()
        # No lock guards it, because one that is held during a fork stays so in the child; each step is atomic.
        self._pools: Pools[C] = {}
        self._finalizer = weakref.finalize(self, _abandon_all, self._pools, self._pid)

    def current(self) -> Pool[C]:
        """The pool of the running event loop."""
        if self._pid != os.getpid():
            _inherited.append(self._pools)
            self._finalizer.detach()
            self._begin_anew()
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            for other in [other for other in list(self._pools) if other.is_closed()]:
                self._release(other)
            pool = self._pools[loop] = Pool(_weakly(self), self._options)
        return pool

    def _release(self, loop: asyncio.AbstractEventLoop) -> None:
        pool = self._pools.pop(loop, None)
        if pool is not None:
            pool.abandon()

    async def close(self) -> None:
        """Close all pools, each in its own loop. Later use opens them anew."""
        if self._pid != os.getpid():
            return
        here = asyncio.get_running_loop()
        for loop in list(self._pools):
            if loop is here or not loop.is_running():
                pool = self._pools.pop(loop, None)
                if pool is not None:
                    await pool.close() if loop is here else pool.abandon()
            else:
                await self._close_elsewhere(loop)

    async def _close_elsewhere(self, loop: asyncio.AbstractEventLoop) -> None:
        pool = self._pools.pop(loop, None)
        if pool is None:
            return
        closing = pool.close()
        try:
            future = asyncio.run_coroutine_threadsafe(closing, loop)
        except RuntimeError:  # it was closed just now
            closing.close()
            pool.abandon()
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.wrap_future(future), CLOSING_SECONDS)


def _weakly(pools: LoopPools[C]) -> Callable[[], Awaitable[C]]:
    """Opens a connection, and keeps nobody alive: what is kept for the finalizer must not lead back to its owner."""
    owner = weakref.ref(pools)

    async def connect() -> C:
        found = owner()
        assert found is not None, "somebody waits for this connection, and holds the owner"
        return await found._connect()

    return connect


def _abandon_all(pools: Pools[Any], pid: int) -> None:
    if pid == os.getpid():
        for pool in _values(pools):
            pool.abandon()


def _values(pools: Pools[C]) -> Iterator[Pool[C]]:
    while pools:
        yield pools.popitem()[1]
