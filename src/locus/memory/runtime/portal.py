"""Runs async code for blocking callers, on one event loop of the process that has a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from locus.memory.runtime.forks import ForkGuard

T = TypeVar("T")


class Portal(ForkGuard):
    """An event loop on a thread of its own, started at first use, and again in a forked child."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        super().__init__()

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
            # The caller was interrupted (Ctrl-C). If the coroutine has not begun yet, it must not begin now.
            future.cancel()
            raise

    async def awaited(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the portal's loop, for a caller whose own loop may end soon. It may be cancelled."""
        loop = self._running()
        if asyncio.get_running_loop() is loop:
            return await coroutine
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, loop))

    def after_fork(self, *, in_child: bool) -> None:
        if in_child:
            self._loop = None  # its thread is the parent's
        super().after_fork(in_child=in_child)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="locus-portal", daemon=True)
                self._thread.start()
            return self._loop


PORTAL = Portal()
