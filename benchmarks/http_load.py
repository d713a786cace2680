"""What the way over HTTP costs: `python -m benchmarks.http_load [--quick]`.

- Bytes that a save sends (request line, headers and body), by the length of the thread, over the bytes of its new
  content.
- Saves per second of 32 conversations at once, through one server process, over those of the same backend without
  HTTP, measured in turn; and how long the slowest of a hundred saves takes.
- Memory of the server after one such load, and after several.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

import psutil

from benchmarks.content import encoded, turn_messages
from benchmarks.costs import Figure, Section
from benchmarks.settings import Settings
from benchmarks.subjects.http import ServerProcess, serve
from benchmarks.subjects.postgresql import shared_server
from locus.core.state import AgentState
from locus.memory.backends import HTTPCheckpointer, postgresql_checkpointer, sqlite_checkpointer
from locus.memory.backends.http import client as http_client
from locus.memory.checkpointer import Checkpointer

CLIENTS = 32
LEAST_RATE = 0.3
MOST_BYTES = 1.5
MOST_GROWTH = 1.2


class Wire:
    """Counts what is sent."""

    def __init__(self) -> None:
        self.bytes = 0
        send = http_client.ConnectionPool.send

        async def counted(pool: http_client.ConnectionPool, request: http_client.Request) -> http_client.Response:
            head = len(request.method) + len(request.target) + len(" HTTP/1.1\r\n\r\n") + 2
            head += sum(len(name) + len(value) + 4 for name, value in request.headers)
            self.bytes += head + len(request.body or b"")
            return await send(pool, request)

        http_client.ConnectionPool.send = counted  # type: ignore[assignment]

    def take(self) -> int:
        taken, self.bytes = self.bytes, 0
        return taken


async def bytes_sent(url: str, turns: int, wire: Wire) -> dict[int, float]:
    """Bytes sent for a save, over its new content, around some lengths of one thread."""
    found: dict[int, list[float]] = {length: [] for length in (10, turns // 10, turns)}
    state = AgentState(agent_id="bench")
    async with HTTPCheckpointer(url) as checkpointer:
        await checkpointer.exists("nothing-yet")
        for turn in range(1, turns + 1):
            messages = turn_messages(turn)
            state = state.with_messages(messages)
            wire.take()
            await checkpointer.save(state, "long")
            ratio = wire.take() / len(encoded(messages).encode())
            for length in found:
                if length - 5 <= turn <= length:
                    found[length].append(ratio)
        if await checkpointer.load("long") != state:
            raise RuntimeError("loaded is not what was saved")
    return {length: median(ratios) for length, ratios in found.items()}


async def load(handle: Checkpointer, turns: int, name: str) -> tuple[float, list[float]]:
    """Saves per second of all conversations at once, and how long each took, in ms."""
    times: list[float] = []

    async def talk(number: int) -> None:
        state = AgentState(agent_id="bench")
        for turn in range(turns):
            state = state.with_messages(turn_messages(turn, number))
            started = perf_counter()
            await handle.save(state, f"{name}-{number}")
            times.append((perf_counter() - started) * 1e3)

    await handle.exists("nothing-yet")
    started = perf_counter()
    await asyncio.gather(*map(talk, range(CLIENTS)))
    return len(times) / (perf_counter() - started), sorted(times)


async def compare(
    backend: str, direct: Callable[[], Checkpointer], server: ServerProcess, turns: int, repeats: int
) -> list[Figure]:
    """With and without HTTP, in turn."""
    ratios, rates, slowest, memory = [], [], [], []
    process = psutil.Process(server.process.pid)
    for repeat in range(repeats):
        async with direct() as handle:
            without, _ = await load(handle, turns, f"direct{repeat}")
        async with HTTPCheckpointer(server.url) as handle:
            rate, times = await load(handle, turns, f"http{repeat}")
        ratios.append(rate / without)
        rates.append(rate)
        slowest.append(times[int(len(times) * 0.99)])
        memory.append(process.memory_info().rss / 2**20)
    ratio, grown = median(ratios), memory[-1] / memory[0]
    name = f"http on {backend}"
    shown = f"{ratio:.2f} ({median(rates):.0f}/s, p99 {median(slowest):.0f} ms)"
    return [
        Figure(f"saves/s of {CLIENTS} clients ÷ without HTTP", name, f"≥ {LEAST_RATE:g}", shown, ratio >= LEAST_RATE),
        Figure(
            "memory of the server, last ÷ first load",
            name,
            f"≤ {MOST_GROWTH:g}",
            f"{grown:.2f} ({memory[-1]:.0f} MB)",
            grown <= MOST_GROWTH,
        ),
    ]


async def measure(folder: Path, turns: int, length: int, repeats: int) -> list[Figure]:
    figures = []
    sqlite = serve(folder, f"sqlite:{folder / 'served.db'}")
    database = shared_server()
    postgresql = serve(folder, database.url)
    try:
        sent = await bytes_sent(sqlite.url, length, Wire())
        shown = ", ".join(f"{ratio:.2f} at {turn:,}" for turn, ratio in sent.items())
        fits = all(ratio <= MOST_BYTES for ratio in sent.values())
        figures.append(Figure("bytes sent for a save ÷ its new content", "http", f"≤ {MOST_BYTES:g}", shown, fits))
        pairs: list[tuple[str, Callable[[], Checkpointer], ServerProcess]] = [
            ("sqlite", lambda: sqlite_checkpointer(folder / "direct.db"), sqlite),
            ("postgresql", lambda: postgresql_checkpointer(dsn=database.url), postgresql),
        ]
        for backend, direct, server in pairs:
            figures += await compare(backend, direct, server, turns, repeats)
    finally:
        sqlite.stop()
        postgresql.stop()
    return figures


async def http_section(settings: Settings, folder: Path) -> Section:
    figures = await measure(folder, settings.http_turns, settings.http_length, settings.http_repeats)
    meant = f"{CLIENTS} clients of one server process; with and without HTTP in turn."
    return Section("Over HTTP", figures, meant)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.http_load", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="to see that it works, not to measure")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory(prefix="locus-http-") as folder:
        figures = asyncio.run(measure(Path(folder), 5 if quick else 50, 100 if quick else 1_000, 2 if quick else 3))
    print("| figure | backend | wanted | measured | |\n|---|---|---|---|---|")
    for what, backend, target, measured, ok in figures:
        print(f"| {what} | {backend} | {target} | {measured} | {'✓' if ok else '✗'} |")
    sys.exit(0 if all(figure.ok for figure in figures) else 1)


if __name__ == "__main__":
    main()
