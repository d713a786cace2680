"""Threads that own blocking resources, and do jobs with them for event loops.

A `WorkerPool` has several threads, each with a resource of its own, and does several jobs at once. A `Worker` has one
thread, or a few, and closes its resources before a fork, because no two processes may have them open. Both serve any
number of event loops, and survive a fork. A call that may block (`runtime.direct`) uses a resource of a `Worker` in its
own thread while nobody else does.
"""

from __future__ import annotations

import asyncio
import encodings.idna  # noqa: F401 - see `WorkerPool`
import threading
import weakref
from collections.abc import Callable
from contextlib import ExitStack, suppress
from contextvars import Context, copy_context
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from locus.memory.runtime.direct import CallersLoop
from locus.memory.runtime.forks import ForkGuard


class Closable(Protocol):
    def close(self) -> None: ...


R = TypeVar("R", bound=Closable)
T = TypeVar("T")

Job = tuple[Callable[[Any], Any] | None, Callable[[Any, BaseException | None], None]]


class WorkerPool(ForkGuard, Generic[R]):
    """Up to `size` threads, started as they are needed, and again after `close` or a fork.

    Any number of event loops may use it; whichever thread is free first takes the next job. When the pool is garbage,
    its threads close what they have open, and end.

    A module that a thread was importing when its process forked can never be imported in the child. The code that makes
    a pool therefore imports beforehand what its work needs; this module imports what the first connection of every
    driver needs.

    A fork does not wait for a pool, because a request may take long. The parent goes on undisturbed, and the child,
    which has none of the threads, opens resources of its own. A pool is therefore for resources that two processes may
    have open, such as connections that only one of them uses.
    """

    def __init__(self, name: str, open_resource: Callable[[], R], size: int) -> None:
        self._name = name
        self._open = open_resource
        self._size = size
        self._threads: _Threads[R] | None = None
        self._finalizer: weakref.finalize[..., Any] | None = None
        super().__init__()

    async def run(self, work: Callable[[R], T]) -> T:
        """Do some work with a resource on a thread, and return its result. Errors of the work are raised here."""
        return await _run_on_thread(work, self._submit)

    async def close(self) -> None:
        """Close the resources, and wait until they are closed."""
        with self._lock:
            threads = self._detached()
        if threads is None:
            return
        loop = asyncio.get_running_loop()
        closed = asyncio.Event()
        if not isinstance(loop, CallersLoop):
            threads.give_each_resource_a_thread()  # closing one may take long
        threads.dismiss(lambda: _call_on_loop(loop, closed.set))
        await closed.wait()

    def _submit(self, job: Job) -> None:
        # Under the lock, so that no job can land behind those that end the threads.
        with self._lock:
            self._current_threads().take(job)

    def _current_threads(self) -> _Threads[R]:
        """The threads that take jobs now. The lock must be held."""
        if self._threads is None:
            # The threads must not keep the pool alive, so they get no reference to it.
            self._threads = self._new_threads()
            self._finalizer = weakref.finalize(self, self._threads.dismiss, _nothing)
            # At exit a program may still save, and needs the threads for that.
            self._finalizer.atexit = False
        return self._threads

    def _new_threads(self) -> _Threads[R]:
        return _Threads(self._name, self._open, self._size)

    def after_fork(self, *, in_child: bool) -> None:
        if in_child:
            # The child has none of the threads, and their resources belong to the parent.
            self._detached()
        super().after_fork(in_child=in_child)

    def _detached(self) -> _Threads[R] | None:
        """Detach the running threads, so that they get no new jobs, and return them."""
        threads, self._threads = self._threads, None
        if self._finalizer is not None:
            self._finalizer.detach()
            self._finalizer = None
        return threads


