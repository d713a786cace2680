"""Threads that each own a blocking resource, and do what event loops ask of them, several things at once."""

from __future__ import annotations

import asyncio
import encodings.idna  # noqa: F401 - see `WorkerPool`
import os
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from locus.memory.runtime.worker import Closable, Job, answered, tell

R = TypeVar("R", bound=Closable)
T = TypeVar("T")


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
_held: list[WorkerPool[Any]] = []


def _before_fork() -> None:
    for pool in list(_pools):
        pool.hold()
        _held.append(pool)


def _after_fork() -> None:
    while _held:
        _held.pop().go_on()


def _after_fork_in_child() -> None:
    for pool in _held:
        pool.forget()
    _after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
