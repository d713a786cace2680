"""Saves of many threads that are sent at the same time share one commit of the database.

A database takes about as long to make sixteen saves durable as to make one. So on each event loop two *lanes* lead to
the engine. A save that finds a lane free takes it, in the task of its caller, and waits for nobody. All others wait.
When a lane becomes free, whatever waits goes as one group, with `CommitsTogether.commit_together`, in a task of its
own:

- A group has at most `MOST_MEMBERS` saves and `MOST_TEXT` characters. A larger save goes by itself, beside the lanes.
- A group has one save of a thread. The next one waits until that is done, so saves of a thread keep their order.
- A save that waits alone is sent by its caller, as if it had found the lane free.
- A member that the engine did not take, because another holds its thread, is sent again by its caller, beside the
  lanes. So are all of them if the group failed. No id counts as fresh then: nobody knows what was written. If the
  engine says that it can't write now, or that nobody confirms what it writes, each caller is told.
- Nobody waits long for others. If what waits has done so for longer than `PATIENCE`, there is one lane more, until two
  are enough again: saves that wait for a lock hold theirs for long.

Whatever is not done by a group is done, and raises, in the task of its caller. So every caller gets an error of its
own, and cancels its own save only. A save that is cancelled while it waits is dropped; one that was taken into a group
is carried out with the others, or fails with them.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from locus.memory.engine import CommitsTogether, Engine, KeepsWrites, NotConfirmed, NothingCommitted
from locus.memory.model.records import Commit, Outcome, TaskWrites, Verdict
from locus.memory.runtime.per_loop import CLOSING_SECONDS, PerLoop

LANES: Final = 2
MOST_MEMBERS: Final = 16
MOST_TEXT: Final = 1_000_000
PATIENCE = 0.05
"""Seconds that a save waits for a lane while others hold it."""
PATIENCE_IN_THREAD = 5.0
"""Seconds that a save waits for another one of its thread. Most databases let it wait, too."""

_log = logging.getLogger(__name__)

Member = Commit | TaskWrites


class _Turn(NamedTuple):
    """Tells a save that has waited to go by itself now, sent by its caller."""

    in_lane: bool
    again: bool = False
    """Whether it may be there already."""


_ALONE = _Turn(in_lane=False)
_AGAIN = _Turn(in_lane=False, again=True)
_IN_LANE = _Turn(in_lane=True)


class _Failed(NamedTuple):
    """Tells a save that it failed, and is not to be sent again: nothing was written, or nobody confirmed it."""

    cause: BaseException


_Answer = Outcome | _Turn | _Failed


@dataclass(eq=False, slots=True)
class _Waiting:
    member: Member
    size: int
    since: float
    answer: asyncio.Future[_Answer]


class Lanes:
    """The saves of one event loop: those that are on their way to the engine, and those that wait.

    While fewer than `LANES` lanes are used, nothing waits but saves whose threads are in flight.
    """

    def __init__(self, engine: weakref.ref[Engine]) -> None:
        # Whoever drops a handle lets go of its connections at once, and not when somebody asks for its lanes again.
        self._held = engine
        self.loop = asyncio.get_running_loop()
        self.used = 0
        self.allowed = LANES
        """How many lanes there are: more while some are held for long."""
        self.in_flight: dict[str, Member] = {}
        """The newest save of each thread that is on its way, in a lane or beside them."""
        self.waiting: dict[str, deque[_Waiting]] = {}
        """By thread. Threads, and the saves of each, are in the order of their arrival."""
        self.watchers: list[asyncio.Future[None]] = []
        """Told whenever a save has come back."""
        self._groups: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a save that comes now may have to wait for others."""
        return self.used >= LANES or bool(self.waiting)

    async def send(self, member: Member, size: int) -> Outcome:
        """Send a save of `size` characters. If a lane is free, that costs no more than without lanes."""
        engine, thread_id = self._engine(), member.thread_id
        in_lane = size <= MOST_TEXT
        follows = thread_id in self.in_flight or thread_id in self.waiting
        if follows or (in_lane and self.used >= LANES):
            # Tasks of a thread write at the same time, and in no order.
            at_once = follows and isinstance(member, TaskWrites) and not self.has_writes_of(member)
            if at_once or not engine.offers(CommitsTogether):
                return await send_alone(engine, member)
            return await self.in_turn(engine, member, size)
        self.used += in_lane
        self.in_flight[thread_id] = member
        try:
            return await (engine.commit(member) if isinstance(member, Commit) else send_alone(engine, member))
        finally:
            self.used -= in_lane
            if self.in_flight.get(thread_id) is member:
                del self.in_flight[thread_id]
            if self.waiting or self.watchers or self.allowed > LANES:
                self.go_on()

    async def in_turn(self, engine: Engine, member: Member, size: int) -> Outcome:
        """Wait for a lane, and be sent with others or alone."""
        waiting = _Waiting(member, size, self.loop.time(), self.loop.create_future())
        self.waiting.setdefault(member.thread_id, deque()).append(waiting)
        self._arm()
        if self.used < self.allowed:
            self.go_on()
        try:
            answer = await waiting.answer
        except asyncio.CancelledError:
            self._leave(waiting)
            raise
        if isinstance(answer, Outcome):
            return answer
        if isinstance(answer, _Failed):
            # An exception for each: one that several tasks raise would collect the tracebacks of all.
            raise engine.translate(answer.cause) from answer.cause
        try:
            if answer.again and isinstance(member, Commit):
                return await send_alone(engine, replace(member, fresh_id=False))
            return await send_alone(engine, member)
        finally:
            self.release(member, in_lane=answer.in_lane)

    def release(self, member: Member, *, in_lane: bool) -> None:
        """Note that a save has come back that its caller had sent."""
        self.used -= in_lane
        self._landed(member)
        self.go_on()

    def go_on(self) -> None:
        """After a save has come back, send waiting ones as far as lanes are free."""
        for watcher in self.watchers:
            if not watcher.done():
                watcher.set_result(None)
        self.watchers.clear()
        if self.used < LANES:
            self.allowed = LANES
        while self.waiting and self.used < self.allowed and self._start():
            pass

    def has_writes_of(self, writes: TaskWrites) -> bool:
        """Whether other writes of the same task are under way or waiting, so that these must come after them."""
        before = [self.in_flight.get(writes.thread_id)]
        before += [waiting.member for waiting in self.waiting.get(writes.thread_id, ())]
        place = writes.namespace, writes.checkpoint_id, writes.task_id
        return any(
            isinstance(one, TaskWrites) and (one.namespace, one.checkpoint_id, one.task_id) == place for one in before
        )

    async def settle(self, thread_id: str) -> None:
        """Wait until no save of a thread is under way or waiting.

        It waits as long as a save would wait for another one of its thread. The caller of such a save may be gone.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_IN_THREAD):
                while thread_id in self.in_flight or thread_id in self.waiting:
                    await self._next_return()

    async def close(self) -> None:
        """Send all waiting saves, and wait until every save has come back."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_SECONDS):
                while self.waiting or self.in_flight or self._groups:
                    while self._start():
                        pass
                    await self._next_return()

    async def _next_return(self) -> None:
        watcher = self.loop.create_future()
        self.watchers.append(watcher)
        await watcher

    def _engine(self) -> Engine:
        engine = self._held()
        assert engine is not None, "whoever waits for a save holds its handle"
        return engine

    def _landed(self, member: Member) -> None:
        if self.in_flight.get(member.thread_id) is member:
            del self.in_flight[member.thread_id]

    def _leave(self, waiting: _Waiting) -> None:
        """Remove a waiting save whose caller was cancelled."""
        queue = self.waiting.get(waiting.member.thread_id, ())
        if waiting in queue:
            self._taken(waiting)
        elif not waiting.answer.cancelled():
            answer = waiting.answer.result()
            if isinstance(answer, _Turn):
                self.release(waiting.member, in_lane=answer.in_lane)

    def _taken(self, waiting: _Waiting) -> None:
        """Remove a save from the queue, because it is sent. Its thread moves behind the other threads."""
        thread_id = waiting.member.thread_id
        queue = self.waiting.pop(thread_id)
        queue.remove(waiting)
        if queue:
            self.waiting[thread_id] = queue

    def _start(self) -> bool:
        """Send a group of all saves that can go now. False if there are none."""
        group: list[_Waiting] = []
        size = 0
        for thread_id, queue in self.waiting.items():
            first = None if thread_id in self.in_flight else _first_of(queue)
            if first is None:
                continue
            if group and size + first.size > MOST_TEXT:
                break
            group.append(first)
            size += first.size
            if len(group) == MOST_MEMBERS:
                break
        for waiting in group:
            self._taken(waiting)
            self.in_flight[waiting.member.thread_id] = waiting.member
        if len(group) > 1:
            self.used += 1
            # It belongs to none of the callers, so it has none of their contexts either.
            task = Context().run(self.loop.create_task, self._send(group, self._engine()))
            self._groups.add(task)
            task.add_done_callback(self._groups.discard)
        elif group:
            in_lane = size <= MOST_TEXT
            self.used += in_lane
            group[0].answer.set_result(_IN_LANE if in_lane else _ALONE)
        return bool(group)

    async def _send(self, group: Sequence[_Waiting], engine: Engine) -> None:
        assert isinstance(engine, CommitsTogether)
        answers: Sequence[_Answer] = ()
        try:
            outcomes = await engine.commit_together([waiting.member for waiting in group])
            # What is sent again looks for itself: a server may have carried out what it answered with an error.
            answers = [outcome or _AGAIN for _, outcome in zip(group, outcomes, strict=True)]
        except (NothingCommitted, NotConfirmed) as error:
            answers = [_AGAIN if error.__cause__ is None else _Failed(error.__cause__)] * len(group)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            answers = [_AGAIN] * len(group)  # something inside was cancelled, and not this
        except Exception as error:  # noqa: BLE001 - each finds out by itself what is wrong
            _log.info("%d saves were not committed together (%s): each goes alone", len(group), type(error).__name__)
            answers = [_AGAIN] * len(group)
        finally:
            self.used -= 1
            for waiting, answer in zip(group, answers, strict=False):
                if waiting.answer.done() or not isinstance(answer, _Turn):
                    self._landed(waiting.member)
                if not waiting.answer.done():
                    waiting.answer.set_result(answer)
            for waiting in group[len(answers) :]:  # somebody has cancelled the task, as at the end of a loop
                self._landed(waiting.member)
                waiting.answer.cancel()
            self.go_on()

    def _arm(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(PATIENCE, self._look)

    def _look(self) -> None:
        """Send saves that have waited for too long."""
        self._timer = None
        now = self.loop.time()
        if self._has_waited(now):
            self.allowed = max(self.allowed, self.used + 1)
            self.go_on()
        for thread_id, queue in list(self.waiting.items()):
            while (late := _first_of(queue)) and now - late.since >= PATIENCE_IN_THREAD:
                self._taken(late)
                self.in_flight[thread_id] = late.member
                late.answer.set_result(_ALONE)
        if self.waiting:
            self._arm()

    def _has_waited(self, now: float) -> bool:
        free = (queue[0].since for thread_id, queue in self.waiting.items() if thread_id not in self.in_flight)
        return now - next(free, now) >= PATIENCE


def _first_of(queue: deque[_Waiting]) -> _Waiting | None:
    """The first save of a queue whose caller has not been cancelled."""
    return next((waiting for waiting in queue if not waiting.answer.done()), None)


def lanes_to(engine: Engine) -> PerLoop[Lanes] | None:
    """The lanes to an engine, made for each event loop; None if the engine cannot commit saves together."""
    if not isinstance(engine, CommitsTogether):
        return None
    held: weakref.ref[Engine] = weakref.ref(engine)
    return PerLoop(lambda: Lanes(held), Lanes.close)


async def send_alone(engine: Engine, member: Member) -> Outcome:
    """Send a commit, or pending writes, to the engine by itself, and not in a group."""
    if isinstance(member, Commit):
        return await engine.commit(member)
    assert isinstance(engine, KeepsWrites)
    await engine.put_writes(member)
    return Outcome(Verdict.COMMITTED)
