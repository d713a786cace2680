"""Kills processes while they save, many times, and lets a `Ledger` examine what they left."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from locus.memory.checkpointer import Checkpointer
from locus.testing.processes.crash_jobs import save_many_until_killed, save_until_killed, step_under_trace
from locus.testing.processes.ledger import Ledger
from locus.testing.processes.lines import Choice, Position, chosen
from locus.testing.processes.workers import Crew, Worker

Open = Callable[[], Checkpointer]

KILLS_PER_THREAD = 10

SHORTEST_WINDOW = 0.03
"""The shortest time window, in seconds, in which a process is killed at random. It grows if saves take longer."""

MOST_TRIES = 20
"""How many times more kills are tried until some fall before a commit and some after it, where there is less time."""

AT_ONCE = 3
"""How many processes run towards their lines while the result of an earlier kill is examined."""


@dataclass
class KillTally:
    """The counts of a series of kills."""

    kills: int = 0
    inside: int = 0
    """Kills inside a step, which was begun and not acknowledged."""
    completed: int = 0
    """Kills inside a step that was already committed."""
    ledgers: list[Ledger] = field(default_factory=list)
    positions: list[Position] = field(default_factory=list)
    """The lines at which kills were planned; empty for random kills."""

    @property
    def both_sides(self) -> bool:
        """Whether some kills fell before a commit, and some after it."""
        return 0 < self.completed < self.inside

    def __str__(self) -> str:
        return f"{self.kills} kills, {self.inside} inside a save; {self.completed} of those were already committed"

    async def settle(self, ledger: Ledger, open_handle: Open, *, search: bool = True) -> None:
        """Check the thread of a ledger after a kill, with a new handle."""
        self.kills += 1
        self.inside += ledger.begun is not None
        async with open_handle() as checkpointer:
            self.completed += await ledger.settle(checkpointer)
            await ledger.go_on(checkpointer, f"after{self.kills}", search=search)


async def kill_at_random(crew: Crew, open_handle: Open, *, seed: int, kills: int, seconds: float = 1e9) -> KillTally:
    """Kill a process that saves without a pause at random moments, `kills` times or for `seconds`.

    Further kills follow, up to a limit, until some have fallen before a commit and some after it.
    """
    rng, tally, end = random.Random(seed), KillTally(), time.monotonic() + seconds
    window = SHORTEST_WINDOW
    while tally.kills < (kills if tally.both_sides else MOST_TRIES * kills) and time.monotonic() < end:
        if tally.kills % KILLS_PER_THREAD == 0:
            tally.ledgers.append(Ledger(f"thread {len(tally.ledgers)}"))
        ledger = tally.ledgers[-1]
        worker = crew.start(save_until_killed, url=crew.url, thread_id=ledger.thread_id, seed=rng.randrange(10**6))
        ledger.note(worker.hear())
        heard = [*worker.hear_until(time.monotonic() + rng.uniform(0, window))]
        for message in heard:
            ledger.note(message)
        _killed(worker, ledger)
        committed = tally.completed
        await tally.settle(ledger, open_handle)
        # If saves take long, moments that are too early would all fall before a commit.
        is_early = not heard and tally.completed == committed
        window = window * 1.5 if is_early else max(window / 1.5, SHORTEST_WINDOW)
    return tally


async def kill_while_many_save(crew: Crew, open_handle: Open, *, seed: int, kills: int, threads: int) -> KillTally:
    """Kill a process that saves to many threads at the same time, soon after it has acknowledged some saves."""
    rng, tally = random.Random(seed), KillTally()
    for kill in range(kills):
        ledgers = {name: Ledger(name) for name in (f"thread {number} of {kill}" for number in range(threads))}
        worker = crew.start(save_many_until_killed, url=crew.url, thread_ids=[*ledgers], seed=rng.randrange(10**6))
        heard = [worker.hear() for _ in range(rng.randrange(threads, 6 * threads))]
        heard += worker.hear_until(time.monotonic() + rng.uniform(0, SHORTEST_WINDOW / 10))
        for message in (*heard, *_last_words(worker)):
            ledgers[message["begin"]["thread"] if "begin" in message else message["thread"]].note(message)
        tally.kills += 1
        tally.ledgers += ledgers.values()
        async with open_handle() as checkpointer:
            for ledger in ledgers.values():
                tally.inside += ledger.begun is not None
                tally.completed += await ledger.settle(checkpointer)
            await ledger.go_on(checkpointer, f"after{kill}", search=True)
    return tally


def _killed(worker: Worker, ledger: Ledger) -> None:
    for message in _last_words(worker):
        ledger.note(message)


def _last_words(worker: Worker) -> list[dict[str, Any]]:
    """Kill a worker, and return its messages until then."""
    messages = [*worker.kill()]
    assert worker.killed, f"the saver ended by itself, with status {worker.status}"
    worker.close()
    return messages


async def kill_at_lines(
    crew: Crew, open_handle: Open, *, step: str, evenly: int | None, every: int = 1, last: int = 10
) -> KillTally:
    """Kill a process at lines of a step that `lines.chosen` chooses, each time on a new thread."""
    (counted,) = await _prepared(open_handle, step, [f"{step} counted"])
    targets = lines_to_kill_at(crew, crew.url, counted, step, Choice(evenly, every, last))
    ledgers = await _prepared(open_handle, step, [f"{step} {at}" for at in range(len(targets))])
    tally = KillTally(ledgers=[*ledgers], positions=targets)
    workers: deque[Worker] = deque()
    waiting = deque(zip(ledgers, targets, strict=True))
    missed: list[int] = []
    for number, ledger in enumerate(ledgers):
        while waiting and len(workers) < AT_ONCE:
            workers.append(started(crew, crew.url, waiting[0][0], step, waiting.popleft()[1]))
        worker = workers.popleft()
        followed(worker, ledger)
        if worker.killed:
            await tally.settle(ledger, open_handle, search=number % 16 == 0)
        else:
            missed.append(number)
    # OS threads race, so a process may pass a line less often than the counted run did. Most lines are passed once.
    for number in missed:
        (ledger,) = await _prepared(open_handle, step, [f"{step} {number} again"])
        file, line, _ = targets[number]
        worker = started(crew, crew.url, ledger, step, (file, line, 1))
        followed(worker, ledger)
        if worker.killed:
            tally.ledgers[number] = ledger
            await tally.settle(ledger, open_handle, search=False)
    return tally


async def _prepared(open_handle: Open, step: str, thread_ids: list[str]) -> list[Ledger]:
    """Make threads with a short history, for a step to continue from."""
    ledgers = [Ledger(thread_id) for thread_id in thread_ids]
    async with open_handle() as checkpointer:
        for ledger in ledgers if step != "first" else ():
            for word in ("one", "two"):
                await ledger.go_on(checkpointer, word)
    return ledgers


def started(crew: Crew, url: str, ledger: Ledger, step: str, target: Position | None) -> Worker:
    """Start a process that does a step on the thread of a ledger, and kills itself at the target, if there is one."""
    return crew.start(step_under_trace, url=url, thread_id=ledger.thread_id, step=step, target=target)


def followed(worker: Worker, ledger: Ledger) -> None:
    """Note all messages of a worker until its end."""
    for message in worker.hear_out():
        ledger.note(message)
    worker.close()


def lines_to_kill_at(crew: Crew, url: str, ledger: Ledger, step: str, choice: Choice) -> list[Position]:
    """Do a step to its end to see which lines it passes, and choose those to kill at."""
    worker = started(crew, url, ledger, step, None)
    followed(worker, ledger)
    seen = worker.finish()
    assert ledger.begun is None, f"{ledger.begun} was not acknowledged"
    positions: list[Position] = [tuple(position) for position in seen["positions"]]
    in_engine = [file for file, _, _ in positions if file.startswith(tuple(seen["engine"]))]
    assert in_engine, f"no line of the engine was passed in {step}"
    return chosen(positions, seen["engine"], choice)
