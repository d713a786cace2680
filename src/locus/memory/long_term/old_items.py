"""Moves the items that LangGraph's stores of older versions have kept in a table of their own.

Up to 0.1, `LocusStore` had two tables beside the threads of an SQLite or PostgreSQL database:

    locus_store         namespace (a path), key, value (JSON), created_at, updated_at, and ttl_minutes and expires_at
                        of items that expire
    locus_store_format  the version of the table: 1, or 2 since its items were moved

The first use of a memory moves what is there, in portions: each is a transaction that keeps items and removes their
rows, so it may be interrupted at any time, and two processes may do it at once. Where an item is in both places, the
one that was put later counts. Versions that know only format 1 refuse a table of format 2. One that was running already
goes on writing to it, and the next use of a memory moves that, too.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from locus.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    DamagedThreadsWarning,
    InvalidIdError,
    UnsupportedFormatError,
)
from locus.memory.backends.sql import read as sql_read
from locus.memory.backends.sql.commit import SQLThreads
from locus.memory.backends.sql.engine import SQLEngine
from locus.memory.backends.sql.flavour import FormerItemsFlavour, Steps
from locus.memory.engine import Engine
from locus.memory.long_term.commits import commit_of_item
from locus.memory.long_term.items import Item, has_ended
from locus.memory.long_term.names import Namespace, item_id
from locus.memory.model.codec import decode
from locus.memory.model.records import DEFAULT_NAMESPACE

FORMAT, MOVED = 1, 2
PORTION = 250
"""How many rows one transaction moves."""

_COLUMNS = ("namespace", "key", "value", "created_at", "updated_at", "ttl_minutes", "expires_at")


async def move_old_items(former: Engine, space: Engine) -> int:
    """Move the items of the old table of a store into its key space for items; return how many rows that were."""
    if not isinstance(former, SQLEngine) or not isinstance(former.sql, FormerItemsFlavour):
        return 0
    assert isinstance(space, SQLEngine)
    moving, moved = _Moving(former.sql, space), 0
    version = await space.carry_out(moving.version, writing=False)
    if version > MOVED:
        raise UnsupportedFormatError(
            f"the table {moving.table} has format {version}, and this version of Locus knows up to {MOVED}: "
            "upgrade locus-state"
        )
    while version and await space.carry_out(moving.is_left, writing=False):
        if space.reading_only:
            raise ConfigurationError(
                f"the table {moving.table} has items of an older version, which are moved at the first use: open this "
                "store for writing once"
            )
        moved += await space.change(moving.move)
    if moving.unreadable:
        warnings.warn(
            f"{moving.unreadable} items of an older version cannot be read, and stay in the table {moving.table}",
            DamagedThreadsWarning,
            stacklevel=2,
        )
    return moved


async def has_old_items(former: Engine, space: Engine) -> bool:
    """Whether items are left in the old table of a store."""
    if not isinstance(former, SQLEngine) or not isinstance(former.sql, FormerItemsFlavour):
        return False
    assert isinstance(space, SQLEngine)
    moving = _Moving(former.sql, space)
    is_there = await space.carry_out(moving.version, writing=False)
    return bool(is_there) and await space.carry_out(moving.is_left, writing=False)


class _Moving:
    """The statements that move items. They go through connections of the key space, which is in the same database."""

    def __init__(self, sql: FormerItemsFlavour, space: SQLEngine) -> None:
        self.sql = sql
        self.space = space
        self.table, self.format = sql.former_table("store"), sql.former_table("store_format")
        self.unreadable = 0
        self._after: Sequence[Any] = ()
        """The place of the last row that cannot be read. Those before it are not looked at again."""

    def version(self) -> Steps[int]:
        """The format of the old table; 0 if there is none."""
        if not (yield self.sql.has_table(self.format)):
            return 0
        ((version,),) = yield f"SELECT max(version) FROM {self.format}", ()
        return int(version)

    def is_left(self) -> Steps[bool]:
        return bool((yield from self._rows(1)))

    def move(self, threads: SQLThreads) -> Steps[int]:
        """Move a portion."""
        lock = self.sql.migration_lock()
        if lock is not None:
            yield lock
        yield f"UPDATE {self.format} SET version = ? WHERE version = ?", (MOVED, FORMAT)
        rows = yield from self._rows(PORTION)
        for row in rows:
            try:
                item = self._item(row)
            except (CorruptCheckpointError, InvalidIdError):
                self.unreadable += 1
                self._after = row[:2]
                continue
            name = item_id(item.namespace, item.key)
            newest = yield from sql_read.entry(self.space.sql, name, DEFAULT_NAMESPACE, None)
            is_older = newest is not None and newest.created_at >= item.updated_at
            if not is_older and not has_ended(item, datetime.now(UTC)):
                yield from threads.commit(commit_of_item(self.space, name, item))
            yield f"DELETE FROM {self.table} WHERE namespace = ? AND key = ?", row[:2]
        return len(rows)

    def _rows(self, most: int) -> Steps[Sequence[Sequence[Any]]]:
        columns = ", ".join(self.sql.json_column(name) if name == "value" else name for name in _COLUMNS)
        after = " WHERE (namespace, key) > (?, ?)" if self._after else ""
        rows = yield f"SELECT {columns} FROM {self.table}{after} ORDER BY namespace, key LIMIT ?", (*self._after, most)
        return rows

    def _item(self, row: Sequence[Any]) -> Item:
        path, key, value, created_at, updated_at, ttl_minutes, expires_at = row
        read_time = self.sql.read_time
        return Item(
            _namespace_of(self.sql.read_text(path)),
            self.sql.read_text(key),
            decode(self.sql.read_json(value)),
            {},
            read_time(created_at),
            read_time(updated_at),
            0,
            ttl_seconds=None if ttl_minutes is None else ttl_minutes * 60,
            expires_at=None if expires_at is None else read_time(expires_at),
        )


def _namespace_of(path: str) -> Namespace:
    """The labels of a path: each was followed by a slash, with `~1` for a slash and `~0` for a tilde in it."""
    return tuple(label.replace("~1", "/").replace("~0", "~") for label in path.split("/")[:-1])
