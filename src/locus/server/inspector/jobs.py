"""Work that takes longer than a page may. It goes on between two requests, says how far it is, and can be stopped.

A job belongs to whoever has begun it: its key begins with the id of the token. It ends by itself when nobody asks for
it any more. The jobs of each token, and all jobs together, are bounded in number and in time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from locus.wire.problems import Problem

T = TypeVar("T")

JobKey = tuple[str, ...]
"""The id of the token, and words that say what the work is about."""

AT_ONCE: Final = 16
AT_ONCE_OF_A_TOKEN: Final = 2
MOST_KEPT: Final = 64
KEPT_SECONDS: Final = 300.0
PATIENCE_SECONDS: Final = 60.0
"""The time after which a job ends if nobody asks for it."""
LONGEST_SECONDS: Final = 900.0
WAIT_SECONDS: Final = 1.0
"""The time that a request waits for the end of a job. Most jobs are done by then."""


class PageJob(Generic[T]):
    """A piece of work. The work calls `step` now and then, and may put a partial answer into `result`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = self.asked_at = clock()
        self.ended_at: float | None = None
        self.done = 0
        self.total: int | None = None
        self.result: T | None = None
        self.stopped = False
        """True if the job ended before all was done."""
        self.error: Exception | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self.ended_at is None

    @property
    def seconds(self) -> float:
        return (self.ended_at or self._clock()) - self._began

    def step(self, done: int) -> None:
        """Note how much is done, and end the work if nobody waits for it."""
        self.done = done
        now = self._clock()
        if now - self.asked_at > PATIENCE_SECONDS or now - self._began > LONGEST_SECONDS:
            self.stop()

    def stop(self) -> None:
        """End the work where it waits next. Its partial `result` stays."""
        if self.is_running and self.task is not None:
            self.stopped = True
            self.task.cancel()


class Jobs(Generic[T]):
    """The long work that one kind of page has begun, by key: found again, and bounded for each token and in all."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._jobs: dict[JobKey, PageJob[T]] = {}

    def find(self, key: JobKey) -> PageJob[T] | None:
        self._drop_old()
        job = self._jobs.get(key)
        if job is not None:
            job.asked_at = self._clock()
        return job

    def begin(self, key: JobKey, work: Callable[[PageJob[T]], Awaitable[T | None]]) -> PageJob[T]:
        """The running job with this key, or a new one. Raises a problem if too many jobs are running."""
        same = self.find(key)
        if same is not None and same.is_running:
            return same
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
        job: PageJob[T] = PageJob(self._clock)
        self._jobs.pop(key, None)
        self._jobs[key] = job
        job.task = asyncio.get_running_loop().create_task(self._run(job, work))
        return job

    async def _run(self, job: PageJob[T], work: Callable[[PageJob[T]], Awaitable[T | None]]) -> None:
        try:
            job.result = await work(job)
        except asyncio.CancelledError:
            job.stopped = True
        except Exception as error:  # noqa: BLE001 - whoever asks for the job gets it
            job.error = error
        finally:
            job.ended_at = self._clock()

    async def waited(self, job: PageJob[T], seconds: float | None = None) -> PageJob[T]:
        """Wait for the end of a job, for some seconds at most, and return the job. Raises the error of the work."""
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
