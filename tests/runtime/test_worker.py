"""A thread that owns a resource: opened when needed, asked from any loop, closed when nobody needs it."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from locus.memory.runtime.direct import CallersLoop
from locus.memory.runtime.worker import Worker
from tests.held import Held
from tests.samples import run_script


class Resource:
    """Counts what happens to it, and on which threads."""

    def __init__(self) -> None:
        self.threads = {threading.current_thread()}
        self.calls = 0
        self.closed = threading.Event()

    def use(self) -> int:
        self.threads.add(threading.current_thread())
        self.calls += 1
        return self.calls

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
def worker(opened: Opened) -> Worker[Resource]:
    return Worker("unit-test-worker", opened)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.002)


async def test_nothing_is_opened_before_it_is_needed(worker: Worker[Resource], opened: Opened) -> None:
    assert opened == []
    await worker.close()
    assert opened == []
    assert await worker.run(Resource.use) == 1
    assert len(opened) == 1
    await worker.close()


async def test_one_thread_does_everything_in_order(worker: Worker[Resource], opened: Opened) -> None:
    assert await asyncio.gather(*(worker.run(Resource.use) for _ in range(20))) == list(range(1, 21))
    await worker.close()
    (resource,) = opened
    assert len(resource.threads) == 1
    assert threading.current_thread() not in resource.threads
    assert resource.closed.is_set()


def test_loops_one_after_another_share_the_resource(worker: Worker[Resource], opened: Opened) -> None:
    assert [asyncio.run(worker.run(Resource.use)) for _ in range(3)] == [1, 2, 3]
    asyncio.run(worker.close())
    assert len(opened) == 1


def test_loops_at_the_same_time_share_the_resource(worker: Worker[Resource], opened: Opened) -> None:
    together = threading.Barrier(3)
    answers: list[int] = []

    async def use() -> None:
        together.wait(30)
        answers.extend([await worker.run(Resource.use) for _ in range(50)])

    threads = [threading.Thread(target=lambda: asyncio.run(use())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert sorted(answers) == list(range(1, 151))
    assert len(opened) == 1
    asyncio.run(worker.close())


async def test_what_the_work_raises_is_raised_and_work_goes_on(worker: Worker[Resource], opened: Opened) -> None:
    def fail(_resource: Resource) -> None:
        raise WentWrong("in the work")

    with pytest.raises(WentWrong, match="in the work"):
        await worker.run(fail)
    assert await worker.run(Resource.use) == 1
    assert len(opened) == 1
    await worker.close()


async def test_what_opening_raises_is_raised_and_the_next_call_tries_again() -> None:
    attempts: list[int] = []

    def open_at_last() -> Resource:
        attempts.append(1)
        if len(attempts) < 3:
            raise WentWrong("not yet")
        return Resource()

    worker = Worker("unit-test-worker", open_at_last)
    for _ in range(2):
        with pytest.raises(WentWrong, match="not yet"):
            await worker.run(Resource.use)
    assert await worker.run(Resource.use) == 1
    await worker.close()
    assert len(attempts) == 3


async def test_it_opens_anew_after_it_was_closed(worker: Worker[Resource], opened: Opened) -> None:
    for number in (1, 2, 3):
        assert await worker.run(Resource.use) == 1
        await worker.close()
        assert len(opened) == number
        assert opened[-1].closed.is_set()
    await worker.close()
    assert len(opened) == 3


async def test_closing_waits_for_the_work_before_it(worker: Worker[Resource], opened: Opened) -> None:
    go = threading.Event()
    running = asyncio.create_task(worker.run(lambda resource: (go.wait(30), resource.closed.is_set())))
    await asyncio.sleep(0)
    closing = asyncio.create_task(worker.close())
    await asyncio.sleep(0.01)
    assert not closing.done()
    go.set()
    assert await running == (True, False)
    await closing
    assert opened[0].closed.is_set()


async def test_a_resource_that_cannot_be_closed_does_not_hold_up_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stubborn(Resource):
        def close(self) -> None:
            raise WentWrong("while closing")

    monkeypatch.setattr(threading, "excepthook", lambda _arguments: None)
    worker: Worker[Resource] = Worker("unit-test-worker", Stubborn)
    (thread,) = await worker.run(lambda resource: resource.threads)
    closing = asyncio.ensure_future(worker.close())
    done, _ = await asyncio.wait([closing], timeout=20)
    closing.cancel()
    thread.join(30)
    assert done, "close() waits for ever"
    assert closing.exception() is None or isinstance(closing.exception(), WentWrong)


def test_when_it_is_garbage_the_resource_is_closed_and_the_thread_ends(opened: Opened) -> None:
    worker = Worker("unit-test-garbage", opened)
    asyncio.run(worker.run(Resource.use))
    (thread,) = opened[0].threads
    assert thread.is_alive()
    del worker
    gc.collect()
    assert opened[0].closed.wait(30)
    thread.join(30)
    assert not thread.is_alive()


async def test_an_answer_is_not_kept_until_the_next_call(worker: Worker[Resource]) -> None:
    class Answer:
        ended = threading.Event()

        def __del__(self) -> None:
            self.ended.set()

    await worker.run(lambda _resource: Answer())
    await asyncio.sleep(0)  # asyncio itself keeps it for that long
    gc.collect()
    wait_until(Answer.ended.is_set)
    await worker.close()


async def test_a_caller_that_is_cancelled_does_not_wait_and_does_no_harm(
    worker: Worker[Resource], opened: Opened
) -> None:
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
    held = Held()
    waiting = asyncio.create_task(worker.run(lambda resource: (held(resource), resource.use())))
    await asyncio.sleep(0)
    assert await asyncio.to_thread(held.begun.wait, 30)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    held.go.set()
    assert await worker.run(Resource.use) == 2, "what was begun is done"
    await worker.close()
    assert complaints == []
    assert len(opened) == 1


def test_a_loop_that_is_gone_does_no_harm(worker: Worker[Resource], opened: Opened) -> None:
    held = Held()
    loop = asyncio.new_event_loop()
    task = loop.create_task(worker.run(held))
    loop.run_until_complete(asyncio.sleep(0))
    assert held.begun.wait(30)
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()
    held.go.set()
    assert asyncio.run(worker.run(Resource.use)) == 1
    asyncio.run(worker.close())
    assert len(opened) == 1


def test_a_loop_that_closes_while_it_is_being_told_does_no_harm(worker: Worker[Resource], opened: Opened) -> None:
    """The answer is ready in the instant in which the loop is closed."""
    held, told = Held(), threading.Event()
    loop = asyncio.new_event_loop()
    task = loop.create_task(worker.run(held))
    loop.run_until_complete(asyncio.sleep(0))
    assert held.begun.wait(30)  # what is cancelled before it has begun is never done, and tells nobody
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    really = loop.call_soon_threadsafe

    def too_late(*arguments: Any) -> Any:
        loop.close()
        told.set()
        return really(*arguments)

    vars(loop)["call_soon_threadsafe"] = too_late
    held.go.set()
    assert told.wait(30)
    assert asyncio.run(worker.run(Resource.use)) == 1
    asyncio.run(worker.close())
    assert len(opened) == 1


def test_a_forked_process_opens_a_resource_of_its_own() -> None:
    code = """
