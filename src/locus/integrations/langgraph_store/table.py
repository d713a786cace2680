"""The table of `LocusStore` on SQLite and PostgreSQL, and the statements on it.

    locus_store         namespace (a path, see `items`), key, value (JSON), created_at, updated_at, and ttl_minutes and
                        expires_at of items that expire
    locus_store_format  the version of the table

Expired items are invisible, and stay in the table until they are swept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from locus.errors import UnsupportedFormatError
from locus.integrations.langgraph_store.items import end_of
from locus.memory.backends.postgresql.schema import PostgreSQLFlavour
from locus.memory.backends.sql.flavour import Flavour, Steps
from locus.memory.model.codec import encode

FORMAT = 1
BATCH = 500
"""How many items one statement reads, where the database cannot apply the whole filter."""

_ITEM = ("namespace", "key", "value", "created_at", "updated_at", "ttl_minutes")


class StoredItem(NamedTuple):
    """A row. The value is JSON text; times are as the driver returns them."""

    path: str
    key: str
    value: str
    created_at: Any
    updated_at: Any
    ttl_minutes: float | None


class PutItem(NamedTuple):
    """An item to save, or to delete if it has no value."""

    path: str
    key: str
    value: str | None
    ttl_minutes: float | None


class WholeItem(NamedTuple):
    """An item with its times, as it is copied to another database."""

    path: str
    key: str
    value: str
    created_at: datetime
    updated_at: datetime
    ttl_minutes: float | None
    expires_at: datetime | None

    def is_later_than(self, other: WholeItem) -> bool:
        """Whether it was changed later, or, as it expires later, read later."""
        if self.updated_at != other.updated_at or self.expires_at is None or other.expires_at is None:
            return self.updated_at > other.updated_at
        return self.expires_at > other.expires_at


class StoreTable:
    """The statements for one database."""

    def __init__(self, sql: Flavour) -> None:
        self.sql = sql
        self.name = sql.table("store")
        self.format = sql.table("store_format")
        value = sql.json_column("value")
        self._columns = ", ".join(value if column == "value" else column for column in _ITEM)
        self._alive = "(expires_at IS NULL OR expires_at > ?)"

    def statements(self) -> list[str]:
        """The statements that create the tables."""
        postgresql = isinstance(self.sql, PostgreSQLFlavour)
        text, json, time, real = (
            ('text COLLATE "C"', "jsonb", "timestamptz", "double precision")
            if postgresql
            else ("TEXT", "TEXT", "TEXT", "REAL")
        )
        index = self.sql.index("store_by_end") if isinstance(self.sql, PostgreSQLFlavour) else "locus_store_by_end"
        return [
            f"CREATE TABLE {self.format} (version integer NOT NULL)",
            f"INSERT INTO {self.format} VALUES ({FORMAT})",
            f"""CREATE TABLE {self.name} (
    namespace {text} NOT NULL, key {text} NOT NULL, value {json} NOT NULL,
    created_at {time} NOT NULL, updated_at {time} NOT NULL, ttl_minutes {real}, expires_at {time},
    PRIMARY KEY (namespace, key)
)""",
            f"CREATE INDEX {index} ON {self.name} (expires_at) WHERE expires_at IS NOT NULL",
        ]

    def found_format(self) -> Steps[int]:
        """The version of the existing table; 0 if there is none."""
        if isinstance(self.sql, PostgreSQLFlavour):
            # `to_regclass` alone may not see yet what another connection has created while this one waited.
            there = yield "SELECT 1 FROM pg_class WHERE oid = to_regclass(?)", (self.format,)
        else:
            there = yield "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (self.format,)
        if not there:
            return 0
        ((version,),) = yield f"SELECT max(version) FROM {self.format}", ()
        if version > FORMAT:
            raise UnsupportedFormatError(
                f"the table {self.name} has format {version}, and this version of Locus knows up to {FORMAT}: "
                "upgrade locus-state"
            )
        return int(version)

    def create(self, lock: int) -> Steps[None]:
        """Create the tables, unless another connection has done so in the meantime."""
        if isinstance(self.sql, PostgreSQLFlavour):
            yield "SELECT pg_advisory_xact_lock(?)", (lock,)
        found = yield from self.found_format()
        for statement in self.statements() if not found else ():
            yield statement, ()

    def get(self, path: str, key: str, now: datetime) -> Steps[list[StoredItem]]:
        sql = self.sql
        rows = yield (
            f"SELECT {self._columns} FROM {self.name} WHERE namespace = ? AND key = ? AND {self._alive}",
            (sql.text(path), sql.text(key), sql.time(now)),
        )
        return [self._stored_item(row) for row in rows]

    def put(self, items: Iterable[PutItem], now: datetime) -> Steps[None]:
        sql = self.sql
        at = sql.time(now)
        for path, key, value, ttl_minutes in items:
            place = (sql.text(path), sql.text(key))
            if value is None:
                yield f"DELETE FROM {self.name} WHERE namespace = ? AND key = ?", place
                continue
            ends = None if ttl_minutes is None else sql.time(now + timedelta(minutes=ttl_minutes))
            yield (
                f"INSERT INTO {self.name} AS kept"
                " (namespace, key, value, created_at, updated_at, ttl_minutes, expires_at)"
                f" VALUES (?, ?, {sql.json_mark}, ?, ?, ?, ?) ON CONFLICT (namespace, key) DO UPDATE"
                " SET value = excluded.value, updated_at = excluded.updated_at, ttl_minutes = excluded.ttl_minutes,"
                " expires_at = excluded.expires_at, created_at = CASE WHEN kept.expires_at <= excluded.updated_at"
                " THEN excluded.created_at ELSE kept.created_at END",
                (*place, sql.json(value), at, at, ttl_minutes, ends),
            )

    def whole_items(self, after: tuple[str, str] | None, now: datetime) -> Steps[list[WholeItem]]:
        """The items that follow a path and key, in the order of these."""
        sql = self.sql
        where, values = self._alive, [sql.time(now)]
        if after is not None:
            where, values = f"{where} AND (namespace, key) > (?, ?)", [*values, *map(sql.text, after)]
        rows = yield (
            f"SELECT {self._columns}, expires_at FROM {self.name} WHERE {where} ORDER BY namespace, key LIMIT {BATCH}",
            values,
        )
        return [self._whole_item(row) for row in rows]

    def same_items(self, items: Iterable[WholeItem]) -> Steps[list[WholeItem | None]]:
        """What is stored under the paths and keys of these items, expired or not."""
        found: list[WholeItem | None] = []
        for item in items:
            rows = yield (
                f"SELECT {self._columns}, expires_at FROM {self.name} WHERE namespace = ? AND key = ?",
                (self.sql.text(item.path), self.sql.text(item.key)),
            )
            found.append(self._whole_item(rows[0]) if rows else None)
        return found

    def restore(self, items: Sequence[WholeItem]) -> Steps[int]:
        """Save items with their times, except those that are there already, or in a later version. Returns how many."""
        sql = self.sql
        there = yield from self.same_items(items)
        missing = [item for item, known in zip(items, there, strict=True) if known is None or item.is_later_than(known)]
        for item in missing:
            place = (sql.text(item.path), sql.text(item.key))
            yield f"DELETE FROM {self.name} WHERE namespace = ? AND key = ?", place
            yield (
                f"INSERT INTO {self.name} (namespace, key, value, created_at, updated_at, ttl_minutes, expires_at)"
                f" VALUES (?, ?, {sql.json_mark}, ?, ?, ?, ?)",
                (
                    *place,
                    sql.json(item.value),
                    sql.time(item.created_at),
                    sql.time(item.updated_at),
                    item.ttl_minutes,
                    None if item.expires_at is None else sql.time(item.expires_at),
                ),
            )
        return len(missing)

    def _whole_item(self, row: Sequence[Any]) -> WholeItem:
        *stored, expires_at = row
        item, read_time = self._stored_item(stored), self.sql.read_time
        ends = None if expires_at is None else read_time(expires_at)
        return WholeItem(*item[:3], read_time(item.created_at), read_time(item.updated_at), item.ttl_minutes, ends)

    def refresh(self, items: Iterable[StoredItem], now: datetime) -> Steps[None]:
        """Restart the TTL of items that were read, unless they have expired or have a new TTL."""
        sql = self.sql
        for item in items:
            assert item.ttl_minutes is not None
            ends = sql.time(now + timedelta(minutes=item.ttl_minutes))
            yield (
                f"UPDATE {self.name} SET expires_at = ?"
                " WHERE namespace = ? AND key = ? AND ttl_minutes = ? AND expires_at > ?",
                (ends, sql.text(item.path), sql.text(item.key), item.ttl_minutes, sql.time(now)),
            )

    def page(self, path: str, now: datetime, limit: int, offset: int) -> Steps[list[StoredItem]]:
        """One page of the items below a path, last updated first."""
        where, values = self._below(path, now)
        rows = yield f"{self._select(where)} LIMIT ? OFFSET ?", (*values, limit, offset)
        return [self._stored_item(row) for row in rows]

    def next_items(
        self, path: str, now: datetime, equals: dict[str, Any], after: StoredItem | None
    ) -> Steps[list[StoredItem]]:
        """The next items below a path. PostgreSQL leaves out those with other values under the keys of `equals`."""
        where, values = self._below(path, now)
        sql = self.sql
        text = encode(equals)
        if equals and isinstance(sql, PostgreSQLFlavour) and sql.json(text) == text:
            where, values = f"{where} AND value @> ?::jsonb", [*values, text]
        if after is not None:
            where = f"{where} AND (updated_at, namespace, key) < (?, ?, ?)"
            values = [*values, after.updated_at, sql.text(after.path), sql.text(after.key)]
        rows = yield f"{self._select(where)} LIMIT {BATCH}", values
        return [self._stored_item(row) for row in rows]

    def paths(self, path: str, now: datetime) -> Steps[list[str]]:
        """The paths of all namespaces below a path that have an item."""
        where, values = self._below(path, now)
        rows = yield f"SELECT DISTINCT namespace FROM {self.name} WHERE {where}", values
        return [self.sql.read_text(found) for (found,) in rows]

    def sweep(self, now: datetime) -> Steps[int]:
        at = self.sql.time(now)
        ((count,),) = yield f"SELECT count(*) FROM {self.name} WHERE expires_at <= ?", (at,)
        yield f"DELETE FROM {self.name} WHERE expires_at <= ?", (at,)
        return int(count)

    def _select(self, where: str) -> str:
        order = "ORDER BY updated_at DESC, namespace DESC, key DESC"
        return f"SELECT {self._columns} FROM {self.name} WHERE {where} {order}"

    def _below(self, path: str, now: datetime) -> tuple[str, list[Any]]:
        """The condition for items below a path: a range and not a pattern, so no character of a label is special."""
        at = self.sql.time(now)
        if not path:
            return self._alive, [at]
        return f"namespace >= ? AND namespace < ? AND {self._alive}", [
            self.sql.text(path),
            self.sql.text(end_of(path)),
            at,
        ]

    def _stored_item(self, row: Sequence[Any]) -> StoredItem:
        path, key, value, created_at, updated_at, ttl_minutes = row
        read = self.sql.read_text
        return StoredItem(read(path), read(key), self.sql.read_json(value), created_at, updated_at, ttl_minutes)
