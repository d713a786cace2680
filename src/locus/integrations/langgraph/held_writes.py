"""Holds back what tasks wrote for a moment, until the checkpoint comes that follows, so that both share one commit.

After a step LangGraph saves what the last task wrote, and the checkpoint that this leads to, at the same time. Each
would be a commit of its own, and the second one would wait for the first. A set of writes that waits here is taken
along by the next save that follows its checkpoint. If none comes within `PATIENCE`, or if that save fails, the writes
go alone. Whoever puts writes waits in any case until they are durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Final

from locus.threads import TaskWrites
from locus.threads.blocking import fork_safe_lock

PATIENCE: Final = 0.001
"""Seconds that writes wait for the next checkpoint, once their own one is saved."""

Place = tuple[str, str, str | None]
"""Thread id, namespace and checkpoint id."""


class HeldWrites:
    """What one task wrote. Its future tells whether a save has taken it along."""

    def __init__(self, task: TaskWrites, before: Future[bool] | None) -> None:
        self.task = task
        self._before = before
        """The save of the checkpoint that it belongs to, if that is under way."""
        self._taken: Future[bool] = Future()

    def settle(self, *, written: bool) -> None:
        self._taken.set_result(written)

    def wait(self) -> bool | None:
        """Block until it is written (True) or has to go alone (False); None if nobody has come for it in time."""
        if self._before is not None:
            self._before.exception()
        try:
            return self._taken.result(PATIENCE)
        except TimeoutError:
            return None

    async def awaited(self) -> bool | None:
        """Do the same as `wait` for a caller on an event loop."""
        if self._before is not None:
            await _ended(self._before, None)
        return self._taken.result() if await _ended(self._taken, PATIENCE) else None

    def outcome(self) -> bool:
        """Block until the save that has taken it has ended."""
        return self._taken.result()

    async def awaited_outcome(self) -> bool:
        await _ended(self._taken, None)
        return self._taken.result()


async def _ended(future: Future[bool], seconds: float | None) -> bool:
    """Wait for a future that may end on another thread. Cancelling the wait leaves the future alone."""
    if future.done():
        return True
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not waiter.done():
            waiter.set_result(None)

    future.add_done_callback(lambda _: loop.call_soon_threadsafe(wake) if not loop.is_closed() else None)
    timer = None if seconds is None else loop.call_later(seconds, wake)
    try:
        await waiter
    finally:
        if timer is not None:
            timer.cancel()
    return future.done()


class WritesWaitingRoom:
    """The sets of writes that wait, by the checkpoints that they belong to."""

    def __init__(self) -> None:
        self._held: dict[Place, list[HeldWrites]] = {}
        self._saving: dict[Place, Future[bool]] = {}
        self._lock = fork_safe_lock()  # a saver may be used from several OS threads and event loops at once

    def hold(self, task: TaskWrites) -> HeldWrites:
        place = (task.thread_id, task.namespace, task.checkpoint_id)
        with self._lock:
            held = HeldWrites(task, self._saving.get(place))
            self._held.setdefault(place, []).append(held)
        return held

    def leave(self, held: HeldWrites) -> bool:
        """Withdraw held writes, so that they can be sent alone; False if a save has taken them along."""
        place = (held.task.thread_id, held.task.namespace, held.task.checkpoint_id)
        with self._lock:
            waiting = self._held.get(place, [])
            if held not in waiting:
                return False
            waiting.remove(held)
            if not waiting:
                del self._held[place]
            return True

    @contextmanager
    def saving(self, place: Place) -> Iterator[None]:
        """A context in which a checkpoint is saved. Writes that belong to it are held until the context ends."""
        ended: Future[bool] = Future()
        with self._lock:
            self._saving[place] = ended
        try:
            yield
        finally:
            with self._lock:
                if self._saving.get(place) is ended:
                    del self._saving[place]
            ended.set_result(True)

    @contextmanager
    def taken_along(self, parent: Place) -> Iterator[Sequence[TaskWrites]]:
        """A context that saves a checkpoint together with the held writes of its parent, which it is given.

        When it ends, whoever put these writes learns whether they are written: they are if it ends without an error.
        """
        with self._lock:
            taken = self._held.pop(parent, [])
        written = False
        try:
            yield [held.task for held in taken]
            written = True
        finally:
            for held in taken:
                held.settle(written=written)