import asyncio, os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from locus.memory.runtime.worker import Worker

class Resource:
    def __init__(self):
        self.pid = os.getpid()
    def close(self):
        pass

worker, unused = Worker("fork", Resource), Worker("unused", Resource)
asyncio.run(unused.run(lambda resource: None))
parent = asyncio.run(worker.run(lambda resource: resource.pid))
assert parent == os.getpid()
child = os.fork()
if child == 0:
    found = asyncio.run(worker.run(lambda resource: resource.pid))
    asyncio.run(worker.close())
    asyncio.run(unused.close())
    os._exit(0 if found == os.getpid() != parent else 1)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0
assert asyncio.run(worker.run(lambda resource: resource.pid)) == os.getpid()
asyncio.run(worker.close())
print("both")
"""
    assert run_script(code).strip() == "both"


def test_a_program_that_forgets_to_close_ends() -> None:
    code = """
import asyncio
from locus.memory.runtime.worker import Worker

class Resource:
    def close(self):
        print("closed", flush=True)

worker = Worker("forgotten", Resource)
asyncio.run(worker.run(lambda resource: print("used", flush=True)))
"""
    assert run_script(code).split()[0] == "used"


def in_place(call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """What a blocking call gets, in the thread of its caller."""
    return CallersLoop().take(call(), InPlace())


class InPlace:
    works_in_place = True


def test_a_caller_who_may_block_uses_the_resource_in_his_own_thread(worker: Worker[Resource], opened: Opened) -> None:
    assert [in_place(lambda: worker.run(Resource.use)) for _ in range(3)] == [1, 2, 3]
    assert asyncio.run(worker.run(Resource.use)) == 4
    assert in_place(lambda: worker.run(Resource.use)) == 5
    (resource,) = opened
    assert threading.current_thread() in resource.threads
    assert len(resource.threads) == 2
    in_place(worker.close)
    assert resource.closed.is_set()


def test_a_caller_gets_in_line_behind_the_jobs_of_event_loops(worker: Worker[Resource], opened: Opened) -> None:
    held = Held()
    loop = asyncio.new_event_loop()
    waiting = [loop.create_task(worker.run(work)) for work in (held, Resource.use)]
    loop.run_until_complete(asyncio.sleep(0))
    assert held.begun.wait(30)
    calling = ThreadPoolExecutor(1)
    called = calling.submit(in_place, lambda: worker.run(Resource.use))
    assert not called.done()
    held.go.set()
    assert loop.run_until_complete(asyncio.gather(*waiting)) == [True, 1]
    assert called.result(30) == 2
    calling.shutdown()
    loop.run_until_complete(worker.close())
    loop.close()
    assert len(opened) == 1


def test_a_job_of_an_event_loop_waits_for_a_caller(worker: Worker[Resource], opened: Opened) -> None:
    held = Held()
    with ThreadPoolExecutor(2) as pool:
        calling = pool.submit(in_place, lambda: worker.run(held))
        assert held.begun.wait(30)
        job = pool.submit(asyncio.run, worker.run(Resource.use))
        closing = pool.submit(lambda: (job.result(30), asyncio.run(worker.close())))
        assert opened[0].calls == 0
        held.go.set()
        assert calling.result(30)
        assert job.result(30) == 1
        closing.result(30)
    assert len(opened) == 1
    assert opened[0].closed.is_set()


def test_an_interrupt_closes_what_it_has_left_in_the_middle_of_something(
    worker: Worker[Resource], opened: Opened
) -> None:
    def interrupted(_resource: Resource) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        in_place(lambda: worker.run(interrupted))
    assert opened[0].closed.is_set()
    assert in_place(lambda: worker.run(Resource.use)) == 1
    assert len(opened) == 2
    in_place(worker.close)


def test_what_only_callers_have_used_is_closed_on_a_thread_if_a_loop_closes_it(
    worker: Worker[Resource], opened: Opened
) -> None:
    in_place(lambda: worker.run(Resource.use))
    (resource,) = opened
    resource.threads.clear()
    asyncio.run(worker.close())
    assert resource.closed.is_set()
    assert threading.current_thread() not in resource.threads


def test_when_it_is_garbage_what_only_callers_have_used_is_closed(opened: Opened) -> None:
    worker = Worker("unit-test-garbage", opened)
    in_place(partial(worker.run, Resource.use))
    del worker
    gc.collect()
    assert opened[0].closed.is_set()
