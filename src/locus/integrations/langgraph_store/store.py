"""`LocusStore`: LangGraph's long-term memory on SQLite and PostgreSQL.

Items are in a table of their own (see `table`), in the database of a checkpointer or storage backend, and use its
connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
)

from locus.errors import CapabilityError, ConfigurationError, SerializationError
from locus.integrations.langgraph_store.items import (
    Namespace,
    check_filter,
    checked_key,
    fixed_start,
    matches_all,
    namespace_of,
    passes,
    path_of,
    plain_equals,
    score,
)
from locus.integrations.langgraph_store.table import BATCH, PutItem, StoredItem, StoreTable, WholeItem
from locus.integrations.stores import BothWaysStoreUser
from locus.memory.backends.postgresql import schema as postgresql_schema
from locus.memory.backends.postgresql.schema import PostgreSQLFlavour
from locus.memory.backends.sql.engine import SQLServerEngine
from locus.memory.backends.sql.flavour import Steps
from locus.memory.backends.sqlite.engine import SQLiteEngine
from locus.memory.model.arguments import checked_limit, checked_seconds
from locus.memory.model.codec import decode, encode
from locus.memory.model.ids import words
from locus.memory.runtime.portal import PORTAL

T = TypeVar("T")


class LocusStore(BothWaysStoreUser, BaseStore):
    """A store for LangGraph, for sync and async graphs, usable from any OS thread.

    `store` is a checkpointer or storage backend on SQLite or PostgreSQL, or a name or URL with its `options`. `close`
    closes a database that was opened here by name, and leaves others open. `ttl` is LangGraph's `TTLConfig`.

    Expired items are invisible; `sweep_ttl` deletes them. There are no vectors: the `query` of a search ranks items by
    the words that they share with it.
    """

    supports_ttl = True

    def __init__(self, store: Any, *, ttl: TTLConfig | None = None, index: None = None, **options: Any) -> None:
        if index is not None:
            raise ConfigurationError("LocusStore has no vectors: leave out `index`; a `query` ranks items by words")
        self._open(store, options, ("ttl",))
        engine = self._store.engine
        if not isinstance(engine, SQLiteEngine) and not (
            isinstance(engine, SQLServerEngine) and isinstance(engine.sql, PostgreSQLFlavour)
        ):
            raise CapabilityError(f"LocusStore needs SQLite or PostgreSQL, and not {type(engine).__name__}")
        self.ttl_config = ttl
        self._engine = engine
        self._table = StoreTable(engine.sql)
        self._ready = False

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations: first the reads, in one snapshot, and then the writes, in one transaction."""
        asked = list(ops)
        puts = _puts(asked)
        now = _now()
        read: list[StoredItem] = []
        results: list[Result] = [None] * len(asked)
        if any(not isinstance(op, PutOp) for op in asked):
            alone = len(asked) == 1 and isinstance(asked[0], GetOp)
            results, read = await self._carry_out(lambda: self._read(asked, now), writing=False, alone=alone)
        ending = [item for item in read if item.ttl_minutes is not None]
        if puts or ending:
            alone = len(puts) + len(ending) == 1
            await self._carry_out(lambda: self._write(ending, puts, now), writing=True, alone=alone)
        return results

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        return PORTAL.run(self.abatch(ops))

    async def asweep_ttl(self) -> int:
        """Delete expired items, and return how many."""
        return await self._carry_out(lambda: self._table.sweep(_now()), writing=True)

    def sweep_ttl(self) -> int:
        return PORTAL.run(self.asweep_ttl())

    async def whole_items(self, after: WholeItem | None) -> list[WholeItem]:
        """Some of the items that follow one, with their times, for a copy; none at the end."""
        place = None if after is None else after[:2]
        return await self._carry_out(lambda: self._table.whole_items(place, _now()), writing=False)

    async def same_items(self, items: Sequence[WholeItem]) -> list[WholeItem | None]:
        """What is stored here under the namespaces and keys of these items."""
        return await self._carry_out(lambda: self._table.same_items(items), writing=False)

    async def restore(self, items: Sequence[WholeItem]) -> int:
        """Save items as they are elsewhere, except those that are here in this or a later version; return how many."""
        return await self._carry_out(lambda: self._table.restore(items), writing=True)

    async def _carry_out(self, operation: Callable[[], Steps[T]], *, writing: bool, alone: bool = False) -> T:
        async with self._store.using():
            if not self._ready:
                await self._set_up()
            return await self._engine.carry_out(operation, writing=writing, alone=alone)

    async def _set_up(self) -> None:
        """Create the table if it is missing. Looking for it first needs fewer rights than creating it."""
        if not await self._engine.carry_out(self._table.found_format, writing=False):
            if isinstance(self._engine, SQLServerEngine) and not self._engine.creates_tables:
                raise ConfigurationError(
                    f"the table {self._table.name} is not there, and auto_create_table is off: "
                    "have somebody run what LocusStore.ddl() returns"
                )
            sql = self._engine.sql
            lock = postgresql_schema.lock_number(sql) if isinstance(sql, PostgreSQLFlavour) else 0
            await self._engine.carry_out(lambda: self._table.create(lock), writing=True)
        self._ready = True

    def ddl(self) -> str:
        """The statements that create the table, for a database administrator."""
        return "".join(f"{statement};\n" for statement in ["BEGIN", *self._table.statements(), "COMMIT"])

    def _read(self, ops: Sequence[Op], now: datetime) -> Steps[tuple[list[Result], list[StoredItem]]]:
        """The results of the reads, and the items whose TTL they refresh."""
        results: list[Result] = []
        refreshed: list[StoredItem] = []
        for op in ops:
            if isinstance(op, GetOp):
                found = yield from self._table.get(path_of(op.namespace), checked_key(op.key), now)
                results.append(self._item(found[0]) if found else None)
            elif isinstance(op, SearchOp):
                ranked = yield from self._search(op, now)
                found = [item for item, _ in ranked]
                results.append([self._search_item(item, points) for item, points in ranked])
            elif isinstance(op, ListNamespacesOp):
                found = []
                results.append((yield from self._namespaces(op, now)))
            else:
                found = []
                results.append(None)
            if getattr(op, "refresh_ttl", False):
                refreshed += found
        return results, refreshed

    def _write(self, read: Sequence[StoredItem], puts: Sequence[PutItem], now: datetime) -> Steps[None]:
        yield from self._table.refresh(read, now)
        yield from self._table.put(puts, now)

    def _search(self, op: SearchOp, now: datetime) -> Steps[list[tuple[StoredItem, float | None]]]:
        path = path_of(op.namespace_prefix)
        limit, offset = checked_limit(op.limit, None) or 0, checked_limit(op.offset, None) or 0
        terms = set(words(op.query)) if op.query else set()
        if not terms and not op.filter:
            page = yield from self._table.page(path, now, limit, offset)
            return [(item, None) for item in page]
        check_filter(op.filter or {})
        found: list[tuple[StoredItem, float | None]] = []
        after: StoredItem | None = None
        # A ranking by words needs all items; without words the first that pass are enough.
        while terms or len(found) < limit + offset:
            batch = yield from self._table.next_items(path, now, plain_equals(op.filter or {}), after)
            for item in batch:
                value = decode(item.value)
                if passes(value, op.filter or {}):
                    found.append((item, score(terms, value) if terms else None))
            if len(batch) < BATCH:
                break
            after = batch[-1]
        found.sort(key=lambda one: -(one[1] or 0.0))
        return found[offset : offset + limit]

    def _namespaces(self, op: ListNamespacesOp, now: datetime) -> Steps[list[tuple[str, ...]]]:
        conditions = op.match_conditions or ()
        limit, offset = checked_limit(op.limit, None) or 0, checked_limit(op.offset, None) or 0
        paths = yield from self._table.paths(path_of(fixed_start(conditions)), now)
        matching = {namespace for namespace in map(namespace_of, paths) if matches_all(conditions, namespace)}
        return sorted({namespace[: op.max_depth] for namespace in matching})[offset : offset + limit]

    def _facts(self, item: StoredItem) -> dict[str, Any]:
        read_time = self._engine.sql.read_time
        namespace: Namespace = namespace_of(item.path)
        return {
            "namespace": namespace,
            "key": item.key,
            "value": decode(item.value),
            "created_at": read_time(item.created_at),
            "updated_at": read_time(item.updated_at),
        }

    def _item(self, item: StoredItem) -> Item:
        return Item(**self._facts(item))

    def _search_item(self, item: StoredItem, points: float | None) -> SearchItem:
        return SearchItem(**self._facts(item), score=points)


def _now() -> datetime:
    return datetime.now(UTC)


def _puts(ops: Iterable[Op]) -> list[PutItem]:
    """The checked writes; of several to one key, only the last."""
    puts: dict[tuple[str, str], PutItem] = {}
    for op in ops:
        if not isinstance(op, GetOp | SearchOp | ListNamespacesOp | PutOp):
            raise ConfigurationError(f"a store gets, puts, searches and lists namespaces; got {op!r:.80}")
        if isinstance(op, PutOp):
            path, key = path_of(op.namespace), checked_key(op.key)
            if not path:
                raise ConfigurationError("an item needs a namespace of one label at least")
            if op.ttl is not None:
                checked_seconds(op.ttl * 60, "ttl")
            puts.pop((path, key), None)
            puts[path, key] = PutItem(path, key, None if op.value is None else _text(op.value), op.ttl)
    return list(puts.values())


def _text(value: Any) -> str:
    try:
        plain = dict(value)
    except (TypeError, ValueError) as error:
        raise SerializationError(f"an item's value is a dict, got {type(value).__name__}: {value!r:.60}") from error
    return encode(plain, ("value",))
