"""Deletes expired items every few minutes, in a thread of its own, as LangGraph's stores do."""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any

_log = logging.getLogger(__name__)


class Done(int):
    """A number that is known already, for programs that await it and for those that do not.

    LangGraph's stores for async programs have their methods awaited, and the others do not.
    """

    def __await__(self) -> Generator[Any, None, int]:
        yield from ()
        return int(self)


class Sweeping(Future[None]):
    """Runs until the sweeper stops; cancelling it stops the sweeper. Awaiting it gives a future of the event loop."""

    def __await__(self) -> Generator[Any, None, asyncio.Future[None]]:
        yield from ()
        return asyncio.wrap_future(self)


class Sweeper:
    """A thread that calls a method every `seconds`, until it is stopped or the object of the method is gone."""

    def __init__(self, sweep: Callable[[], int], seconds: float) -> None:
        self.running = Sweeping()
        self._sweep = weakref.WeakMethod(sweep, lambda _: self._stop.set())
        self._seconds = seconds
        self._stop = threading.Event()
        self.running.add_done_callback(lambda _: self._stop.set())
        self._thread = threading.Thread(target=self._work, name="locus-sweeper", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive() and not self._stop.is_set()

    def stop(self, timeout: float | None = None) -> bool:
        """Stop the thread, and wait for a sweep that is under way: False if it takes longer than `timeout` seconds."""
        self._stop.set()
        if threading.current_thread() is not self._thread:  # the last one that held the store
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while not self._stop.wait(self._seconds):
            sweep = self._sweep()
            if sweep is None:
                break
            try:
                sweep()
            except Exception as error:  # noqa: BLE001 - the next sweep may succeed
                _log.warning("expired items could not be deleted, the next sweep tries again: %s", type(error).__name__)
            del sweep
        if self.running.set_running_or_notify_cancel():
            self.running.set_result(None)
