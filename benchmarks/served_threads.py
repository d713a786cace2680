"""The memory of a process that serves very many threads in turn: `python -m benchmarks.served_threads [threads]`.

Each thread gets a turn as a server gives it: it is loaded, a turn is appended and saved, and it is not asked for again.
The cache is small here, so that it is full long before the end: from then on nothing may grow. A process of its own
is measured, because memory that Python has once had is not given back to the system.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil

from benchmarks.content import after, turn_content
from benchmarks.costs import Figure, Section
from benchmarks.settings import FULL, Settings
from benchmarks.tables import table
from locus.core.state import AgentState
from locus.memory.backends import sqlite_checkpointer

CACHE_MB = 8
PARTS = 8
LIMIT = 1.1
"""How many times the memory after half of the threads the memory may be at the end."""


async def serve(path: Path, threads: int) -> list[dict[str, float]]:
    """Memory and the cache's own count, in megabytes, as the threads go by."""
    process, found = psutil.Process(), []
    async with sqlite_checkpointer(path, durability="normal", cache_mb=CACHE_MB) as handle:
        for number in range(1, threads + 1):
            thread_id = f"thread-{number}"
            state = await handle.load(thread_id) or AgentState(agent_id="bench")
            # Few different texts: the benchmark keeps those that it has made.
            await handle.save(after(state, turn_content(number % 50)), thread_id)
            await handle.load(thread_id)
            if number % (threads // PARTS) == 0:
                gc.collect()
                cache = handle.cache_info()
                found.append(
                    {
                        "threads": number,
                        "memory": process.memory_info().rss / 1e6,
                        "cache": cache.bytes / 1e6,
                        "bound": cache.max_bytes / 1e6,
                    }
                )
    return found


def measure_served(settings: Settings) -> Section:
    with tempfile.TemporaryDirectory(prefix="locus-bench-") as folder:
        command = [sys.executable, "-m", "benchmarks.served_threads", str(settings.served), folder]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    found = json.loads(done.stdout)
    half, last = found[len(found) // 2 - 1], found[-1]
    ratio = last["memory"] / half["memory"]
    most = max(line["cache"] for line in found)
    figures = [
        Figure(
            f"memory after {settings.served:,} threads ÷ after half of them",
            "sqlite",
            f"≤ {LIMIT:g}",
            f"{ratio:.2f} ({last['memory']:.0f} MB)",
            ratio <= LIMIT,
        ),
        Figure("the cache, at most", "sqlite", f"≤ {last['bound']:.1f} MB", f"{most:.1f} MB", most <= last["bound"]),
    ]
    rows = [[f"{line['threads']:,}", f"{line['memory']:.0f}", f"{line['cache']:.1f}"] for line in found]
    return Section(
        "Memory of a process that serves many threads in turn",
        figures,
        table(["threads", "memory, MB", "of it in the cache, MB"], rows),
    )


def main() -> None:
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else FULL.served
    with tempfile.TemporaryDirectory(prefix="locus-bench-") as folder:
        place = Path(sys.argv[2] if len(sys.argv) > 2 else folder)
        print(json.dumps(asyncio.run(serve(place / "threads.db", threads))))


if __name__ == "__main__":
    main()
