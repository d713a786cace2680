"""What a save costs a program without an event loop, next to the raw driver called in the same way.

`python -m benchmarks --topics blocking`. Both are called in the thread of the program. The save of ours and that of the
raw driver are timed in turn, and who is first changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.clock import frozen, timed_blocking
from benchmarks.content import after, encoded, turn_content
from benchmarks.costs import Figure, Section
from benchmarks.settings import Settings
from benchmarks.subjects import SUBJECTS
from benchmarks.subjects.base import Subject
from benchmarks.tables import ms, table
from locus.core.state import AgentState


class BlockingCost(NamedTuple):
    """A save in threads of one length; medians."""

    backend: str
    length: int
    save_ms: float
    floor_ms: float


def measure_blocking(kind: type[Subject], length: int, rounds: int, folder: Path) -> BlockingCost:
    """A short thread would soon be a long one, so the saves are spread over several."""
    subject = kind(folder)
    handle, floor = subject.open().sync, subject.floor()
    each = min(rounds, length // 2)
    times: tuple[list[float], list[float]] = ([], [])
    handle.exists("nothing-yet")
    subject.warm_up()
    floor.warm_up()
    for thread in range(-(-rounds // each)):
        name, state = f"thread-{thread}", AgentState(agent_id="bench")
        for number in range(length):
            content = turn_content(number, thread)
            state, body = after(state, content), encoded(content)

            def save(name: str = name, state: AgentState = state) -> object:
                return handle.save(state, name)

            def append(name: str = name, body: str = body) -> None:
                floor.append_blocking(name, body)

            calls: list[tuple[list[float], Callable[[], object]]] = [(times[0], save), (times[1], append)]
            for taken, call in calls if number % 2 else reversed(calls):
                if number < length - each:
                    call()
                else:
                    taken.append(timed_blocking(call))
        if handle.load(name) != state:
            raise RuntimeError(f"{subject.name}: loaded is not what was saved")
    handle.close()
    asyncio.run(floor.close())
    return BlockingCost(subject.name, length, median(times[0]), median(times[1]))


def blocking_figures(costs: Sequence[BlockingCost]) -> list[Figure]:
    found = []
    for cost in costs:
        limit, ratio = SUBJECTS[cost.backend].blocking_limit, cost.save_ms / cost.floor_ms
        if limit is not None:
            what = f"a blocking save ÷ the raw driver, at {cost.length:,} turns"
            found.append(Figure(what, cost.backend, f"≤ {limit:g}", f"{ratio:.2f}", ratio <= limit))
    return found


def blocking_table(costs: Sequence[BlockingCost]) -> str:
    rows = [
        [cost.backend, f"{cost.length:,}", ms(cost.save_ms), ms(cost.floor_ms), f"{cost.save_ms / cost.floor_ms:.2f}"]
        for cost in costs
    ]
    return table(["backend", "turns", "blocking save ms", "raw driver ms", "÷"], rows)


def blocking_section(settings: Settings, folder: Path) -> Section:
    costs = []
    with frozen():
        for kind in SUBJECTS.values():
            if kind.blocking_limit is not None:
                for length in settings.loop_lengths:
                    place = folder / f"{kind.name}-{length}"
                    costs.append(measure_blocking(kind, length, settings.loop_rounds, place))
    return Section("Saves of a blocking program", blocking_figures(costs), blocking_table(costs))
