"""Items beside the threads of an SQLite or PostgreSQL database: JSON under a path and a key, with times to live.

LangGraph's long-term memory (`LocusStore`) is kept here, in two tables:

    locus_store         namespace (a path), key, value (JSON), created_at, updated_at, and ttl_minutes and expires_at
                        of items that expire
    locus_store_format  the version of the table

A path is a row of labels, `users/123/`: each is followed by a slash, and a slash or tilde in a label is written as `~1`
or `~0`. So labels are never ambiguous, and everything below `us/` begins with `us/`, which `user/` does not.

Expired items are invisible, and stay in the table until they are swept. Filters are applied in Python, so that one
means the same on both databases, and its keys are never part of a statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from locus.errors import CapabilityError, ConfigurationError, InvalidIdError, UnsupportedFormatError
from locus.memory.backends.sql.engine import SQLEngine
from locus.memory.backends.sql.flavour import ItemFlavour, Steps
from locus.memory.long_term.filters import check_filter, passes, plain_equals
from locus.memory.model.codec import decode, encode, texts_in
from locus.memory.model.ids import check_text, words
from locus.memory.store import CheckpointStore

__all__ = ["Answers", "Item", "ItemTable", "Match", "Put", "Search", "checked_key", "namespace_of", "path_of"]

FORMAT = 1
BATCH = 500
"""How many items one statement reads, where the database cannot apply the whole filter."""
LONGEST = 1_024
"""The most bytes of a path, and of a key. Both together fit into an index of every database."""

T = TypeVar("T")

_COLUMNS = ("namespace", "key", "value", "created_at", "updated_at", "ttl_minutes", "expires_at")
_ALIVE = "(expires_at IS NULL OR expires_at > ?)"


class Item(NamedTuple):
    """An item as it is stored. The value is JSON text."""

    path: str
    key: str
    value: str
    created_at: datetime
    updated_at: datetime
    ttl_minutes: float | None
    expires_at: datetime | None

    def is_later_than(self, other: Item) -> bool:
        """Whether this version of an item is later than another: it was changed later, or read later."""
        if self.updated_at != other.updated_at or self.expires_at is None or other.expires_at is None:
            return self.updated_at > other.updated_at
        return self.expires_at > other.expires_at


class Put(NamedTuple):
    """An item to save, or to delete if it has no value (JSON text)."""

    path: str
    key: str
    value: str | None
    ttl_minutes: float | None = None


@dataclass(frozen=True, slots=True)
class Search:
    """A page of the items below a path, last updated first.

    `wanted` is a filter: what an item's value has under each key, a plain value or a dict of operators. With a
    `query`, the items that have most of its words come first, and those that have none come last.
    """

    path: str
    limit: int
    offset: int = 0
    wanted: Mapping[str, Any] = field(default_factory=dict)
    query: str = ""


class Match(NamedTuple):
    """An item that a search has found, and the fraction of the query's words that occur in it (None: no word)."""

    item: Item
    score: float | None


class Answers(NamedTuple):
    """The answers of `ItemTable.read`, in the order of the questions."""

    items: list[Item | None]
    pages: list[list[Match]]
    paths: list[list[str]]


