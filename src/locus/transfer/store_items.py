"""Copies the items of LangGraph's long-term memory (`LocusStore`), which have a table of their own beside the threads.

If the destination cannot keep them, the report has a problem, so that their absence is noticed at once.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from locus.errors import CapabilityError, ConfigurationError, CorruptCheckpointError
from locus.memory.backends.postgresql.schema import PostgreSQLFlavour
from locus.memory.backends.sql.engine import SQLServerEngine
from locus.memory.backends.sql.flavour import Steps
from locus.memory.backends.sqlite.engine import SQLiteEngine
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.codec import canonical, decode
from locus.memory.store import CheckpointStore
from locus.transfer.report import Problem, Report

if TYPE_CHECKING:
    from locus.integrations.langgraph_store.store import LocusStore
    from locus.integrations.langgraph_store.table import WholeItem


class StoreItems:
    """The items of LangGraph's long-term memory in the database of a store."""

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store

    async def count(self) -> int:
        engine = self._store.engine
        if not isinstance(engine, SQLiteEngine | SQLServerEngine):
            return 0
        async with self._store.using():
            return await engine.carry_out(lambda: _count(engine), writing=False)

    async def erase(self, prefix: str, *, dry_run: bool) -> int:
        """Delete the items whose namespaces begin with a prefix, `acme/` or `acme:`, and return how many."""
        if not await self.count():
            return 0
        from locus.integrations.langgraph_store.items import namespace_of

        erased = 0
        store = _locus_store(self._store)
        async with aclosing(_pages(store)) as pages:
            async for page in pages:
                for item in page:
                    namespace = namespace_of(item.path)
                    if not _begins_with(namespace, prefix):
                        continue
                    erased += 1
                    if not dry_run:
                        await store.adelete(namespace, item.key)
        return erased

    async def copy(self, target: CheckpointStore, report: Report) -> None:
        """Copy all items, and verify them. A dry run only finds out whether that would be possible."""
        try:
            source, destination = _locus_store(self._store), _locus_store(target)
            async with aclosing(_pages(source)) as pages:
                async for page in pages:
                    report.items += len(page)
                    if not report.dry_run:
                        report.items_moved += await destination.restore(page)
                        _verify(page, await destination.same_items(page))
        except CapabilityError:
            report.items = await self.count()
            text = (
                f"{report.items:,} items of LangGraph's long-term memory (LocusStore) were not copied: that needs "
                "SQLite or PostgreSQL at the destination"
            )
            report.problems.append(Problem("", CapabilityError.__name__, text))
        except ConfigurationError as error:
            report.items = await self.count()
            text = f"{report.items:,} items of LangGraph's long-term memory (LocusStore) were not copied: {error}"
            report.problems.append(Problem("", ConfigurationError.__name__, text))
        except CorruptCheckpointError as error:
            report.problems.append(Problem.of("", error))


def _begins_with(namespace: Sequence[str], prefix: str) -> bool:
    """Whether a namespace belongs to a tenant. `user:42/` means both ("user", "42", …) and ("user:42", …)."""
    slashes, colons = (f"{separator.join(namespace)}{separator}" for separator in "/:")
    return slashes.startswith((prefix, prefix.replace(":", "/"))) or colons.startswith(prefix)


def _count(engine: SQLiteEngine | SQLServerEngine[Any]) -> Steps[int]:
    """Count the items without LangGraph, which need not be installed to copy a store."""
    table = engine.sql.table("store")
    if isinstance(engine.sql, PostgreSQLFlavour):
        tables = yield "SELECT 1 FROM pg_class WHERE oid = to_regclass(?)", (table,)
    elif isinstance(engine, SQLiteEngine):
        tables = yield "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)
    else:
        return 0
    if not tables:
        return 0
    ((count,),) = yield f"SELECT count(*) FROM {table}", ()
    return int(count)


def _locus_store(store: CheckpointStore) -> LocusStore:
    from locus.integrations.langgraph_store import LocusStore

    return LocusStore(Checkpointer(store))


async def _pages(store: LocusStore) -> AsyncGenerator[list[WholeItem], None]:
    after: WholeItem | None = None
    while page := await store.whole_items(after):
        yield page
        after = page[-1]


def _verify(items: list[WholeItem], copies: list[WholeItem | None]) -> None:
    for item, copied in zip(items, copies, strict=True):
        if copied is not None and copied.is_later_than(item):
            continue  # the item was changed or read at the destination since
        if copied is None or _comparable(copied) != _comparable(item):
            raise CorruptCheckpointError(
                f"verification failed: item {item.key!r:.80} of LangGraph's long-term memory differs at the destination"
            )


def _comparable(item: WholeItem) -> tuple[object, ...]:
    return *item[:2], canonical(decode(item.value)), *item[3:]
