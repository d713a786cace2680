"""A thread that owns a blocking resource, and does what event loops ask of it, one thing after another."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar


class Closable(Protocol):
    def close(self) -> None: ...


R = TypeVar("R", bound=Closable)
T = TypeVar("T")

_Job = tuple[Callable[[Any], Any] | None, Callable[[Any, BaseException | None], None]]


class Worker(Generic[R]):
    """Opens a resource on a thread of its own when it is first needed, and again after `close` or a fork.

    Any number of event loops may use it. When the worker is garbage, its thread closes the resource and ends.
    Before a fork, too, the resource is closed: an SQLite connection that is open in two processes loses data.
    """

    def __init__(self, name: str, open_resource: Callable[[], R]) -> None:
        self._name = name
        self._open = open_resource
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[_Job] | None = None
        _workers.add(self)

    async def run(self, work: Callable[[R], T]) -> T:
        """Do some work with the resource; raises what the work, or opening the resource, raised."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            if not future.done():
                future.set_result(result) if error is None else future.set_exception(error)

        self._submit((work, lambda result, error: _tell(loop, settle, result, error)))
        return await future

    async def close(self) -> None:
        """Close the resource, and wait until it is closed."""
        with self._lock:
            jobs, self._jobs = self._jobs, None
        if jobs is None:
            return
        loop = asyncio.get_running_loop()
        closed = asyncio.Event()
        jobs.put((None, lambda _result, _error: _tell(loop, closed.set)))
        await closed.wait()

    def _submit(self, job: _Job) -> None:
        # Under the lock, so that no job can land behind the one that ends the thread.
        with self._lock:
            if self._jobs is None:
                self._jobs = SimpleQueue()
                # The thread must not keep the worker alive, so it gets only what it needs.
                threading.Thread(target=_serve, args=(self._jobs, self._open), name=self._name, daemon=True).start()
                weakref.finalize(self, self._jobs.put, (None, _ignore))
            self._jobs.put(job)

    def hold(self) -> None:
        """Finish what is under way, close the resource, and begin nothing new until `go_on`."""
        self._lock.acquire()
        jobs, self._jobs = self._jobs, None
        if jobs is not None:
            closed = threading.Event()
            jobs.put((None, lambda _result, _error: closed.set()))
            closed.wait()

    def go_on(self) -> None:
        self._lock.release()


_workers: weakref.WeakSet[Worker[Any]] = weakref.WeakSet()
_held: list[Worker[Any]] = []


def _before_fork() -> None:
    for worker in list(_workers):
        worker.hold()
        _held.append(worker)


def _after_fork() -> None:
    while _held:
        _held.pop().go_on()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


def _tell(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *args: Any) -> None:
    """Call back on the loop, unless it is closed by now: then nobody waits for the answer any more."""
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:
        if not loop.is_closed():
            raise


def _ignore(_result: Any, _error: BaseException | None) -> None:
    """Nobody waits for this answer."""


def _serve(jobs: SimpleQueue[_Job], open_resource: Callable[[], R]) -> None:
    resource: R | None = None
    while True:
        work, deliver = jobs.get()
        if work is None:
            try:
                if resource is not None:
                    resource.close()
            finally:
                deliver(None, None)
            return
        try:
            if resource is None:
                resource = open_resource()
            result = work(resource)
        except BaseException as error:  # noqa: BLE001 - handed to the caller, whatever it is
            deliver(None, error)
        else:
            deliver(result, None)
        # Neither the work nor its result may live on until the next job comes.
        work = deliver = result = None  # type: ignore[assignment]
