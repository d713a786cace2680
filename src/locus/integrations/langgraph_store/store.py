"""`LocusStore`: LangGraph's long-term memory on SQLite and PostgreSQL.

Items are in a table of their own (see `locus.memory.item_table`), in the database of a checkpointer or storage backend,
and use its connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Self

from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
)

from locus.errors import ConfigurationError, SerializationError
from locus.integrations.langgraph_store.sweeper import Done, Sweeper, Sweeping
from locus.memory import item_table
from locus.memory.item_table import Put, Search, checked_key, namespace_of
from locus.threads import BothWaysStoreUser
from locus.threads.json import decode, encode
from locus.threads.limits import checked_limit, checked_seconds

Namespace = tuple[str, ...]


class LocusStore(BothWaysStoreUser, BaseStore):
    """A store for LangGraph, for sync and async graphs, usable from any OS thread.

    `store` is a checkpointer or storage backend on SQLite or PostgreSQL, or a name or URL with its `options`. `close`
    closes a database that was opened here by name, and leaves others open. `ttl` is LangGraph's `TTLConfig`.

    Expired items are invisible; `sweep_ttl` deletes them, and so does `start_ttl_sweeper` from time to time. There are
    no vectors: the `query` of a search ranks items by the words that they share with it.
    """

    supports_ttl = True

    def __init__(self, store: Any, *, ttl: TTLConfig | None = None, index: None = None, **options: Any) -> None:
        if index is not None:
            raise ConfigurationError("LocusStore has no vectors: leave out `index`; a `query` ranks items by words")
        _check_ttl(ttl)
        self._open(store, options, ("ttl",))
        self.ttl_config = ttl
        self._table = self._store.items()
        self._sweeper: Sweeper | None = None

    @classmethod
    def from_conn_string(cls, conn_string: str, *, ttl: TTLConfig | None = None, **options: Any) -> Self:
        """A store in the database with this name or URL, for a `with` or an `async with`, as LangGraph's are made."""
        return cls(conn_string, ttl=ttl, **options)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations: first the reads, in one snapshot, and then the writes, in one transaction."""
        ops = list(ops)
        puts = _puts(ops)
        now = _now()
        results, used = await self._read(ops, now)
        await self._table.write(now, puts, used=used)
        return results

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        return self._run(self.abatch(ops))

    async def asweep_ttl(self) -> int:
        """Delete expired items, and return how many."""
        return await self._table.sweep(_now())

    def sweep_ttl(self) -> Done:
        """Delete expired items, and return how many. It blocks; what it returns may be awaited."""
        return Done(self._run(self.asweep_ttl()))

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> Sweeping:
        """Delete expired items every few minutes, until `stop_ttl_sweeper` or `close`.

        The interval is by default that of the `ttl` configuration, or 5 minutes. A store without a configuration
        deletes nothing. If the result is cancelled, or what awaiting it gives, the sweeper stops.
        """
        if not self.ttl_config:
            nothing_to_do = Sweeping()
            nothing_to_do.set_result(None)
            return nothing_to_do
        minutes = sweep_interval_minutes or self.ttl_config.get("sweep_interval_minutes") or 5
        checked_seconds(minutes * 60, "sweep_interval_minutes")
        self._check_open()
        if self._sweeper is None or not self._sweeper.is_running:
            self._sweeper = Sweeper(self.sweep_ttl, minutes * 60)
        return self._sweeper.running

    def stop_ttl_sweeper(self, timeout: float | None = None) -> Done:
        """Stop the sweeper, and wait for a sweep that is under way: 1, or 0 if that takes more than `timeout` seconds.

        It blocks; what it returns may be awaited.
        """
        return Done(self._sweeper is None or self._sweeper.stop(timeout))

    def close(self) -> None:
        """Stop the sweeper, and close the database if it was opened here by name."""
        self.stop_ttl_sweeper()
        super().close()

    async def aclose(self) -> None:
        """Stop the sweeper, and close the database if it was opened here by name."""
        if self._sweeper is not None:
            await asyncio.to_thread(self._sweeper.stop)
        await super().aclose()

    def ddl(self) -> str:
        """The statements that create the table, for a database administrator."""
        return self._table.ddl()

    async def _set_up(self) -> None:
        await self._table.set_up()

    async def _read(self, ops: Sequence[Op], now: datetime) -> tuple[list[Result], list[item_table.Item]]:
        """The results of the operations, and the items whose TTL their reads refresh."""
        gets = [op for op in ops if isinstance(op, GetOp)]
        searches = [op for op in ops if isinstance(op, SearchOp)]
        listings = [op for op in ops if isinstance(op, ListNamespacesOp)]
        if not gets and not searches and not listings:
            return [None] * len(ops), []
        answers = await self._table.read(
            now,
            gets=[(_path_of(op.namespace), checked_key(op.key)) for op in gets],
            searches=[_search(op) for op in searches],
            below=[_listed_below(op.match_conditions or ()) for op in listings],
        )
        items, pages, paths = iter(answers.items), iter(answers.pages), iter(answers.paths)
        results: list[Result] = []
        used: list[item_table.Item] = []
        for op in ops:
            read: list[item_table.Item] = []
            if isinstance(op, GetOp):
                item = next(items)
                read = [] if item is None else [item]
                results.append(None if item is None else Item(**_facts(item)))
            elif isinstance(op, SearchOp):
                page = next(pages)
                read = [match.item for match in page]
                results.append([SearchItem(**_facts(match.item), score=match.score) for match in page])
            elif isinstance(op, ListNamespacesOp):
                results.append(_namespaces(op, next(paths)))
            else:
                results.append(None)
            if getattr(op, "refresh_ttl", False):
                used += read
        return results, used


def _check_ttl(ttl: TTLConfig | None) -> None:
    if ttl is None:
        return
    for name in ("default_ttl", "sweep_interval_minutes"):
        minutes = ttl.get(name)
        if minutes is not None:
            checked_seconds(minutes * 60, name)  # type: ignore[operator]
    if ttl.get("omit_expired") is False:
        raise ConfigurationError("LocusStore never returns expired items: leave out `omit_expired`, or make it True")


def _now() -> datetime:
    return datetime.now(UTC)


def _facts(item: item_table.Item) -> dict[str, Any]:
    return {
        "namespace": namespace_of(item.path),
        "key": item.key,
        "value": decode(item.value),
        "created_at": item.created_at,
        "updated_at": item.updated_at,
    }


def _search(op: SearchOp) -> Search:
    limit, offset = checked_limit(op.limit, 0), checked_limit(op.offset, 0)
    return Search(_path_of(op.namespace_prefix), limit, offset, op.filter or {}, op.query or "")


def _namespaces(op: ListNamespacesOp, paths: Iterable[str]) -> list[Namespace]:
    """The namespaces that an operation lists, of those with these paths."""
    limit, offset = checked_limit(op.limit, 0), checked_limit(op.offset, 0)
    conditions = op.match_conditions or ()
    matching = {namespace for namespace in map(namespace_of, paths) if _matches_all(conditions, namespace)}
    return sorted({namespace[: op.max_depth] for namespace in matching})[offset : offset + limit]


def _puts(ops: Iterable[Op]) -> list[Put]:
    """The checked writes; of several to one key, only the last."""
    puts: dict[tuple[str, str], Put] = {}
    for op in ops:
        if not isinstance(op, GetOp | SearchOp | ListNamespacesOp | PutOp):
            raise ConfigurationError(f"a store gets, puts, searches and lists namespaces; got {op!r:.80}")
        if isinstance(op, PutOp):
            path, key = _path_of(op.namespace, is_new=op.value is not None), checked_key(op.key)
            if not path:
                raise ConfigurationError("an item needs a namespace of one label at least")
            if op.ttl is not None:
                checked_seconds(op.ttl * 60, "ttl")
            puts.pop((path, key), None)
            puts[path, key] = Put(path, key, None if op.value is None else _text(op.value), op.ttl)
    return list(puts.values())


def _text(value: Any) -> str:
    try:
        plain = dict(value)
    except (TypeError, ValueError) as error:
        raise SerializationError(f"an item's value is a dict, got {type(value).__name__}: {value!r:.60}") from error
    return encode(plain, ("value",))


def _path_of(namespace: Sequence[str], *, is_new: bool = False) -> str:
    """The path of a namespace, with LangGraph's error for a label that cannot be one.

    Labels with a dot or NUL may be stored: earlier versions have taken them in batches. So only new items are refused.
    """
    for label in namespace:
        if not isinstance(label, str) or not label or (is_new and ("." in label or "\0" in label)):
            raise InvalidNamespaceError(
                f"a label of a namespace is text that is not empty, without '.' and NUL, got {label!r:.40}"
            )
    return item_table.path_of(namespace)


def _matches_all(conditions: Sequence[MatchCondition], namespace: Namespace) -> bool:
    """Whether a namespace has all these prefixes and suffixes; `*` matches any label."""
    return all(_matches(condition, namespace) for condition in conditions)


def _matches(condition: MatchCondition, namespace: Namespace) -> bool:
    pattern = condition.path
    if condition.match_type not in ("prefix", "suffix"):
        raise ConfigurationError(f"namespaces match by prefix or suffix, not by {condition.match_type!r:.40}")
    if len(namespace) < len(pattern):
        return False
    part = namespace[: len(pattern)] if condition.match_type == "prefix" else namespace[len(namespace) - len(pattern) :]
    return all(wanted in ("*", label) for wanted, label in zip(pattern, part, strict=True))


def _listed_below(conditions: Sequence[MatchCondition]) -> str:
    """The longest path without wildcards below which every matching namespace is."""
    paths = [""]
    for condition in conditions:
        _path_of(condition.path)  # refuses invalid labels
        if condition.match_type == "prefix":
            fixed = condition.path[: condition.path.index("*")] if "*" in condition.path else condition.path
            paths.append(_path_of(fixed))
    return max(paths, key=len)
