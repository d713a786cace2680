"""Reads the SQL tables of other libraries.

A server is read through the connections of the Locus backends, without creating their tables. An SQLite file is opened
read-only.
"""

from __future__ import annotations

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
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
from locus.transfer.sources import Source

T = TypeVar("T")
SourceRow = tuple[Any, ...]

TIMEOUT = 30.0
"""How many seconds to wait for a lock of another process."""


def sqlite_path(location: str) -> str:
    """The path in `sqlite:a.db`, `sqlite:///a.db`, or the path itself."""
    name, colon, rest = location.partition(":")
    return path_of(rest) if colon and name == "sqlite" else location


def quote_name(name: str) -> str:
    """The name of a table or column, quoted for a statement."""
    return '"' + name.replace('"', '""') + '"'


class TableReader(ABC):
    """Reads the tables of another library, in whatever database they are."""

    name: str
    """A name of the database to show to people, without secrets."""

    def place(self, table: str) -> str:
        """The table as it is named in a statement."""
        return table

    @abstractmethod
    async def columns(self, table: str) -> set[str]:
        """The names of a table's columns; empty if the table does not exist."""

    @abstractmethod
    async def all(self, statement: str, values: Sequence[Any] = ()) -> list[SourceRow]:
        """All rows of a statement."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connection to the database."""


class TableSource(Source):
    """Tables of another library, in whatever database they are."""

    def __init__(self, database: TableReader) -> None:
        self._database = database

    @property
    def name(self) -> str:
        return self._database.name

    async def close(self) -> None:
        await self._database.close()


_DICTIONARIES = {
    "postgresql": ("information_schema.columns", "table_schema", "current_schema()"),
    "mysql": ("information_schema.columns", "table_schema", "database()"),
    "oracle": ("all_tab_columns", "owner", "SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')"),
}
"""By database: the view of all columns, its column for the schema, and the schema of the connection."""


class ServerReader(TableReader):
    """Reads tables from an SQL server, of the schema that the URL names, if it names one."""

    def __init__(self, url: str) -> None:
        backend = getattr(get_checkpointer(url), "backend", None)
        if not isinstance(backend, SQLBackend):
            raise ConfigurationError("this is not the URL of an SQL server")
        config: Any = getattr(backend, "config", backend)  # the Oracle backend is its own config
        self.engine = cast(SQLServerEngine[Any], backend.store.engine)
        self.table: str | None = config.table_name if "table_name" in config.model_fields_set else None
        """The table that the URL names, if it names one."""
        self.name = self.engine.identity.rpartition("/")[0]
        self.is_oracle = self.engine.identity.startswith("oracle")
        self._schema: str | None = getattr(config, "schema_name", None)

    def place(self, table: str) -> str:
        if not self._schema:
            return table
        return f"{self._schema}.{table}" if self.is_oracle else f'"{self._schema}"."{table}"'

    async def columns(self, table: str) -> set[str]:
        view, owner, here = _DICTIONARIES[self.name.partition(":")[0]]
        names = (table, self._schema) if self._schema else (table,)
        rows = await self.all(
            f"SELECT column_name FROM {view} WHERE table_name = ? AND {owner} = {'?' if self._schema else here}",
            # Oracle Database stores unquoted names in upper case.
            tuple(name.upper() for name in names) if self.is_oracle else names,
        )
        return {str(column).lower() for (column,) in rows}

    async def all(self, statement: str, values: Sequence[Any] = ()) -> list[SourceRow]:
        return [tuple(row) for row in await self.engine.ask((statement, values))]

    def read_json(self, value: Any) -> Any:
        """Decode the value of a column with JSON text. In Oracle Database it may also be a column of type JSON."""
        return decode(self.engine.sql.read_json(value) if isinstance(value, dict | list) else value)

    async def close(self) -> None:
        await self.engine.close()


class SQLiteReader(TableReader):
    """Reads tables from an SQLite file, which is opened read-only: `sqlite:a.db`, or its path."""

    def __init__(self, location: str) -> None:
        self.path = str(Path(sqlite_path(location)).expanduser().absolute())
        self.name = f"sqlite:{self.path}"
        self._connection: sqlite3.Connection | None = None
        self._lock = asyncio.Lock()

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run work on another OS thread, one call at a time."""

        def job() -> T:
            with self._translated_errors():
                if self._connection is None:
                    self._connection = open_untouched(self.path, TIMEOUT)
                return work(self._connection)

        async with self._lock:
            return await asyncio.to_thread(job)

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
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
        """The names of the tables in the file."""
        rows = await self.all("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {str(name) for (name,) in rows}

    async def columns(self, table: str) -> set[str]:
        return {str(row[1]) for row in await self.all(f"PRAGMA table_info({quote_name(table)})")}

    async def all(self, statement: str, values: Sequence[Any] = ()) -> list[SourceRow]:
        return await self._run(lambda connection: connection.execute(statement, values).fetchall())

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await asyncio.to_thread(connection.close)
