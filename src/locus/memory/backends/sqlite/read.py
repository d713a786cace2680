"""Queries in SQLite that need its own SQL: by metadata, and whether anything has changed."""

from __future__ import annotations

from typing import Any

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


def state(sql: SQLiteFlavour) -> Steps[tuple[object, ...]]:
    """What differs whenever a checkpoint was added or removed: the newest one, and how many there are.

    One that is added gets the highest id. So as long as the newest is the same, none is there that came after it, and
    if none of the older ones is missing either, nothing has changed.
    """
    newest = yield f"SELECT c.id, c.rev FROM {sql.checkpoints} c ORDER BY c.id DESC LIMIT 1", ()
    counted = yield f"SELECT COUNT(*) FROM {sql.checkpoints} c", ()
    return (*map(tuple, newest), *map(tuple, counted))


def changed(sql: SQLiteFlavour, since: tuple[Any, ...], prefix: str) -> Steps[list[str] | None]:
    """List the threads of a prefix that got checkpoints since a state; None if anything was removed.

    The newest one of then has its id still, so those that came later have higher ones, and no id was used twice.
    """
    if len(since) != 2:
        return None
    (newest, rev), (before,) = since
    if list(map(tuple, (yield f"SELECT c.rev FROM {sql.checkpoints} c WHERE c.id = ?", (newest,)))) != [(rev,)]:
        return None
    ((now,),) = yield f"SELECT COUNT(*) FROM {sql.checkpoints} c", ()
    ((added,),) = yield f"SELECT COUNT(*) FROM {sql.checkpoints} c WHERE c.id > ?", (newest,)
    if now != before + added:
        return None
    here, values = sql_read.within(sql, prefix)
    names = yield f"SELECT DISTINCT t.thread_id FROM {sql.joined} WHERE c.id > ? AND {here}", (newest, *values)
    return [sql.read_text(name) for (name,) in names]
