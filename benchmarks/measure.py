"""The runs: saves and reads at all thread lengths in turn, so that whatever disturbs one disturbs them all."""

from __future__ import annotations

import asyncio
import gc
import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter

from benchmarks.content import encoded, turn_messages
from benchmarks.costs import ReadCost, SaveCost, Throughput
from benchmarks.sampling import Lane
from benchmarks.settings import Settings
from benchmarks.subjects.base import Subject
from benchmarks.workloads import APPEND, Workload
from locus.core.messages import Message
from locus.core.state import AgentState


async def measure_workload(
    kind: type[Subject], workload: Workload, settings: Settings, folder: Path
) -> tuple[list[SaveCost], list[ReadCost]]:
    """All lengths of one workload; the reads are measured on the threads that were only appended to."""
    rounds = settings.slow_rounds if workload.slow else settings.rounds
    lanes = [Lane(kind, workload, length, rounds, folder / str(length)) for length in settings.lengths]
    try:
        for lane in lanes:
            await lane.grow()
        for number in range(rounds):
            # All are prepared before the first is timed, because that may take long, and leaves its traces.
            ready = [(lane, await lane.prepare(number)) for lane in lanes]
            for offset in range(len(lanes)):
                lane, timed = ready[(number + offset) % len(lanes)]
                await lane.round(number, timed)
        costs = [lane.cost() for lane in lanes]
        for lane in lanes:
            await lane.verify()
        return costs, await measure_reads(lanes, settings) if workload is APPEND else []
    finally:
        for lane in lanes:
            await lane.close()
        shutil.rmtree(folder, ignore_errors=True)


async def measure_reads(lanes: Sequence[Lane], settings: Settings) -> list[ReadCost]:
    """The states of all lanes, which a program would not have, are kept away from the garbage collector."""
    gc.collect()
    gc.freeze()
    loads = await _in_turn([await _loads(lane) for lane in lanes], settings.loads)
    listings = await _in_turn([_listings(lane) for lane in lanes], settings.listings)
    gc.unfreeze()
    return [
        await _read_cost(lane, {**loaded, **listed})
        for lane, loaded, listed in zip(lanes, loads, listings, strict=True)
    ]


Calls = dict[str, Callable[[], Awaitable[object]]]


async def _in_turn(lanes: list[Calls], repeats: int) -> list[dict[str, float]]:
    """The medians of all calls of all lanes, in ever another order.

    In the same order the garbage collector would always strike in the same call.
    """
    steps = [(index, name) for index, calls in enumerate(lanes) for name in calls]
    times: list[dict[str, list[float]]] = [{name: [] for name in calls} for calls in lanes]
    order = Random(1)
    for _ in range(repeats):
        for index, name in order.sample(steps, len(steps)):
            times[index][name].append(await timed(lanes[index][name]))
    return [{name: median(found) for name, found in lane.items()} for lane in times]


async def timed(call: Callable[[], Awaitable[object]]) -> float:
    started = perf_counter()
    await call()
    return (perf_counter() - started) * 1e3


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
    content = sum(len(encoded(talk.state.messages).encode()) for talk in lane.talks)
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


def _conversations(settings: Settings) -> list[list[tuple[Message, ...]]]:
    turns = range(1, settings.turns_each + 1)
    return [[turn_messages(turn, number) for turn in turns] for number in range(settings.conversations)]


async def _our_rate(subject: Subject, conversations: list[list[tuple[Message, ...]]]) -> float:
    handle = subject.open()

    async def talk(number: int) -> None:
        state = AgentState(agent_id="bench")
        for messages in conversations[number]:
            state = state.with_messages(messages)
            await handle.save(state, f"thread-{number}")

    await handle.exists("nothing-yet")
    subject.warm_up()
    rate = await _rate(talk, conversations)
    await handle.close()
    return rate


async def _floor_rate(subject: Subject, conversations: list[list[tuple[Message, ...]]]) -> float:
    floor = subject.floor()
    bodies = [[encoded(messages) for messages in turns] for turns in conversations]

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
