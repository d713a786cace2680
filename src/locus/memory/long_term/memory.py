"""`LongTermMemory`: facts by namespace and key, with versions, over any store of Locus.

Every store keeps these laws:

- Namespaces are tuples of any text, and never cross: `("a/b",)` and `("a", "b")` are two.
- Versions count from 1, and go on after a deletion where a store keeps counting. A writer with `if_version` is refused
  if it has not seen the newest one. An `Item` as `if_version` means that very version, even if the item was deleted and
  put again.
- Deleting and erasing remove every version. Nothing that was deleted comes back.
- Filters and the namespace apply before the limit. Order is by score, then path, then key, so no page loses or repeats
  an item that stays as it is.
- An item that has ended is in no answer, from that moment on.
- Only vectors of one model are compared: others are an error that says so. An embedder that fails loses no item.
- An outage is an error, and never an empty answer. Whatever an item holds is data.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Self, TypeVar, get_args

from locus.errors import CapabilityError, ConfigurationError, EmbeddingError, OwedVectorsWarning
from locus.memory.checkpointer import StoreVerbs
from locus.memory.engine import CommitsWhole, Engine, Maintains
from locus.memory.long_term.embedding import Embedder, lacks_vectors, with_vectors
from locus.memory.long_term.filters import check_filter
from locus.memory.long_term.held import RanksHeld
from locus.memory.long_term.items import Found, Index, Item, checked_index, checked_value
from locus.memory.long_term.names import (
    Namespace,
    checked_key,
    checked_namespace,
    keys_of,
    path_of,
    whole_name,
)
from locus.memory.long_term.ranking import By, Question, Ranks
from locus.memory.long_term.store import ItemStore
from locus.memory.model.arguments import check_vacuum, checked_limit, checked_metadata, checked_seconds
from locus.memory.model.ids import check_text, query_terms
from locus.memory.model.records import ANY, Unset
from locus.memory.registry import as_checkpointer, get_checkpointer
from locus.memory.runtime.once import made_once

if TYPE_CHECKING:
    from locus.memory.long_term.sync import SyncLongTermMemory

Shown = TypeVar("Shown", bound=Item)

AT_ONCE = 64
"""The number of operations of a batch that are under way at the same time."""

PUTS_EMBEDDED = 256
"""The number of puts of a batch whose texts are embedded in one call."""


@dataclass(frozen=True)
class Put:
    """An operation of a batch: `LongTermMemory.put` with these arguments."""

    namespace: Namespace
    key: str
    value: Any
    metadata: Mapping[str, Any] | None = None
    index: Index = None
    ttl_seconds: float | None | Unset = ANY
    if_version: Item | int | Unset | None = ANY
    source: str | None = None


@dataclass(frozen=True)
class Get:
    """An operation of a batch: `LongTermMemory.get_item` with these arguments."""

    namespace: Namespace
    key: str


@dataclass(frozen=True)
class Delete:
    """An operation of a batch: `LongTermMemory.delete` with these arguments."""

    namespace: Namespace
    key: str
    if_version: Item | int | Unset | None = ANY


class LongTermMemory:
    """Facts by namespace and key, with versions, in a store of Locus: beside its threads, which know nothing of them.

    `store` is a checkpointer or storage backend, whose connections it shares, or a name or URL, which it opens and
    closes. `ttl_seconds` lets an item end that long after it was put, unless `put` says something else.

    With `embed`, items get vectors when they are put, and are found by their meaning, too. It is a name of
    `locus.embeddings` such as "minilm", a function of a list of texts (async or not), LangChain's `Embeddings`, or an
    object with `embed_batch`, or with `embed` for one text. `embed_model` names the model that makes the vectors, if
    `embed` does not know its name: only vectors of one model are compared. `index_mb` is how much memory a search may
    hold. With `keep_last`, puts leave at least so many versions of an item, and at most twice as many. `ranks`
    replaces the ranking (see `locus.memory.long_term.ranking`).
    """

    def __init__(
        self,
        store: Any,
        *,
        ttl_seconds: float | None = None,
        embed: Any = None,
        embed_model: str | None = None,
        index_mb: float = 256,
        keep_last: int | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        opened = store if isinstance(store, StoreVerbs) else as_checkpointer(store)
        if not isinstance(opened, StoreVerbs):
            raise CapabilityError(f"{type(opened).__name__} is no store of Locus, and keeps no long-term memory")
        if ttl_seconds is not None:
            checked_seconds(ttl_seconds, "ttl_seconds")
        self._opened = opened
        self._is_own = isinstance(store, str)
        if keep_last is not None:
            check_vacuum(None, keep_last)
        self._items = ItemStore(opened.store, keep_last=keep_last)
        self._within: Namespace = ()
        self.ttl_seconds = ttl_seconds
        self._embedder = None if embed is None else Embedder(embed, embed_model)
        self.ranks: Ranks = ranks or RanksHeld(self._embedder, index_mb=index_mb)

    async def setup(self) -> None:
        """Connect, and make what the store needs to keep items. The first use does it otherwise."""
        async with self._items.store.using():
            pass

    async def ddl(self) -> str:
        """The statements that make what the store needs to keep items, or bring it to the newest format.

        They are for a database administrator, where `auto_create_table` is off. Empty if nothing is missing, and where
        there are no tables.
        """
        engine = self.engine
        try:
            stored = await engine.stored_format() if isinstance(engine, Maintains) else None
        except engine.driver_errors as error:
            raise engine.translate(error) from error
        return "" if stored is None else stored.migration

    async def put(
        self,
        namespace: Iterable[str],
        key: str,
        value: Any,
        metadata: Mapping[str, Any] | None = None,
        *,
        index: Index = None,
        ttl_seconds: float | None | Unset = ANY,
        if_version: Item | int | Unset | None = ANY,
        source: str | None = None,
    ) -> Item:
        """Keep a value as the newest version of an item, and return it.

        `value` is JSON of any kind but null. `index` is what a search looks at: all texts of the value, none (`False`),
        or those at some paths, such as `"user.name"`. `ttl_seconds` lets the item end; `None` lets it stay. `source`
        says who has taught this, mostly the id of a thread (see `erase`).

        With `if_version`, the newest version must be this `Item` or number, or there must be none (`None`). If not,
        `ConflictError` is raised and nothing is written.
        """
        draft = self._draft(namespace, key, value, metadata, index, ttl_seconds, source)
        checked = _checked_version(if_version)
        return self._shown(await self._items.put((await self._embedded([draft]))[0], checked))

    def _draft(
        self,
        namespace: Iterable[str],
        key: str,
        value: Any,
        metadata: Mapping[str, Any] | None,
        index: Index,
        ttl_seconds: float | None | Unset,
        source: str | None,
    ) -> Item:
        """A version to be, without what only the store knows."""
        now = datetime.now(UTC)
        seconds = self.ttl_seconds if isinstance(ttl_seconds, Unset) else ttl_seconds
        if seconds is not None:
            checked_seconds(seconds, "ttl_seconds")
        if source is not None and not isinstance(source, str):
            raise ConfigurationError(f"source is text, got {type(source).__name__}: {source!r:.60}")
        return Item(
            self._full(namespace),
            checked_key(key),
            checked_value(value),
            checked_metadata(metadata),
            now,
            now,
            0,
            source,
            None if seconds is None else now + timedelta(seconds=seconds),
            seconds,
            checked_index(index),
        )

    async def _embedded(self, items: Sequence[Item]) -> list[Item]:
        """These items with their vectors. If the embedder fails they have none, and a warning says so."""
        if self._embedder is None:
            return list(items)
        try:
            return await with_vectors(self._embedder, items)
        except EmbeddingError as error:
            text = f"{error}: what is put is saved without vectors, and found by words; `reindex()` makes them"
            warnings.warn(text, OwedVectorsWarning, stacklevel=3)
            return list(items)

    async def get(self, namespace: Iterable[str], key: str, *, version: int | None = None) -> Any:
        """The value of an item, by default the newest; `None` if there is none."""
        item = await self.get_item(namespace, key, version=version)
        return None if item is None else item.value

    async def get_item(self, namespace: Iterable[str], key: str, *, version: int | None = None) -> Item | None:
        """An item, by default its newest version; `None` if there is none."""
        place = self._full(namespace), checked_key(key)
        if version is None:
            item = await self._items.current(*place)
        else:
            item = await self._items.version(*place, checked_limit(version, 0))
        return None if item is None else self._shown(item)

    async def exists(self, namespace: Iterable[str], key: str) -> bool:
        """Whether there is an item."""
        return await self.get_item(namespace, key) is not None

    async def delete(self, namespace: Iterable[str], key: str, *, if_version: Item | int | Unset | None = ANY) -> bool:
        """Remove every version of an item. True if there was one.

        `if_version` is that of `put`; a deletion with it is refused as a save is.
        """
        return await self._items.delete(self._full(namespace), checked_key(key), _checked_version(if_version))

    async def history(
        self, namespace: Iterable[str], key: str, *, limit: int | None = 10, before: int | None = None
    ) -> list[Item]:
        """The versions of an item, newest first; with `before`, only those with lower numbers."""
        most, place = checked_limit(limit, None), (self._full(namespace), checked_key(key))
        if before is not None:
            checked_limit(before, 0)
        return [self._shown(item) for item in await self._items.versions(*place, most, before)]

    async def list_keys(
        self, namespace: Iterable[str], *, limit: int | None = 100, after: str | None = None
    ) -> list[str]:
        """The keys of a namespace, without those below it, in order. `after` is the last key of the page before."""
        full, most = self._full(namespace), checked_limit(limit, None)
        begin = "" if after is None else whole_name(full, after)
        keys: list[str] = []
        if most == 0:
            return keys
        async with aclosing(self._items.under(keys_of(full), after=begin)) as pages:
            async for page in pages:
                keys += [item.key for item in page]
                if most is not None and len(keys) >= most:
                    break
        return keys[:most]

    async def list_namespaces(
        self,
        prefix: Iterable[str] = (),
        suffix: Iterable[str] = (),
        max_depth: int | None = None,
        limit: int | None = 100,
        offset: int = 0,
    ) -> list[Namespace]:
        """The namespaces that have items, in the order of their paths; with `max_depth`, their beginnings."""
        end, most = checked_namespace(suffix, "a suffix"), checked_limit(limit, None)
        depth, skip = checked_limit(max_depth, None), checked_limit(offset, 0)
        found = [full[len(self._within) :] for full in await self._items.namespaces(self._full(prefix))]
        shown = {name[:depth] for name in found if not end or name[-len(end) :] == end}
        return sorted(shown, key=path_of)[skip:][:most]

    async def search(
        self,
        prefix: Iterable[str] = (),
        query: str | None = None,
        *,
        vector: Sequence[float] | None = None,
        filter: Mapping[str, Any] | None = None,
        limit: int = 10,
        offset: int = 0,
        by: By = "hybrid",
        min_similarity: float | None = None,
    ) -> list[Found]:
        """The items below a namespace that fit a query best. Without a query: all of them, by path and key.

        `by` says what counts: the words of the query, the vector of the query, or, as "hybrid", both. Then the score is
        that by words, divided by the best, plus the similarity. With "newest", only the time counts at which an item
        was put, the last one first. `vector` stands for that of the query. A memory without `embed` ranks by words.
        With `min_similarity`, only items with at least that cosine are found.

        `filter` is what a value has under each key: a plain value, or a dict of `$eq`, `$ne`, `$gt`, `$gte`, `$lt` and
        `$lte`. Under `"user.name"` it looks into `user`. Items that share nothing with the query come last, without a
        score.
        """
        if query is not None and not isinstance(query, str):
            raise ConfigurationError(f"a query is text, got {type(query).__name__}: {query!r:.60}")
        if by not in get_args(By):
            raise ConfigurationError(f"by is one of {', '.join(get_args(By))}, got {by!r:.40}")
        most, skip = checked_limit(limit, 0), checked_limit(offset, 0)
        check_filter(filter or {})
        check_text(query or "", "a query")
        query_terms(query or "")
        question = Question(self._full(prefix), query or "", vector, filter or {}, by, min_similarity)
        if not most:
            return []
        best = await self.ranks.best(self._items, question, skip + most)
        return [self._shown(found) for found in best[skip : skip + most]]

    async def reindex(self, prefix: Iterable[str] = ()) -> int:
        """Make the vectors that items below a namespace lack, or have of another model; return how many items got some.

        Each such item gets a new version with the same value. Writers that come in between win. It may be interrupted,
        and begun again: what is done stays done. If the embedder fails, its error is raised.
        """
        if self._embedder is None:
            raise ConfigurationError("this memory has no embedder: say embed=…")
        done = 0
        async with aclosing(self._items.pages(self._full(prefix))) as pages:
            async for page in pages:
                lacking = [item for item in page if lacks_vectors(item, self._embedder.model)]
                for start in range(0, len(lacking), AT_ONCE):
                    some = await with_vectors(self._embedder, lacking[start : start + AT_ONCE])
                    for item in some:
                        done += await self._items.renew(item)
        return done

    async def owed(self, prefix: Iterable[str] = ()) -> int:
        """How many items below a namespace have no vector of this memory's model, and should have one.

        These are items of which the embedder has failed, and those that were put with another one, or without any.
        """
        if self._embedder is None:
            return 0
        async with aclosing(self._items.pages(self._full(prefix))) as pages:
            return sum([sum(lacks_vectors(item, self._embedder.model) for item in page) async for page in pages])

    async def batch(self, ops: Iterable[Put | Get | Delete], *, atomic: bool = False) -> list[Any]:
        """Carry out several operations, many at the same time, and return their results in order.

        Operations on the same item keep their order. If one fails, its error is raised when all others are done.

        With `atomic`, all puts and deletions take effect in one step, after all gets, or none of them does. Each is of
        another item, has no `if_version`, and the result of a deletion is None. Only some stores can do that (see
        `is_atomic`).
        """
        calls = list(ops)
        for op in calls:
            if not isinstance(op, Put | Get | Delete):
                raise ConfigurationError(f"a batch has Put, Get and Delete, got {op!r:.80}")
        puts = {number: self._drafted(op) for number, op in enumerate(calls) if isinstance(op, Put)}
        if atomic:
            _check_atomic(calls)
        places = [(self._full(op.namespace), checked_key(op.key)) for op in calls]
        for start in range(0, len(puts), PUTS_EMBEDDED):
            some = list(puts)[start : start + PUTS_EMBEDDED]
            puts.update(zip(some, await self._embedded([puts[number] for number in some]), strict=True))
        results: list[Any] = [None] * len(calls)
        if atomic:
            gets = [number for number, op in enumerate(calls) if isinstance(op, Get)]
            for number, item in zip(gets, await self._items.currents([places[n] for n in gets]), strict=True):
                results[number] = None if item is None else self._shown(item)
            gone = [places[number] for number, op in enumerate(calls) if isinstance(op, Delete)]
            for number, put in zip(puts, await self._items.put_all(list(puts.values()), gone), strict=True):
                results[number] = self._shown(put)
            return results
        by_item: dict[tuple[Namespace, str], list[int]] = {}
        for number, place in enumerate(places):
            by_item.setdefault(place, []).append(number)
        free = asyncio.Semaphore(AT_ONCE)

        async def one(numbers: list[int]) -> None:
            for number in numbers:
                async with free:
                    results[number] = await self._carried_out(calls[number], puts.get(number))

        done = await asyncio.gather(*map(one, by_item.values()), return_exceptions=True)
        for error in filter(None, done):
            raise error
        return results

    @property
    def is_atomic(self) -> bool:
        """Whether this store can carry out a batch in one step."""
        return isinstance(self.engine, CommitsWhole)

    def _drafted(self, op: Put) -> Item:
        _checked_version(op.if_version)
        return self._draft(op.namespace, op.key, op.value, op.metadata, op.index, op.ttl_seconds, op.source)

    async def _carried_out(self, op: Put | Get | Delete, draft: Item | None) -> Any:
        if isinstance(op, Put) and draft is not None:
            # The operations of one item are a moment apart, and each version says when it was put.
            return self._shown(await self._items.put(replace(draft, updated_at=datetime.now(UTC)), op.if_version))
        if isinstance(op, Delete):
            return await self.delete(op.namespace, op.key, if_version=op.if_version)
        return await self.get_item(op.namespace, op.key)

    async def put_batch(self, puts: Iterable[Put | tuple[Iterable[str], str, Any]]) -> list[Item]:
        """Keep several values, given as `Put` or as namespace, key and value. See `batch`."""
        return await self.batch(put if isinstance(put, Put) else Put(tuple(put[0]), put[1], put[2]) for put in puts)

    async def get_batch(self, places: Iterable[tuple[Iterable[str], str]]) -> list[Any]:
        """The values at several namespaces and keys; `None` where there is no item."""
        items = await self.batch(Get(checked_namespace(namespace), key) for namespace, key in places)
        return [None if item is None else item.value for item in items]

    async def erase(
        self, prefix: Iterable[str] | None = None, *, source: str | None = None, dry_run: bool = False
    ) -> int:
        """Remove all items below a namespace, or the versions that a source has taught; return how many.

        With both, only what the source has taught below the namespace. `prefix=()` alone removes everything.
        An item of which another source has taught an older version is what that says, afterwards. `dry_run` only
        counts.
        """
        if prefix is None and source is None:
            raise ConfigurationError("say what to erase: a prefix, a source, or both; prefix=() is everything")
        full = self._full(prefix or ())
        if source is None:
            return await self._items.erase(full, dry_run=dry_run)
        if not isinstance(source, str):
            raise ConfigurationError(f"source is text, got {type(source).__name__}: {source!r:.60}")
        return await self._items.erase_source(full, source, dry_run=dry_run)

    async def refresh(self, items: Iterable[Item]) -> None:
        """Let items live as long again as they were put for, from now on: for those that end only if nobody uses them.

        Items that stay for ever, or that somebody has changed since they were read, are left alone.
        """
        free = asyncio.Semaphore(AT_ONCE)

        async def one(item: Item) -> None:
            async with free:
                await self._items.refresh(replace(item, namespace=self._full(item.namespace)))

        if ending := [item for item in items if item.ttl_seconds is not None]:
            await asyncio.gather(*map(one, ending))

    async def sweep(self, *, keep_last: int | None = None) -> int:
        """Remove what has ended from the store, and return how much that was.

        No answer has it anyway. A sweep also removes what an interrupted deletion has left, and with `keep_last` the
        older versions: of each item of the store, only the newest so many stay.
        """
        return await self._items.sweep(keep_last)

    def scoped(self, namespace: Iterable[str]) -> Self:
        """This memory below a namespace: `memory.scoped(("users", "123"))` sees nothing else, and its names are short.

        It has the connections of this one, which closes them.
        """
        scoped = type(self).__new__(type(self))
        vars(scoped).update({name: kept for name, kept in vars(self).items() if not name.endswith("_once")})
        scoped._within = self._full(namespace)
        scoped._is_own = False
        return scoped

    @made_once
    def sync(self) -> SyncLongTermMemory:
        """This memory with blocking methods, which any thread may call."""
        from locus.memory.long_term.sync import SyncLongTermMemory

        return SyncLongTermMemory(self)

    async def close(self) -> None:
        """Close the store if it was opened here, by its name or URL. A later use opens it again."""
        if self._is_own:
            await self._opened.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    @property
    def engine(self) -> Engine:
        """The engine that keeps the items: a key space of that of the store."""
        return self._items.store.engine

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self.engine).__name__})"

    def _full(self, namespace: Iterable[str]) -> Namespace:
        full = (*self._within, *checked_namespace(namespace))
        path_of(full)  # measures it
        return full

    def _shown(self, item: Shown) -> Shown:
        return replace(item, namespace=item.namespace[len(self._within) :]) if self._within else item


def get_long_term_memory(
    url: str,
    *,
    ttl_seconds: float | None = None,
    embed: Any = None,
    embed_model: str | None = None,
    index_mb: float = 256,
    keep_last: int | None = None,
    **options: Any,
) -> LongTermMemory:
    """Make the long-term memory in the store that a name or URL stands for: those of `get_checkpointer`.

    `options` are those of the store, and the others those of `LongTermMemory`.
    """
    memory = LongTermMemory(
        get_checkpointer(url, **options),
        ttl_seconds=ttl_seconds,
        embed=embed,
        embed_model=embed_model,
        index_mb=index_mb,
        keep_last=keep_last,
    )
    memory._is_own = True
    return memory


def _check_atomic(ops: Sequence[Put | Get | Delete]) -> None:
    changes = [op for op in ops if not isinstance(op, Get)]
    if len({(tuple(op.namespace), op.key) for op in changes}) < len(changes):
        raise ConfigurationError("an atomic batch changes each item once")
    if any(not isinstance(op.if_version, Unset) for op in changes):
        raise ConfigurationError("an atomic batch takes no if_version")


def _checked_version(version: Any) -> Item | int | Unset | None:
    if version is None or isinstance(version, Item | Unset):
        return version
    if isinstance(version, int) and not isinstance(version, bool) and version > 0:
        return version
    raise ConfigurationError(f"if_version is an Item, a number from 1 on, or None for a new item, got {version!r:.60}")
