"""The direct road: a blocking call that runs in the thread of its caller, without a turn of an event loop.

The code of a store is async, and written once. On engines that can do their work in place (`Engine.works_in_place`) it
seldom has anything to wait for. So `run` takes a blocking call through it in one step, on a `CallersLoop`: an event
loop that begins to turn only if the call has to wait after all. Nothing is begun twice for that.

Such a loop tells everybody that he may block: it holds up nobody else. `Worker` asks for that.

One call at a time goes this way on each engine. All others take the portal: those that come meanwhile, where saves that
wait share a commit; those from the thread of an event loop; and those on engines that wait for a network.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import weakref
from asyncio import events
from collections.abc import Callable, Coroutine, Sized
from concurrent.futures import Executor
from contextlib import suppress
from contextvars import Context
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar, TypeVarTuple, Unpack

from locus.memory.runtime.portal import PORTAL, result_of

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Works(Protocol):
    """What a call needs to know of the engine that it is about."""

    @property
    def works_in_place(self) -> bool: ...


def run(coroutine: Coroutine[Any, Any, T], engine: Works) -> T:
    """Run a coroutine that uses an engine to its end, and return its result: in this thread, or through the portal."""
    if not engine.works_in_place:
        return PORTAL.run(coroutine)
    around = events._get_running_loop()
    if around is None and engine not in _turns and engine not in _overtaken:
        loop = _spare.pop() if _spare else CallersLoop()
        try:
            # Taking the turn and saying whose it is are one step, so that an interrupt cannot come in between.
            if _turns.setdefault(engine, loop) is loop:
                return loop.take(coroutine, engine)
        finally:
            if _turns.get(engine) is loop:
                del _turns[engine]
            if loop.is_unused():
                _spare.append(loop)
    elif isinstance(around, CallersLoop) and around.engine is engine:
        coroutine.close()
        raise RuntimeError(
            "a blocking call from inside another one on the same store (from a callback, a signal handler or a "
            "finalizer) could wait for itself: await it instead, or make it afterwards"
        )
    return PORTAL.run(coroutine, if_given_up=lambda: _overtaken.add(engine))


class CallersLoop(asyncio.BaseEventLoop):
    """An event loop in the thread of one blocking call. It knows timers and other threads, but no sockets.

    Its turns wait on a queue instead of a selector, so it has no files to close, or to share with a forked child.
    """

    _ready: Sized
    _scheduled: Sized

    def __init__(self) -> None:
        super().__init__()
        self.engine: Works | None = None
        self._selector = self
        self._woken: SimpleQueue[None] = SimpleQueue()
        self._first: asyncio.Handle | None = None
        self._is_beginning = False

    def take(self, coroutine: Coroutine[Any, Any, T], engine: Works) -> T:
        """Run a coroutine to its end, and return its result."""
        task: asyncio.Task[T] | None = None
        self.engine = engine
        events._set_running_loop(self)
        try:
            self._is_beginning = True
            task = asyncio.Task(coroutine, loop=self)
            assert self._first is not None
            self._first._run()
            if not task.done():
                events._set_running_loop(None)
                self._turn(task)
            return result_of(task)
        except BaseException:
            if task is None or inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
                coroutine.close()  # interrupted before it began
            raise
        finally:
            events._set_running_loop(None)
            self.engine = self._first = task = None

    def _turn(self, task: asyncio.Task[T]) -> None:
        """Go on as an ordinary event loop, once: what has had to wait may leave something behind."""
        try:
            self.run_until_complete(task)
        finally:
            left = asyncio.all_tasks(self)
            for one in left:
                one.cancel()
            if left:
                self.run_until_complete(asyncio.wait(left))
            self.run_until_complete(self.shutdown_asyncgens())
            self.close()

    def is_unused(self) -> bool:
        """Tell whether nothing is left of a call, so that another one may have this loop."""
        return not (self.is_closed() or self.engine or self._ready or self._scheduled)

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Call back in the next turn; but the first step of the call's task is left to `take`."""
        if self._is_beginning:
            self._is_beginning = False
            self._first = asyncio.Handle(callback, args, self, context)
            return self._first
        return super().call_soon(callback, *args, context=context)

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Do some work at once: there is nobody to whom this thread could be left meanwhile."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it is raised where the work is waited for
            future.set_exception(error)
        return future

    def select(self, timeout: float | None) -> list[Any]:
        """Wait until another thread calls back, or for so many seconds."""
        with suppress(Empty):
            self._woken.get(timeout != 0, timeout)
        return []

    def _write_to_self(self) -> None:
        self._woken.put(None)

    def _process_events(self, event_list: list[Any]) -> None:
        """Do nothing: there are no sockets."""

    def __del__(self) -> None:
        """Do nothing: there is nothing to close."""


_spare: list[CallersLoop] = []
"""Loops that never had to turn."""
_turns: dict[Works, CallersLoop] = {}
"""The call that goes the direct road, by engine."""
_overtaken: weakref.WeakSet[Works] = weakref.WeakSet()
"""Engines with a call that was given up while the portal had it. What follows has to come after it."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_turns.clear)  # the threads of the other calls stay with the parent
