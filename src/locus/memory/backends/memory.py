"""Threads in the memory of this process: for tests, notebooks and short-lived agents.

Dicts hold the same encoded records as every other backend, so nothing that a caller holds can change what is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from heapq import nsmallest
from typing import Any
from uuid import uuid4

from locus.errors import BackendUnavailableError, CheckpointError, ConfigurationError
from locus.hints import check_options
from locus.memory.checkpointer import Checkpointer
from locus.memory.engine import (
    PAGE,
    Copies,
    Engine,
    Expires,
    Exports,
    FindsMetadata,
    KeepsWrites,
    Searches,
    TellsState,
    contents_of,
)
from locus.memory.model.arguments import CACHE_MB
from locus.memory.model.commit_rules import decide
from locus.memory.model.ids import Pattern
from locus.memory.model.matching import best_hits, has_value, newest, newest_threads, table_hits
from locus.memory.model.parts import Part
from locus.memory.model.records import (
    DEFAULT_NAMESPACE,
    Ancestor,
    AncestorQuery,
    Base,
    Commit,
    Contents,
    Entry,
    Exported,
    Hit,
    NewestThreads,
    Outcome,
    Stored,
    TaskWrites,
    Write,
)
from locus.memory.model.retention import Copied, Outlived, OutlivedPage, Place, Retention, orphaned, outlived_in
from locus.memory.model.sizes import Measured
from locus.memory.model.table import ThreadTable
from locus.memory.runtime.forks import fork_safe_lock
from locus.memory.runtime.url import split_options
from locus.memory.store import CheckpointStore


class MemoryEngine(Engine, KeepsWrites, FindsMetadata, Searches, Expires, Copies, Exports, TellsState):
    """Threads in dicts, behind a lock: several event loops may use it at once.

    Blocking calls run in the main thread, too, so an interrupt may come anywhere. Each change takes effect in one step.
    """

    works_in_place = True

    def __init__(self) -> None:
        self._identity = f"memory:{uuid4().hex}"
        self._lock = fork_safe_lock()
        self._tables: dict[str, ThreadTable] = {}
        self._changes = 0

    @property
    def identity(self) -> str:
        return self._identity

    def _opened_space(self, name: str) -> Engine:
        return MemoryEngine()

    def _table(self, thread_id: str) -> ThreadTable | None:
        table = self._tables.get(thread_id)
        if table is not None and table.expires_at is not None and table.expires_at <= datetime.now(UTC):
            del self._tables[thread_id]
            return None
        return table

    def _live(self, prefix: str = "") -> Iterator[ThreadTable]:
        for thread_id in list(self._tables):
            table = self._table(thread_id) if thread_id.startswith(prefix) else None
            if table is not None and table.rows:
                yield table

    async def commit(self, commit: Commit) -> Outcome:
        with self._lock:
            table = self._table(commit.thread_id) or ThreadTable(commit.thread_id)
            outcome = decide(commit, table)
            if outcome.is_written:
                table = table if outcome.replaced is None else table.clone()
                table.add(commit, outcome)
                self._tables[commit.thread_id] = table
                self._changes += 1
            return outcome

    async def state(self) -> int:
        with self._lock:
            return self._changes

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        with self._lock:
            table = self._table(thread_id)
            row = table.row(namespace, checkpoint_id) if table else None
            return table.stored(row) if table and row else None

    async def read_part(self, thread_id: str, namespace: str, checkpoint_id: str | None, part: Part) -> Stored | None:
        with self._lock:
            table = self._table(thread_id)
            row = table.row(namespace, checkpoint_id) if table else None
            return table.stored_part(row, part) if table and row else None

    async def read_since(self, thread_id: str, namespace: str, checkpoint_id: str | None, held: Base) -> Stored | None:
        with self._lock:
            table = self._table(thread_id)
            row = table.row(namespace, checkpoint_id) if table else None
            return table.stored_since(row, held) if table and row else None

    async def history(
        self, thread_id: str, namespace: str | None, limit: int | None, before_seq: int | None
    ) -> list[Entry]:
        with self._lock:
            table = self._table(thread_id)
            entries = table.newest_first(namespace, before_seq) if table else iter(())
            return [entry for _, entry in zip(range(limit), entries, strict=False)] if limit is not None else [*entries]

    async def entry(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Entry | None:
        with self._lock:
            table = self._table(thread_id)
            row = table.row(namespace, checkpoint_id) if table else None
            return row.entry if row else None

    async def threads(self, pattern: Pattern, limit: int | None) -> list[str]:
        with self._lock:
            found = (table.thread_id for table in self._live(pattern.prefix) if pattern.matches(table.thread_id))
            return sorted(found) if limit is None else nsmallest(limit, found)

    async def unlisted(self, prefix: str, after: str, limit: int) -> list[str]:
        with self._lock:
            tables = [self._table(name) for name in sorted(self._tables) if name.startswith(prefix) and name > after]
            return [table.thread_id for table in tables if table is not None and not table.rows][:limit]

    async def delete(self, thread_id: str, namespace: str | None = None, seqs: Mapping[int, str] | None = None) -> int:
        with self._lock:
            table = self._table(thread_id)
            if table is None:
                return 0
            doomed = table.seqs(namespace, seqs)
            everything = namespace is None and seqs is None
            self._changes += 1
            if everything or (doomed and len(doomed) == len(table.rows)):
                del self._tables[thread_id]
            elif doomed:
                table = table.clone()
                table.remove(doomed)
                self._tables[thread_id] = table
            return len(doomed)

    async def recent(self, limit: int, prefix: str = "") -> list[Entry]:
        with self._lock:
            return newest((row.entry for table in self._live(prefix) for row in table.rows.values()), limit)

    async def newest(self, prefix: str, after: str, limit: int) -> Contents:
        pattern = Pattern(within=prefix, after=after)
        with self._lock:
            tables = {table.thread_id: table for table in self._live(prefix) if pattern.matches(table.thread_id)}
            ids = nsmallest(limit, tables)
            rows = [(tables[name], tables[name].row(DEFAULT_NAMESPACE, None)) for name in ids]
            return contents_of(ids, [table.stored(row) if row else None for table, row in rows], limit)

    async def newest_threads(self, limit: int, before: str | None = None, prefix: str = "") -> NewestThreads:
        with self._lock:
            newest = [next(table.newest_first(None, None)) for table in self._live(prefix)]
        return newest_threads(newest, limit, before)

    async def find(self, key: str, value: str, limit: int, prefix: str = "") -> list[Entry]:
        with self._lock:
            entries = (row.entry for table in self._live(prefix) for row in table.rows.values())
            return newest((entry for entry in entries if has_value(entry.metadata, key, value)), limit)

    async def search(self, terms: Sequence[str], limit: int, prefix: str = "") -> list[Hit]:
        with self._lock:
            tables = list(self._live(prefix))
        hits: list[Hit] = []
        for table in tables:
            with self._lock:
                hits += table_hits(table, terms)
            await asyncio.sleep(0)  # what else the event loop has to do does not wait for all threads
        return best_hits(hits, limit)

    async def put_writes(self, task: TaskWrites) -> None:
        with self._lock:
            table = self._tables[task.thread_id] = self._table(task.thread_id) or ThreadTable(task.thread_id)
            table.put_writes(task)

    async def get_writes(self, thread_id: str, namespace: str, checkpoint_id: str, task_id: str | None) -> list[Write]:
        with self._lock:
            table = self._table(thread_id)
            return table.get_writes(namespace, checkpoint_id, task_id) if table else []

    async def ancestors(self, query: AncestorQuery) -> list[Ancestor]:
        with self._lock:
            table = self._table(query.thread_id)
            return table.ancestors(query) if table else []

    async def outlived(
        self, retention: Retention, after: str = "", prefix: str = "", limit: int = PAGE
    ) -> AsyncGenerator[OutlivedPage]:
        with self._lock:
            thread_ids = sorted(name for name in self._tables if name.startswith(prefix) and name > after)
        for start in range(0, len(thread_ids), limit):
            some, outlived = thread_ids[start : start + limit], list[Outlived]()
            with self._lock:
                for table in filter(None, map(self._table, some)):
                    entries = [row.entry for row in table.rows.values()]
                    orphans = orphaned(table.orphans(), retention.orphans_before)
                    outlived.append(outlived_in(table.thread_id, entries, retention, orphans))
            await asyncio.sleep(0)  # what else the event loop has to do does not wait for all threads
            yield OutlivedPage(some[-1], len(some), list(filter(None, outlived)))

    async def delete_orphans(self, thread_id: str, places: Collection[Place]) -> int:
        with self._lock:
            table = self._table(thread_id)
            if table is None:
                return 0
            removed = table.delete_orphans(places)
            if not table.rows and not any(table.writes.values()):
                del self._tables[thread_id]
            return removed

    async def measure(self, thread_id: str) -> Measured | None:
        with self._lock:
            table = self._table(thread_id)
            return table.measured() if table and table.rows else None

    async def expire(self, now: datetime) -> int:
        with self._lock:
            ended = [t for t in self._tables.values() if t.expires_at is not None and t.expires_at <= now]
            self._changes += 1
            for table in ended:
                del self._tables[table.thread_id]
            return sum(len(table.rows) for table in ended)

    async def copy(self, source: str, dest: str, copied: Copied) -> int:
        with self._lock:
            table = self._table(source)
            existing = self._table(dest)
            if table is None or not table.rows:
                return 0
            copy = table.copied(existing or ThreadTable(dest), copied)
            if not copy.rows:
                return 0
            if existing is not None and existing.rows:
                return -1
            self._tables[dest] = copy
            self._changes += 1
            return len(copy.rows)

    async def export(self, thread_id: str, after_seq: int, limit: int, known: Mapping[str, int]) -> Exported:
        with self._lock:
            table = self._table(thread_id) or ThreadTable(thread_id)
            return table.exported(after_seq, limit, known)

    def translate(self, error: BaseException) -> CheckpointError:
        return BackendUnavailableError(str(error))

    def clear(self) -> None:
        with self._lock:
            self._changes += 1
            self._tables.clear()

    def counts(self) -> dict[str, int]:
        """The number of checkpoints of each thread."""
        with self._lock:
            return {table.thread_id: len(table.rows) for table in self._live()}


class MemoryCheckpointer(Checkpointer):
    """Keeps everything in memory until the process ends."""

    def __init__(self, *, ttl_seconds: float | None = None, cache_mb: float = CACHE_MB) -> None:
        self._engine = MemoryEngine()
        self.ttl_seconds = ttl_seconds
        super().__init__(CheckpointStore(self._engine, ttl_seconds=ttl_seconds, cache_mb=cache_mb))

    def clear(self) -> None:
        """Forget all threads."""
        self._engine.clear()

    def get_thread_ids(self) -> list[str]:
        """The ids of all threads."""
        return sorted(self._engine.counts())

    def get_checkpoint_count(self, thread_id: str | None = None) -> int:
        """Count the checkpoints of one thread, or of all."""
        counts = self._engine.counts()
        return sum(counts.values()) if thread_id is None else counts.get(thread_id, 0)

    def __repr__(self) -> str:
        return f"MemoryCheckpointer(threads={len(self._engine.counts())})"


_UNKNOWN = "a memory: URL has no option '{name}'; there are: {known}"


def from_location(location: str = "", **options: Any) -> MemoryCheckpointer:
    """`"memory"`, without a location; `"memory:?ttl_seconds=60"`."""
    check_options(options, MemoryCheckpointer, "MemoryCheckpointer")
    location, found = split_options(location, {"ttl_seconds": float, "cache_mb": float}, _UNKNOWN)
    if location:
        raise ConfigurationError('write "memory" alone: there is nothing to locate')
    return MemoryCheckpointer(**(found | options))
