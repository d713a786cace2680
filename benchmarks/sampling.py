"""One store at one thread length, with its floor beside it; several of them are measured in turn."""

from __future__ import annotations

from pathlib import Path
from statistics import mean, median
from time import perf_counter
from typing import NamedTuple

from benchmarks.content import encoded
from benchmarks.costs import SaveCost
from benchmarks.subjects.base import Subject
from benchmarks.workloads import APPEND, Conversation, Job, Workload

LONGEST_FLOOR = 1_000
"""In turns. What the floor appends costs the same from the first turn on, and more would only take time."""


class Timed(NamedTuple):
    """A round that is ready to be timed: a save, and the same new content for the floor."""

    talk: Conversation
    job: Job
    body: str


class Lane:
    """Threads of (nearly) one length, to be saved `rounds` times by each workload.

    A short thread would soon be a long one, so its lane has several: each is saved a few times only, up to
    exactly the lane's length. To make a long thread takes long, so the workloads share it: each goes on from the same
    turn, on a line of its own.
    """

    def __init__(self, kind: type[Subject], length: int, rounds: int, folder: Path) -> None:
        self.length = length
        self.subject = kind(folder)
        self.floor = self.subject.floor()
        self.handle = self.subject.open()
        self.per_thread = min(rounds, length // 2)
        count = -(-rounds // self.per_thread)
        self.talks = [Conversation(self.subject, self.handle, f"thread-{number}", number) for number in range(count)]

    async def grow(self, workload: Workload = APPEND) -> None:
        """Bring the threads to where the window begins."""
        await self.handle.exists("nothing-yet")
        self.subject.warm_up()
        self.floor.warm_up()
        for talk in self.talks:
            for number in range(self.length - self.per_thread):
                job = await workload.prepare(talk)
                talk.ids.append(await job.save())
                talk.state = job.state
                await job.done()
                if number < LONGEST_FLOOR:
                    await self.floor.append(talk.thread_id, encoded(job.fresh))

    async def close(self) -> None:
        await self.handle.close()
        await self.floor.close()
        await self.subject.remove()


class Samples:
    """The saves of one workload in one lane."""

    def __init__(self, lane: Lane, workload: Workload, talks: list[Conversation]) -> None:
        self.lane = lane
        self._workload = workload
        self._talks = talks
        self._save_ms: list[float] = []
        self._floor_ms: list[float] = []
        self._content: list[int] = []
        self._sent: list[int] = []
        self._occupied = lane.subject.occupied().content

    async def prepare(self, number: int) -> Timed:
        """Make one round ready."""
        talk = self._talks[number // self.lane.per_thread]
        job = await self._workload.prepare(talk)
        return Timed(talk, job, encoded(job.fresh))

    async def round(self, number: int, timed: Timed) -> None:
        """One save of ours and one of the floor; who is first changes from round to round."""
        if number % 2:
            await self._time_floor(timed)
        await self._time_save(timed)
        if not number % 2:
            await self._time_floor(timed)
        self._content.append(len(timed.body.encode()))

    async def _time_save(self, timed: Timed) -> None:
        talk, job, _ = timed
        started = perf_counter()
        checkpoint_id = await job.save()
        self._save_ms.append((perf_counter() - started) * 1e3)
        self._sent.append(job.tap.take())
        await job.done()
        talk.state = job.state
        if self._workload.advances:
            talk.ids.append(checkpoint_id)

    async def _time_floor(self, timed: Timed) -> None:
        started = perf_counter()
        await self.lane.floor.append(timed.talk.thread_id, timed.body)
        self._floor_ms.append((perf_counter() - started) * 1e3)

    async def verify(self) -> None:
        """Figures of a store that does not give back what it was given would be worth nothing."""
        for talk in self._talks[: -(-len(self._save_ms) // self.lane.per_thread)]:
            if await self.lane.handle.load(talk.thread_id) != talk.state:
                name = f"{self.lane.subject.name}, {self._workload.name}"
                raise RuntimeError(f"{name}: loaded is not what was saved")

    def cost(self) -> SaveCost:
        return SaveCost(
            backend=self.lane.subject.name,
            workload=self._workload.name,
            length=self.lane.length,
            save_ms=median(self._save_ms),
            floor_ms=median(self._floor_ms),
            content_bytes=mean(self._content),
            sent_bytes=mean(self._sent),
            grown_bytes=(self.lane.subject.occupied().content - self._occupied) / len(self._save_ms),
        )
