"""The floor: what the raw driver needs to write the same new bytes in one commit, and nothing else.

It is called as an async program must call it: what blocks runs in a worker thread.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO


class Floor(ABC):
    """Appends texts to threads; keeps no history, no ids, no metadata, and can do nothing else."""

    @abstractmethod
    async def append(self, thread_id: str, body: str) -> None:
        """Write one text, as durably as the backend beside it."""

    def append_blocking(self, thread_id: str, body: str) -> None:
        """The same, called as a blocking program calls it: in its own OS thread."""
        raise NotImplementedError(f"{type(self).__name__} is called from an event loop")

    async def read(self, thread_id: str) -> Sequence[Any] | None:
        """All texts of a thread, by the raw driver; `None` where reading is not compared."""
        return None

    def warm_up(self) -> None:
        """Come into the state that a long-running program finds."""

    @abstractmethod
    def stored_bytes(self) -> int:
        """What the texts occupy."""

    async def close(self) -> None:
        """Release what was opened."""


class MemoryFloor(Floor):
    """A list of encoded bytes for each thread."""

    def __init__(self) -> None:
        self._bodies: dict[str, list[bytes]] = {}

    async def append(self, thread_id: str, body: str) -> None:
        self._bodies.setdefault(thread_id, []).append(body.encode())

    def stored_bytes(self) -> int:
        return sum(len(body) for bodies in self._bodies.values() for body in bodies)


class FileFloor(Floor):
    """One open file for each thread: append, flush, fsync."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, BinaryIO] = {}

    async def append(self, thread_id: str, body: str) -> None:
        await asyncio.to_thread(self.append_blocking, thread_id, body)

    def append_blocking(self, thread_id: str, body: str) -> None:
        file = self._files.get(thread_id)
        if file is None:
            file = self._files[thread_id] = (self._folder / f"{thread_id}.jsonl").open("ab", buffering=0)
        file.write(body.encode() + b"\n")
        os.fsync(file.fileno())

    def stored_bytes(self) -> int:
        return sum(path.stat().st_size for path in self._folder.glob("*.jsonl"))

    async def close(self) -> None:
        for file in self._files.values():
            file.close()


class SQLiteFloor(Floor):
    """One table in WAL mode: one INSERT and one COMMIT, on one connection and one worker thread."""

    def __init__(self, folder: Path, durability: str) -> None:
        self._path = folder / "floor.db"
        self._numbers: dict[str, int] = {}
        self._worker = ThreadPoolExecutor(max_workers=1)
        self._connection = sqlite3.connect(self._path, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute(f"PRAGMA synchronous = {durability}")
        self._connection.execute(
            "CREATE TABLE turns (thread_id TEXT, number INTEGER, body TEXT, PRIMARY KEY (thread_id, number))"
        )

    async def append(self, thread_id: str, body: str) -> None:
        await asyncio.get_running_loop().run_in_executor(self._worker, self.append_blocking, thread_id, body)

    def append_blocking(self, thread_id: str, body: str) -> None:
        number = self._numbers[thread_id] = self._numbers.get(thread_id, 0) + 1
        self._connection.execute("INSERT INTO turns VALUES (?, ?, ?)", (thread_id, number, body))
        self._connection.commit()

    def warm_up(self) -> None:
        extend_wal(self._path)

    def stored_bytes(self) -> int:
        return database_bytes(self._path)

    async def close(self) -> None:
        self._worker.shutdown()
        self._connection.close()


def extend_wal(path: Path) -> None:
    """Make the WAL as long as it becomes in the end.

    A short one grows with every commit, which makes an fsync dear; later the same blocks are written again
    and again. Without this, short threads would be measured before that point, and long ones after it.
    """
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE filler (body BLOB)")
        connection.execute("INSERT INTO filler VALUES (zeroblob(5000000))")
        connection.execute("DROP TABLE filler")
        connection.commit()
        connection.execute("VACUUM")
    database_bytes(path)


def database_bytes(path: Path) -> int:
    """The size of a database after everything in its WAL was written to it; the WAL stays as long as it is."""
    with closing(sqlite3.connect(path)) as connection:
        busy, frames, done = connection.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
    if busy or frames != done:
        raise RuntimeError(f"{path} is in use: its WAL could not be checkpointed")
    return path.stat().st_size
