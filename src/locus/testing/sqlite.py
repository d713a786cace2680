"""A store under test that needs no server: an SQLite file. It serves whoever tests the sessions of a framework."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

from locus.memory.backends import sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.testing.stores import DurableTestStore


@asynccontextmanager
async def out_of_reach(*paths: Path) -> AsyncIterator[None]:
    """A context in which a path leads nowhere, as on a disk that is not mounted: what is there is moved aside."""
    away = {path: path.with_name(f"away {path.name}") for path in paths if path.exists()}
    for path, place in away.items():
        path.rename(place)
    paths[0].symlink_to(paths[0].parent / "not mounted" / paths[0].name)
    yield
    paths[0].unlink()
    for path, place in away.items():
        place.rename(path)


class SQLiteTestStore(DurableTestStore):
    """An SQLite file in a folder of the test."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "locus.db"

    @property
    def url(self) -> str:
        return f"sqlite:{self.path}"

    def open(self, *, ttl_seconds: float | None = None) -> Checkpointer:
        return sqlite_checkpointer(self.path, ttl_seconds=ttl_seconds)

    async def corrupt(self, thread_id: str) -> None:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            changed = connection.execute(
                "UPDATE locus_runs SET items = substr(items, 1, length(items) - 2)"
                " WHERE thread = (SELECT id FROM locus_threads WHERE thread_id = ?)",
                (thread_id,),
            )
            assert changed.rowcount > 0

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        beside = (self.path.with_name(f"{self.path.name}{end}") for end in ("", "-wal", "-shm"))
        async with out_of_reach(*beside):
            yield
