"""Blocking calls that run in the thread of their caller, or take the portal if they can't."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import signal
import threading
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from locus.memory.runtime import direct
from locus.memory.runtime.direct import AT_ONCE, CallersLoop, run
from locus.memory.runtime.portal import PORTAL


class InPlace:
    works_in_place = True


class OverANetwork:
    works_in_place = False


async def where() -> threading.Thread:
    return threading.current_thread()


def test_a_call_runs_in_the_thread_of_its_caller() -> None:
    engine = InPlace()
    assert run(where(), engine) is threading.current_thread()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: run(where(), engine) is threading.current_thread()).result()


def test_a_call_on_an_engine_that_waits_for_a_network_takes_the_portal() -> None:
    assert run(where(), OverANetwork()) is PORTAL._thread


async def test_a_call_in_the_thread_of_an_event_loop_takes_the_portal() -> None:
    assert run(where(), InPlace()) is PORTAL._thread


def test_a_call_that_comes_while_others_are_under_way_takes_the_portal() -> None:
    engine, go, begun = InPlace(), threading.Event(), threading.Barrier(AT_ONCE + 1)

    async def hold() -> threading.Thread:
        begun.wait(30)
        go.wait(30)
        return threading.current_thread()

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        holding = [pool.submit(lambda: run(hold(), engine) is threading.current_thread()) for _ in range(AT_ONCE)]
        begun.wait(30)
        assert run(where(), engine) is PORTAL._thread
        assert run(where(), InPlace()) is threading.current_thread(), "those on another engine are no matter"
        go.set()
        assert all(one.result() for one in holding)
    assert run(where(), engine) is threading.current_thread()


def test_a_call_from_inside_another_one_on_the_same_engine_is_refused_and_not_a_deadlock() -> None:
    engine = InPlace()

    async def inside() -> threading.Thread:
        with pytest.raises(RuntimeError, match="await it instead"):
            run(where(), engine)
        return run(where(), InPlace())

    assert run(inside(), engine) is PORTAL._thread
    assert run(where(), engine) is threading.current_thread()


def test_a_call_from_inside_the_portal_is_refused() -> None:
    async def inside() -> None:
        with pytest.raises(RuntimeError, match="await it instead"):
            run(where(), InPlace())

    PORTAL.run(inside())


async def _slept() -> None:
    await asyncio.sleep(0.001)


async def _gathered() -> None:
    assert set(await asyncio.gather(where(), where())) == {threading.current_thread()}


async def _in_time() -> None:
    async with asyncio.timeout(30):
        await asyncio.sleep(0)


async def _called_back_by_another_thread() -> None:
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    threading.Thread(target=lambda: loop.call_soon_threadsafe(told.set)).start()
    await told.wait()


async def _locked() -> None:
    lock = asyncio.Lock()

    async def hold() -> None:
        async with lock:
            await asyncio.sleep(0)

    await asyncio.gather(hold(), hold())


WAYS_TO_WAIT: list[Callable[[], Awaitable[None]]] = [
    _slept,
    _gathered,
    _in_time,
    _called_back_by_another_thread,
    _locked,
]


@pytest.mark.parametrize("wait", WAYS_TO_WAIT)
def test_a_call_that_has_to_wait_goes_on_in_the_same_thread_and_begins_nothing_twice(
    wait: Callable[[], Awaitable[None]],
) -> None:
    steps: list[threading.Thread] = []

    async def work() -> str:
        steps.append(threading.current_thread())
        await wait()
        steps.append(threading.current_thread())
        return "done"

    assert run(work(), InPlace()) == "done"
    assert steps == [threading.current_thread()] * 2


def test_work_for_another_thread_is_done_at_once() -> None:
    async def work() -> threading.Thread:
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 / 0)
        return await asyncio.to_thread(threading.current_thread)

    assert run(work(), InPlace()) is threading.current_thread()


def test_time_is_up_where_a_call_waits_in_vain() -> None:
    async def work() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        run(work(), InPlace())


def test_what_is_raised_comes_out_and_is_not_held() -> None:
    class WentWrong(Exception):
        pass

    async def fail(*, wait: bool) -> None:
        if wait:
            await asyncio.sleep(0)
        raise WentWrong

    engine = InPlace()
    for wait in (False, True):
        with pytest.raises(WentWrong) as caught:
            run(fail(wait=wait), engine)
        error = weakref.ref(caught.value)
        del caught
        gc.collect()
        assert error() is None


@pytest.mark.parametrize("engine", [InPlace(), OverANetwork()])
def test_a_call_that_cancels_itself_is_an_ordinary_error(engine: Any) -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(concurrent.futures.CancelledError):
        run(cancelled(), engine)


def test_what_a_call_leaves_behind_ends_with_it() -> None:
    ended: list[str] = []

    async def forgotten() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("task")

    async def work() -> None:
        kept.append(asyncio.create_task(forgotten()))
        await asyncio.sleep(0)

    kept: list[asyncio.Task[None]] = []
    run(work(), InPlace())
    assert ended == ["task"]


def test_loops_that_never_turned_serve_again_and_others_do_not() -> None:
    async def loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    async def turning() -> asyncio.AbstractEventLoop:
        await asyncio.sleep(0)
        return asyncio.get_running_loop()

    engine = InPlace()
    first = run(loop(), engine)
    assert isinstance(first, CallersLoop)
    assert run(loop(), engine) is first
    assert run(turning(), engine) is first
    assert first.is_closed()
    assert run(loop(), engine) is not first
    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()


async def _interrupt_main_thread() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    await asyncio.sleep(30)


on_the_main_thread = pytest.mark.skipif(
    not hasattr(signal, "pthread_kill") or threading.current_thread() is not threading.main_thread(),
    reason="signals are handled on the main thread",
)


@on_the_main_thread
def test_an_interrupt_ends_a_call_that_waits() -> None:
    ended: list[bool] = []

    async def work() -> None:
        try:
            await _interrupt_main_thread()
        finally:
            ended.append(True)

    engine = InPlace()
    with pytest.raises(KeyboardInterrupt):
        run(work(), engine)
    assert ended == [True]
    assert run(where(), engine) is threading.current_thread()


@on_the_main_thread
def test_what_follows_a_call_that_was_given_up_in_the_portal_follows_it_there() -> None:
    engine, go, begun = InPlace(), threading.Event(), threading.Barrier(AT_ONCE + 1)

    async def hold() -> None:
        begun.wait(30)
        go.wait(30)

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        holding = [pool.submit(run, hold(), engine) for _ in range(AT_ONCE)]
        begun.wait(30)
        with pytest.raises(KeyboardInterrupt):
            run(_interrupt_main_thread(), engine)
        go.set()
        for one in holding:
            one.result()
    assert run(where(), engine) is PORTAL._thread
    assert run(where(), InPlace()) is threading.current_thread()


@on_the_main_thread
def test_a_call_that_is_given_up_before_the_portal_begins_it_never_begins() -> None:
    begun: list[bool] = []
    busy, go = threading.Event(), threading.Event()

    async def hold() -> None:
        busy.set()
        go.wait(30)

    async def work() -> None:
        begun.append(True)

    holding = threading.Thread(target=lambda: PORTAL.run(hold()))
    holding.start()
    assert busy.wait(30)
    interrupt = threading.Timer(0.05, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        PORTAL.run(work())
    go.set()
    holding.join(30)
    PORTAL.run(where())
    assert begun == []


def test_engines_are_not_kept_alive() -> None:
    engine = InPlace()
    run(where(), engine)
    gone = weakref.ref(engine)
    assert engine in direct._traffic
    del engine
    gc.collect()
    assert gone() is None
