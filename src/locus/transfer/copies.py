"""`copy_store`: copies threads between two Locus stores, with what is kept beside them.

That is the key spaces, such as long-term memory, and the table of LangGraph's `LocusStore`.
"""

from __future__ import annotations

from locus.errors import CapabilityError, ConfigurationError
from locus.looking.spaces import is_there, spaces_of
from locus.memory.model.ids import Pattern
from locus.memory.model.spaces import KEY_SPACES
from locus.memory.store import CheckpointStore
from locus.transfer.move import move
from locus.transfer.read import StoreSource
from locus.transfer.report import Problem, Progress, Report
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

    The tokens are for stores on servers. Long-term memory and the other key spaces are copied too, and the items that
    a `LocusStore` keeps in the same database, unless a pattern chooses some threads.
    """
    origin, target = open_to_read(source, source_token), open_store(destination, destination_token)
    name = target.engine.identity
    try:
        if origin.engine.identity == name:
            raise ConfigurationError(f"source and destination are the same store: {name}")
        spaces = await spaces_of(origin) if pattern == "*" else {}
        has_threads = await is_there(origin) if spaces else True
        items = StoreItems(origin) if pattern == "*" and has_threads else None
        count = await items.count() if items is not None else 0
        opened = await open_existing(destination, destination_token) if dry_run else target
        try:
            report = Report(origin.engine.identity, name, dry_run)
            if has_threads:
                report = await move(
                    StoreSource(origin),
                    opened,
                    name=name,
                    pattern=pattern,
                    dry_run=dry_run,
                    jobs=jobs,
                    progress=progress,
                    required=not count and not spaces,
                )
            if items is not None and count:
                await items.copy(target, report)
            for space, kept in spaces.items():
                await _copy_space(space, kept, opened, report, jobs, progress)
            if not (count or report.threads or report.spaces):
                raise ConfigurationError(f"there is no thread in {report.source}: nothing to move")
            return report
        finally:
            if opened is not None:
                await opened.close()
    finally:
        await target.close()
        await origin.close()


async def _copy_space(
    name: str, source: CheckpointStore, target: CheckpointStore | None, report: Report, jobs: int, progress: Progress
) -> None:
    """Copy what a key space has, as threads are copied. It is told in the report if there is something."""
    destination: CheckpointStore | None = None
    if target is not None:
        try:
            destination = (await _space_of(target, name)) if report.dry_run else target.key_space(name)
        except CapabilityError as error:
            threads = await StoreSource(source).threads(Pattern())
            text = f"{len(threads):,} {KEY_SPACES[name]} were not copied: {error}"
            report.problems += [Problem("", CapabilityError.__name__, text)] if threads else []
            return
    moved = await move(
        StoreSource(source),
        destination,
        name=report.destination,
        dry_run=report.dry_run,
        jobs=jobs,
        progress=lambda _part: progress(report),
        required=False,
        in_space=True,
    )
    if moved.threads:
        report.spaces[name] = moved


async def _space_of(target: CheckpointStore, name: str) -> CheckpointStore | None:
    return (await spaces_of(target, [name])).get(name)
