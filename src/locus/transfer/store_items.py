"""Copies the items of long-term memory, which are in a key space beside the threads: the newest version of each."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from locus.errors import CapabilityError, ConfigurationError, CorruptCheckpointError
from locus.memory.engine import NothingThereError
from locus.memory.long_term.items import Item
from locus.memory.long_term.names import Namespace
from locus.memory.long_term.store import ItemStore
from locus.memory.model.codec import canonical
from locus.memory.store import CheckpointStore
from locus.transfer.report import Problem, Report


class StoreItems:
    """The items of long-term memory in a store."""

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store

    async def count(self) -> int:
        try:
            return len(await ItemStore(self._store).store.list_threads(None, "*"))
        except (CapabilityError, NothingThereError):
            return 0

    async def erase(self, prefix: str, *, dry_run: bool) -> int:
        """Delete the items whose namespaces begin with a prefix, `acme/` or `acme:`, and return how many."""
        if not await self.count():
            return 0
        erased, items = 0, ItemStore(self._store)
        async with aclosing(_pages(items)) as pages:
            async for page in pages:
                for item in page:
                    if _is_below(item.namespace, prefix):
                        erased += dry_run or await items.delete(item.namespace, item.key)
        return erased

    async def copy(self, target: CheckpointStore, report: Report) -> None:
        """Copy all items, and verify them. A dry run only finds out whether that would be possible."""
        try:
            source, destination = ItemStore(self._store), ItemStore(target)
            async with aclosing(_pages(source)) as pages:
                async for page in pages:
                    report.items += len(page)
                    if not report.dry_run:
                        report.items_moved += await destination.restore(page)
                        _verify(page, await destination.currents([(item.namespace, item.key) for item in page]))
        except (CapabilityError, ConfigurationError) as error:
            report.items = await self.count()
            text = f"{report.items:,} items of long-term memory were not copied: {error}"
            report.problems.append(Problem("", type(error).__name__, text))
        except CorruptCheckpointError as error:
            report.problems.append(Problem.of("", error))


def _is_below(namespace: Namespace, prefix: str) -> bool:
    """Whether a namespace belongs to a tenant. `user:42/` means both ("user", "42", …) and ("user:42", …)."""
    slashes, colons = (f"{separator.join(namespace)}{separator}" for separator in "/:")
    return slashes.startswith((prefix, prefix.replace(":", "/"))) or colons.startswith(prefix)


def _pages(items: ItemStore) -> AsyncGenerator[list[Item], None]:
    return items.pages(())


def _verify(items: Sequence[Item], copies: Sequence[Item | None]) -> None:
    for item, copied in zip(items, copies, strict=True):
        if copied is not None and copied.updated_at > item.updated_at:
            continue  # the item was changed at the destination since
        if copied is None or _comparable(copied) != _comparable(item):
            raise CorruptCheckpointError(
                f"verification failed: item {item.key!r:.80} of long-term memory differs at the destination"
            )


def _comparable(item: Item) -> tuple[object, ...]:
    return canonical(item.value), canonical(item.metadata), item.created_at, item.updated_at, item.vectors
