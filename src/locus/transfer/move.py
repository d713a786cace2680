"""Moves threads from a source into a Locus store. A move can be resumed, and verifies its result."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import NamedTuple

from locus.errors import BackendUnavailableError, ConfigurationError, CorruptCheckpointError, LocusError
from locus.memory.model.ids import check_pattern
from locus.memory.store import CheckpointStore
from locus.transfer.content import MovedCheckpoint
from locus.transfer.read import checkpoints
from locus.transfer.report import Problem, Progress, Report
from locus.transfer.sources import Source
from locus.transfer.write import ThreadWriter


class _SourceCheckpoint(NamedTuple):
    """The digests of a checkpoint at the source, kept for comparison with the destination."""

    header: tuple[object, ...]
    digest: bytes
    writes: bytes


async def move(
    source: Source,
    destination: CheckpointStore | None,
    *,
    name: str,
    pattern: str = "*",
    dry_run: bool = False,
    jobs: int = 4,
    progress: Progress = lambda _report: None,
    required: bool = True,
    in_space: bool = False,
) -> Report:
    """Move every thread that matches. A problem with one thread does not stop the others; an outage does.

    With `required`, a source without matching threads is an error. `destination` is None in a dry run if the store does
    not exist yet. `jobs` is how many threads are moved at the same time. `in_space` says that both are key spaces.
    """
    started = time.monotonic()
    report = Report(source.name, name, dry_run)
    ids = await source.threads(check_pattern(pattern))
    if not ids and required:
        of = "" if pattern == "*" else f" that matches {pattern!r}"
        raise ConfigurationError(f"there is no thread{of} in {source.name}: nothing to move")
    report.threads = len(ids)
    if ids and destination is not None:
        async with destination.using():
            pass  # if the store cannot be used, fail once, rather than for each thread
    waiting = iter(ids)

    async def work() -> None:
        for thread_id in waiting:
            await _ThreadMove(source, destination, thread_id, report, progress, in_space=in_space).run()
            progress(report)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(jobs, len(ids))):
                group.create_task(work())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    report.seconds = round(time.monotonic() - started, 3)
    return report


class _ThreadMove:
    """The move of one thread."""

    def __init__(
        self,
        source: Source,
        destination: CheckpointStore | None,
        thread_id: str,
        report: Report,
        progress: Progress,
        *,
        in_space: bool,
    ) -> None:
        self._in_space = in_space
        self._source = source
        self._destination = destination
        self._thread_id = thread_id
        self._report = report
        self._progress = progress
        self._seen: dict[str, list[_SourceCheckpoint]] = {}
        """The checkpoints of the source, by namespace."""
        self._with_writes: list[MovedCheckpoint] = []
        """Checkpoints that the destination has already, with pending writes that may have changed since."""

    async def run(self) -> None:
        try:
            ahead = await self._move()
            if self._destination is not None and not self._report.dry_run:
                await self._verify(self._destination, ahead)
            self._report.done += 1
        except BackendUnavailableError:
            raise
        except LocusError as error:
            self._report.problems.append(Problem.of(self._thread_id, error))

    async def _move(self) -> set[str]:
        """Save the missing checkpoints. Returns the namespaces in which the destination has newer ones."""
        writer = None
        if self._destination is not None:
            writer = ThreadWriter(self._destination, self._thread_id, in_space=self._in_space)
        if writer is not None:
            await writer.read_present()
        async with aclosing(self._source.checkpoints(self._thread_id)) as checkpoints:
            async for checkpoint in checkpoints:
                await self._move_checkpoint(writer, checkpoint)
        if writer is None:
            return set()
        ahead = set(filter(writer.is_ahead, self._seen))
        changed = [checkpoint for checkpoint in self._with_writes if checkpoint.namespace not in ahead]
        for checkpoint in changed:
            await writer.check_writes(checkpoint)
        for checkpoint in [] if self._report.dry_run else changed:
            await writer.put_writes(checkpoint)
        return ahead

    async def _move_checkpoint(self, writer: ThreadWriter | None, checkpoint: MovedCheckpoint) -> None:
        report = self._report
        seen = _SourceCheckpoint(checkpoint.header, checkpoint.content.digest, checkpoint.writes_digest)
        self._seen.setdefault(checkpoint.namespace, []).append(seen)
        report.checkpoints += 1
        if writer is not None and writer.has(checkpoint):
            report.present += 1
            if checkpoint.writes:
                self._with_writes.append(checkpoint)
        else:
            if writer is not None and not report.dry_run:
                await writer.save(checkpoint)
            report.moved += 1
        self._progress(report)

    async def _verify(self, destination: CheckpointStore, ahead: set[str]) -> None:
        """Compare the checkpoints at the destination with those of the source."""
        at = dict.fromkeys(self._seen, 0)
        async with aclosing(checkpoints(destination, self._thread_id)) as stored:
            async for checkpoint in stored:
                name = checkpoint.namespace
                if name not in at:
                    continue
                if at[name] < len(self._seen[name]):
                    self._compare(self._seen[name][at[name]], checkpoint, name in ahead)
                    at[name] += 1
                elif name not in ahead:
                    raise self._mismatch(checkpoint.checkpoint_id, "is only at the destination")
        for name, seen in self._seen.items():
            if at[name] < len(seen):
                raise self._mismatch(str(seen[at[name]].header[1]), "is not at the destination")
        self._report.verified += sum(at.values())

    def _compare(self, seen: _SourceCheckpoint, checkpoint: MovedCheckpoint, ahead: bool) -> None:
        if checkpoint.header != seen.header:
            raise self._mismatch(
                checkpoint.checkpoint_id, "has another id, parent, time or metadata at the destination"
            )
        if checkpoint.content.digest != seen.digest:
            raise self._mismatch(checkpoint.checkpoint_id, "has another content at the destination")
        if checkpoint.writes_digest != seen.writes and not ahead:
            raise self._mismatch(checkpoint.checkpoint_id, "has other pending writes at the destination")

    def _mismatch(self, checkpoint_id: str, what: str) -> CorruptCheckpointError:
        return CorruptCheckpointError(
            f"verification of thread {self._thread_id!r} failed: checkpoint {checkpoint_id!r} {what}"
        )