class ItemTable:
    """The items in the database of a store. Every call creates the tables if they are missing.

    `now` says which items have expired. `CapabilityError` is raised for a store that is neither SQLite nor PostgreSQL.
    """

    def __init__(self, store: CheckpointStore) -> None:
        engine = store.engine
        if not isinstance(engine, SQLEngine) or not isinstance(engine.sql, ItemFlavour):
            raise CapabilityError(f"LocusStore needs SQLite or PostgreSQL, and not {type(engine).__name__}")
        self._store = store
        self._engine = engine
        self._statements = _Statements(engine.sql)
        self._is_ready = False

    def ddl(self) -> str:
        """The statements that create the tables, for a database administrator."""
        return "".join(f"{statement};\n" for statement in ["BEGIN", *self._statements.sql.item_tables(), "COMMIT"])

    async def read(
        self,
        now: datetime,
        *,
        gets: Sequence[tuple[str, str]] = (),
        searches: Sequence[Search] = (),
        below: Sequence[str] = (),
    ) -> Answers:
        """Read as of one instant: items by path and key, pages of items, and all paths that have items below others."""
        for search in searches:
            check_filter(search.wanted)

        def steps() -> Steps[Answers]:
            answers = Answers([], [], [])
            for path, key in gets:
                answers.items.append((yield from self._statements.get(path, key, now)))
            for search in searches:
                answers.pages.append((yield from self._statements.search(search, now)))
            for path in below:
                answers.paths.append((yield from self._statements.paths(path, now)))
            return answers

        return await self._carry_out(steps, writing=False, alone=len(gets) == 1 and not searches and not below)

    async def write(self, now: datetime, puts: Sequence[Put] = (), *, used: Sequence[Item] = ()) -> None:
        """Save and delete items in one step. The time to live of `used` items begins anew."""
        ending = [item for item in used if item.ttl_minutes is not None]

        def steps() -> Steps[None]:
            yield from self._statements.refresh(ending, now)
            yield from self._statements.put(puts, now)

        if puts or ending:
            await self._carry_out(steps, writing=True, alone=len(puts) + len(ending) == 1)

    async def sweep(self, now: datetime) -> int:
        """Delete expired items, and return how many."""
        return await self._carry_out(lambda: self._statements.sweep(now), writing=True)

    async def count(self) -> int:
        """How many items there are, expired or not. Creates no tables."""
        async with self._store.using():
            return await self._engine.carry_out(self._statements.count, writing=False)

    async def following(self, after: Item | None, now: datetime) -> list[Item]:
        """Some items that follow one in the order of paths and keys; none at the end."""
        place = None if after is None else after[:2]
        return await self._carry_out(lambda: self._statements.following(place, now), writing=False)

    async def stored(self, items: Sequence[Item]) -> list[Item | None]:
        """The stored versions of these items, by their paths and keys, expired or not."""
        return await self._carry_out(lambda: self._statements.stored(items), writing=False)

    async def restore(self, items: Sequence[Item]) -> int:
        """Save items with their times, except those that are here in this or a later version; return how many."""
        return await self._carry_out(lambda: self._statements.restore(items), writing=True)

    async def _carry_out(self, operation: Callable[[], Steps[T]], *, writing: bool, alone: bool = False) -> T:
        async with self._store.using():
            if not self._is_ready:
                await self._set_up()
            return await self._engine.carry_out(operation, writing=writing, alone=alone)

    async def _set_up(self) -> None:
        """Create the tables if they are missing. Looking for them first needs fewer rights than creating them."""
        if not await self._engine.carry_out(self._statements.stored_format, writing=False):
            if not self._engine.creates_tables:
                raise ConfigurationError(
                    f"the table {self._statements.name} is not there, and auto_create_table is off: "
                    "have somebody run what LocusStore.ddl() returns"
                )
            await self._engine.carry_out(self._statements.create, writing=True)
        self._is_ready = True


