"""The direct road: a blocking call that runs in the thread of its caller, without a turn of an event loop.

The code of a store is async, and written once. On engines that can do their work in place (`Engine.works_in_place`) it
seldom has anything to wait for. So `run` takes a blocking call through it in one step, on a `CallersLoop`: an event
loop that begins to turn only if the call has to wait after all. Nothing is begun twice for that. Such a loop tells
everybody that he may block, because it holds up nobody else. `Worker` asks for that.

All other calls take the portal: those on engines that wait for a network, those from the thread of an event loop, and
those that come while `AT_ONCE` are under way on their engine. There, saves that wait share a commit.
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
from typing import Any, Final, Protocol, TypeVar, TypeVarTuple, Unpack

from locus.memory.runtime.portal import PORTAL, result_of

AT_ONCE: Final = 2
"""How many blocking calls on an engine may be under way for another one to run in place: a save, and what a framework
keeps beside it."""

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Works(Protocol):
    """The facts about an engine that a call without an event loop depends on."""

    @property
    def works_in_place(self) -> bool: ...


def run(coroutine: Coroutine[Any, Any, T], engine: Works) -> T:
    """Run a coroutine that uses an engine to its end, and return its result: in this thread, or through the portal."""
    if not engine.works_in_place:
        return PORTAL.run(coroutine)
    around = events._get_running_loop()
    if isinstance(around, CallersLoop) and around.engine is engine:
        coroutine.close()
        raise RuntimeError(
            "a blocking call from inside another one on the same store (from a callback, a signal handler or a "
            "finalizer) could wait for itself: await it instead, or make it afterwards"
        )
    traffic = _traffic.get(engine) or _traffic.setdefault(engine, _Traffic())
    try:
        traffic.calls[coroutine] = None
        if around is None and len(traffic.calls) <= AT_ONCE and not traffic.was_left:
            loop = _spare.pop() if _spare else CallersLoop()
            try:
                return loop.take(coroutine, engine)
            finally:
                if loop.is_unused():
                    _spare.append(loop)
        return PORTAL.run(coroutine, if_given_up=traffic.leave)
    finally:
        traffic.calls.pop(coroutine, None)


class _Traffic:
    """The blocking calls on one engine."""

    def __init__(self) -> None:
        self.calls: dict[Coroutine[Any, Any, Any], None] = {}
        """Those that are under way. Adding one and taking it out are one step each, so that it needs no lock."""
        self.was_left = False
        """Whether a call was given up while the portal had it. What follows has to come after it."""

    def leave(self) -> None:
        self.was_left = True


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
        try:
            events._set_running_loop(self)
            self._is_beginning = True
            task = asyncio.Task(coroutine, loop=self)
            assert self._first is not None
            self._first._run()
            if not task.done():
                events._set_running_loop(None)
                self._turn(task)
            return result_of(task)
        except BaseException:
            if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
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
_traffic: weakref.WeakKeyDictionary[Works, _Traffic] = weakref.WeakKeyDictionary()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_traffic.clear)  # the threads of other calls stay with the parent
