"""Threads that each own a resource: started when needed, asked from any loop, ended when nobody needs them."""

from __future__ import annotations

import asyncio
import gc
import threading
from contextvars import ContextVar
from typing import Any

import pytest

from locus.memory.runtime.worker import WorkerPool, _Answer
from tests.held import Held
from tests.samples import run_script


class Resource:
    """Knows the threads that it was used by."""

    def __init__(self) -> None:
        self.threads = {threading.current_thread()}
        self.closed = threading.Event()

    def use(self) -> Resource:
        assert not self.closed.is_set()
        self.threads.add(threading.current_thread())
        return self

    def close(self) -> None:
        self.threads.add(threading.current_thread())
        self.closed.set()


class Opened(list[Resource]):
    """Every resource that was opened, as what opens them."""

    def __call__(self) -> Resource:
        self.append(Resource())
        return self[-1]


class WentWrong(Exception):
    pass


@pytest.fixture
def opened() -> Opened:
    return Opened()


@pytest.fixture
def pool(opened: Opened) -> WorkerPool[Resource]:
    return WorkerPool("unit-test-pool", opened, 3)


async def test_jobs_one_after_another_need_one_thread(pool: WorkerPool[Resource], opened: Opened) -> None:
    await pool.close()
    for _ in range(20):
        await pool.run(Resource.use)
    await pool.close()
    assert len(opened) == 1
    assert len(opened[0].threads) == 1
    assert threading.current_thread() not in opened[0].threads
    assert opened[0].closed.is_set()


async def test_jobs_at_once_are_done_at_once_up_to_the_size(pool: WorkerPool[Resource], opened: Opened) -> None:
    together = threading.Barrier(3)
    most = await asyncio.gather(*(pool.run(lambda _resource: together.wait(30)) for _ in range(12)))
    assert sorted(most) == [number for number in range(3) for _ in range(4)]
    await pool.close()
    assert len(opened) == 3
    assert [len(resource.threads) for resource in opened] == [1, 1, 1]
    assert all(resource.closed.is_set() for resource in opened)


async def test_a_job_waits_for_whoever_is_free_first(pool: WorkerPool[Resource]) -> None:
    stuck = threading.Event()
    hanging = [asyncio.ensure_future(pool.run(lambda _resource: stuck.wait(30))) for _ in range(2)]
    for _ in range(10):
        await asyncio.wait_for(pool.run(Resource.use), 20)
    stuck.set()
    assert await asyncio.gather(*hanging) == [True, True]
    await pool.close()


async def test_what_is_raised_reaches_the_caller_and_work_goes_on() -> None:
    attempts: list[int] = []

    def open_at_last() -> Resource:
        attempts.append(1)
        if len(attempts) < 3:
            raise WentWrong("not yet")
        return Resource()

    def fail(_resource: Resource) -> None:
        raise WentWrong("in the work")

    pool = WorkerPool("unit-test-pool", open_at_last, 3)
    for _ in range(2):
        with pytest.raises(WentWrong, match="not yet"):
            await pool.run(Resource.use)
    with pytest.raises(WentWrong, match="in the work"):
        await pool.run(fail)
    await pool.run(Resource.use)
    await pool.close()
    assert len(attempts) == 3


async def test_closing_waits_for_the_work_before_it_and_use_opens_anew(
    pool: WorkerPool[Resource], opened: Opened
) -> None:
    begun, go = threading.Semaphore(0), threading.Event()

    def work(resource: Resource) -> tuple[bool, bool]:
        begun.release()
        return go.wait(30), resource.closed.is_set()

    running = [asyncio.ensure_future(pool.run(work)) for _ in range(5)]
    for _ in range(3):
        assert await asyncio.to_thread(begun.acquire, timeout=30)
    assert len(opened) == 3
    closing = asyncio.ensure_future(pool.close())
    await asyncio.sleep(0)
    other = await pool.run(Resource.use)
    assert not closing.done()
    go.set()
    assert await asyncio.gather(*running) == [(True, False)] * 5
    await closing
    assert [resource.closed.is_set() for resource in opened] == [True, True, True, False]
    assert other is opened[3]
    await pool.close()
    assert other.closed.is_set()


async def test_a_resource_that_cannot_be_closed_does_not_hold_up_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stubborn(Resource):
        def close(self) -> None:
            raise WentWrong("while closing")

    complaints: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", complaints.append)
    pool: WorkerPool[Resource] = WorkerPool("unit-test-pool", Stubborn, 2)
    ((thread,),) = [(await pool.run(Resource.use)).threads]
    await asyncio.wait_for(pool.close(), 30)
    thread.join(30)
    assert [complaint.exc_type for complaint in complaints] == [WentWrong]


