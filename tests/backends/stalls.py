"""Queries that stall on the way to a server: for the laws of stalls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from locus.memory.checkpointer import Checkpointer
from locus.testing.stores import Stall
from tests.servers.proxy import Proxy


class StallOnTheWay(Stall):
    """A handle behind a proxy of its own."""

    def __init__(self, proxy: Proxy, handle: Checkpointer) -> None:
        self._proxy = proxy
        self.handle = handle

    async def begin(self) -> None:
        self._proxy.stall()

    async def reached(self) -> None:
        await asyncio.to_thread(self._proxy.wait_until_it_holds)

    async def end(self) -> None:
        """Cut as well: what was held back is the answer to nobody's question."""
        self._proxy.accept()
        self._proxy.cut()


@asynccontextmanager
async def stalling_on_the_way(
    port: int, open_through: Callable[[int], Checkpointer], host: str = "127.0.0.1"
) -> AsyncIterator[StallOnTheWay]:
    """`open_through` opens a handle that reaches the server through another port."""
    with Proxy(port, host) as proxy:
        async with open_through(proxy.port) as handle:
            yield StallOnTheWay(proxy, handle)
