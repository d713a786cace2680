"""`python -m benchmarks.openai_bench`: adding a turn to a session, ours against the OpenAI Agents SDK's own.

The same items go into both, on the same engine, one after the other, and who is first changes from round to round. On
SQLite both have a write-ahead log and `synchronous=FULL`; on Redis both use one server, with an fsync for every write
(`always`) or none. What theirs keep is the list of items; ours keep every point of the history.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any
from uuid import uuid4

from agents import SQLiteSession
from agents.extensions.memory import RedisSession

from benchmarks.costs import Figure, Section
from benchmarks.settings import Settings
from benchmarks.subjects.redis import shared_server
from benchmarks.turns import turn
from locus.integrations.openai_agents import LocusSession
from locus.memory.backends import redis_checkpointer, sqlite_checkpointer

LENGTHS = (10, 1_000)
ROUNDS = 100
LIMIT = 1.0

Items = list[Any]


@dataclass(frozen=True)
class SessionCost:
    """The cost of `add_items` in a session of that many turns, in milliseconds."""

    engine: str
    length: int
    ours_ms: float
    theirs_ms: float

    @property
    def ratio(self) -> float:
        return self.ours_ms / self.theirs_ms


def turn_items(number: int) -> Items:
    """A turn as the SDK's runner saves it."""
    texts = turn(number)
    arguments = json.dumps({"place": texts.place, "limit": 5})
    return [
        {"role": "user", "content": texts.question},
        {"role": "assistant", "content": texts.thought},
        {"type": "function_call", "call_id": texts.call_id, "name": "look_up", "arguments": arguments},
        {"type": "function_call_output", "call_id": texts.call_id, "output": texts.result},
        {"role": "assistant", "content": texts.answer},
    ]


class Pair:
    """Sessions of one name in two stores. A short session would soon be a long one, so each is timed a few times."""

    def __init__(self, engine: str, ours: Callable[[str], Any], theirs: Callable[[str], Any]) -> None:
        self.engine = engine
        self._make = (ours, theirs)

    async def measure(self, length: int, rounds: int) -> SessionCost:
        each = min(rounds, max(1, length // 2))
        times: tuple[list[float], list[float]] = ([], [])
        for number in range(-(-rounds // each)):
            await self._measure_one(f"session-{length}-{number}", length, each, times)
        return SessionCost(self.engine, length, median(times[0]), median(times[1]))

    async def _measure_one(self, name: str, length: int, each: int, times: tuple[list[float], list[float]]) -> None:
        sessions = [make(name) for make in self._make]
        for number in range(length - each):
            for session in sessions:
                await session.add_items(turn_items(number))
        for number in range(length - each, length):
            for which in (0, 1) if number % 2 else (1, 0):
                items = turn_items(number)
                started = perf_counter()
                await sessions[which].add_items(items)
                times[which].append((perf_counter() - started) * 1e3)
        kept = [await session.get_items() for session in sessions]
        if kept[0] != kept[1] or len(kept[0]) != length * len(turn_items(0)):
            raise RuntimeError(f"{self.engine}: the two sessions are not the same")
        for session in sessions:
            closed = session.close()
            if closed is not None:
                await closed


def pairs(folder: Path) -> Iterator[Pair]:
    store = sqlite_checkpointer(folder / "ours.db", durability="full")
    yield Pair(
        "SQLite FULL",
        lambda name: LocusSession(name, store),
        lambda name: SQLiteSession(name, folder / "theirs.db"),
    )
    for durable in (True, False):
        url, prefix = shared_server(durable).url, uuid4().hex
        ours = redis_checkpointer(url, f"{prefix}:ours:")
        yield Pair(
            "Redis always" if durable else "Redis unsynced",
            lambda name, ours=ours: LocusSession(name, ours),  # type: ignore[misc]
            lambda name, url=url, prefix=prefix: RedisSession.from_url(name, url=url, key_prefix=prefix),  # type: ignore[misc]
        )


async def measure_sessions(folder: Path, lengths: Sequence[int] = LENGTHS, rounds: int = ROUNDS) -> list[SessionCost]:
    return [await pair.measure(length, rounds) for pair in pairs(folder) for length in lengths]


def session_figures(costs: Sequence[SessionCost]) -> list[Figure]:
    """What was promised: no slower than the SDK's own, on the same engine."""
    return [
        Figure(
            f"`add_items` ÷ the SDK's own session, at {cost.length:,} turns",
            cost.engine,
            f"≤ {LIMIT:g}×",
            f"{cost.ratio:.2f}×",
            cost.ratio <= LIMIT,
        )
        for cost in costs
    ]


def session_table(costs: Sequence[SessionCost]) -> str:
    """The costs as a table in Markdown."""
    rows = [
        f"| {cost.engine} | {cost.length:,} | {cost.ours_ms:.3f} | {cost.theirs_ms:.3f} | {cost.ratio:.2f}× |"
        for cost in costs
    ]
    heading = "| engine | turns | `LocusSession`, ms | the SDK's own, ms | ours ÷ theirs |"
    return "\n".join([heading, "|---|---|---|---|---|", *rows])


async def session_section(settings: Settings, folder: Path) -> Section:
    costs = await measure_sessions(folder, settings.session_lengths, settings.session_rounds)
    return Section("Sessions of the OpenAI Agents SDK", session_figures(costs), session_table(costs))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.openai_bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short sessions: to see that it works, not to measure")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory(prefix="locus-bench-") as folder:
        lengths, rounds = ((4, 12), 4) if quick else (LENGTHS, ROUNDS)
        costs = asyncio.run(measure_sessions(Path(folder), lengths, rounds))
    print(session_table(costs))
    print()
    for figure in session_figures(costs):
        outcome = "reached" if figure.ok else "missed"
        print(f"{figure.backend}: {figure.what}: {figure.measured}; target {figure.target}: {outcome}")


if __name__ == "__main__":
    main()
