"""HTTP clients, one for each event loop: connections belong to the loop that opened them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

C = TypeVar("C")


class LoopClients(Generic[C]):
    """Makes a client when a loop first asks for one, and closes it when that loop says so."""

    def __init__(self, make: Callable[[], C], close: Callable[[C], Awaitable[None]]) -> None:
        self._make = make
        self._close = close
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, C] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def here(self) -> C:
        """The client of the running loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            client = self._clients.get(loop)
            if client is None:
                client = self._clients[loop] = self._make()
            return client

    async def close(self) -> None:
        """Close the client of the running loop, if it has one."""
        with self._lock:
            client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await self._close(client)