class Worker(WorkerPool[R]):
    """A pool of one thread, or of few, that closes its resources before a fork.

    It is for resources that no two processes may have open: an SQLite connection that two processes share loses data.
    """

    def __init__(self, name: str, open_resource: Callable[[], R], size: int = 1) -> None:
        self._before: _Threads[R] | None = None
        super().__init__(name, open_resource, size)

    async def run(self, work: Callable[[R], T]) -> T:
        """Do some work with a resource, on a thread or, if this is free and the caller may block, in place."""
        while isinstance(asyncio.get_running_loop(), CallersLoop):
            threads = self._threads
            if threads is None:
                with self._lock:
                    threads = self._current_threads()
            place = threads.place_for_caller()
            if place is None:
                break
            with suppress(HasEndedError):
                return place.use(work)
        return await _run_on_thread(work, self._submit)

    def _new_threads(self) -> _Threads[R]:
        return _Threads(self._name, self._open, self._size, self._before)

    def _detached(self) -> _Threads[R] | None:
        threads = super()._detached()
        self._before = threads or self._before
        return threads

    def before_fork(self) -> None:
        """Finish the jobs under way, close the resources, and begin no new job until `after_fork`."""
        super().before_fork()
        threads = self._detached()
        if threads is not None:
            closed = threading.Event()
            threads.dismiss(closed.set)
            closed.wait()

    def after_fork(self, *, in_child: bool) -> None:
        # In the parent the threads have ended; in a child process they never were.
        self._before = None
        super().after_fork(in_child=in_child)


class HasEndedError(Exception):
    """The resources were closed meanwhile, or before a fork."""


class _Place(Generic[R]):
    """Where a resource is used, by one OS thread at a time: the one that belongs to this place, or a caller's."""

    def __init__(self, open_resource: Callable[[], R]) -> None:
        self.thread: threading.Thread | None = None
        self.has_job = False
        """Whether the thread has something to do here, or waits for a caller to be done."""
        self._open = open_resource
        self._resource: R | None = None
        self._has_ended = False
        self._lock = threading.Lock()
        self._user = 0

    @property
    def is_used(self) -> bool:
        return self._lock.locked()

    @property
    def needs_closing(self) -> bool:
        return self._resource is not None or self._lock.locked()

    def use(self, work: Callable[[R], T]) -> T:
        """Do some work with the resource, opened if it is not yet."""
        with self._lock:
            self._user = threading.get_ident()
            try:
                if self._has_ended:
                    raise HasEndedError
                if self._resource is None:
                    self._resource = self._open()
                return work(self._resource)
            except BaseException as error:
                if not isinstance(error, Exception):
                    self._close()  # an interrupt (Ctrl-C) has left it in the middle of something
                raise
            finally:
                self._user = 0

    def end(self) -> None:
        """Close the resource as soon as it is free. It is not opened again."""
        if self._user == threading.get_ident():
            return  # a signal handler forks: whoever it has interrupted goes on with the resource afterwards
        with self._lock:
            self._has_ended = True
            self._close()

    def _close(self) -> None:
        resource, self._resource = self._resource, None
        if resource is not None:
            resource.close()


