"""Copies the items of LangGraph's long-term memory (`LocusStore`), which have a table of their own beside the threads.

If the destination cannot keep them, the report has a problem, so that their absence is noticed at once.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime

from locus.errors import CapabilityError, ConfigurationError, CorruptCheckpointError
from locus.memory.item_table import Item, ItemTable, Put, namespace_of
from locus.memory.model.codec import canonical, decode
from locus.memory.store import CheckpointStore
from locus.transfer.report import Problem, Report


class StoreItems:
    """The items of LangGraph's long-term memory in the database of a store."""

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store

    async def count(self) -> int:
        try:
            return await ItemTable(self._store).count()
        except CapabilityError:
            return 0

    async def erase(self, prefix: str, *, dry_run: bool) -> int:
        """Delete the items whose namespaces begin with a prefix, `acme/` or `acme:`, and return how many."""
        if not await self.count():
            return 0
        erased = 0
        table = ItemTable(self._store)
        async with aclosing(_pages(table)) as pages:
            async for page in pages:
                of_prefix = [Put(item.path, item.key, None) for item in page if _is_below(item, prefix)]
                erased += len(of_prefix)
                if not dry_run:
                    await table.write(_now(), of_prefix)
        return erased

    async def copy(self, target: CheckpointStore, report: Report) -> None:
        """Copy all items, and verify them. A dry run only finds out whether that would be possible."""
        try:
            source, destination = ItemTable(self._store), ItemTable(target)
            async with aclosing(_pages(source)) as pages:
                async for page in pages:
                    report.items += len(page)
                    if not report.dry_run:
                        report.items_moved += await destination.restore(page)
                        _verify(page, await destination.stored(page))
        except (CapabilityError, ConfigurationError) as error:
            report.items = await self.count()
            unable = isinstance(error, CapabilityError)
            why = "that needs SQLite or PostgreSQL at the destination" if unable else str(error)
            text = f"{report.items:,} items of LangGraph's long-term memory (LocusStore) were not copied: {why}"
            kind = CapabilityError if unable else ConfigurationError
            report.problems.append(Problem("", kind.__name__, text))
        except CorruptCheckpointError as error:
            report.problems.append(Problem.of("", error))


def _is_below(item: Item, prefix: str) -> bool:
    """Whether an item belongs to a tenant. `user:42/` means both ("user", "42", …) and ("user:42", …)."""
    namespace = namespace_of(item.path)
    slashes, colons = (f"{separator.join(namespace)}{separator}" for separator in "/:")
    return slashes.startswith((prefix, prefix.replace(":", "/"))) or colons.startswith(prefix)


async def _pages(table: ItemTable) -> AsyncGenerator[list[Item], None]:
    last: Item | None = None
    while page := await table.following(last, _now()):
        yield page
        last = page[-1]


def _now() -> datetime:
    return datetime.now(UTC)


def _verify(items: list[Item], copies: list[Item | None]) -> None:
    for item, copied in zip(items, copies, strict=True):
        if copied is not None and copied.is_later_than(item):
            continue  # the item was changed or read at the destination since
        if copied is None or _comparable(copied) != _comparable(item):
            raise CorruptCheckpointError(
                f"verification failed: item {item.key!r:.80} of LangGraph's long-term memory differs at the destination"
            )


def _comparable(item: Item) -> tuple[object, ...]:
    return *item[:2], canonical(decode(item.value)), *item[3:]