class _Statements:
    """The statements on the tables of one database."""

    def __init__(self, sql: ItemFlavour) -> None:
        self.sql = sql
        self.name = sql.table("store")
        self._format = sql.table("store_format")
        self._columns = ", ".join(sql.json_column(name) if name == "value" else name for name in _COLUMNS)
        self._values = ", ".join(sql.json_mark if name == "value" else "?" for name in _COLUMNS)

    def stored_format(self) -> Steps[int]:
        """The version of the existing tables; 0 if there are none."""
        tables = yield self.sql.has_table(self._format)
        if not tables:
            return 0
        ((version,),) = yield f"SELECT max(version) FROM {self._format}", ()
        if version > FORMAT:
            raise UnsupportedFormatError(
                f"the table {self.name} has format {version}, and this version of Locus knows up to {FORMAT}: "
                "upgrade locus-state"
            )
        return int(version)

    def create(self) -> Steps[None]:
        """Create the tables, unless another connection has done so in the meantime."""
        lock = self.sql.migration_lock()
        if lock is not None:
            yield lock
        version = yield from self.stored_format()
        for statement in self.sql.item_tables() if not version else ():
            yield statement, ()

    def count(self) -> Steps[int]:
        tables = yield self.sql.has_table(self.name)
        if not tables:
            return 0
        ((count,),) = yield f"SELECT count(*) FROM {self.name}", ()
        return int(count)

    def get(self, path: str, key: str, now: datetime) -> Steps[Item | None]:
        where = f"namespace = ? AND key = ? AND {_ALIVE}"
        items = yield from self._select(where, [*self._place(path, key), self.sql.time(now)])
        return items[0] if items else None

    def put(self, puts: Iterable[Put], now: datetime) -> Steps[None]:
        at = self.sql.time(now)
        for path, key, value, ttl_minutes in puts:
            if value is None:
                yield self._delete(path, key)
                continue
            expires_at = None if ttl_minutes is None else now + timedelta(minutes=ttl_minutes)
            yield (
                f"INSERT INTO {self.name} AS kept ({', '.join(_COLUMNS)}) VALUES ({self._values})"
                " ON CONFLICT (namespace, key) DO UPDATE"
                " SET value = excluded.value, updated_at = excluded.updated_at, ttl_minutes = excluded.ttl_minutes,"
                " expires_at = excluded.expires_at, created_at = CASE WHEN kept.expires_at <= excluded.updated_at"
                " THEN excluded.created_at ELSE kept.created_at END",
                (*self._place(path, key), self.sql.json(value), at, at, ttl_minutes, self.sql.expiry(expires_at)),
            )

    def refresh(self, items: Iterable[Item], now: datetime) -> Steps[None]:
        """Restart the time to live of items, unless they have expired or have a new one."""
        for item in items:
            assert item.ttl_minutes is not None
            expires_at = self.sql.time(now + timedelta(minutes=item.ttl_minutes))
            yield (
                f"UPDATE {self.name} SET expires_at = ?"
                " WHERE namespace = ? AND key = ? AND ttl_minutes = ? AND expires_at > ?",
                (expires_at, *self._place(item.path, item.key), item.ttl_minutes, self.sql.time(now)),
            )

    def sweep(self, now: datetime) -> Steps[int]:
        at = self.sql.time(now)
        ((count,),) = yield f"SELECT count(*) FROM {self.name} WHERE expires_at <= ?", (at,)
        yield f"DELETE FROM {self.name} WHERE expires_at <= ?", (at,)
        return int(count)

    def search(self, search: Search, now: datetime) -> Steps[list[Match]]:
        """Find the page that a search asks for. The database does it alone if there is no filter and no word."""
        wanted, terms, end = search.wanted, frozenset(words(search.query)), search.offset + search.limit
        where, values = self._below(search.path, now)
        if not wanted and not terms:
            page = yield from self._newest(where, [*values, search.limit, search.offset], "LIMIT ? OFFSET ?")
            return [Match(item, None) for item in page]
        equals, contains = plain_equals(wanted), self.sql.contains("value")
        text = encode(equals)
        if equals and contains and self.sql.json(text) == text:
            where, values = f"{where} AND {contains}", [*values, text]
        matches: list[Match] = []
        after: list[Any] = []
        # A ranking by words needs all items; without words the first that pass are enough.
        while terms or len(matches) < end:
            behind = " AND (updated_at, namespace, key) < (?, ?, ?)" if after else ""
            batch = yield from self._newest(f"{where}{behind}", [*values, *after, BATCH], "LIMIT ?")
            for item in batch:
                value = decode(item.value)
                if passes(value, wanted):
                    matches.append(Match(item, _score(terms, value) if terms else None))
            if len(batch) < BATCH:
                break
            last = batch[-1]
            after = [self.sql.time(last.updated_at), *self._place(last.path, last.key)]
        matches.sort(key=lambda match: -(match.score or 0.0))
        return matches[search.offset : end]

    def paths(self, path: str, now: datetime) -> Steps[list[str]]:
        """All paths below a path that have an item."""
        where, values = self._below(path, now)
        rows = yield f"SELECT DISTINCT namespace FROM {self.name} WHERE {where}", values
        return [self.sql.read_text(namespace) for (namespace,) in rows]

    def following(self, place: tuple[str, str] | None, now: datetime) -> Steps[list[Item]]:
        """The items that follow a path and key, in the order of these."""
        where, values = _ALIVE, [self.sql.time(now)]
        if place is not None:
            where, values = f"{where} AND (namespace, key) > (?, ?)", [*values, *self._place(*place)]
        return (yield from self._select(f"{where} ORDER BY namespace, key LIMIT ?", [*values, BATCH]))

    def stored(self, items: Iterable[Item]) -> Steps[list[Item | None]]:
        stored: list[Item | None] = []
        for item in items:
            rows = yield from self._select("namespace = ? AND key = ?", self._place(item.path, item.key))
            stored.append(rows[0] if rows else None)
        return stored

    def restore(self, items: Sequence[Item]) -> Steps[int]:
        stored = yield from self.stored(items)
        missing = [item for item, old in zip(items, stored, strict=True) if old is None or item.is_later_than(old)]
        for path, key, value, created_at, updated_at, ttl_minutes, expires_at in missing:
            times = self.sql.time(created_at), self.sql.time(updated_at)
            yield self._delete(path, key)
            yield (
                f"INSERT INTO {self.name} ({', '.join(_COLUMNS)}) VALUES ({self._values})",
                (*self._place(path, key), self.sql.json(value), *times, ttl_minutes, self.sql.expiry(expires_at)),
            )
        return len(missing)

    def _place(self, path: str, key: str) -> list[str]:
        return [self.sql.text(path), self.sql.text(key)]

    def _delete(self, path: str, key: str) -> tuple[str, list[str]]:
        return f"DELETE FROM {self.name} WHERE namespace = ? AND key = ?", self._place(path, key)

    def _below(self, path: str, now: datetime) -> tuple[str, list[Any]]:
        """A condition for the items below a path. It compares ranges, so no character of a label is special."""
        at = self.sql.time(now)
        if not path:
            return _ALIVE, [at]
        end = f"{path[:-1]}0"  # 0 is the character after /
        return f"namespace >= ? AND namespace < ? AND {_ALIVE}", [self.sql.text(path), self.sql.text(end), at]

    def _newest(self, where: str, values: Sequence[Any], limit: str) -> Steps[list[Item]]:
        """Select some items that meet a condition, last updated first."""
        order = "ORDER BY updated_at DESC, namespace DESC, key DESC"
        return (yield from self._select(f"{where} {order} {limit}", values))

    def _select(self, where: str, values: Sequence[Any]) -> Steps[list[Item]]:
        rows = yield f"SELECT {self._columns} FROM {self.name} WHERE {where}", values
        return [self._item(row) for row in rows]

    def _item(self, row: Sequence[Any]) -> Item:
        path, key, value, created_at, updated_at, ttl_minutes, expires_at = row
        read_text, read_time = self.sql.read_text, self.sql.read_time
        return Item(
            read_text(path),
            read_text(key),
            self.sql.read_json(value),
            read_time(created_at),
            read_time(updated_at),
            ttl_minutes,
            None if expires_at is None else read_time(expires_at),
        )


def path_of(namespace: Sequence[str]) -> str:
    """The path of a namespace, whose labels are not empty. It begins with the path of each of its parents."""
    return _measured("".join(f"{label.replace('~', '~0').replace('/', '~1')}/" for label in namespace), "a namespace")


def namespace_of(path: str) -> tuple[str, ...]:
    """The labels of a path."""
    return tuple(label.replace("~1", "/").replace("~0", "~") for label in path.split("/")[:-1])


def checked_key(key: str) -> str:
    """Check the key of an item."""
    if not isinstance(key, str):
        raise InvalidIdError(f"a key is text, got {type(key).__name__}: {key!r:.40}")
    return _measured(key, "a key")


def _measured(text: str, what: str) -> str:
    check_text(text, what)
    if len(text.encode()) > LONGEST:
        raise InvalidIdError(f"{what} may have {LONGEST} bytes, and this one has more: {text!r:.60}")
    return text


def _score(terms: frozenset[str], value: Any) -> float | None:
    """The fraction of the words that occur in a value; None if none of them does."""
    shared = terms.intersection(word for text in texts_in(value) for word in words(text))
    return len(shared) / len(terms) if shared else None
