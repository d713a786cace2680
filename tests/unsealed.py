"""Rows of an SQLite file that were changed on purpose, without a seal that would tell."""

from __future__ import annotations

import sqlite3


def unseal(connection: sqlite3.Connection) -> None:
    """Let all rows be as an older version would have stored them: with neither seals nor checksums."""
    for table in ("checkpoints", "runs", "writes"):
        connection.execute(f"UPDATE locus_{table} SET seal = NULL, checksum = NULL")
    connection.execute("UPDATE locus_checkpoints SET previous = NULL")
    connection.execute("UPDATE locus_threads SET seal = NULL, newest = NULL, digest = NULL")
    for table in ("threads", "checkpoints", "runs", "writes"):
        connection.execute(f"UPDATE locus_format SET unsealed_{table} = {1 << 40}")
