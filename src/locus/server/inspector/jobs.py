"""Work that takes longer than a page may. It goes on between two requests, says how far it is, and can be stopped.

A job belongs to whoever has begun it: its key begins with the id of the token. It ends by itself when nobody asks for
it any more. All of them together, and those of each token, are bounded in number and in time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from locus.wire.problems import Problem

T = TypeVar("T")

Key = tuple[str, ...]
"""The id of the token, and what the work is about."""

AT_ONCE: Final = 16
AT_ONCE_OF_A_TOKEN: Final = 2
MOST_KEPT: Final = 64
KEPT_SECONDS: Final = 300.0
PATIENCE_SECONDS: Final = 60.0
"""How long a job goes on without anybody who asks for it."""
LONGEST_SECONDS: Final = 900.0
WAIT_SECONDS: Final = 1.0
"""How long a request waits for the end: most work is done by then."""


class Job(Generic[T]):
    """One piece of work. Whoever does it calls `step` now and then, and may put what there is so far into `result`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = self.asked_at = clock()
        self.ended_at: float | None = None
        self.done = 0
        self.total: int | None = None
        self.result: T | None = None
        self.stopped = False
        """Whether it was ended before all was done."""
        self.error: Exception | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self.ended_at is None

    @property
    def seconds(self) -> float:
        return (self.ended_at or self._clock()) - self._began

    def step(self, done: int) -> None:
        """Note how far the work is, and end it if nobody waits for it."""
        self.done = done
        now = self._clock()
        if now - self.asked_at > PATIENCE_SECONDS or now - self._began > LONGEST_SECONDS:
            self.stop()

    def stop(self) -> None:
        """Let the work end where it waits next. What it has put into `result` stays."""
        if self.is_running and self.task is not None:
            self.stopped = True
            self.task.cancel()


class Jobs(Generic[T]):
    """The jobs of one kind of page."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._jobs: dict[Key, Job[T]] = {}

    def find(self, key: Key) -> Job[T] | None:
        self._drop_old()
        job = self._jobs.get(key)
        if job is not None:
            job.asked_at = self._clock()
        return job

    def begin(self, key: Key, work: Callable[[Job[T]], Awaitable[T | None]]) -> Job[T]:
        """Begin a job, in the place of one with this key that has ended. Raises a problem if too many are running."""
        found = self.find(key)
        if found is not None and found.is_running:
            return found
        running = [other for other, job in self._jobs.items() if job.is_running]
        if sum(other[0] == key[0] for other in running) >= AT_ONCE_OF_A_TOKEN or len(running) >= AT_ONCE:
            raise Problem(
                429,
                "too_many_requests",
                "Other work of this kind is still going on: wait for it, or stop it.",
                headers={"Retry-After": "5"},
            )
        while len(self._jobs) >= MOST_KEPT:
            del self._jobs[next(other for other, job in self._jobs.items() if not job.is_running)]
        job: Job[T] = Job(self._clock)
        self._jobs.pop(key, None)
        self._jobs[key] = job
        job.task = asyncio.get_running_loop().create_task(self._run(job, work))
        return job

    async def _run(self, job: Job[T], work: Callable[[Job[T]], Awaitable[T | None]]) -> None:
        try:
            job.result = await work(job)
        except asyncio.CancelledError:
            job.stopped = True
        except Exception as error:  # noqa: BLE001 - whoever asks for the job gets it
            job.error = error
        finally:
            job.ended_at = self._clock()

    async def waited(self, job: Job[T], seconds: float | None = None) -> Job[T]:
        """The same job, after its end or after some time. Raises what the work has raised."""
        if job.task is not None and job.is_running:
            await asyncio.wait({job.task}, timeout=WAIT_SECONDS if seconds is None else seconds)
        if job.error is not None:
            self._jobs = {key: other for key, other in self._jobs.items() if other is not job}
            raise job.error
        return job

    def _drop_old(self) -> None:
        now = self._clock()
        self._jobs = {
            key: job for key, job in self._jobs.items() if job.ended_at is None or now - job.ended_at < KEPT_SECONDS
        }
