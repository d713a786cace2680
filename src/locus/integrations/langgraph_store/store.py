"""`LocusStore`: LangGraph's long-term memory on every store of Locus.

Items are those of `LongTermMemory`, in the database of a checkpointer or storage backend, and use its connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Self

from langchain_core.embeddings import Embeddings
from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
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
    ensure_embeddings,
)

from locus.errors import ConfigurationError, SerializationError
from locus.integrations.langgraph_store.paths import WHOLE, paths_in
from locus.integrations.langgraph_store.sweeper import Done, Sweeper, Sweeping
from locus.memory import long_term
from locus.memory.long_term import Delete, Get, LongTermMemory, Put
from locus.threads import BothWaysStoreUser
from locus.threads.json import encode
from locus.threads.limits import checked_limit, checked_seconds

Namespace = tuple[str, ...]
Rank = Literal["vector", "hybrid"]

KEPT = 10
"""How many versions of an item are kept at least. LangGraph shows only the newest."""


class LocusStore(BothWaysStoreUser, BaseStore):
    """A store for LangGraph, for sync and async graphs, usable from any OS thread.

    `store` is a checkpointer or storage backend, or a name or URL with its `options`. `close` closes a database that
    was opened here by name, and leaves others open. `ttl` and `index` are LangGraph's `TTLConfig` and `IndexConfig`.

    With an `index`, the `query` of a search ranks items by the similarity of their vectors or, with `rank="hybrid"`, by
    that and their words. Without one, by their words alone. Expired items are invisible; `sweep_ttl` deletes them, and
    so does `start_ttl_sweeper` from time to time.
    """

    supports_ttl = True

    def __init__(
        self,
        store: Any,
        *,
        ttl: TTLConfig | None = None,
        index: IndexConfig | None = None,
        rank: Rank = "vector",
        **options: Any,
    ) -> None:
        _check_ttl(ttl)
        if rank not in ("vector", "hybrid"):
            raise ConfigurationError(f"rank is 'vector' or 'hybrid', got {rank!r:.40}")
        self._open(store, options, ("ttl", "index", "rank"))
        self.ttl_config = ttl
        self.index_config = index
        self._fields = None if index is None else _fields(index)
        self._by = "words" if index is None else rank
        self._kept = self._store.long_term_memory(embed=_embedder(index), keep_last=KEPT)
        self._sweeper: Sweeper | None = None

    @classmethod
    def from_conn_string(
        cls,
        conn_string: str,
        *,
        ttl: TTLConfig | None = None,
        index: IndexConfig | None = None,
        rank: Rank = "vector",
        **options: Any,
    ) -> Self:
        """A store in the database with this name or URL, for a `with` or an `async with`, as LangGraph's are made."""
        return cls(conn_string, ttl=ttl, index=index, rank=rank, **options)

    @property
    def embeddings(self) -> Embeddings | None:
        """What makes the vectors, as LangChain calls it."""
        return None if self.index_config is None else ensure_embeddings(self.index_config.get("embed"))

    @property
    def _memory(self) -> LongTermMemory:
        self._check_open()
        return self._kept

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations: first the reads, and then the writes, where the store can do that in one step."""
        ops = list(ops)
        changes, memory = self._changes(ops), self._memory
        results = [await self._answer(op) for op in ops] if len(ops) == 1 else await self._answers(ops)
        used = [_items(found) for op, found in zip(ops, results, strict=True) if getattr(op, "refresh_ttl", False)]
        if any(used):
            await memory.refresh(item for items in used for item in items)
        if changes:
            await memory.batch(changes, atomic=memory.is_atomic)
        return [_shown(op, found) for op, found in zip(ops, results, strict=True)]

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        return self._run(self.abatch(ops))

    async def asweep_ttl(self) -> int:
        """Delete expired items, and return how many."""
        return await self._memory.sweep()

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
        """The statements that create the tables, for a database administrator; empty if they are there."""
        return self._run(self._memory.ddl())

    async def _set_up(self) -> None:
        await self._memory.setup()

    async def _answers(self, ops: Sequence[Op]) -> list[Any]:
        """What several operations read: items, lists of items, or lists of namespaces; None for a write."""
        results = [None if isinstance(op, GetOp) else await self._answer(op) for op in ops]
        gets = [number for number, op in enumerate(ops) if isinstance(op, GetOp)]
        items = await self._memory.batch(Get(op.namespace, op.key) for op in ops if isinstance(op, GetOp))
        for number, item in zip(gets, items, strict=True):
            results[number] = item
        return results

    async def _answer(self, op: Op) -> Any:
        if isinstance(op, GetOp):
            return await self._memory.get_item(op.namespace, op.key)
        if isinstance(op, SearchOp):
            limit, offset = checked_limit(op.limit, 0), checked_limit(op.offset, 0)
            return await self._memory.search(
                op.namespace_prefix,
                op.query,
                filter=op.filter,
                limit=limit,
                offset=offset,
                by=self._by if op.query else "newest",
            )
        return await self._namespaces(op) if isinstance(op, ListNamespacesOp) else None

    async def _namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        limit, offset = checked_limit(op.limit, 0), checked_limit(op.offset, 0)
        conditions = op.match_conditions or ()
        found = await self._memory.list_namespaces(_listed_below(conditions), limit=None)
        matching = {namespace[: op.max_depth] for namespace in found if _matches_all(conditions, namespace)}
        return sorted(matching)[offset : offset + limit]

    def _changes(self, ops: Iterable[Op]) -> list[Put | Delete]:
        """The writes; of several to one key, only the last. All operations are checked."""
        changes: dict[tuple[Namespace, str], Put | Delete] = {}
        for op in ops:
            if isinstance(op, PutOp):
                change = self._change(op)
                changes.pop((change.namespace, change.key), None)
                changes[change.namespace, change.key] = change
            elif isinstance(op, GetOp | SearchOp):
                _checked_labels(op.namespace if isinstance(op, GetOp) else op.namespace_prefix)
            elif isinstance(op, ListNamespacesOp):
                for condition in op.match_conditions or ():
                    _checked_labels(condition.path)
            else:
                raise ConfigurationError(f"a store gets, puts, searches and lists namespaces; got {op!r:.80}")
        return list(changes.values())

    def _change(self, op: PutOp) -> Put | Delete:
        namespace = _checked_labels(op.namespace, is_new=op.value is not None)
        if not namespace:
            raise ConfigurationError("an item needs a namespace of one label at least")
        if op.ttl is not None:
            checked_seconds(op.ttl * 60, "ttl")
        if op.value is None:
            return Delete(namespace, op.key)
        value = _checked_value(op.value)
        index: Any = None
        if self._fields is not None:
            index = False if op.index is False else paths_in(value, op.index or self._fields)
        return Put(namespace, op.key, value, index=index, ttl_seconds=None if op.ttl is None else op.ttl * 60)


def _check_ttl(ttl: TTLConfig | None) -> None:
    if ttl is None:
        return
    for name in ("default_ttl", "sweep_interval_minutes"):
        minutes = ttl.get(name)
        if minutes is not None:
            checked_seconds(minutes * 60, name)  # type: ignore[operator]
    if ttl.get("omit_expired") is False:
        raise ConfigurationError("LocusStore never returns expired items: leave out `omit_expired`, or make it True")


def _embedder(index: IndexConfig | None) -> Any:
    if index is None:
        return None
    if not isinstance(index, Mapping) or "embed" not in index:
        raise ConfigurationError('index is a dict that says how to embed: {"embed": …, "dims": …, "fields": ["$"]}')
    return index["embed"]


def _items(found: Any) -> list[long_term.Item]:
    return [item for item in (found if isinstance(found, list) else [found]) if isinstance(item, long_term.Item)]


def _fields(index: Mapping[str, Any]) -> list[str]:
    """The paths that are searched unless a put says something else. LangGraph's store on SQLite has its own word."""
    fields = index.get("fields") or index.get("text_fields") or [WHOLE]
    fields = [fields] if isinstance(fields, str) else fields
    if not isinstance(fields, list | tuple) or not all(isinstance(path, str) for path in fields):
        raise ConfigurationError(f"the fields of an index are a list of paths, got {fields!r:.60}")
    return list(fields)