class _Threads(Generic[R]):
    """The threads of a pool, from its first use to its closing. They begin once those of `before` have ended."""

    def __init__(self, name: str, open_resource: Callable[[], R], size: int, before: _Threads[R] | None = None) -> None:
        self._name = name
        self._places = [_Place(open_resource) for _ in range(size)]
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._missing = size
        """How many places have no thread yet."""
        self._before = before
        self._ended = threading.Event()
        self._lock = threading.Lock()

    def take(self, job: Job) -> None:
        """Take a job, and start a thread for it if none is idle. Calls must not overlap, nor follow `dismiss`."""
        if self._missing and not self._idle.acquire(blocking=False):
            self._start(next(place for place in self._places if place.thread is None))
        # This comes last: if no thread can be started, the caller gets an error, and the job must not be done later.
        self._jobs.put(job)

    def place_for_caller(self) -> _Place[R] | None:
        """The place that a caller may use in his own thread, as soon as it is free; None if jobs come first."""
        self._wait_for_those_before()
        if not self._jobs.empty():
            return None
        used: _Place[R] | None = None
        for place in reversed(self._places):  # from the end, because threads begin with the first one
            if not place.has_job:
                if not place.is_used:
                    return place
                used = used or place
        return used

    def give_each_resource_a_thread(self) -> None:
        """Start a thread for every resource that only others have used. No call of `take` may follow."""
        for place in self._places:
            if place.needs_closing and place.thread is None:
                self._start(place)

    def _start(self, place: _Place[R]) -> None:
        number = len(self._places) - self._missing + 1
        thread = threading.Thread(target=self._serve, args=(place,), name=f"{self._name}-{number}", daemon=True)
        thread.start()
        place.thread = thread
        self._missing -= 1

    def dismiss(self, done: Callable[[], None]) -> None:
        """Close every resource, and let every thread end after the jobs that it has now. The last one calls `done`."""
        left = 1

        def ended(_result: Any, _error: BaseException | None) -> None:
            nonlocal left
            with self._lock:
                left -= 1
                last = not left
            if last:
                self._ended.set()
                done()

        with ExitStack() as stack:
            stack.callback(ended, None, None)
            left += len(self._places) - self._missing
            for place in self._places:
                if place.thread is None:
                    stack.callback(place.end)
                else:
                    self._jobs.put((None, ended))

    def _wait_for_those_before(self) -> None:
        before = self._before
        if before is not None:
            before._ended.wait()  # they may still be using the same resources
            self._before = None

    def _serve(self, place: _Place[R]) -> None:
        self._wait_for_those_before()
        while True:
            work, deliver = self._jobs.get()
            if work is None:
                try:
                    place.end()
                finally:
                    deliver(None, None)
                return
            place.has_job = True
            try:
                result = place.use(work)
            except BaseException as error:  # noqa: BLE001 - handed to the caller, whatever it is
                failure: BaseException | None = error
                result = None
            else:
                failure = None
            place.has_job = False
            # The thread counts as idle before it answers, because the caller may at once send the next job.
            if self._missing:
                self._idle.release()
            deliver(result, failure)
            # Neither the work nor its result may live on until the next job comes.
            work = deliver = result = failure = None  # type: ignore[assignment]


def _nothing() -> None:
    """Do nothing when the threads have ended: nobody waits for that."""


class _Answer(asyncio.Future[T]):
    """What a thread answers to the one task that waits for it.

    The task goes on in the turn of the loop in which the answer comes. With a plain future, that would be the next
    turn: a sixth more of the processor for each job.
    """

    _waiting: tuple[Callable[[Any], object], Context] | None = None

    def add_done_callback(self, fn: Callable[[Any], object], /, *, context: Context | None = None) -> None:
        # An empty context is false, and still the one of the task.
        self._waiting = fn, copy_context() if context is None else context

    def cancel(self, msg: Any | None = None) -> bool:
        if not super().cancel(msg):
            return False
        if self._waiting is not None:
            go_on, context = self._waiting
            self.get_loop().call_soon(go_on, self, context=context)
        return True

    def settle(self, result: Any, error: BaseException | None) -> None:
        """Give the answer, unless the task has given up. For the loop to call."""
        if self.done():
            return
        self.set_result(result) if error is None else self.set_exception(error)
        if self._waiting is not None:
            go_on, context = self._waiting
            context.run(go_on, self)


async def _run_on_thread(work: Callable[[R], T], submit: Callable[[Job], None]) -> T:
    """Let a thread do some work, and wait for the result."""
    loop = asyncio.get_running_loop()
    answer: _Answer[T] = _Answer(loop=loop)

    def wanted(resource: R) -> T | None:
        # If the caller gave up while the work waited for its turn, a save must not happen after all.
        return None if answer.cancelled() else work(resource)

    submit((wanted, lambda result, error: _call_on_loop(loop, answer.settle, result, error)))
    return await answer


def _call_on_loop(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *args: Any) -> None:
    """Call back on a loop. If the loop is closed by now, do nothing: nobody waits for the answer any more."""
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:
        if not loop.is_closed():
            raise
