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

Rows of checkpoints, runs and pending writes have a `checksum` of their content. `items_before` of a run is a digest of
the items that precede it (see `locus.memory.model.digests`). An older version has left NULL there.

All names begin with `locus_`, so that the tables can live in an application's own database. `locus_search` is created
by the first search (see `search`), and everything else by the migrations. The tables of another key space have its name
in theirs, such as `locus__memory_threads`: its connections put it into every statement (see `client.in_tables`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from locus.errors import CorruptCheckpointError
from locus.memory.backends.sql.flavour import ItemFlavour, packed, unpacked
from locus.memory.backends.sql.schema import (
    RUN_INFO,
    WRITE_COLUMNS,
    WRITE_KEY,
    CheckpointRow,
    read_migrations,
    read_script,
    statements_in,
)
from locus.memory.model.codec import check_sum, checksum, run_checksum
from locus.memory.model.foreign import FOREIGN_TABLES, IN_SQLITE, kind_of_tables
from locus.memory.model.formats import check_format, oldest
from locus.memory.model.records import Entry, Run

TABLES = "locus_"
"""How the names of all tables begin."""
_PACKAGE = "locus.memory.backends.sqlite"
MIGRATIONS = tuple(statements_in(script) for script in read_migrations(_PACKAGE))


class SQLiteFlavour(ItemFlavour):
    lock = ""  # a writing transaction locks the whole file
    checksums = True

    def item_tables(self) -> tuple[str, ...]:
        return statements_in(read_script(_PACKAGE, "items.sql"), prefix=self.prefix)

    def has_table(self, table: str) -> tuple[str, Sequence[Any]]:
        return "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)

    def pairs(self, count: int) -> str:
        return f"(VALUES {', '.join(['(?, ?)'] * count)})"

    def new_run(self, thread: Any, run: Run, seq: int) -> tuple[Any, ...]:
        branch, number, start, length, items, before = run
        return (thread, branch, number, start, length, seq, items, before, run_checksum(*run))

    def read_run(self, row: Sequence[Any]) -> Run:
        (run,) = _checked_runs([row])
        return run

    def read_runs(self, rows: Sequence[Sequence[Any]], runs: dict[str, dict[int, Run]]) -> None:
        here, members = None, dict[int, Run]()
        for run in _checked_runs(rows):
            if run.branch != here:
                here = run.branch
                members = runs.setdefault(here, {})
            members[run.number] = run

    def checked_checkpoint(self, thread: int, entry: Entry, head: str, manifest: str) -> tuple[Any, ...]:
        """Make the row of a checkpoint, for an INSERT, with its checksum. A removal may change `parent_id` later."""
        row = self.new_checkpoint(thread, entry, head, manifest)
        return (*row, checksum(row.namespace, row.checkpoint_id, *row[4:]))

    def check_checkpoint(self, row: CheckpointRow) -> None:
        about = (row.namespace, row.checkpoint_id, row.seq, row.rev, row.created_at, row.metadata)
        check_sum(row.checksum, "a checkpoint", *about, row.head, row.manifest)

    def put_write(self) -> str:
        return (
            f"INSERT INTO {self.writes} ({WRITE_COLUMNS}, checksum)"
            f" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT ({WRITE_KEY}) DO UPDATE SET task_path ="
            " excluded.task_path, channel = excluded.channel, value = excluded.value, checksum = excluded.checksum"
        )

    def write_columns(self, of: str = "") -> str:
        return f"{of}value, {of}checksum"

    def write_values(self, text: str) -> tuple[str | bytes, int]:
        """Split JSON into the columns `write_columns`: text, or a BLOB if packed, and the checksum of the text."""
        return (packed(text) or text, checksum(text))

    def read_write(self, columns: Sequence[Any]) -> str:
        value, stored = columns
        text = unpacked(value) if isinstance(value, bytes) else self.read_json(value)
        check_sum(stored, "a pending write", text)
        return text

    def time(self, at: datetime) -> str:
        """Convert a time to text that sorts."""
        return at.astimezone(UTC).isoformat(timespec="microseconds")

    def bytes_of(self, column: str) -> str:
        return f"length(CAST({column} AS BLOB))"  # `octet_length` is newer than many versions of Python

    def no_time(self, column: str) -> str:
        return f"{column} NOT GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9]*+00:00'"

    def read_time(self, value: Any) -> datetime:
        return datetime.fromisoformat(value)


def _checked_runs(rows: Sequence[Sequence[Any]]) -> list[Run]:
    """Make runs of the columns `run`. A long thread has thousands, so nothing but the checksum is called for each."""
    for branch, number, start, length, items, before, stored in rows:
        if type(items) is not str:
            raise CorruptCheckpointError("a JSON column holds no text")
        if stored is not None and stored != run_checksum(branch, number, start, length, items, before):
            raise CorruptCheckpointError("a run of items does not fit its checksum")
    return [Run._make(row[:-1]) for row in rows]


class OldSQLiteFlavour(SQLiteFlavour):
    """The SQL of a file of format 1 or 2 that is only read, and so is not migrated."""

    def __init__(self) -> None:
        super().__init__()
        self.stored = self.columns("head", "manifest", "passed", "thread")
        self.exported = self.columns("head", "manifest", "thread")
        self.held = self.held_columns(with_checksum=False)
        self.run = f"{RUN_INFO}, items, NULL, NULL"

    def write_columns(self, of: str = "") -> str:
        return f"{of}value, NULL"


SQL = SQLiteFlavour()
OLD_SQL = OldSQLiteFlavour()
WITHOUT_CHECKSUMS = 2
"""The newest format that `OLD_SQL` is for."""


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
