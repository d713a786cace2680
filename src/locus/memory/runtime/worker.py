"""Threads that own blocking resources, and do what event loops ask of them.

A `Worker` is one thread with one resource, and does one job after another. A `WorkerGroup` is several of them, for
jobs that shall not wait for each other. A `WorkerPool` has several threads, each with a resource of its own, and does
several jobs at once. All may be used from any number of event loops, and survive a fork.
"""

from __future__ import annotations

import asyncio
import encodings.idna  # noqa: F401 - see `WorkerPool`
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from locus.memory.runtime.forks import ForkGuard


class Closable(Protocol):
    def close(self) -> None: ...


R = TypeVar("R", bound=Closable)
T = TypeVar("T")

Job = tuple[Callable[[Any], Any] | None, Callable[[Any, BaseException | None], None]]


class Worker(ForkGuard, Generic[R]):
    """Opens a resource on a thread of its own when it is first needed, and again after `close` or a fork.

    Any number of event loops may use it. When the worker is garbage, its thread closes the resource and ends.
    Before a fork, too, the resource is closed: an SQLite connection that is open in two processes loses data.
    """

    def __init__(self, name: str, open_resource: Callable[[], R]) -> None:
        self._name = name
        self._open = open_resource
        self._jobs: SimpleQueue[Job] | None = None
        self._thread: threading.Thread | None = None
        self._finalizer: weakref.finalize[..., Any] | None = None
        super().__init__()

    async def run(self, work: Callable[[R], T]) -> T:
        """Do some work with the resource; raises what the work, or opening the resource, raised."""
        return await _run_on_thread(work, self._submit)

    async def close(self) -> None:
        """Close the resource, and wait until it is closed."""
        with self._lock:
            jobs = self._detached()
        if jobs is None:
            return
        loop = asyncio.get_running_loop()
        closed = asyncio.Event()
        jobs.put((None, lambda _result, _error: _call_on_loop(loop, closed.set)))
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

    def before_fork(self) -> None:
        """Finish what is under way, close the resource, and begin nothing new until `after_fork`."""
        super().before_fork()
        jobs = self._detached()
        if jobs is not None:
            closed = threading.Event()
            jobs.put((None, lambda _result, _error: closed.set()))
            closed.wait()

    def after_fork(self, *, in_child: bool) -> None:
        # In the parent the thread has ended; in a child process it never was.
        self._thread = None
        super().after_fork(in_child=in_child)

    def _detached(self) -> SimpleQueue[Job] | None:
        """The queue of the running thread, which gets no new jobs from now on."""
        jobs, self._jobs = self._jobs, None
        if self._finalizer is not None:
            self._finalizer.detach()
            self._finalizer = None
        return jobs


class WorkerGroup(Generic[R]):
    """Several workers, each with a resource of its own. Whoever has least to do takes the next job, so that a job that
    takes long holds up the others only when all workers have one."""

    def __init__(self, name: str, open_resource: Callable[[], R], size: int) -> None:
        self._workers = [Worker(f"{name}-{number}", open_resource) for number in range(1, size + 1)]
        # Sets, because adding to one and taking away are single steps, from whichever thread they come.
        self._waiting: list[set[object]] = [set() for _ in self._workers]

    async def run(self, work: Callable[[R], T]) -> T:
        """Do some work with a resource; raises what the work, or opening the resource, raised."""
        return await _run_on_thread(work, self._submit)

    async def close(self) -> None:
        for worker in self._workers:
            await worker.close()

    def _submit(self, job: Job) -> None:
        at = min(range(len(self._workers)), key=lambda number: len(self._waiting[number]))
        (work, deliver), mark, waiting = job, object(), self._waiting[at]
        waiting.add(mark)

        def delivered(result: Any, error: BaseException | None) -> None:
            waiting.discard(mark)
            deliver(result, error)

        self._workers[at]._submit((work, delivered))


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


class WorkerPool(ForkGuard, Generic[R]):
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
        self._threads: _Threads[R] | None = None
        self._finalizer: weakref.finalize[..., Any] | None = None
        super().__init__()

    async def run(self, work: Callable[[R], T]) -> T:
        """Do some work with a resource; raises what the work, or opening the resource, raised."""
        return await _run_on_thread(work, self._submit)

    async def close(self) -> None:
        """Close the resources, and wait until they are closed."""
        with self._lock:
            threads = self._detached()
        if threads is None:
            return
        loop = asyncio.get_running_loop()
        closed = asyncio.Event()
        threads.dismiss(lambda: _call_on_loop(loop, closed.set))
        await closed.wait()

    def _submit(self, job: Job) -> None:
        # Under the lock, so that no job can land behind those that end the threads.
        with self._lock:
            if self._threads is None:
                # The threads must not keep the pool alive, so they get only what they need.
                self._threads = _Threads(self._name, self._open, self._size)
                self._finalizer = weakref.finalize(self, self._threads.dismiss, _nothing)
                # At exit somebody may still want to save, and the threads must be there for that.
                self._finalizer.atexit = False
            self._threads.take(job)

    def after_fork(self, *, in_child: bool) -> None:
        if in_child:
            # It has none of the threads, and what they have open belongs to the parent.
            self._detached()
        super().after_fork(in_child=in_child)

    def _detached(self) -> _Threads[R] | None:
        threads, self._threads = self._threads, None
        if self._finalizer is not None:
            self._finalizer.detach()
            self._finalizer = None
        return threads


class _Threads(Generic[R]):
    """The threads of a pool, from its first use to its closing."""

    def __init__(self, name: str, open_resource: Callable[[], R], size: int) -> None:
        self._name = name
        self._open = open_resource
        self._size = size
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._count = 0
        self._lock = threading.Lock()

    def take(self, job: Job) -> None:
        """One call at a time, and none after `dismiss`."""
        self._jobs.put(job)
        if not self._idle.acquire(blocking=False) and self._count < self._size:
            self._count += 1
            name = f"{self._name}-{self._count}"
            threading.Thread(target=self._serve, name=name, daemon=True).start()

    def dismiss(self, done: Callable[[], None]) -> None:
        """Let every thread end when the jobs before this are done; the last one says so."""
        left = self._count
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


async def _run_on_thread(work: Callable[[R], T], submit: Callable[[Job], None]) -> T:
    """Have a thread do some work, and wait for its result."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if not future.done():
            future.set_result(result) if error is None else future.set_exception(error)

    def wanted(resource: R) -> T | None:
        # A save whose caller gave up while it waited for its turn must not happen after all.
        return None if future.cancelled() else work(resource)

    submit((wanted, lambda result, error: _call_on_loop(loop, settle, result, error)))
    return await future


def _call_on_loop(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *args: Any) -> None:
    """Call back on the loop, unless it is closed by now: then nobody waits for the answer any more."""
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:
        if not loop.is_closed():
            raise


def _ignore(_result: Any, _error: BaseException | None) -> None:
    """Nobody waits for this answer."""
