"""Looks for faults of an SQLite file, for `locus doctor`."""

from __future__ import annotations

import re
import sqlite3

from locus.memory.backends.sqlite.schema import MIGRATIONS, TABLES, version
from locus.memory.model.findings import missing_indexes
from locus.memory.model.records import Finding

_INDEX = re.compile(r"CREATE (?:UNIQUE )?INDEX (\w+)", re.IGNORECASE)
_INDEXES = "SELECT name FROM sqlite_master WHERE type = 'index'"
_MOST_SAID = 3


def findings(connection: sqlite3.Connection, tables: str) -> list[Finding]:
    """Examine a file. `tables` is how the names of its tables begin."""
    return [*_damage(connection), *_missing_indexes(connection, tables)]


def _damage(connection: sqlite3.Connection) -> list[Finding]:
    # It compares every index with its rows too, which `quick_check` does not.
    try:
        answers = [str(text) for (text,) in connection.execute(f"PRAGMA integrity_check({_MOST_SAID})")]
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError as error:
        answers = [str(error)]
    if answers == ["ok"]:
        return []
    return [
        Finding(
            "error",
            f"SQLite finds the file damaged: {'; '.join(answers):.300}",
            "copy the file away, then restore it from a backup, or save what is left with `sqlite3 FILE .recover`",
        )
    ]


def _missing_indexes(connection: sqlite3.Connection, tables: str) -> list[Finding]:
    # Of the format that the file has: one that is only read may be older.
    wanted = {
        name.replace(TABLES, tables): statement.replace(TABLES, tables)
        for step in MIGRATIONS[: version(connection)]
        for statement in step
        for name in _INDEX.findall(statement)
    }
    return missing_indexes(wanted, {name for (name,) in connection.execute(_INDEXES)})
