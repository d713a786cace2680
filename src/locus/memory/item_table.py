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

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, TypeVar

from locus.errors import (
    BackendUnavailableError,
    CapabilityError,
    ConfigurationError,
    InvalidIdError,
    UnsupportedFormatError,
)
from locus.memory.backends.sql.engine import SQLEngine, SQLServerEngine, Trouble
from locus.memory.backends.sql.flavour import ItemFlavour, Steps
from locus.memory.gathered import BY_ITSELF, Gathered
from locus.memory.long_term.filters import check_filter, passes, plain_equals
from locus.memory.model.codec import decode, encode, texts_in
from locus.memory.model.ids import check_text, words
from locus.memory.store import CheckpointStore

__all__ = ["Answers", "Item", "ItemTable", "Match", "Put", "Search", "checked_key", "namespace_of", "path_of"]

FORMAT = 1
BATCH = 500
"""How many items one statement reads, where the database cannot apply the whole filter."""
AT_ONCE = 256
"""How many items one statement gets, saves or deletes."""
READ_LANES = 4
"""How many reads of one event loop are under way, each on a connection. Others wait, and share the next ones."""
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


class _Reading(NamedTuple):
    """The questions of one call of `ItemTable.read`."""

    now: datetime
    gets: Sequence[tuple[str, str]]
    searches: Sequence[Search]
    below: Sequence[str]


class _Writing(NamedTuple):
    """What one call of `ItemTable.write` changes."""

    now: datetime
    puts: Sequence[Put]
    used: Sequence[Item]


class ItemTable:
    """The items in the database of a store. Every call creates the tables if they are missing.

    Reads that many tasks make at the same time share connections and transactions, and so do writes (see
    `locus.memory.gathered`). Writes of an event loop keep their order.

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
        is_outage = partial(_is_outage, engine)
        self._reads: Gathered[_Reading, Answers] = Gathered(READ_LANES, is_outage)
        self._writes: Gathered[_Writing, None] = Gathered(1, is_outage)

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

        if not gets and not searches and not below:
            return Answers([], [], [])
        size = sum(len(path) + len(key) for path, key in gets)
        if any(search.wanted or search.query for search in searches):
            size = BY_ITSELF  # it may read many items, or take too long
        return await self._reads.ask(_Reading(now, gets, searches, below), size, self._read)

    async def write(self, now: datetime, puts: Sequence[Put] = (), *, used: Sequence[Item] = ()) -> None:
        """Save and delete items in one step, of several to one key the last. Used items begin their time anew."""
        ending = [item for item in used if item.ttl_minutes is not None]
        if puts or ending:
            size = sum(len(put.value or "") for put in puts)
            await self._writes.ask(_Writing(now, puts, ending), size, self._write)

    async def _read(self, readings: Sequence[_Reading]) -> list[Answers]:
        """Read for several calls as of one instant."""
        now = max(reading.now for reading in readings)
        places = list(dict.fromkeys(place for reading in readings for place in reading.gets))

        def steps() -> Steps[list[Answers]]:
            items = yield from self._statements.get(places, now)
            found = []
            for reading in readings:
                pages = []
                for search in reading.searches:
                    pages.append((yield from self._statements.search(search, now)))
                paths = []
                for path in reading.below:
                    paths.append((yield from self._statements.paths(path, now)))
                found.append(Answers([items.get(place) for place in reading.gets], pages, paths))
            return found

        gets_only = not any(reading.searches or reading.below for reading in readings)
        return await self._carry_out(steps, writing=False, alone=gets_only and len(list(_portions(places))) == 1)

    async def _write(self, writings: Sequence[_Writing]) -> list[None]:
        """Write for several calls, in their order and in one step."""
        now = max(writing.now for writing in writings)
        puts = {(put.path, put.key): put for writing in writings for put in writing.puts}
        used = {(item.path, item.key): item for writing in writings for item in writing.used}

        def steps() -> Steps[None]:
            # Other processes take the same rows in the same order, so that they seldom wait for each other in a circle.
            yield from self._statements.refresh([used[place] for place in sorted(used)], now)
            yield from self._statements.put([puts[place] for place in sorted(puts)], now)

        await self._carry_out(steps, writing=True, alone=len(puts) + len(used) == 1)
        return [None] * len(writings)

    async def set_up(self) -> None:
        """Create the tables if they are missing."""
        async with self._store.using():
            await self._set_up()

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

    def get(self, places: Sequence[tuple[str, str]], now: datetime) -> Steps[dict[tuple[str, str], Item]]:
        """The items that are there, of those with these paths and keys."""
        found: dict[tuple[str, str], Item] = {}
        for some in _portions(places):
            items = yield from self._select(
                f"{self._among(some)} AND {_ALIVE}", [*self._places(some), self.sql.time(now)]
            )
            found.update({(item.path, item.key): item for item in items})
        return found

    def put(self, puts: Iterable[Put], now: datetime) -> Steps[None]:
        """Save and delete items, each with another path or key."""
        at = self.sql.time(now)
        puts = list(puts)
        for gone in _portions([(put.path, put.key) for put in puts if put.value is None]):
            yield f"DELETE FROM {self.name} WHERE {self._among(gone)}", self._places(gone)
        for some in _portions([put for put in puts if put.value is not None]):
            values: list[Any] = []
            for path, key, value, ttl_minutes in some:
                assert value is not None
                expires_at = None if ttl_minutes is None else now + timedelta(minutes=ttl_minutes)
                ending = ttl_minutes, self.sql.expiry(expires_at)
                values += [*self._place(path, key), self.sql.json(value), at, at, *ending]
            yield (
                f"INSERT INTO {self.name} AS kept ({', '.join(_COLUMNS)})"
                f" VALUES {', '.join([f'({self._values})'] * len(some))}"
                " ON CONFLICT (namespace, key) DO UPDATE"
                " SET value = excluded.value, updated_at = excluded.updated_at, ttl_minutes = excluded.ttl_minutes,"
                " expires_at = excluded.expires_at, created_at = CASE WHEN kept.expires_at <= excluded.updated_at"
                " THEN excluded.created_at ELSE kept.created_at END",
                values,
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

    def _places(self, places: Iterable[tuple[str, str]]) -> list[str]:
        return [text for path, key in places for text in self._place(path, key)]

    @staticmethod
    def _among(places: Sequence[tuple[str, str]]) -> str:
        """A condition for the items with these paths and keys, whose values are `_places`."""
        if len(places) == 1:
            return "namespace = ? AND key = ?"
        return f"(namespace, key) IN (VALUES {', '.join(['(?, ?)'] * len(places))})"

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


def _is_outage(engine: SQLEngine, error: Exception) -> bool:
    """Whether the database is out of reach, and has not just refused what it was told."""
    cause = error.__cause__
    refused = (
        isinstance(engine, SQLServerEngine)
        and cause is not None
        and engine.has_answered(cause)
        and engine.trouble(cause) is Trouble.FINAL
    )
    return isinstance(error, BackendUnavailableError) and not refused


def _portions(of: Sequence[T]) -> Iterator[Sequence[T]]:
    """Portions for statements. Their lengths are powers of two, so that a connection prepares few statements."""
    start, length = 0, AT_ONCE
    while start < len(of):
        while length > len(of) - start:
            length //= 2
        yield of[start : start + length]
        start += length


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
