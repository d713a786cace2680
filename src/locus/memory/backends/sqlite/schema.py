"""SQL as SQLite speaks it, and how its statements are carried out."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from locus.errors import UnsupportedFormatError
from locus.memory.backends.sql.flavour import Flavour, packed, unpacked

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

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE locus_threads (
            id INTEGER PRIMARY KEY, thread_id TEXT NOT NULL UNIQUE, last_seq INTEGER NOT NULL, expires_at TEXT)""",
        """CREATE TABLE locus_checkpoints (
            id INTEGER PRIMARY KEY, thread INTEGER NOT NULL, namespace TEXT NOT NULL, checkpoint_id TEXT NOT NULL,
            parent_id TEXT, seq INTEGER NOT NULL, rev TEXT NOT NULL, created_at TEXT NOT NULL,
            metadata TEXT NOT NULL, head TEXT NOT NULL, manifest TEXT NOT NULL)""",
        "CREATE UNIQUE INDEX locus_checkpoints_by_id ON locus_checkpoints (thread, namespace, checkpoint_id)",
        "CREATE UNIQUE INDEX locus_checkpoints_by_seq ON locus_checkpoints (thread, namespace, seq)",
        """CREATE TABLE locus_runs (
            id INTEGER PRIMARY KEY, thread INTEGER NOT NULL, branch TEXT NOT NULL, number INTEGER NOT NULL,
            start INTEGER NOT NULL, count INTEGER NOT NULL, seq INTEGER NOT NULL, items TEXT NOT NULL)""",
        "CREATE UNIQUE INDEX locus_runs_by_branch ON locus_runs (thread, branch, number)",
        """CREATE TABLE locus_writes (
            thread INTEGER NOT NULL, namespace TEXT NOT NULL, checkpoint_id TEXT NOT NULL, task_id TEXT NOT NULL,
            idx INTEGER NOT NULL, task_path TEXT NOT NULL, channel TEXT NOT NULL, value TEXT NOT NULL,
            PRIMARY KEY (thread, namespace, checkpoint_id, task_id, idx)) WITHOUT ROWID""",
        """CREATE TABLE locus_metadata (
            key TEXT NOT NULL, value TEXT NOT NULL, checkpoint INTEGER NOT NULL,
            PRIMARY KEY (key, value, checkpoint)) WITHOUT ROWID""",
        """CREATE TABLE locus_indexed (what TEXT PRIMARY KEY, up_to INTEGER NOT NULL) WITHOUT ROWID""",
        "INSERT INTO locus_indexed VALUES ('runs', 0), ('checkpoints', 0)",
    ),
    (
        # A table WITHOUT ROWID has a page of its own for every row of more than a quarter of one.
        """CREATE TABLE locus_writes_2 (
            thread INTEGER NOT NULL, namespace TEXT NOT NULL, checkpoint_id TEXT NOT NULL, task_id TEXT NOT NULL,
            idx INTEGER NOT NULL, task_path TEXT NOT NULL, channel TEXT NOT NULL, value NOT NULL)""",
        "INSERT INTO locus_writes_2 SELECT * FROM locus_writes",
        "DROP TABLE locus_writes",
        # Else a view of the application's that shows the table is in the way.
        "PRAGMA legacy_alter_table=ON",
        "ALTER TABLE locus_writes_2 RENAME TO locus_writes",
        "PRAGMA legacy_alter_table=OFF",
        "CREATE UNIQUE INDEX locus_writes_by_task ON locus_writes (thread, namespace, checkpoint_id, task_id, idx)",
    ),
)


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
    """The format of the tables, 0 if there are none; newer ones than we know are refused."""
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
