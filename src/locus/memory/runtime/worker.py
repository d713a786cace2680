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

Job = tuple[Callable[[Any], Any] | None, Callable[[Any, BaseException | None], None]]


class Worker(Generic[R]):
    """Opens a resource on a thread of its own when it is first needed, and again after `close` or a fork.

    Any number of event loops may use it. When the worker is garbage, its thread closes the resource and ends.
    Before a fork, too, the resource is closed: an SQLite connection that is open in two processes loses data.
    """

    def __init__(self, name: str, open_resource: Callable[[], R]) -> None:
        self._name = name
        self._open = open_resource
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[Job] | None = None
        self._thread: threading.Thread | None = None
        self._finalizer: weakref.finalize[..., Any] | None = None
        _workers.add(self)

    async def run(self, work: Callable[[R], T]) -> T:
        """Do some work with the resource; raises what the work, or opening the resource, raised."""
        return await answered(work, self._submit)

    async def close(self) -> None:
        """Close the resource, and wait until it is closed."""
        with self._lock:
            jobs = self._detached()
        if jobs is None:
            return
        loop = asyncio.get_running_loop()
        closed = asyncio.Event()
        jobs.put((None, lambda _result, _error: tell(loop, closed.set)))
        await closed.wait()

    def _submit(self, job: Job) -> None:
        # Under the lock, so that no job can land behind the one that ends the thread.
        with self._lock:
            if self._jobs is None:
                self._jobs = SimpleQueue()
                # The thread must not keep the worker alive, so it gets only what it needs.
                arguments = (self._jobs, self._open, self._thread)
                self._thread = threading.Thread(target=_serve, args=arguments, name=self._name, daemon=True)
                self._thread.start()
                self._finalizer = weakref.finalize(self, self._jobs.put, (None, _ignore))
                # At exit somebody may still want to save, and the thread must be there for that.
                self._finalizer.atexit = False
            self._jobs.put(job)

    def hold(self) -> None:
        """Finish what is under way, close the resource, and begin nothing new until `go_on`."""
        self._lock.acquire()
        jobs = self._detached()
        if jobs is not None:
            closed = threading.Event()
            jobs.put((None, lambda _result, _error: closed.set()))
            closed.wait()

    def go_on(self) -> None:
        self._lock.release()

    def forget_thread(self) -> None:
        """After `hold` the thread has ended; in a child process it never was."""
        self._thread = None

    def _detached(self) -> SimpleQueue[Job] | None:
        """The queue of the thread there is, which from now on serves nobody new."""
        jobs, self._jobs = self._jobs, None
        if self._finalizer is not None:
            self._finalizer.detach()
            self._finalizer = None
        return jobs


_workers: weakref.WeakSet[Worker[Any]] = weakref.WeakSet()
_held: list[Worker[Any]] = []


def _before_fork() -> None:
    for worker in list(_workers):
        worker.hold()
        _held.append(worker)


def _after_fork() -> None:
    while _held:
        worker = _held.pop()
        worker.forget_thread()
        worker.go_on()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


async def answered(work: Callable[[R], T], submit: Callable[[Job], None]) -> T:
    """Have a thread do some work, and wait for its result."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if not future.done():
            future.set_result(result) if error is None else future.set_exception(error)

    def wanted(resource: R) -> T | None:
        # A save whose caller gave up while it waited for its turn must not happen after all.
        return None if future.cancelled() else work(resource)

    submit((wanted, lambda result, error: tell(loop, settle, result, error)))
    return await future


def tell(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *args: Any) -> None:
    """Call back on the loop, unless it is closed by now: then nobody waits for the answer any more."""
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:
        if not loop.is_closed():
            raise


def _ignore(_result: Any, _error: BaseException | None) -> None:
    """Nobody waits for this answer."""


def _serve(jobs: SimpleQueue[Job], open_resource: Callable[[], R], before: threading.Thread | None) -> None:
    if before is not None:
        before.join()  # it may still be at work, on the same resource
        before = None
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
