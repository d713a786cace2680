"""Questions of many tasks that are asked at the same time share one call of the database.

On each event loop a number of *lanes* lead to it. A question that finds a lane free takes it, in the task of its
caller, and waits for nobody. All others wait, without a connection. When a lane becomes free, what waits goes as one
group, in the order of arrival and in a task of its own: up to `MOST_MEMBERS` questions and `MOST_TEXT` characters.

Every caller gets an answer or an error of its own. A group that fails is asked again in halves, until the question that
it fails for is alone. In an outage nothing is asked again. A question of more than `MOST_TEXT` characters, or one that
may take long, goes by itself. A question that is cancelled while it waits is dropped; one
that is in a group is carried out with the others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from copy import copy
from typing import Final, Generic, NamedTuple, TypeVar

from locus.memory.runtime.per_loop import PerLoop

MOST_MEMBERS: Final = 1_000
MOST_TEXT: Final = 1_000_000
BY_ITSELF: Final = MOST_TEXT + 1
"""The size of a question that shares its call with no other."""

Q = TypeVar("Q")
A = TypeVar("A")
Ask = Callable[[Sequence[Q]], Awaitable[Sequence[A]]]


class Gathered(Generic[Q, A]):
    """The way of all event loops to a database, with a number of lanes each.

    With one lane, questions of an event loop are carried out in the order of their arrival. `is_outage` tells whether
    other questions would fail like one that has failed with an error.
    """

    def __init__(self, lanes: int, is_outage: Callable[[Exception], bool]) -> None:
        self._lanes: PerLoop[_Lanes[Q, A]] = PerLoop(lambda: _Lanes(lanes, is_outage), _nothing_to_close)

    async def ask(self, question: Q, size: int, ask: Ask[Q, A]) -> A:
        """The answer to a question of `size` characters. `ask` answers several, and may do so twice."""
        return await self._lanes.current().ask(question, size, ask)


async def _nothing_to_close(_lanes: object) -> None:
    """The lanes hold no connections."""


class _Waiting(NamedTuple, Generic[Q, A]):
    question: Q
    size: int
    answer: asyncio.Future[A]


class _Lanes(Generic[Q, A]):
    """The questions of one event loop. While a lane is free, none waits."""

    def __init__(self, lanes: int, is_outage: Callable[[Exception], bool]) -> None:
        self._free = lanes
        self._is_outage = is_outage
        self._waiting: deque[_Waiting[Q, A]] = deque()
        self._groups: set[asyncio.Task[None]] = set()

    async def ask(self, question: Q, size: int, ask: Ask[Q, A]) -> A:
        if not self._free:
            waiting: _Waiting[Q, A] = _Waiting(question, size, asyncio.get_running_loop().create_future())
            self._waiting.append(waiting)
            return await waiting.answer
        self._free -= 1
        try:
            (answer,) = await ask([question])
            return answer
        finally:
            self._free += 1
            self._go_on(ask)

    def _go_on(self, ask: Ask[Q, A]) -> None:
        """Send what waits, as far as lanes are free."""
        while self._free and (group := self._next_group()):
            self._free -= 1
            # It belongs to none of the callers, so it has none of their contexts either.
            task = Context().run(asyncio.get_running_loop().create_task, self._send(group, ask))
            self._groups.add(task)
            task.add_done_callback(self._groups.discard)

    def _next_group(self) -> list[_Waiting[Q, A]]:
        group: list[_Waiting[Q, A]] = []
        size = 0
        while self._waiting and len(group) < MOST_MEMBERS:
            if self._waiting[0].answer.done():  # cancelled
                self._waiting.popleft()
                continue
            size += self._waiting[0].size
            if group and size > MOST_TEXT:
                break
            group.append(self._waiting.popleft())
        return group

    async def _send(self, group: Sequence[_Waiting[Q, A]], ask: Ask[Q, A]) -> None:
        try:
            await self._answer(group, ask)
        finally:
            for waiting in group:  # somebody has cancelled the task, as at the end of a loop
                waiting.answer.cancel()
            self._free += 1
            self._go_on(ask)

    async def _answer(self, group: Sequence[_Waiting[Q, A]], ask: Ask[Q, A]) -> None:
        group = [waiting for waiting in group if not waiting.answer.done()]
        if not group:
            return
        try:
            answers = await ask([waiting.question for waiting in group])
        except Exception as error:  # noqa: BLE001 - each caller gets it
            if len(group) == 1 or self._is_outage(error):
                for waiting in group:
                    if not waiting.answer.done():
                        # One that several tasks raise would collect the tracebacks of all.
                        waiting.answer.set_exception(copy(error).with_traceback(error.__traceback__))
                return
        else:
            for waiting, answer in zip(group, answers, strict=True):
                if not waiting.answer.done():
                    waiting.answer.set_result(answer)
            return
        middle = len(group) // 2
        await self._answer(group[:middle], ask)
        await self._answer(group[middle:], ask)
