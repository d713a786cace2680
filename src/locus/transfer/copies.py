"""`copy_store`: copies threads between two Locus stores, and the items of long-term memory with them."""

from __future__ import annotations

from locus.errors import ConfigurationError
from locus.memory.engine import NothingThereError
from locus.transfer.move import move
from locus.transfer.read import StoreSource
from locus.transfer.report import Progress, Report
from locus.transfer.store_items import StoreItems
from locus.transfer.stores import open_existing, open_store, open_to_read


async def copy_store(
    source: str,
    destination: str,
    *,
    pattern: str = "*",
    dry_run: bool = False,
    jobs: int = 4,
    progress: Progress = lambda _report: None,
    source_token: str | None = None,
    destination_token: str | None = None,
) -> Report:
    """Copy the threads that match a pattern from one store to another. Both are given as URLs; see `move.move`.

    The tokens are for stores on servers. The items of long-term memory are copied too,
    unless a pattern chooses some threads.
    """
    origin, target = open_to_read(source, source_token), open_store(destination, destination_token)
    name = target.engine.identity
    try:
        if origin.engine.identity == name:
            raise ConfigurationError(f"source and destination are the same store: {name}")
        items = StoreItems(origin) if pattern == "*" else None
        count = await items.count() if items is not None else 0
        opened = await open_existing(destination, destination_token) if dry_run else target
        try:
            try:
                report = await move(
                    StoreSource(origin),
                    opened,
                    name=name,
                    pattern=pattern,
                    dry_run=dry_run,
                    jobs=jobs,
                    progress=progress,
                    required=not count,
                )
            except NothingThereError:
                if not count:
                    raise
                report = Report(origin.engine.identity, name, dry_run)  # there is a memory without threads
            if items is not None and count:
                await items.copy(target, report)
            return report
        finally:
            if opened is not None:
                await opened.close()
    finally:
        await target.close()
        await origin.close()
