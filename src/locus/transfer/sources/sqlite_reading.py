"""Reading an SQLite file of somebody else's: it is opened so that it cannot be changed, and read row by row."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from locus.errors import BackendUnavailableError, ConfigurationError, CorruptCheckpointError
from locus.memory.backends.sqlite.client import open_untouched
from locus.memory.registry import path_of

T = TypeVar("T")
Row = tuple[Any, ...]

AT_ONCE = 16
"""How many rows are fetched at once: those of some libraries are megabytes each."""

TIMEOUT = 30.0


def sqlite_path(location: str) -> str:
    """The path in `sqlite:a.db`, `sqlite:///a.db`, or the path itself."""
    name, colon, rest = location.partition(":")
    return path_of(rest) if colon and name == "sqlite" else location


def quoted(name: str) -> str:
    """A name of a table or column as it stands in a statement."""
    return '"' + name.replace('"', '""') + '"'


class SQLiteReading:
    """A connection that only reads."""

    def __init__(self, path: str) -> None:
        self.path = str(Path(path).expanduser().absolute())
        self._connection: sqlite3.Connection | None = None
        self._lock = asyncio.Lock()

    @property
    def name(self) -> str:
        return f"sqlite:{self.path}"

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """On another thread, one thing after another."""

        def job() -> T:
            with self._explained():
                if self._connection is None:
                    self._connection = open_untouched(self.path, TIMEOUT)
                return work(self._connection)

        async with self._lock:
            return await asyncio.to_thread(job)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        if not Path(self.path).is_file():
            raise ConfigurationError(f"there is no file {self.path!r} to read from")
        try:
            yield
        except sqlite3.OperationalError as error:
            if "no such" in str(error):
                raise ConfigurationError(f"{self.path!r} is no such database: {error}") from error
            raise BackendUnavailableError(f"{self.path!r} cannot be read now: {error}") from error
        except sqlite3.Error as error:
            raise CorruptCheckpointError(f"{self.path!r} cannot be read: {error}") from error

    async def tables(self) -> set[str]:
        """The names of the tables that there are."""
        rows = await self.all("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {str(name) for (name,) in rows}

    async def columns(self, table: str) -> set[str]:
        return {str(row[1]) for row in await self.all(f"PRAGMA table_info({quoted(table)})")}

    async def all(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        return await self._run(lambda connection: connection.execute(statement, values).fetchall())

    async def rows(self, statement: str, values: Sequence[Any] = ()) -> AsyncGenerator[Row, None]:
        """Rows one after another, as of the moment of the first."""
        cursor = await self._run(lambda connection: connection.execute(statement, values))
        try:
            while portion := await self._run(lambda _: cursor.fetchmany(AT_ONCE)):
                for row in portion:
                    yield row
        finally:
            await self._run(lambda _: cursor.close())

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await asyncio.to_thread(connection.close)
