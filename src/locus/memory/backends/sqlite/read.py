"""Queries by metadata in SQLite, which needs its own."""

from __future__ import annotations

from locus.memory.backends.sql import read as sql_read
from locus.memory.backends.sql.flavour import Steps
from locus.memory.backends.sqlite.schema import SQLiteFlavour
from locus.memory.model.records import Entry


def find(sql: SQLiteFlavour, key: str, value: str, limit: int, prefix: str) -> Steps[list[Entry]]:
    """List entries of checkpoints by metadata, newest first.

    CROSS JOIN tells SQLite in which order to look: it does not know how many checkpoints have a value. The index has
    those of one value in their order, so that no more of them are read than are asked for. If few threads have the
    prefix, it is quicker to look at these.
    """
    here, bounds = sql_read.within(sql, prefix)
    pair = "m.key = ? AND m.value = ?"
    if prefix and (yield from sql_read.is_small(sql, prefix)):
        tables = f"{sql.threads} t CROSS JOIN {sql.checkpoints} c ON c.thread = t.id"
        has_pair = f"EXISTS (SELECT 1 FROM locus_metadata m WHERE {pair} AND m.checkpoint = c.id)"
        condition, values = f"{here} AND {has_pair} ORDER BY c.id DESC", (*bounds, key, value)
    else:
        checkpoint = f"{sql.checkpoints} c ON c.id = m.checkpoint"
        tables = f"locus_metadata m CROSS JOIN {checkpoint} CROSS JOIN {sql.threads} t ON t.id = c.thread"
        condition, values = f"{pair} AND {here} ORDER BY m.checkpoint DESC", (key, value, *bounds)
    return (yield from sql_read.entries(sql, condition, values, limit, tables))
