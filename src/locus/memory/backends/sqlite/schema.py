"""The tables in an SQLite file, their migrations, and the SQL of SQLite.

    locus_threads      one row a thread: its id, its counter of sequence numbers, when it expires
    locus_checkpoints  one row a checkpoint: who, when, metadata, head and manifest
    locus_runs         one row a run: `items` is a JSON array (see `locus.memory.model.records`)
    locus_writes       pending writes: `value` is JSON, or a BLOB of the same JSON packed by zlib
    locus_metadata     every metadata key and value, for look-ups: the value as canonical JSON, or its digest
    locus_search       full text (FTS5, without a copy of the text), brought up to date by the next search
    locus_indexed      how far the full text has got in the rows of runs, and in those of checkpoints; `forgotten` is 1
                       while words of removed rows may be left in it
    locus_format       the version of these tables, and from which version on Locus may use them (see `formats`)

Every row has a `seal` (see `proofs`), and a checkpoint a `checksum` of all its content besides. `newest` of a thread
names its newest checkpoints, `previous` of a checkpoint the number of the one before it, and `items_before` of a run is
a digest of the items that precede it (see `locus.memory.model.digests`). An older version has left NULL there, and in
the `checksum` of runs and pending writes stands what it has made in the place of a seal.

All names begin with `locus_`, so that the tables can live in an application's own database. `locus_search` is created
by the first search (see `search`), and everything else by the migrations. The tables of another key space have its name
in theirs, such as `locus__memory_threads`: its connections put it into every statement (see `client.in_tables`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

from locus.memory.backends.sql.schema import read_migrations, statements_in
from locus.memory.backends.sqlite.proofs import SEALED, SealedFlavour
from locus.memory.model.foreign import FOREIGN_TABLES, IN_SQLITE, kind_of_tables
from locus.memory.model.formats import check_format, oldest

TABLES = "locus_"
"""How the names of all tables begin."""
_PACKAGE = "locus.memory.backends.sqlite"
MIGRATIONS = tuple(statements_in(script) for script in read_migrations(_PACKAGE))


class SQLiteFlavour(SealedFlavour):
    lock = ""  # a writing transaction locks the whole file

    def former_table(self, name: str) -> str:
        return self.table(name).upper()  # a connection of another key space puts its name into those that begin so

    def has_table(self, table: str) -> tuple[str, Sequence[Any]]:
        return "SELECT 1 FROM sqlite_master WHERE type = 'table' AND upper(name) = ?", (table,)

    def pairs(self, count: int) -> str:
        return f"(VALUES {', '.join(['(?, ?)'] * count)})"

    def time(self, at: datetime) -> str:
        """Convert a time to text that sorts."""
        return at.astimezone(UTC).isoformat(timespec="microseconds")

    def bytes_of(self, column: str) -> str:
        return f"length(CAST({column} AS BLOB))"  # `octet_length` is newer than many versions of Python

    def no_time(self, column: str) -> str:
        return f"{column} NOT GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9]*+00:00'"

    def read_time(self, value: Any) -> datetime:
        return datetime.fromisoformat(value)


SQL = SQLiteFlavour()


@cache
def sql_of(stored: int) -> SQLiteFlavour:
    """The SQL of a file of this format. One of an older format that is only read is not migrated."""
    return SQL if stored >= SEALED else SQLiteFlavour(stored)


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the tables to the newest version, in one transaction."""
    if version(connection) == len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        stored = checked_version(connection)
        if stored > len(MIGRATIONS):
            connection.execute("ROLLBACK")
            return
        if not stored:
            connection.execute("CREATE TABLE IF NOT EXISTS locus_format (version INTEGER NOT NULL)")
            connection.execute("INSERT INTO locus_format VALUES (0)")
        for step in MIGRATIONS[stored:]:
            for statement in step:
                connection.execute(statement)
        connection.execute("UPDATE locus_format SET version = ?", (len(MIGRATIONS),))
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def script(stored: int) -> str:
    """A script that brings tables of a format to the newest one, for whoever prefers to do it by hand."""
    if stored >= len(MIGRATIONS):
        return ""
    steps = [statement for step in MIGRATIONS[stored:] for statement in step]
    steps.append(f"UPDATE locus_format SET version = {len(MIGRATIONS)}")
    return "".join(f"{statement};\n" for statement in ["BEGIN IMMEDIATE", *steps, "COMMIT"])


def checked_version(connection: sqlite3.Connection, *, reading: bool = False) -> int:
    """The format of the tables, 0 if there are none. A newer one that this version cannot use is refused."""
    stored = version(connection)
    if stored > len(MIGRATIONS):
        (columns,) = connection.execute(
            "SELECT count(*) FROM pragma_table_info('locus_format') WHERE name = ?", (oldest(reading),)
        ).fetchone()
        select = f"SELECT max({oldest(reading)}) FROM locus_format"
        least = connection.execute(select).fetchone()[0] if columns else None
        check_format(stored, len(MIGRATIONS), least, "the database has")
    return stored


def foreign_kind(connection: sqlite3.Connection) -> str | None:
    """The framework whose tables are in a file, if they are the only ones; None if ours are there, or none."""
    names = {str(name) for (name,) in connection.execute(_TABLES_OF_INTEREST, ("locus_format", *FOREIGN_TABLES))}
    if not names or "locus_format" in names:
        return None
    columns = [
        (table, str(column))
        for table in names
        for (column,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
    ]
    return kind_of_tables(columns, IN_SQLITE)


_TABLES_OF_INTEREST = (
    f"SELECT name FROM sqlite_master WHERE type = 'table' AND name IN (?{', ?' * len(FOREIGN_TABLES)})"
)


def version(connection: sqlite3.Connection) -> int:
    """The format of the tables; 0 if there are none."""
    exists = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'locus_format'")
    if exists.fetchone() is None:
        return 0
    stored = connection.execute("SELECT max(version) FROM locus_format").fetchone()[0]
    return int(stored or 0)
