"""The runs: saves and reads at all thread lengths in turn, so that whatever disturbs one disturbs them all."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.clock import Calls, frozen, in_turn, timed
from benchmarks.content import Content, after, encoded, turn_content
from benchmarks.costs import ReadCost, SaveCost, Throughput, TurnCost
from benchmarks.sampling import Lane, Samples
from benchmarks.settings import Settings
from benchmarks.subjects.base import Subject
from benchmarks.turn_costs import measure_turns
from benchmarks.workloads import APPEND, WORKLOADS, Conversation, Workload
from locus.core.state import LISTS, AgentState


async def measure_backend(
    kind: type[Subject], settings: Settings, folder: Path
) -> tuple[list[SaveCost], list[ReadCost], list[TurnCost]]:
    """All that is measured of threads of one backend.

    The reads are measured on threads that were only appended to, and so is what they occupy.
    """
    shared = [workload for workload in WORKLOADS if not workload.grows and workload is not APPEND]
    lanes = _lanes(kind, settings, settings.lengths, folder)
    try:
        for lane in lanes:
            await lane.grow()
        with frozen():
            saves = await _measure_saves(lanes, APPEND, settings, [lane.talks for lane in lanes])
            reads = await measure_reads(lanes, settings)
            turns = await measure_turns([lane for lane in lanes if lane.length in settings.turn_lengths], settings)
            for workload in shared:
                some = [lane for lane in lanes if lane.length <= workload.longest]
                lines = [[await talk.line(latest=workload.follows) for talk in lane.talks] for lane in some]
                for talk in chain.from_iterable(lines):
                    await _begin(talk, workload)
                saves += await _measure_saves(some, workload, settings, lines)
    finally:
        await _close(lanes, folder)
    for workload in WORKLOADS:
        if workload.grows:
            saves += await _measure_grown(kind, workload, settings, folder)
    return saves, reads, turns


async def _begin(talk: Conversation, workload: Workload) -> None:
    """The first save of a line is a fork, which is measured elsewhere."""
    job = await workload.prepare(talk)
    talk.ids.append(await job.save())
    talk.state = job.state
    await job.done()


async def _measure_grown(kind: type[Subject], workload: Workload, settings: Settings, folder: Path) -> list[SaveCost]:
    """A workload that makes its threads itself."""
    ends = (settings.lengths[0], max(length for length in settings.lengths if length <= workload.longest))
    lanes = _lanes(kind, settings, ends, folder)
    try:
        for lane in lanes:
            await lane.grow(workload)
        with frozen():
            return await _measure_saves(lanes, workload, settings, [lane.talks for lane in lanes])
    finally:
        await _close(lanes, folder)


def _lanes(kind: type[Subject], settings: Settings, lengths: Sequence[int], folder: Path) -> list[Lane]:
    fitting = [length for length in dict.fromkeys(lengths) if length <= kind.longest_thread]
    return [Lane(kind, length, settings.rounds, folder / str(length)) for length in fitting]


async def _close(lanes: list[Lane], folder: Path) -> None:
    for lane in lanes:
        await lane.close()
    shutil.rmtree(folder, ignore_errors=True)


async def _measure_saves(
    lanes: Sequence[Lane], workload: Workload, settings: Settings, talks: list[list[Conversation]]
) -> list[SaveCost]:
    found = [Samples(lane, workload, some) for lane, some in zip(lanes, talks, strict=True)]
    for number in range(settings.slow_rounds if workload.slow else settings.rounds):
        # All are prepared before the first is timed, because that may take long, and leaves its traces.
        ready = [(samples, await samples.prepare(number)) for samples in found]
        for offset in range(len(found)):
            samples, timed = ready[(number + offset) % len(found)]
            await samples.round(number, timed)
    costs = [samples.cost() for samples in found]
    for samples in found:
        await samples.verify()
    return costs


async def measure_reads(lanes: Sequence[Lane], settings: Settings) -> list[ReadCost]:
    short = [lane for lane in lanes if lane.length <= settings.longest_read]
    loads = await in_turn([await _loads(lane) for lane in short], settings.loads)
    listings = await in_turn([_listings(lane) for lane in short], settings.listings)
    return [
        await _read_cost(lane, {**loaded, **listed})
        for lane, loaded, listed in zip(short, loads, listings, strict=True)
    ]


async def _loads(lane: Lane) -> Calls:
    talk = lane.talks[-1]
    text = talk.state.model_dump_json()

    async def cold_load() -> None:
        handle = lane.subject.open()
        await handle.load(talk.thread_id)
        await handle.close()

    async def validate() -> AgentState:
        return AgentState.model_validate_json(text)

    loads: Calls = {
        "load_ms": lambda: lane.handle.load(talk.thread_id),
        "cold_load_ms": cold_load,
        "validate_ms": validate,
    }
    if await lane.floor.read(talk.thread_id) is not None:
        loads["read_ms"] = lambda: lane.floor.read(talk.thread_id)
    return loads


def _listings(lane: Lane) -> Calls:
    thread_id = lane.talks[-1].thread_id
    return {
        "list_ms": lambda: lane.handle.list_checkpoints(thread_id, limit=10),
        "history_ms": lambda: lane.handle.history(thread_id, limit=10),
    }


async def _read_cost(lane: Lane, medians: dict[str, float]) -> ReadCost:
    """Bytes are for each thread. The search comes last, because an index may be made for it."""
    threads = len(lane.talks)
    content = sum(len(encoded(getattr(talk.state, name)).encode()) for talk in lane.talks for name in LISTS)
    stored = lane.subject.occupied().content
    floor = lane.floor.stored_bytes()
    search_ms = None
    if lane.handle.capabilities.search:
        search_ms = await timed(lambda: lane.handle.search(lane.talks[-1].state.messages[0].text[:60]))
    return ReadCost(
        backend=lane.subject.name,
        length=lane.length,
        **medians,
        stored_bytes=stored // threads,
        floor_bytes=floor // threads,
        content_bytes=content // threads,
        first_search_ms=search_ms,
        search_bytes=lane.subject.occupied().search // threads,
    )


async def measure_throughput(kind: type[Subject], settings: Settings, folder: Path) -> Throughput:
    """Many conversations at once on one handle, ours and the floor in turn."""
    ours: list[float] = []
    floors: list[float] = []
    for repeat in range(settings.repeats):
        subject = kind(folder / str(repeat))
        ours.append(await _our_rate(subject, _conversations(settings)))
        floors.append(await _floor_rate(subject, _conversations(settings)))
        await subject.remove()
    shutil.rmtree(folder, ignore_errors=True)
    return Throughput(kind.name, median(ours), median(floors))


def _conversations(settings: Settings) -> list[list[tuple[Content, ...]]]:
    turns = range(1, settings.turns_each + 1)
    return [[turn_content(turn, number) for turn in turns] for number in range(settings.conversations)]


async def _our_rate(subject: Subject, conversations: list[list[tuple[Content, ...]]]) -> float:
    handle = subject.open()

    async def talk(number: int) -> None:
        state = AgentState(agent_id="bench")
        for content in conversations[number]:
            state = after(state, content)
            await handle.save(state, f"thread-{number}")

    await handle.exists("nothing-yet")
    subject.warm_up()
    rate = await _rate(talk, conversations)
    await handle.close()
    return rate


async def _floor_rate(subject: Subject, conversations: list[list[tuple[Content, ...]]]) -> float:
    floor = subject.floor()
    bodies = [[encoded(content) for content in turns] for turns in conversations]

    async def append(number: int) -> None:
        for body in bodies[number]:
            await floor.append(f"thread-{number}", body)

    floor.warm_up()
    rate = await _rate(append, bodies)
    await floor.close()
    return rate


async def _rate(run: Callable[[int], Awaitable[None]], conversations: Sequence[Sequence[object]]) -> float:
    """Turns per second, with all conversations going on at once."""
    started = perf_counter()
    await asyncio.gather(*(run(number) for number in range(len(conversations))))
    return sum(map(len, conversations)) / (perf_counter() - started)
