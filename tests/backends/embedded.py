"""The stores that need no server: SQLite and files, in a folder of the test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from locus.memory.backends import FileCheckpointer, sqlite_checkpointer
from locus.memory.backends.file.schema import file_name
from locus.memory.backends.sql.flavour import Steps
from locus.memory.backends.sqlite.engine import SQLiteEngine
from locus.memory.checkpointer import Checkpointer
from locus.testing.sqlite import SQLiteTestStore, out_of_reach
from locus.testing.stores import DurableTestStore, Stall, StallTestStore

_ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


class StallInSQLite(Stall):
    """A query that does not end by itself."""

    def __init__(self, handle: Checkpointer) -> None:
        self.handle = handle
        self._running = threading.Event()

    async def begin(self) -> None:
        """Only `query` stalls."""

    def _steps(self) -> Steps[None]:
        self._running.set()
        yield _ENDLESS, ()

    async def query(self) -> object:
        async with self.handle.store.using() as engine:
            assert isinstance(engine, SQLiteEngine)
            return await engine.carry_out(self._steps, writing=False)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._running.wait, 30)

    async def end(self) -> None:
        """With its deadline, or its caller's patience."""


class SQLiteStore(SQLiteTestStore, StallTestStore):
    """An SQLite file whose queries can stall."""

    @asynccontextmanager
    async def stalling(self, seconds: float) -> AsyncIterator[Stall]:
        async with sqlite_checkpointer(self.path, query_timeout=seconds) as handle:
            yield StallInSQLite(handle)


class FileStore(DurableTestStore):
    """A folder of logs."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "checkpoints"

    @property
    def url(self) -> str:
        return f"file:{self.path}"

    def open(self, *, ttl_seconds: float | None = None) -> Checkpointer:
        return FileCheckpointer(self.path, ttl_seconds=ttl_seconds)

    def log(self, thread_id: str) -> Path:
        return self.path / file_name(thread_id)

    async def corrupt(self, thread_id: str) -> None:
        """Change a letter in each record; the lines stay lines."""
        log = self.log(thread_id)
        lines = log.read_bytes().splitlines(keepends=True)
        spoilt = [line if line.startswith(b'{"seal"') else line.replace(b'"', b"'", 1) for line in lines]
        assert spoilt != lines
        log.write_bytes(b"".join(spoilt))

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        async with out_of_reach(self.path):
            yield
