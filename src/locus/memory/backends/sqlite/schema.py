"""The tables in an SQLite file, how they are migrated, and the SQL that SQLite speaks.

    locus_threads      one row a thread: its id, its counter of sequence numbers, when it expires
    locus_checkpoints  one row a checkpoint: who, when, metadata, head and manifest
    locus_runs         one row a run: `items` is a JSON array (see `locus.memory.model.records`)
    locus_writes       pending writes: `value` is JSON, or a BLOB of the same JSON packed by zlib
    locus_metadata     every metadata key and value, for look-ups: the value as canonical JSON, or its digest
    locus_search       full text (FTS5, without a copy of the text), brought up to date by the next search
    locus_indexed      how far the full text has got in the rows of runs, and in those of checkpoints; `forgotten` is 1
                       while words of removed rows may be left in it
    locus_format       the version of these tables

All names begin with `locus_`, so that the tables can live in an application's own database. `locus_search` is created
by the first search (see `search`), and everything else by the migrations.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from locus.errors import UnsupportedFormatError
from locus.memory.backends.sql.flavour import Flavour, packed, unpacked
from locus.memory.backends.sql.schema import read_migrations, statements_in

MIGRATIONS = tuple(statements_in(script) for script in read_migrations("locus.memory.backends.sqlite"))


class SQLiteFlavour(Flavour):
    lock = ""  # a writing transaction locks the whole file

    def pairs(self, count: int) -> str:
        return f"(VALUES {', '.join(['(?, ?)'] * count)})"

    def write_values(self, text: str) -> tuple[str | bytes]:
        """A column takes any type: text, or a BLOB if the value is packed."""
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


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the tables to the newest version, in one transaction."""
    if version(connection) == len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = checked_version(connection)
        if not found:
            connection.execute("CREATE TABLE IF NOT EXISTS locus_format (version INTEGER NOT NULL)")
            connection.execute("INSERT INTO locus_format VALUES (0)")
        for step in MIGRATIONS[found:]:
            for statement in step:
                connection.execute(statement)
        connection.execute("UPDATE locus_format SET version = ?", (len(MIGRATIONS),))
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def checked_version(connection: sqlite3.Connection) -> int:
    """The format of the tables, 0 if there are none; a newer format than this version knows is refused."""
    found = version(connection)
    if found > len(MIGRATIONS):
        raise UnsupportedFormatError(
            f"the database has format {found}, and this version of Locus knows up to {len(MIGRATIONS)}: "
            "upgrade locus-sdk"
        )
    return found


def version(connection: sqlite3.Connection) -> int:
    """The format of the tables; 0 if there are none."""
    exists = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'locus_format'")
    if exists.fetchone() is None:
        return 0
    found = connection.execute("SELECT max(version) FROM locus_format").fetchone()[0]
    return int(found or 0)
