"""Steps that are carried through, and tasks that are waited for, whatever happens to their caller."""

from __future__ import annotations

import asyncio

import pytest

from locus.core.tasks import ended, finished


async def cancelled_until_it_ends(task: asyncio.Task[object]) -> None:
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)


async def test_a_step_is_carried_through_however_often_its_caller_is_cancelled() -> None:
    done: list[str] = []

    async def step() -> str:
        for _ in range(10):
            await asyncio.sleep(0)
        done.append("step")
        return "result"

    assert await finished(step()) == "result"
    caller = asyncio.create_task(finished(step()))
    await asyncio.sleep(0)
    await cancelled_until_it_ends(caller)
    assert caller.cancelled()
    assert done == ["step", "step"]


async def test_a_step_that_fails_raises_unless_its_caller_was_cancelled() -> None:
    async def step() -> None:
        await asyncio.sleep(0)
        raise LookupError("nothing")

    with pytest.raises(LookupError):
        await finished(step())
    caller = asyncio.create_task(finished(step()))
    await asyncio.sleep(0)
    await cancelled_until_it_ends(caller)
    assert caller.cancelled()


async def test_tasks_are_cancelled_once_and_waited_for() -> None:
    cancels: list[int] = []

    async def careful(number: int) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancels.append(number)
            for _ in range(10):
                await asyncio.sleep(0)  # a second cancel would come here
            cancels.append(number)
            raise

    tasks = [asyncio.create_task(careful(number)) for number in (1, 2)]
    await asyncio.sleep(0)
    caller = asyncio.create_task(ended(*tasks))
    await asyncio.sleep(0)
    await cancelled_until_it_ends(caller)
    assert caller.cancelled()
    assert sorted(cancels) == [1, 1, 2, 2]