async def test_work_whose_caller_gave_up_is_not_begun(opened: Opened) -> None:
    pool = WorkerPool("unit-test-pool", opened, 1)
    held, done = Held(), list[str]()

    def slow(resource: Resource) -> None:
        held(resource)
        done.append("first")

    first = asyncio.ensure_future(pool.run(slow))
    second = asyncio.ensure_future(pool.run(lambda _resource: done.append("second")))
    assert await asyncio.to_thread(held.begun.wait, 30)
    for waiting in (first, second):
        waiting.cancel()
    await asyncio.wait([first, second])
    held.go.set()
    await pool.run(lambda _resource: done.append("third"))
    assert done == ["first", "third"]
    await pool.close()


def test_loops_at_the_same_time_share_the_threads(pool: WorkerPool[Resource], opened: Opened) -> None:
    together = threading.Barrier(3)

    async def use() -> None:
        together.wait(30)
        for _ in range(50):
            await pool.run(Resource.use)

    threads = [threading.Thread(target=lambda: asyncio.run(use())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    asyncio.run(pool.close())
    assert 1 <= len(opened) <= 3
    assert all(resource.closed.is_set() for resource in opened)


def test_a_loop_that_is_gone_does_no_harm(pool: WorkerPool[Resource]) -> None:
    held = Held()
    loop = asyncio.new_event_loop()
    task = loop.create_task(pool.run(held))
    loop.run_until_complete(asyncio.sleep(0))
    assert held.begun.wait(30)
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()
    held.go.set()
    asyncio.run(pool.run(Resource.use))
    asyncio.run(pool.close())


def test_when_it_is_garbage_the_resources_are_closed_and_the_threads_end(opened: Opened) -> None:
    pool = WorkerPool("unit-test-garbage", opened, 2)
    asyncio.run(pool.run(Resource.use))
    (thread,) = opened[0].threads
    del pool
    gc.collect()
    assert opened[0].closed.wait(30)
    thread.join(30)
    assert not thread.is_alive()


def test_a_forked_process_opens_resources_of_its_own_while_the_parent_is_at_work() -> None:
    code = """
import asyncio, os, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from locus.memory.runtime.worker import WorkerPool, _Answer

class Resource:
    def __init__(self):
        self.pid = os.getpid()
    def close(self):
        pass

pool = WorkerPool("fork", Resource, 2)
begun, go, answers = threading.Event(), threading.Event(), []

def work(resource):
    begun.set()
    return go.wait(10) and resource.pid

at_work = threading.Thread(target=lambda: answers.append(asyncio.run(pool.run(work))))
at_work.start()
begun.wait(10)
child = os.fork()
if child == 0:
    found = asyncio.run(pool.run(lambda resource: resource.pid))
    asyncio.run(pool.close())
    os._exit(0 if found == os.getpid() else 1)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0
go.set()
at_work.join()
assert answers == [os.getpid()]
asyncio.run(pool.close())
print("both")
"""
    assert run_script(code).strip() == "both"


def test_a_program_that_forgets_to_close_ends_and_may_use_it_to_the_last() -> None:
    code = """
import asyncio, atexit
from locus.memory.runtime.worker import WorkerPool, _Answer

class Resource:
    def close(self):
        pass

pool = WorkerPool("forgotten", Resource, 2)
atexit.register(lambda: asyncio.run(pool.run(lambda resource: print("at exit", flush=True))))
asyncio.run(pool.run(lambda resource: print("used", flush=True)))
"""
    assert run_script(code).split("\n")[:2] == ["used", "at exit"]


USER: ContextVar[str] = ContextVar("USER")


async def test_a_task_goes_on_in_the_turn_of_its_answer_and_in_its_own_context() -> None:
    loop = asyncio.get_running_loop()
    order: list[str] = []

    async def wait(answer: asyncio.Future[str], user: str) -> None:
        USER.set(user)
        try:
            order.append(f"{await answer} for {USER.get()}")
        except (asyncio.CancelledError, WentWrong) as error:
            order.append(f"{type(error).__name__} for {USER.get()}")

    async def settled(result: str | None, error: Exception | None) -> None:
        answer: _Answer[str] = _Answer()
        task = asyncio.create_task(wait(answer, "eve"))
        await asyncio.sleep(0)
        loop.call_soon(answer.settle, result, error)
        loop.call_soon(order.append, "the rest of the turn")
        await task

    USER.set("nobody")
    await settled("done", None)
    await settled(None, WentWrong())
    given_up: _Answer[str] = _Answer()
    task = asyncio.create_task(wait(given_up, "bob"))
    await asyncio.sleep(0)
    task.cancel()
    given_up.settle("too late", None)
    await task
    assert order == [
        "done for eve",
        "the rest of the turn",
        "WentWrong for eve",
        "the rest of the turn",
        "CancelledError for bob",
    ]
