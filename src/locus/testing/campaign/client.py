"""A client of a campaign: a process with one handle that does several things at once, until it is stopped or killed.

Some faults strike inside the process, and are noted in its history:

        cancelled awaits       a step is cancelled, a random number of turns of the event loop after it began
    500 savers at once     on a pool of a few connections
        clock jumps            the clock that Locus sees jumps back and forth, by seconds and by weeks
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from locus.errors import BackendUnavailableError, LocusError
from locus.testing.campaign.agents import AgentWorker
from locus.testing.campaign.clock import JUMPS, JumpingClock
from locus.testing.campaign.effects import EFFECTS
from locus.testing.campaign.history import ClientLog, log_of
from locus.testing.campaign.recorded import RecordedCheckpointer
from locus.testing.campaign.workload import PAUSE, Crowd, Worker
from locus.testing.processes.jobs import opened
from locus.testing.processes.workers import Channel

CANCELLED: Final = "cancelled awaits"
CROWD: Final = "500 savers at once"
CLOCK: Final = "clock jumps"

AT_ONCE: Final = 4
"""How many workers a client has, besides its agent."""
MOST_TURNS: Final = 60
"""The most turns of the event loop after which a step is cancelled."""
LOOK: Final = 0.05
"""The seconds between two checks for an order to stop."""
JUMP_SECONDS: Final = 0.2
"""The most seconds between two jumps of the clock."""

SMALL_POOLS: Final = {
    **dict.fromkeys(("postgresql", "postgres", "mysql", "oracle"), "max_pool_size=2"),
    **dict.fromkeys(("redis", "rediss", "valkey", "valkeys"), "max_connections=4"),
    **dict.fromkeys(("opensearch", "opensearchs"), "connections=4"),
}
"""The URL option that makes a connection pool small, by scheme. Other stores have no pool."""


def with_small_pool(url: str) -> str:
    option = SMALL_POOLS.get(url.partition(":")[0].partition("+")[0])
    return url if option is None else f"{url}{'&' if '?' in url else '?'}{option}"


class Doing(Protocol):
    """An activity of a client, in steps."""

    async def step(self) -> None: ...


class _Stop:
    """Watches for the campaign's order to stop, or for its end."""

    def __init__(self, talk: Channel) -> None:
        self._talk = talk
        self.told = False

    async def watch(self) -> None:
        while not self.told:
            try:
                self._talk.receive(0)
                self.told = True
            except TimeoutError:
                await asyncio.sleep(LOOK)


async def use_store(
    talk: Channel,
    url: str,
    folder: str,
    name: str,
    place: str,
    seed: str,
    prefix: str,
    faults: Sequence[str],
    vacuums: bool,
    crowd: int,
) -> None:
    """Use a store until told to stop. A client that replaces a killed one has the same `place`."""
    rng, log = random.Random(seed), ClientLog(log_of(Path(folder), name), name)
    stop = _Stop(talk)
    is_crowd = CROWD in faults
    async with opened(with_small_pool(url) if is_crowd else url) as plain:
        checkpointer = RecordedCheckpointer(plain.store, log)
        checkpointer.clock_jumps = CLOCK in faults

        def a_worker(number: int) -> Worker:
            return Worker(
                checkpointer, random.Random(f"{seed}/{number}"), prefix, f"{place}-{number % 2}", vacuums=vacuums
            )

        doing: list[Doing] = [a_worker(number) for number in range(AT_ONCE)]
        if plain.store.keeps_writes:
            agent_rng = random.Random(f"{seed}/agent")
            doing.append(AgentWorker(checkpointer, agent_rng, prefix, Path(folder) / EFFECTS))
        if is_crowd:
            doing = [Crowd(checkpointer, rng, f"{prefix}crowd-{place}", crowd, CROWD)]
        cancelling = rng if CANCELLED in faults else None
        tasks = [_until_stopped(activity, stop, cancelling, checkpointer) for activity in doing]
        if CLOCK in faults:
            tasks.append(_jump(rng, stop, checkpointer))
        talk.send(ready=True)
        await asyncio.gather(stop.watch(), *tasks)
    log.close()


async def _until_stopped(
    doing: Doing, stop: _Stop, cancelling: random.Random | None, checkpointer: RecordedCheckpointer
) -> None:
    while not stop.told:
        try:
            if cancelling is not None and cancelling.random() < 0.5:
                await _cancelled(doing, cancelling, checkpointer.log)
            else:
                await doing.step()
        except BackendUnavailableError:
            await asyncio.sleep(PAUSE)
        except LocusError as error:
            checkpointer.note_failure(error)
        await asyncio.sleep(0)


async def _cancelled(doing: Doing, rng: random.Random, log: ClientLog) -> None:
    """Do a step, and cancel it at one of its awaits."""
    task = asyncio.create_task(doing.step())
    for _ in range(rng.randrange(MOST_TURNS)):
        await asyncio.sleep(0)
    if rng.random() < 0.5:
        await asyncio.wait([task], timeout=rng.uniform(0, 0.02))
    if task.cancel():
        log.note(fault=CANCELLED)
    try:
        await task
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            raise


async def _jump(rng: random.Random, stop: _Stop, checkpointer: RecordedCheckpointer) -> None:
    clock = JumpingClock()
    clock.install()
    while not stop.told:
        clock.offset = rng.choice(JUMPS)
        checkpointer.look_at_clock()
        checkpointer.log.note(fault=CLOCK, offset=clock.offset)
        await asyncio.sleep(rng.uniform(0, JUMP_SECONDS))
