"""A thread that owns a blocking resource, and does what event loops ask of it, one thing after another.

Threads that each own a blocking resource, and do what event loops ask of them, several things at once.
"""

from __future__ import annotations

import asyncio
import encodings.idna  # noqa: F401 - see `WorkerPool`
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


class WorkerPool(Generic[R]):
    """Up to `size` threads, started as they are needed, and again after `close` or a fork.

    Any number of event loops may use it; whichever thread is free first takes the next job. A `Worker` closes
    its resource before a fork, and waits for that. These do not, because a request may take long: the parent
    goes on undisturbed, and the child, which has none of the threads, opens resources of its own. So it is for
    resources that two processes may have open, as connections are that only one of them uses.

    What a thread was importing when its process forked can never be imported in the child. So whoever makes a pool
    imports what its work will need; what the first connection of every driver needs is imported here.
    """

    def __init__(self, name: str, open_resource: Callable[[], R], size: int) -> None:
        self._name = name
        self._open = open_resource
        self._size = size
        self._lock = threading.Lock()
        self._crew: _Crew[R] | None = None
        self._finalizer: weakref.finalize[..., Any] | None = None
        _pools.add(self)

    async def run(self, work: Callable[[R], T]) -> T:
        """Do some work with a resource; raises what the work, or opening the resource, raised."""
        return await answered(work, self._submit)

    async def close(self) -> None:
        """Close the resources, and wait until they are closed."""
        with self._lock:
            crew = self._detached()
        if crew is None:
            return
        loop = asyncio.get_running_loop()
        closed = asyncio.Event()
        crew.dismiss(lambda: tell(loop, closed.set))
        await closed.wait()

    def _submit(self, job: Job) -> None:
        # Under the lock, so that no job can land behind those that end the threads.
        with self._lock:
            if self._crew is None:
                # The threads must not keep the pool alive, so they get only what they need.
                self._crew = _Crew(self._name, self._open, self._size)
                self._finalizer = weakref.finalize(self, self._crew.dismiss, _nothing)
                # At exit somebody may still want to save, and the threads must be there for that.
                self._finalizer.atexit = False
            self._crew.take(job)

    def hold(self) -> None:
        self._lock.acquire()

    def go_on(self) -> None:
        self._lock.release()

    def forget(self) -> None:
        """In a child process there are no threads, and what they have open is the parent's."""
        self._detached()

    def _detached(self) -> _Crew[R] | None:
        crew, self._crew = self._crew, None
        if self._finalizer is not None:
            self._finalizer.detach()
            self._finalizer = None
        return crew


class _Crew(Generic[R]):
    """The threads of a pool, from its first use to its closing."""

    def __init__(self, name: str, open_resource: Callable[[], R], size: int) -> None:
        self._name = name
        self._open = open_resource
        self._size = size
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads = 0
        self._lock = threading.Lock()

    def take(self, job: Job) -> None:
        """One call at a time, and none after `dismiss`."""
        self._jobs.put(job)
        if not self._idle.acquire(blocking=False) and self._threads < self._size:
            self._threads += 1
            name = f"{self._name}-{self._threads}"
            threading.Thread(target=self._serve, name=name, daemon=True).start()

    def dismiss(self, done: Callable[[], None]) -> None:
        """Let every thread end when the jobs before this are done; the last one says so."""
        left = self._threads
        if not left:
            done()

        def ended(_result: Any, _error: BaseException | None) -> None:
            nonlocal left
            with self._lock:
                left -= 1
                last = not left
            if last:
                done()

        for _ in range(left):
            self._jobs.put((None, ended))

    def _serve(self) -> None:
        resource: R | None = None
        while True:
            work, deliver = self._jobs.get()
            if work is None:
                try:
                    if resource is not None:
                        resource.close()
                finally:
                    deliver(None, None)
                return
            try:
                if resource is None:
                    resource = self._open()
                result = work(resource)
            except BaseException as error:  # noqa: BLE001 - handed to the caller, whatever it is
                failure: BaseException | None = error
                result = None
            else:
                failure = None
            # Idle before the answer is out: whoever gets it may have the next job for this very thread.
            self._idle.release()
            deliver(result, failure)
            # Neither the work nor its result may live on until the next job comes.
            work = deliver = result = failure = None  # type: ignore[assignment]


def _nothing() -> None:
    """Nobody waits for this."""


_pools: weakref.WeakSet[WorkerPool[Any]] = weakref.WeakSet()
_held_pools: list[WorkerPool[Any]] = []


def _hold_pools() -> None:
    for pool in list(_pools):
        pool.hold()
        _held_pools.append(pool)


def _release_pools() -> None:
    while _held_pools:
        _held_pools.pop().go_on()


def _after_fork_in_child() -> None:
    for pool in _held_pools:
        pool.forget()
    _release_pools()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_pools, after_in_parent=_release_pools, after_in_child=_after_fork_in_child)
