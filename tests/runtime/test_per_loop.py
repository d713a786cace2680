"""A resource for each event loop, closed where it was opened, and left alone by forked children."""

from __future__ import annotations

import asyncio
import gc
import os
import threading

import pytest

from locus.memory.runtime.per_loop import LoopLocks, PerLoop


class Resource:
    """Knows what became of it, and in which loop."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.ends: list[str] = []

    async def close(self) -> None:
        assert asyncio.get_running_loop() is self.loop
        self.ends.append("closed")

    def abandon(self) -> None:
        self.ends.append("abandoned")


def per_loop(*, until_loop_ends: bool = False) -> PerLoop[Resource]:
    return PerLoop(Resource, Resource.close, abandon=Resource.abandon, until_loop_ends=until_loop_ends)


async def current(resources: PerLoop[Resource]) -> Resource:
    return resources.current()


async def test_a_loop_gets_the_same_one_until_it_is_closed() -> None:
    resources = per_loop()
    first = resources.current()
    assert resources.current() is first
    await resources.close()
    assert first.ends == ["closed"]
    assert resources.current() is not first
    await resources.close()


def test_each_loop_has_its_own_and_that_of_an_ended_loop_is_let_go() -> None:
    resources = per_loop()
    first = asyncio.run(current(resources))
    assert first.ends == []
    second = asyncio.run(current(resources))
    assert (second is not first, first.ends, second.ends) == (True, ["abandoned"], [])


def test_a_loop_that_ends_closes_its_own_if_that_is_wanted() -> None:
    resources = per_loop(until_loop_ends=True)
    ended = asyncio.run(current(resources))
    assert ended.ends == ["closed"]


@pytest.mark.parametrize("until_loop_ends", [False, True])
def test_closing_reaches_the_loops_of_other_threads(until_loop_ends: bool) -> None:
    resources = per_loop(until_loop_ends=until_loop_ends)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    elsewhere = asyncio.run_coroutine_threadsafe(current(resources), loop).result(30)
    asyncio.run(resources.close())
    assert elsewhere.ends == ["closed"]
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


async def test_what_becomes_garbage_is_let_go() -> None:
    resources = per_loop()
    left = resources.current()
    del resources
    gc.collect()
    assert left.ends == ["abandoned"]


async def test_what_becomes_garbage_is_closed_if_it_would_be_closed_with_its_loop() -> None:
    resources = per_loop(until_loop_ends=True)
    left = resources.current()
    del resources
    gc.collect()
    for _ in range(5):
        await asyncio.sleep(0)
    assert left.ends == ["closed"]


async def test_a_loop_may_close_its_own_and_leave_others_theirs() -> None:
    resources = per_loop()
    loop = asyncio.new_event_loop()
    elsewhere = await asyncio.to_thread(loop.run_until_complete, current(resources))
    here = resources.current()
    await resources.close_here()
    assert (here.ends, elsewhere.ends) == (["closed"], [])
    await resources.close()
    assert elsewhere.ends == ["abandoned"], "its loop does not run"
    loop.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_starts_with_nothing_and_touches_nothing() -> None:
    resources = per_loop()
    loop = asyncio.new_event_loop()
    before = loop.run_until_complete(current(resources))
    child = os.fork()
    if child == 0:
        loop.run_until_complete(resources.close())
        another = loop.run_until_complete(current(resources))
        del resources
        gc.collect()
        os._exit(0 if another is not before and before.ends == [] else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert loop.run_until_complete(current(resources)) is before
    loop.run_until_complete(resources.close())
    assert before.ends == ["closed"]
    loop.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_may_end_the_loop_that_it_inherited() -> None:
    resources = per_loop(until_loop_ends=True)
    loop = asyncio.new_event_loop()
    before = loop.run_until_complete(current(resources))
    child = os.fork()
    if child == 0:
        another = loop.run_until_complete(current(resources))
        loop.run_until_complete(loop.shutdown_asyncgens())
        os._exit(0 if before.ends == [] and another.ends == ["closed"] else 1)
    assert os.waitpid(child, 0)[1] == 0
    loop.run_until_complete(loop.shutdown_asyncgens())
    assert before.ends == ["closed"]
    loop.close()


async def test_tasks_of_a_loop_wait_for_those_with_the_same_key_only() -> None:
    locks, steps = LoopLocks(), []

    async def work(key: str) -> None:
        async with locks.current(key):
            gc.collect()  # nobody but this task holds the lock
            steps.append(f"{key} begins")
            await asyncio.sleep(0)
            steps.append(f"{key} ends")

    await asyncio.gather(work("a"), work("a"), work("b"))
    assert steps == ["a begins", "b begins", "a ends", "b ends", "a begins", "a ends"]


async def test_loops_have_locks_of_their_own() -> None:
    locks = LoopLocks()

    async def locked() -> bool:
        return locks.current("key").locked()

    async with locks.current("key"):
        assert await locked()
        assert not await asyncio.to_thread(lambda: asyncio.run(locked()))
