"""Rows of the SQLite tables as the model's records."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from locus.errors import CorruptCheckpointError
from locus.memory.records import Entry, Extent, Run

Connection = sqlite3.Connection

ENTRY = "t.thread_id, c.namespace, c.checkpoint_id, c.parent_id, c.seq, c.rev, c.created_at, c.metadata"
JOINED = "locus_checkpoints c JOIN locus_threads t ON t.id = c.thread"
PASSED = (
    "EXISTS (SELECT 1 FROM locus_checkpoints n"
    " WHERE n.thread = c.thread AND n.namespace = c.namespace AND n.seq > c.seq)"
)
ALIVE = "(t.expires_at IS NULL OR t.expires_at > ?)"


def instant(at: datetime) -> str:
    """A time as text that sorts."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def now() -> str:
    return instant(datetime.now(UTC))


def to_entry(row: Sequence[Any]) -> Entry:
    """An entry from the columns of `ENTRY`, which a row begins with."""
    thread_id, namespace, checkpoint_id, parent_id, seq, rev, created_at, metadata = row[:8]
    try:
        created = datetime.fromisoformat(created_at)
    except (TypeError, ValueError) as error:
        raise CorruptCheckpointError(f"checkpoint {checkpoint_id!r} has no time that can be read") from error
    return Entry(thread_id, namespace, checkpoint_id, parent_id, seq, rev, created, metadata)


def select_one(connection: Connection, columns: str, thread_id: str, namespace: str, checkpoint_id: str | None) -> Any:
    """One checkpoint, the latest if no id is given."""
    condition, values = (
        ("ORDER BY c.seq DESC LIMIT 1", [])
        if checkpoint_id is None
        else (
            "AND c.checkpoint_id = ?",
            [checkpoint_id],
        )
    )
    return connection.execute(
        f"SELECT {columns} FROM {JOINED} WHERE t.thread_id = ? AND {ALIVE} AND c.namespace = ? {condition}",
        (thread_id, now(), namespace, *values),
    ).fetchone()


def select_runs(connection: Connection, thread: int, extent: Extent) -> list[Run]:
    """The runs that an extent shows: from the newest that begins at its start, or before it, on."""
    rows = connection.execute(
        "SELECT branch, number, start, count, items FROM locus_runs WHERE thread = ? AND branch = ? AND number <= ?"
        " AND number >= (SELECT number FROM locus_runs WHERE thread = ? AND branch = ? AND number <= ? AND start <= ?"
        " ORDER BY number DESC LIMIT 1)",
        (thread, extent.branch, extent.run, thread, extent.branch, extent.run, extent.skip),
    )
    runs = [Run(*row) for row in rows]
    if not all(isinstance(run.items, str) for run in runs):
        raise CorruptCheckpointError(f"items of branch {extent.branch!r} are no text")
    return runs
