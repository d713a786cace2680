"""What all runners have in common: the turns, the clock, and the end of it."""

from __future__ import annotations

import asyncio
import json
import resource
import sqlite3
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.turns import Turn, turn

WINDOW = 20


class Peer(ABC):
    """A store of another library. What is saved is made ready in `add`, outside the time that is measured."""

    def __init__(self, folder: Path, url: str = "") -> None:
        self.folder = folder
        self.url = url
        """Of the server that it is to use, if it needs one."""

    async def open(self) -> None:
        """Open the store."""

    @abstractmethod
    def add(self, texts: Turn) -> None:
        """Append a turn to the state."""

    @abstractmethod
    async def save(self) -> None: ...

    @abstractmethod
    async def load(self) -> None:
        """Load the latest state, or all messages."""

    list_ten: Callable[[], Awaitable[None]] | None = None
    """List ten checkpoints, if there is such a thing."""

    async def turn(self, texts: Turn) -> None:
        """What a request does: load, append, save."""
        await self.load()
        self.add(texts)
        await self.save()

    async def begin(self) -> None:
        """Everything is imported and open; from here on it counts."""

    def settle(self) -> None:
        """Bring what is stored into the shape that it will have in the end."""
        for path in self.folder.glob("*.db"):
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    async def stored_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())

    async def close(self) -> None:
        """Close the store."""


class InMemory(Peer):
    """A store in the memory of the process: it occupies what the process has grown by."""

    async def begin(self) -> None:
        self._before = _peak_memory()

    async def stored_bytes(self) -> int:
        return _peak_memory() - self._before


DATABASE_SIZE = "SELECT pg_database_size(current_database())"
"""Each peer has a database of its own."""


def _peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


async def _timed(call: Callable[[], Awaitable[None]]) -> float:
    started = perf_counter()
    await call()
    return (perf_counter() - started) * 1e3


async def _median_of(calls: int, call: Callable[[], Awaitable[None]]) -> float:
    return median([await _timed(call) for _ in range(calls)])


async def run(peer: Peer, order: dict[str, Any]) -> None:
    """Save turn by turn; report at each length; stop when time or space are used up."""
    started = perf_counter()
    times: list[float] = []
    for number in range(1, order["lengths"][-1] + 1):
        peer.add(turn(number))
        times.append(await _timed(peer.save))
        if number in order["lengths"]:
            await _report(peer, number, times[-min(WINDOW, number // 2) :])
        why = await _used_up(peer, order, number, perf_counter() - started)
        if why and number < order["lengths"][-1]:
            stored = await peer.stored_bytes()
            say({"cut_off": number, "why": why, "save_ms": median(times[-WINDOW:]), "bytes": stored})
            return


async def _report(peer: Peer, number: int, times: list[float]) -> None:
    peer.settle()
    say(
        {
            "turn": number,
            "save_ms": median(times),
            "bytes": await peer.stored_bytes(),
            "load_ms": await _median_of(3, peer.load),
            "list_ms": await _median_of(3, peer.list_ten) if peer.list_ten else None,
            "turn_ms": median([await _timed(partial(peer.turn, turn(number, more))) for more in (1, 2, 3)]),
        }
    )


async def _used_up(peer: Peer, order: dict[str, Any], number: int, seconds: float) -> str:
    if seconds > order["seconds"]:
        return f"{order['seconds']:.0f} s were over"
    if number % 25 == 0 and await peer.stored_bytes() > order["megabytes"] * 1e6:
        return f"{order['megabytes']} MB were full"
    return ""


def say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


async def _whole(peer: Peer, order: dict[str, Any]) -> None:
    await peer.open()
    try:
        await peer.begin()
        await run(peer, order)
    finally:
        await peer.close()


def main(kinds: dict[str, type[Peer]]) -> None:
    order = json.loads(sys.argv[1])
    asyncio.run(_whole(kinds[order["kind"]](Path(order["folder"]), order.get("url", "")), order))
