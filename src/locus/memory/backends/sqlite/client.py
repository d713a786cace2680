"""The SQLite file: how it is opened, and the tables in it.

    locus_threads      one row a thread: its id, its counter of sequence numbers, when it ends
    locus_checkpoints  one row a checkpoint: who, when, metadata, head and manifest
    locus_runs         one row a run: `items` is a JSON array (see `locus.memory.model.records`)
    locus_writes       pending writes: `value` is JSON, or a BLOB of the same packed by zlib
    locus_metadata     every metadata key and value, for look-ups: the value as canonical JSON, or its digest
    locus_search       full text (FTS5, without a copy of the text), brought up to date when it is asked

All names begin with `locus_`, so that the tables can live in an application's own database.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from locus.memory.backends.sql.flavour import Steps, run_steps
from locus.memory.backends.sqlite.schema import (
    Connection,
    migrate,
)
from locus.memory.model.arguments import possible_path


class SQLiteFile:
    """An open connection; it belongs to one thread."""

    def __init__(self, path: str, *, durability: str, timeout: float, writable: bool, untouched: bool = False) -> None:
        """`untouched` opens a file without a right to change it: not even its journal is looked after."""
        self._path = path
        self._untouched = untouched
        self._durability = durability
        self._timeout = timeout
        self._writable = writable
        self._inode: tuple[int, int] | None = None
        self._connection: sqlite3.Connection | None = None

    def _open(self) -> sqlite3.Connection:
        # Only the writer may create the file: a reader that did would find nothing in it, and say so.
        # Nor may the writer, once it was there: a file that is gone must not be taken for a new one.
        if self._untouched:
            return open_untouched(self._path, self._timeout)
        mode = "rwc" if self._writable and self._inode is None else "rw"
        if mode == "rwc" and self._path != ":memory:":
            with possible_path(self._path):
                Path(self._path).parent.mkdir(parents=True, exist_ok=True)
        name = ":memory:" if self._path == ":memory:" else f"file:{quote(self._path)}?mode={mode}"
        connection = sqlite3.connect(
            name, timeout=self._timeout, isolation_level=None, check_same_thread=False, uri=True
        )
        try:
            self._patiently(lambda: connection.execute("PRAGMA journal_mode=WAL"))
            connection.execute(f"PRAGMA synchronous={self._durability.upper()}")
            if self._writable:
                self._patiently(lambda: migrate(connection))
            else:
                connection.execute("PRAGMA query_only=ON")
        except BaseException:
            connection.close()
            raise
        return connection

    def _patiently(self, step: Callable[[], object]) -> None:
        """Changing the journal mode does not wait for a lock as other statements do, so wait here."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                step()
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def _current_inode(self) -> tuple[int, int] | None:
        if self._path == ":memory:":
            return None
        try:
            found = os.stat(self._path)  # noqa: PTH116 - at every save, and three times as fast
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def is_there(self) -> bool:
        return self._current_inode() is not None

    def current(self) -> sqlite3.Connection:
        """The connection to the file that has the path now.

        Writing on to a file that was moved away or deleted would succeed, and everything would be lost.
        """
        if self._connection is None or self._current_inode() != self._inode:
            self.close()
            self._connection = self._open()
            self._inode = self._current_inode()
        return self._connection

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class MemoryFile(SQLiteFile):
    """A database in memory: it lives as long as its connection, which therefore outlives the worker's threads."""

    def close(self) -> None:
        """Only `discard` ends it."""

    def discard(self) -> None:
        super().close()


def open_untouched(path: str, timeout: float) -> sqlite3.Connection:
    """A connection that can change nothing in a file that is there.

    Even who only reads keeps an index of the journal beside the file. Where that is not allowed, as on a read-only
    disk, nobody can be writing either, and the file is taken as it stands; unless it has a journal.
    """
    ways = [f"file:{quote(path)}?mode=ro"]
    journal = Path(f"{path}-wal")
    if Path(path).exists() and not (journal.exists() and journal.stat().st_size):
        ways.append(f"file:{quote(path)}?mode=ro&immutable=1")
    while True:
        connection = sqlite3.connect(
            ways.pop(0), timeout=timeout, isolation_level=None, check_same_thread=False, uri=True
        )
        try:
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
            return connection
        except sqlite3.OperationalError:
            connection.close()
            if not ways:
                raise
        except BaseException:
            connection.close()
            raise


def prepare(path: str) -> str:
    """The absolute path."""
    if path == ":memory:":
        return path
    with possible_path(path):
        return str(Path(path).expanduser().absolute())


T = TypeVar("T")


@contextmanager
def transaction(connection: Connection, kind: str = "IMMEDIATE") -> Iterator[None]:
    """Commits at the end, unless something was raised."""
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def execute(connection: Connection, steps: Steps[T]) -> T:
    """Carry out the steps of an operation, inside a transaction."""
    return run_steps(steps, lambda text, values: connection.execute(text, values).fetchall())
