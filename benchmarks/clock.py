"""How long a call takes, and under which conditions: the same for what is measured and for its floor.

The garbage collector stays on, with its own thresholds. A full collection takes longer the more objects there are, and
comes when enough have been made: it would fall now into a call that is measured, and now into its floor, and decide the
ratio of the two. So what the benchmark itself keeps (states of all lengths, which a program would not have together) is
frozen out of the collector's sight, and every sample begins right after a collection. Then a call pays for the
collections that its own objects cause, and for no others. Calls that are compared are made in one process, in ever
another order.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from random import Random
from statistics import median
from time import perf_counter

Calls = dict[str, Callable[[], Awaitable[object]]]


@contextmanager
def frozen() -> Iterator[None]:
    """Keep away from the garbage collector what is there now, and what `freeze` is called for inside."""
    freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def freeze() -> None:
    """Keep away from the garbage collector what is there now; inside of `frozen`."""
    gc.collect()
    gc.freeze()


async def settled() -> None:
    """Let go of what the call before has waited for: the event loop holds it until the task waits again.

    Without this, the next call would pay for the end of it, within its first `await`: 6 ms for 4,000 messages.
    """
    await asyncio.sleep(0)


async def timed(call: Callable[[], Awaitable[object]]) -> float:
    """The milliseconds of one call. What it gives is let go of after the clock has stopped."""
    await settled()
    gc.collect()
    started = perf_counter()
    found = await call()
    elapsed = (perf_counter() - started) * 1e3
    del found
    return elapsed


def timed_blocking(call: Callable[[], object]) -> float:
    """The milliseconds of one call in a program without an event loop."""
    gc.collect()
    started = perf_counter()
    found = call()
    elapsed = (perf_counter() - started) * 1e3
    del found
    return elapsed


async def in_turn(lanes: list[Calls], repeats: int) -> list[dict[str, float]]:
    """The medians of all calls of all lanes, in ever another order."""
    steps = [(index, name) for index, calls in enumerate(lanes) for name in calls]
    times: list[dict[str, list[float]]] = [{name: [] for name in calls} for calls in lanes]
    order = Random(1)
    for _ in range(repeats):
        for index, name in order.sample(steps, len(steps)):
            times[index][name].append(await timed(lanes[index][name]))
    return [{name: median(found) for name, found in lane.items()} for lane in times]
