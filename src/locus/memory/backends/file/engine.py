"""Threads in files: one human-readable log a thread, in a folder. Several processes may use it at once.

A save is one write at the end of a log, and waits until it is on the disk. Deleting writes the log anew. `schema` shows
the layout.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import islice
from math import inf
from pathlib import Path
from typing import TypeVar
from zlib import crc32

from locus.errors import BackendUnavailableError, CheckpointError, CorruptCheckpointError, UnsupportedFormatError
from locus.memory.backends.file.client import LogFolder
from locus.memory.backends.file.log import CommitView, LogFile
from locus.memory.backends.file.salvage import salvage
from locus.memory.backends.file.schema import SUFFIX, Seal, checkpoint_record, writes_record
from locus.memory.engine import (
    PAGE,
    Copies,
    Deadline,
    Engine,
    Expires,
    Exports,
    FindsMetadata,
    KeepsWrites,
    Salvages,
    Searches,
    warn_of_damage,
)
from locus.memory.model.codec import encode
from locus.memory.model.commit_rules import decide
from locus.memory.model.ids import Pattern
from locus.memory.model.manifest import newest_runs, wanted
from locus.memory.model.matching import best_hits, has_value, newest, newest_threads, table_hits
from locus.memory.model.parts import Part, needed
from locus.memory.model.records import (
    Ancestor,
    AncestorQuery,
    Base,
    Commit,
    Entry,
    Exported,
    Hit,
    Hits,
    NewestThreads,
    Outcome,
    Salvage,
    Stored,
    TaskWrites,
    Verdict,
    Write,
)
from locus.memory.model.retention import Copied, Outlived, OutlivedPage, Place, Retention, orphaned, outlived_in
from locus.memory.model.sizes import Measured
from locus.memory.model.table import Row, ThreadTable
from locus.memory.runtime.worker import Worker

T = TypeVar("T")
WORKERS = 4


class FileEngine(Engine, KeepsWrites, FindsMetadata, Searches, Expires, Copies, Exports, Salvages):
    """Threads in files."""

    driver_errors = (OSError,)
    works_in_place = True

    def __init__(self, base: Path, pretty: bool, *, within: Path | None = None) -> None:
        """`within` is a folder that must exist, so that the missing ones below it may be made."""
        self._base, self._pretty, self._within = base, pretty, within
        # Each thread has its worker, so that saves of different threads can wait for the disk at the same time.
        self._workers = [Worker(f"locus-file-{n}", lambda: LogFolder(base, pretty, within)) for n in range(WORKERS)]

    @property
    def identity(self) -> str:
        return f"file:{self._base}"

    def _opened_space(self, name: str) -> Engine:
        return FileEngine(self._base / f".{name}", self._pretty, within=self._within)

    async def _on(self, thread_id: str, work: Callable[[LogFolder], T]) -> T:
        return await self._workers[crc32(thread_id.encode()) % WORKERS].run(work)

    async def _with_log(self, thread_id: str, work: Callable[[LogFile], T], otherwise: T) -> T:
        def job(folder: LogFolder) -> T:
            with folder.log(thread_id) as log:
                return otherwise if log is None else work(log)

        return await self._on(thread_id, job)

    async def _with_seal(
        self, thread_id: str, namespace: str, checkpoint_id: str | None, work: Callable[[LogFile, Seal], T]
    ) -> T | None:
        """Do some work with the seal of a checkpoint, the latest if no id is given; None if it does not exist."""

        def with_log(log: LogFile) -> T | None:
            seal = log.find(namespace, checkpoint_id)
            return None if seal is None else work(log, seal)

        return await self._with_log(thread_id, with_log, None)

    async def setup(self) -> None:
        self.check_foreign(await self._workers[0].run(LogFolder.foreign_kind))
        if not self.reading_only:
            await self._workers[0].run(LogFolder.make)
        elif not self._base.is_dir() or not any(self._base.glob(f"*{SUFFIX}")):
            raise self.nothing_there()

    async def commit(self, commit: Commit) -> Outcome:
        def work(folder: LogFolder) -> Outcome:
            with folder.exclusive(commit.thread_id), folder.log(commit.thread_id, writing=True) as log:
                outcome = decide(commit, CommitView(log) if log else ThreadTable(commit.thread_id))
                if outcome.verdict is Verdict.COMMITTED and not outcome.repeated:
                    if log is not None:
                        log.check_writable()
                    self._add(folder, log, commit, outcome)
                return outcome

        return await self._on(commit.thread_id, work)

    @staticmethod
    def _add(folder: LogFolder, log: LogFile | None, commit: Commit, outcome: Outcome) -> None:
        if log is None or outcome.replaced is not None:
            table = log.table() if log else ThreadTable(commit.thread_id)
            table.add(commit, outcome)
            folder.write(table)
            return
        row = Row(commit.entry(outcome), commit.head, commit.manifest)
        runs = [*commit.runs, *(run for run in commit.values if not log.has_value(run.branch))]
        log.append(checkpoint_record(row, runs, outcome.seq, commit.expires_at), folder.pretty)

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        place = (thread_id, namespace, checkpoint_id)
        return await self._with_seal(*place, lambda log, seal: log.stored(seal, wanted(_manifest(seal))))

    async def read_part(self, thread_id: str, namespace: str, checkpoint_id: str | None, part: Part) -> Stored | None:
        place = (thread_id, namespace, checkpoint_id)
        return await self._with_seal(*place, lambda log, seal: log.stored(seal, needed(_manifest(seal), part)))

    async def read_since(self, thread_id: str, namespace: str, checkpoint_id: str | None, held: Base) -> Stored | None:
        def work(log: LogFile, seal: Seal) -> Stored:
            extents = wanted(_manifest(seal))
            base = log.find(namespace, held.checkpoint_id)
            if base is None or base.facts["rev"] != held.rev:
                return log.stored(seal, extents)
            known = newest_runs([_manifest(base)])
            return replace(log.stored(seal, extents, known), since=held)

        return await self._with_seal(thread_id, namespace, checkpoint_id, work)

    async def manifest(self, thread_id: str, namespace: str, checkpoint_id: str) -> tuple[str, str] | None:
        place = (thread_id, namespace, checkpoint_id)
        return await self._with_seal(*place, lambda _, seal: (str(seal.facts["rev"]), _manifest(seal)))

    async def entry(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Entry | None:
        place = (thread_id, namespace, checkpoint_id)
        return await self._with_seal(*place, lambda _, seal: seal.entry(thread_id))

    async def history(
        self, thread_id: str, namespace: str | None, limit: int | None, before_seq: int | None
    ) -> list[Entry]:
        def work(log: LogFile) -> list[Entry]:
            seals = (
                seal for seal in log.checkpoints(namespace) if before_seq is None or seal.facts["seq"] < before_seq
            )
            return [seal.entry(thread_id) for seal in islice(seals, limit)]

        return await self._with_log(thread_id, work, [])

    async def threads(self, pattern: Pattern, limit: int | None) -> list[str]:
        """List ids. A damaged thread is listed by its name, so that it can be looked at, or deleted."""
        listed: list[str] = []
        ids = await self._workers[0].run(lambda folder: list(filter(pattern.matches, folder.thread_ids())))
        for thread_id in ids:
            if limit is not None and len(listed) >= limit:
                break
            try:
                is_listed = await self._with_log(thread_id, lambda log: log.last_seq > 0, False)
            except UnsupportedFormatError:
                raise
            except CorruptCheckpointError:
                # What never was a log is no thread. But it must not take the place of one in silence.
                if await self._is_foreign(thread_id):
                    raise
                is_listed = True
            if is_listed:
                listed.append(thread_id)
        return listed

    async def unlisted(self, prefix: str, after: str, limit: int) -> list[str]:
        unlisted: list[str] = []
        ids = await self._workers[0].run(lambda folder: folder.thread_ids([]))
        for thread_id in ids:
            if len(unlisted) < limit and thread_id.startswith(prefix) and thread_id > after:
                try:
                    is_listed = await self._with_log(thread_id, lambda log: log.last_seq > 0, False)
                except UnsupportedFormatError:
                    raise
                except CorruptCheckpointError:
                    continue  # `threads` names it, or raises
                unlisted += [] if is_listed else [thread_id]
        return unlisted

    async def delete(self, thread_id: str, namespace: str | None = None, seqs: Mapping[int, str] | None = None) -> int:
        def work(folder: LogFolder) -> int:
            if namespace is None and seqs is None:
                return folder.remove_thread(thread_id)
            with folder.exclusive(thread_id), folder.log(thread_id) as log:
                if log is None:
                    return 0
                log.check_writable()
                table = log.table()
                doomed = table.seqs(namespace, seqs)
                if not doomed:
                    return 0  # also if there are no checkpoints at all: pending writes may wait for their first one
                if len(doomed) == len(table.rows):
                    folder.remove(thread_id)
                else:
                    table.remove(doomed)
                    folder.write(table)
                return len(doomed)

        return await self._on(thread_id, work)

    async def _each(
        self, work: Callable[[LogFile], list[T]], prefix: str, until: Callable[[], bool] = lambda: False
    ) -> list[T]:
        """Do some work on every thread of a prefix, until `until` says so.

        Damaged threads are left out, with a warning.
        """
        results: list[T] = []
        damaged: list[CorruptCheckpointError] = []
        thread_ids = await self._workers[0].run(lambda folder: folder.thread_ids(damaged))
        if prefix:
            damaged.clear()  # nobody knows whether they belong here
        for thread_id in thread_ids:
            if not thread_id.startswith(prefix):
                continue
            if until():
                break
            try:
                results += await self._with_log(thread_id, work, [])
            except UnsupportedFormatError:
                raise
            except CorruptCheckpointError as error:
                if not await self._is_foreign(thread_id):
                    damaged.append(error)
        warn_of_damage(damaged)
        return results

    async def _is_foreign(self, thread_id: str) -> bool:
        """Tell whether the file in the place of a log never was one. It must not stop lists of other threads."""
        return await self._on(thread_id, lambda folder: folder.is_foreign(thread_id))

    async def recent(self, limit: int, prefix: str = "") -> list[Entry]:
        return newest(await self._each(partial(_newest_entries, limit=limit), prefix), limit)

    async def newest_threads(self, limit: int, before: str | None = None, prefix: str = "") -> NewestThreads:
        """List threads by the ends of all logs of the prefix: no file says which threads are the newest."""
        return newest_threads(await self._each(partial(_newest_entries, limit=1), prefix), limit, before)

    async def find(self, key: str, value: str, limit: int, prefix: str = "") -> list[Entry]:
        def work(log: LogFile) -> list[Entry]:
            entries = (seal.entry(log.thread_id) for seal in log.checkpoints())
            return [entry for entry in entries if has_value(entry.metadata, key, value)][:limit]

        return newest(await self._each(work, prefix), limit)

    async def search(self, terms: Sequence[str], limit: int, prefix: str = "") -> list[Hit]:
        return await self.search_until(terms, limit, prefix, Deadline(inf))

    async def search_until(self, terms: Sequence[str], limit: int, prefix: str, deadline: Deadline) -> Hits:
        stopped = False

        def is_over() -> bool:
            nonlocal stopped
            stopped = deadline.has_passed
            return stopped

        hits = await self._each(lambda log: list(table_hits(log.table(), terms)), prefix, is_over)
        return Hits(best_hits(hits, limit), complete=not stopped)

    async def put_writes(self, task: TaskWrites) -> None:
        def work(folder: LogFolder) -> None:
            with folder.exclusive(task.thread_id), folder.log(task.thread_id, writing=True) as log:
                if log is None:
                    table = ThreadTable(task.thread_id)
                    table.put_writes(task)
                    folder.write(table)
                    return
                log.check_writable()
                log.append(writes_record(task, log.last_seq, log.expires_at), folder.pretty)

        await self._on(task.thread_id, work)

    async def get_writes(self, thread_id: str, namespace: str, checkpoint_id: str, task_id: str | None) -> list[Write]:
        def work(log: LogFile) -> list[Write]:
            table = ThreadTable(thread_id)
            for seal in reversed(list(log.newest_first())):
                if seal.kind == "writes" and seal.task[:2] == (namespace, checkpoint_id):
                    log.put_writes(table, seal)
            return table.get_writes(namespace, checkpoint_id, task_id)

        return await self._with_log(thread_id, work, [])

    async def ancestors(self, query: AncestorQuery) -> list[Ancestor]:
        return await self._with_log(query.thread_id, lambda log: log.ancestors(query), list[Ancestor]())

    async def outlived(
        self, retention: Retention, after: str = "", prefix: str = "", limit: int = PAGE
    ) -> AsyncGenerator[OutlivedPage]:
        def work(log: LogFile) -> Outlived:
            entries = [seal.entry(log.thread_id) for seal in log.checkpoints()]
            orphans = orphaned(log.orphans(), retention.orphans_before, log.changed)
            return outlived_in(log.thread_id, entries, retention, orphans)

        unnamed: list[CorruptCheckpointError] = []
        thread_ids = await self._workers[0].run(lambda folder: folder.thread_ids(unnamed))
        thread_ids = [name for name in thread_ids if name.startswith(prefix) and name > after]
        for start in range(0, len(thread_ids), limit):
            some = thread_ids[start : start + limit]
            outlived, damaged = list[Outlived](), list[CorruptCheckpointError]()
            for thread_id in some:
                try:
                    outlived.append(await self._with_log(thread_id, work, Outlived(thread_id)))
                except CorruptCheckpointError as error:
                    damaged.append(error)
            yield OutlivedPage(some[-1], len(some), list(filter(None, outlived)), damaged)
        if unnamed and not prefix:  # nobody knows whether they belong to a prefix
            yield OutlivedPage(thread_ids[-1] if thread_ids else after, 0, damaged=unnamed)

    async def delete_orphans(self, thread_id: str, places: Collection[Place]) -> int:
        def work(folder: LogFolder) -> int:
            with folder.exclusive(thread_id), folder.log(thread_id) as log:
                if log is None:
                    return 0
                log.check_writable()
                table = log.table()
                removed = table.delete_orphans(places)
                if not table.rows and not any(table.writes.values()):
                    folder.remove(thread_id)
                elif removed:
                    folder.write(table)
                return removed

        return await self._on(thread_id, work)

    async def salvage(
        self, thread_id: str, content: Callable[[Stored], object | None], *, apply: bool
    ) -> Salvage | None:
        return await self._on(thread_id, lambda folder: salvage(folder, thread_id, content, apply=apply))

    async def measure(self, thread_id: str) -> Measured | None:
        return await self._with_log(thread_id, lambda log: log.measured(), None)

    async def expire(self, now: datetime) -> int:
        def work(folder: LogFolder, thread_id: str) -> int:
            with folder.exclusive(thread_id):
                log = LogFile(folder.path(thread_id), thread_id)
                try:
                    if not log.refresh() or not log.expired(now):
                        return 0
                    folder.remove(thread_id)
                    return sum(1 for _ in log.checkpoints())
                finally:
                    log.release()

        await self._workers[0].run(LogFolder.sweep)
        damaged: list[CorruptCheckpointError] = []
        ids = await self._workers[0].run(lambda folder: folder.thread_ids(damaged))
        expired, damage = 0, next(iter(damaged), None)
        for thread_id in ids:
            try:
                expired += await self._on(thread_id, partial(work, thread_id=thread_id))
            except CorruptCheckpointError as error:
                if not await self._is_foreign(thread_id):
                    damage = damage or error  # the others expire all the same
        if damage is not None:
            raise damage
        return expired

    async def copy(self, source: str, dest: str, copied: Copied) -> int:
        def reading(folder: LogFolder) -> ThreadTable | None:
            with folder.log(source) as log:
                return None if log is None else log.table()

        table = await self._on(source, reading)
        if table is None or not table.rows:
            return 0

        def writing(folder: LogFolder) -> int:
            with folder.exclusive(dest):
                with folder.log(dest) as log:
                    existing = ThreadTable(dest) if log is None else log.table()
                copy = table.copied(existing, copied)
                if copy.rows and existing.rows:
                    return -1
                if copy.rows:
                    folder.write(copy)
                return len(copy.rows)

        return await self._on(dest, writing)

    async def export(self, thread_id: str, after_seq: int, limit: int, known: Mapping[str, int]) -> Exported:
        def work(folder: LogFolder) -> Exported:
            with folder.log(thread_id) as log:
                return Exported([], []) if log is None else log.exported(after_seq, known)

        return await self._on(thread_id, work)

    def translate(self, error: BaseException) -> CheckpointError:
        # The text of an error that names a file would show the id of its thread.
        said = error.strerror if isinstance(error, OSError) and error.filename is not None else error
        return BackendUnavailableError(f"the folder {str(self._base)!r} cannot be used now: {said}")

    async def close(self) -> None:
        for worker in self._workers:
            await worker.close()


def _manifest(seal: Seal) -> str:
    return encode(seal.facts["manifest"])


def _newest_entries(log: LogFile, limit: int) -> list[Entry]:
    return [seal.entry(log.thread_id) for seal in islice(log.checkpoints(), limit)]
