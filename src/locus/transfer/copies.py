"""`copy_store`: copies threads between two Locus stores, and what their key spaces have, such as long-term memory."""

from __future__ import annotations

from locus.errors import CapabilityError, ConfigurationError, ConflictError, CorruptCheckpointError
from locus.looking.spaces import is_there, spaces_of
from locus.memory.long_term.items import item_of
from locus.memory.long_term.store import ItemStore
from locus.memory.model.ids import Pattern
from locus.memory.model.records import DEFAULT_NAMESPACE
from locus.memory.model.spaces import KEY_SPACES
from locus.memory.store import CheckpointStore
from locus.transfer.move import move
from locus.transfer.read import StoreSource
from locus.transfer.report import Problem, Progress, Report
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

    The tokens are for stores on servers. Long-term memory and the other key spaces are copied too, unless a pattern
    chooses some threads.
    """
    origin, target = open_to_read(source, source_token), open_store(destination, destination_token)
    name = target.engine.identity
    try:
        if origin.engine.identity == name:
            raise ConfigurationError(f"source and destination are the same store: {name}")
        spaces = await spaces_of(origin) if pattern == "*" else {}
        opened = await open_existing(destination, destination_token) if dry_run else target
        try:
            report = Report(origin.engine.identity, name, dry_run)
            if not spaces or await is_there(origin):
                report = await move(
                    StoreSource(origin),
                    opened,
                    name=name,
                    pattern=pattern,
                    dry_run=dry_run,
                    jobs=jobs,
                    progress=progress,
                    required=not spaces,
                )
            for space, kept in spaces.items():
                await _copy_space(space, kept, opened, report, jobs, progress)
            if not report.threads and not report.spaces and report.ok:
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
            destination = (await spaces_of(target, [name])).get(name) if report.dry_run else target.key_space(name)
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
    if target is not None and not report.dry_run:
        await _settle(source, ItemStore(target, name), moved)
    if moved.threads:
        report.spaces[name] = moved
        if name == "memory":
            report.items, report.items_moved = moved.threads, 0 if report.dry_run else moved.moved


async def _settle(source: CheckpointStore, items: ItemStore, moved: Report) -> None:
    """Copy the newest versions of those items whose older versions are others at the destination.

    They are if some were removed here or there since the last copy. An item that has changed at the destination since
    stays as it is there.
    """
    for problem in [problem for problem in moved.problems if problem.kind == ConflictError.__name__]:
        async with source.using() as engine:
            stored = await engine.read(problem.thread, DEFAULT_NAMESPACE, None)
        item = None if stored is None else item_of(stored)
        if item is not None:
            moved.moved += await items.restore([item])
            (there,) = await items.currents([(item.namespace, item.key)])
            if there is None or there.updated_at < item.updated_at:
                text = f"verification failed: item {item.key!r:.80} is older at the destination"
                moved.problems.append(Problem.of(problem.thread, CorruptCheckpointError(text)))
        moved.problems.remove(problem)
        moved.done += 1
