"""Questions of many tasks that are asked at the same time share one call of the database.

On each event loop a number of *lanes* lead to it. A question that finds a lane free takes it, in the task of its
caller, and waits for nobody. All others wait, without a connection. When a lane becomes free, what waits goes as one
group, in the order of arrival and in a task of its own: up to `MOST_MEMBERS` questions and `MOST_TEXT` characters.

Every caller gets an answer of its own, or an error: that of its question, or a copy of what the whole group failed
with. A question of more than `MOST_TEXT` characters goes by itself. A question that is cancelled while it waits is
dropped; one that is in a group is carried out with the others.
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

Q = TypeVar("Q")
A = TypeVar("A")
Ask = Callable[[Sequence[Q]], Awaitable[Sequence[A | Exception]]]


class Gathered(Generic[Q, A]):
    """The way of all event loops to a database, with a number of lanes each.

    With one lane, questions of an event loop are carried out in the order of their arrival.
    """

    def __init__(self, lanes: int) -> None:
        self._lanes: PerLoop[_Lanes[Q, A]] = PerLoop(lambda: _Lanes(lanes), _nothing_to_close)

    async def ask(self, question: Q, size: int, ask: Ask[Q, A]) -> A:
        """The answer to a question of `size` characters.

        `ask` answers several questions, each with an answer or with the exception that its caller gets.
        """
        return await self._lanes.current().ask(question, size, ask)


async def _nothing_to_close(_lanes: object) -> None:
    """The lanes hold no connections."""


class _Waiting(NamedTuple, Generic[Q, A]):
    question: Q
    size: int
    answer: asyncio.Future[A]


class _Lanes(Generic[Q, A]):
    """The questions of one event loop. While a lane is free, none waits."""

    def __init__(self, lanes: int) -> None:
        self._free = lanes
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
        finally:
            self._free += 1
            self._go_on(ask)
        if isinstance(answer, Exception):
            raise answer
        return answer

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
        answers: Sequence[A | Exception] = ()
        try:
            answers = await ask([waiting.question for waiting in group])
        except Exception as error:  # noqa: BLE001 - each caller gets it
            # One that several tasks raise would collect the tracebacks of all.
            answers = [copy(error).with_traceback(error.__traceback__) for _ in group]
        finally:
            for waiting, answer in zip(group, answers, strict=False):
                if waiting.answer.done():
                    continue
                if isinstance(answer, Exception):
                    waiting.answer.set_exception(answer)
                else:
                    waiting.answer.set_result(answer)
            for waiting in group:  # somebody has cancelled the task, as at the end of a loop
                waiting.answer.cancel()
            self._free += 1
            self._go_on(ask)
