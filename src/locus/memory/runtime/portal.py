"""Runs async code for blocking callers, on one event loop of the process that has a thread of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from locus.memory.runtime.forks import ForkGuard

T = TypeVar("T")


class Portal(ForkGuard):
    """An event loop on a thread of its own, started at first use, and again in a forked child."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        super().__init__()

    def run(self, coroutine: Coroutine[Any, Any, T], *, if_given_up: Callable[[], object] = bool) -> T:
        """Run a coroutine to its end, and return its result.

        `if_given_up` is called if the caller was interrupted, so that the end of the coroutine may be yet to come.
        """
        loop = self._running()
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("a blocking call from inside the portal would wait for itself: await it instead")
        call = _Call(coroutine)
        try:
            loop.call_soon_threadsafe(call.begin)
            call.ended.acquire()
        except BaseException:
            # The caller was interrupted (Ctrl-C). If the coroutine has not begun yet, it must not begin now.
            call.is_given_up = True
            loop.call_soon_threadsafe(call.cancel)
            if_given_up()
            raise
        return call.result()

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
        if self._loop is not None:
            return self._loop
        # Not under the lock: a new loop logs something, and a fork may be waiting for us with the lock of `logging`.
        new = asyncio.new_event_loop()
        with self._lock:
            if self._loop is None:
                self._loop = new
                self._thread = threading.Thread(target=new.run_forever, name="locus-portal", daemon=True)
                self._thread.start()
            loop = self._loop
        if loop is not new:
            new.close()
        return loop


class _Call(Generic[T]):
    """A coroutine that the portal runs for a thread that is blocked. `concurrent.futures` would take longer."""

    task: asyncio.Task[T]

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self.is_given_up = False
        self.ended = threading.Lock()
        self.ended.acquire()

    def begin(self) -> None:
        if not self.is_given_up:
            self.task = asyncio.get_running_loop().create_task(self._coroutine)
            self.task.add_done_callback(lambda _task: self.ended.release())

    def result(self) -> T:
        task = self.task
        del self.task  # what it has raised holds on to the frames that it passes, and so to this call
        try:
            return result_of(task)
        finally:
            del task

    def cancel(self) -> None:
        if hasattr(self, "task"):
            self.task.cancel()
        else:
            self._coroutine.close()


def result_of(task: asyncio.Task[T]) -> T:
    """The result of a task that is done, for code that is not async: it knows another error for a cancelled call."""
    try:
        return task.result()
    except asyncio.CancelledError:
        raise concurrent.futures.CancelledError from None
    finally:
        del task


PORTAL = Portal()
