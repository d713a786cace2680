"""SQL as SQLite speaks it, and how its statements are carried out."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

from locus.memory.backends.sql.flavour import Flavour, Steps, run_steps
from locus.memory.backends.sql.sql_packing import packed, unpacked

T = TypeVar("T")
Connection = sqlite3.Connection


class SQLiteFlavour(Flavour):
    lock = ""  # a writing transaction has the whole file

    def pairs(self, count: int) -> str:
        return f"(VALUES {', '.join(['(?, ?)'] * count)})"

    def write_values(self, text: str) -> tuple[str | bytes]:
        """A column takes whatever it is given: text, or a BLOB if it is packed."""
        return (packed(text) or text,)

    def read_write(self, columns: Sequence[Any]) -> str:
        (value,) = columns
        return unpacked(value) if isinstance(value, bytes) else self.read_json(value)

    def time(self, at: datetime) -> str:
        """As text that sorts."""
        return at.astimezone(UTC).isoformat(timespec="microseconds")

    def read_time(self, value: Any) -> datetime:
        return datetime.fromisoformat(value)


SQL = SQLiteFlavour()


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