def _shown(op: Op, found: Any) -> Result:
    """What LangGraph is given of what was read."""
    if isinstance(op, SearchOp):
        return [SearchItem(**_facts(item), score=item.score) for item in found]
    return Item(**_facts(found)) if isinstance(found, long_term.Item) else found


def _facts(item: long_term.Item) -> dict[str, Any]:
    return {name: getattr(item, name) for name in ("namespace", "key", "value", "created_at", "updated_at")}


def _checked_value(value: Any) -> dict[str, Any]:
    try:
        plain = dict(value)
    except (TypeError, ValueError) as error:
        raise SerializationError(f"an item's value is a dict, got {type(value).__name__}: {value!r:.60}") from error
    encode(plain, ("value",))
    return plain


def _checked_labels(namespace: Sequence[str], *, is_new: bool = False) -> Namespace:
    """Check a namespace, with LangGraph's error for a label that cannot be one.

    Labels with a dot or NUL may be stored: earlier versions have taken them in batches. So only new items are refused.
    """
    for label in namespace:
        if not isinstance(label, str) or not label or (is_new and ("." in label or "\0" in label)):
            raise InvalidNamespaceError(
                f"a label of a namespace is text that is not empty, without '.' and NUL, got {label!r:.40}"
            )
    return tuple(namespace)


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


def _listed_below(conditions: Sequence[MatchCondition]) -> Namespace:
    """The longest prefix without wildcards below which every matching namespace is."""
    prefixes: list[Namespace] = [()]
    for condition in conditions:
        if condition.match_type == "prefix":
            fixed = condition.path[: condition.path.index("*")] if "*" in condition.path else condition.path
            prefixes.append(tuple(fixed))
    return max(prefixes, key=len)
