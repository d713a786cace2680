"""Reading tables of somebody else's in an SQL server, by the connections of our own backends; nothing is set up.

Reading an SQLite file of somebody else's: it is opened so that it cannot be changed, and read row by row.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

from locus.errors import BackendUnavailableError, ConfigurationError, CorruptCheckpointError
from locus.memory.backends.sql.backend import SQLBackend
from locus.memory.backends.sql.engine import SQLServerEngine
from locus.memory.backends.sqlite.client import open_untouched
from locus.memory.model.codec import decode
from locus.memory.registry import get_checkpointer
from locus.memory.runtime.url import path_of


def sql_engine(url: str) -> tuple[SQLServerEngine[Any], str | None, str | None]:
    """The engine for a server that a URL names, and the table and the schema, if it names them."""
    backend = getattr(get_checkpointer(url), "backend", None)
    if not isinstance(backend, SQLBackend):
        raise ConfigurationError("this is not the URL of an SQL server")
    config: Any = getattr(backend, "config", backend)  # a backend for Oracle Database is its own
    table = config.table_name if "table_name" in config.model_fields_set else None
    return cast(SQLServerEngine[Any], backend.store.engine), table, getattr(config, "schema_name", None)


async def columns_of(engine: SQLServerEngine[Any], table: str, schema: str | None) -> set[str]:
    """The names of the columns of a table, none if it is not there."""
    if engine.identity.startswith("oracle"):
        return await _columns_in_oracle(engine, table, schema)
    here = "current_schema()" if engine.identity.startswith("postgresql") else "database()"
    rows = await engine.ask(
        (
            "SELECT column_name FROM information_schema.columns WHERE table_name = ?"
            f" AND table_schema = {'?' if schema else here}",
            (table, schema) if schema else (table,),
        )
    )
    return {str(column).lower() for (column,) in rows}


async def _columns_in_oracle(engine: SQLServerEngine[Any], table: str, schema: str | None) -> set[str]:
    """Names without quotes are in upper case there."""
    owner = "?" if schema else "SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')"
    rows = await engine.ask(
        (
            f"SELECT column_name FROM all_tab_columns WHERE table_name = ? AND owner = {owner}",
            (table.upper(), schema.upper()) if schema else (table.upper(),),
        )
    )
    return {str(column).lower() for (column,) in rows}


def json_in(engine: SQLServerEngine[Any], value: Any) -> Any:
    """What a column holds, where JSON is text; in Oracle Database somebody may have made a column of JSON of it."""
    return decode(engine.sql.read_json(value) if isinstance(value, dict | list) else value)


def place_of(engine: SQLServerEngine[Any]) -> str:
    """Where a server is, for people: without the tables of ours, which are not meant."""
    return engine.identity.rpartition("/")[0]


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
