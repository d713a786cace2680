"""The engine for SQLite: one file, no server. Several processes may use it at once.

A save is one transaction on an OS thread of its own. Reads happen on others, and wait neither for saves nor, as long
as one of these threads is free, for each other.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from math import inf
from typing import TypeVar
from uuid import uuid4

from locus.errors import (
    BackendUnavailableError,
    CapabilityError,
    CheckpointError,
    CorruptCheckpointError,
    SerializationError,
)
from locus.memory.backends.sql import read as sql_read
from locus.memory.backends.sql import remove as sql_remove
from locus.memory.backends.sql.commit import SQLThreads
from locus.memory.backends.sql.flavour import Steps
from locus.memory.backends.sql.trim import trim_long, trim_short
from locus.memory.backends.sqlite import read as sqlite_read
from locus.memory.backends.sqlite import search as sqlite_search
from locus.memory.backends.sqlite.client import (
    MemoryFile,
    Query,
    SQLiteFile,
    execute,
    is_full,
    is_read_only,
    transaction,
)
from locus.memory.backends.sqlite.commit import SQLiteThreads, commit_apart, commit_within, metadata_value
from locus.memory.backends.sqlite.config import IN_MEMORY
from locus.memory.backends.sqlite.examine import findings
from locus.memory.backends.sqlite.schema import (
    MIGRATIONS,
    OLD_SQL,
    SQL,
    WITHOUT_CHECKSUMS,
    SQLiteFlavour,
    checked_version,
    script,
)
from locus.memory.engine import (
    PAGE,
    CommitsTogether,
    Copies,
    Deadline,
    Engine,
    Expires,
    Exports,
    FindsMetadata,
    KeepsWrites,
    NothingCommitted,
    Searches,
)
from locus.memory.model.ids import Pattern
from locus.memory.model.parts import Part
from locus.memory.model.records import (
    Base,
    Commit,
    Entry,
    Exported,
    Finding,
    Hit,
    Hits,
    NewestThreads,
    Outcome,
    Stored,
    StoredFormat,
    TaskWrites,
    Verdict,
    Write,
)
from locus.memory.model.retention import Line, OutlivedPage, Place, Retention
from locus.memory.model.sizes import Measured
from locus.memory.runtime.worker import Worker

T = TypeVar("T")

READERS = 4
LEAST_SECONDS = 1.0
"""How long a search may look into the index, even if its time went by while that was brought up to date."""
LONGEST_PAUSE = 0.1
"""In seconds: SQLite looks at least so often whether a lock is free."""
NOT_UTF_8 = "Could not decode to UTF-8"
"""How the driver's error for a damaged text begins."""


def _format_found(file: SQLiteFile) -> int:
    return checked_version(file.current(), reading=True) if file.is_there() else 0


class SQLiteEngine(Engine, CommitsTogether, KeepsWrites, FindsMetadata, Searches, Expires, Copies, Exports):
    """Threads in an SQLite file."""

    driver_errors = (sqlite3.Error, OSError)
    sql = SQL

    def __init__(
        self, path: str, *, durability: str, timeout: float, query_timeout: float = 60.0, makes_folder: bool = True
    ) -> None:
        self._identity = f"sqlite:{path}" if path != IN_MEMORY else f"sqlite::memory:{uuid4().hex}"
        self._memory: MemoryFile | None = None
        self._query_timeout = query_timeout
        self._sql: SQLiteFlavour = SQL
        if path == IN_MEMORY:
            kept = self._memory = MemoryFile(path, durability=durability, timeout=timeout, writable=True)
            self._writer: Worker[SQLiteFile] = Worker("locus-sqlite", lambda: kept)
            self._reader: Worker[SQLiteFile] = self._writer
            return

        def opener(writable: bool) -> Callable[[], SQLiteFile]:
            return lambda: SQLiteFile(
                path,
                durability=durability,
                timeout=timeout,
                writable=writable,
                untouched=self.reading_only,
                makes_folder=makes_folder,
            )

        self._writer = Worker("locus-sqlite-writer", opener(True))
        self._reader = Worker("locus-sqlite-reader", opener(False), READERS)

    @property
    def identity(self) -> str:
        return self._identity

    async def setup(self) -> None:
        if not self.reading_only:
            try:
                await self._writer.run(SQLiteFile.current)
                return
            except sqlite3.OperationalError as error:
                # A file that may only be read can be read. A save will say why it can't be kept.
                if not is_read_only(error):
                    raise
                found = await self._reader.run(_format_found)
                if not found:
                    raise
        else:
            found = await self._reader.run(_format_found)
        if not found:
            raise self.nothing_there()
        self._sql = OLD_SQL if found <= WITHOUT_CHECKSUMS else SQL

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def job(file: SQLiteFile) -> T:
            connection = file.current()
            with transaction(connection):
                done = work(connection)
            file.after_write(connection)
            return done

        return await self._run(self._writer, job)

    async def _run(self, worker: Worker[SQLiteFile], job: Callable[[SQLiteFile], T]) -> T:
        try:
            return await worker.run(job)
        except sqlite3.OperationalError as error:
            if NOT_UTF_8 not in str(error):
                raise
            # The driver's text has what it could not read, which may be anything that a user said.
            raise CorruptCheckpointError("the SQLite database is damaged: a text in it is not UTF-8") from None

    async def _change(self, operation: Callable[[SQLiteThreads], Steps[T]]) -> T:
        return await self._write(lambda connection: execute(connection, operation(SQLiteThreads(connection))))

    async def _remove(self, operation: Callable[[SQLiteThreads], Steps[T]]) -> T:
        """A change that frees space, and is possible where the disk is full."""

        def work(connection: sqlite3.Connection) -> T:
            with transaction(connection):
                return execute(connection, operation(SQLiteThreads(connection)))

        try:
            return await self._change(operation)
        except sqlite3.OperationalError as error:
            if not is_full(error):
                raise
        return await self._run(self._writer, lambda file: file.with_reserve(work))

    async def _read(self, steps: Steps[T]) -> T:
        return await self._query(lambda connection, query: execute(connection, steps, query))

    async def _query(self, work: Callable[[sqlite3.Connection, Query], T]) -> T:
        """Do some work that only reads. It ends with its deadline, or with its caller's patience."""
        query = Query(self._query_timeout)
        try:
            return await self._run(self._reader, lambda file: file.read(lambda found: work(found, query), query))
        except asyncio.CancelledError:
            query.abandon()
            raise

    async def carry_out(self, operation: Callable[[], Steps[T]], *, writing: bool, alone: bool = False) -> T:
        """Run steps on tables that are not the engine's, in one transaction; `alone`: there is one step only."""
        if writing:
            return await self._write(lambda connection: execute(connection, operation()))
        return await self._read(operation())

    async def examine(self) -> list[Finding]:
        return await self._reader.run(lambda file: findings(file.current()))

    async def stored_format(self) -> StoredFormat | None:
        found = await self._reader.run(_format_found)
        return StoredFormat(found, len(MIGRATIONS), script(found) if found else "")

    async def mend(self, finding: Finding) -> None:
        await self._write(lambda connection: connection.execute(finding.repair))

    async def commit(self, commit: Commit) -> Outcome:
        def work(file: SQLiteFile) -> Outcome:
            connection = file.current()
            connection.execute("BEGIN IMMEDIATE")
            try:
                outcome = commit_within(connection, commit)
                written = outcome.verdict is Verdict.COMMITTED and not outcome.repeated
                connection.execute("COMMIT" if written else "ROLLBACK")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            file.after_write(connection)
            return outcome

        return await self._run(self._writer, work)

    async def commit_together(self, group: Sequence[Commit | TaskWrites]) -> list[Outcome | None]:
        def work(file: SQLiteFile) -> list[Outcome | None]:
            connection = file.current()
            with ExitStack() as stack:
                try:
                    stack.enter_context(transaction(connection))
                except sqlite3.OperationalError as error:
                    raise NothingCommitted from error  # others have held the lock for all of the timeout
                outcomes = [commit_apart(connection, member) for member in group]
            file.after_write(connection)
            return outcomes

        return await self._run(self._writer, work)

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        return await self._read(sql_read.read(self._sql, thread_id, namespace, checkpoint_id, at_once=True))

    async def read_part(self, thread_id: str, namespace: str, checkpoint_id: str | None, part: Part) -> Stored | None:
        return await self._read(sql_read.read(self._sql, thread_id, namespace, checkpoint_id, part, at_once=True))

    async def read_since(self, thread_id: str, namespace: str, checkpoint_id: str | None, held: Base) -> Stored | None:
        return await self._read(sql_read.read(self._sql, thread_id, namespace, checkpoint_id, held=held, at_once=True))

    async def entry(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Entry | None:
        return await self._read(sql_read.entry(self._sql, thread_id, namespace, checkpoint_id))

    async def manifest(self, thread_id: str, namespace: str, checkpoint_id: str) -> tuple[str, str] | None:
        return await self._read(sql_read.manifest(self._sql, thread_id, namespace, checkpoint_id))

    async def history(
        self, thread_id: str, namespace: str | None, limit: int | None, before_seq: int | None
    ) -> list[Entry]:
        return await self._read(sql_read.history(self._sql, thread_id, namespace, limit, before_seq))

    async def namespaces(self, thread_id: str) -> list[str]:
        return await self._read(sql_read.namespaces(self._sql, thread_id))

    async def recent(self, limit: int, prefix: str = "") -> list[Entry]:
        return await self._read(sql_read.recent(self._sql, limit, prefix))

    async def newest_threads(self, limit: int, before: str | None = None, prefix: str = "") -> NewestThreads:
        return await self._read(sql_read.newest_threads(self._sql, limit, before, prefix))

    async def find(self, key: str, value: str, limit: int, prefix: str = "") -> list[Entry]:
        return await self._read(sqlite_read.find(self._sql, key, metadata_value(value), limit, prefix))

    async def threads(self, pattern: Pattern, limit: int | None) -> list[str]:
        return await self._read(sql_read.threads(self._sql, pattern, limit))

    async def unlisted(self, prefix: str, after: str, limit: int) -> list[str]:
        return await self._read(sql_read.unlisted(self._sql, prefix, after, limit))

    async def delete(self, thread_id: str, namespace: str | None = None, seqs: Mapping[int, str] | None = None) -> int:
        return await self._remove(lambda threads: threads.delete(thread_id, namespace, seqs))

    async def search(self, terms: Sequence[str], limit: int, prefix: str = "") -> list[Hit]:
        return await self.search_until(terms, limit, prefix, Deadline(inf))

    async def search_until(self, terms: Sequence[str], limit: int, prefix: str, deadline: Deadline) -> Hits:
        indexed = await self._index_until(deadline)

        def work(connection: sqlite3.Connection, query: Query) -> Hits:
            query.end_within(max(deadline.left, LEAST_SECONDS))
            if indexed is None:
                return sqlite_search.search_reading(connection, query, terms, limit, prefix, self._sql)
            if prefix:
                return Hits(sqlite_search.search_within(connection, query, terms, limit, prefix), indexed)
            return Hits(sqlite_search.search(connection, query, terms, limit), indexed)

        try:
            return await self._query(work)
        except TimeoutError:
            if not deadline.has_passed:
                raise
            return Hits(complete=False)

    async def _index_until(self, deadline: Deadline) -> bool | None:
        """Index what was saved, up to a deadline: True if that is all. None if the file may only be read."""
        if self.reading_only:
            return None
        try:
            while await self._write(sqlite_search.index_more):
                # One portion at a time, so that saves can go on in between.
                if deadline.has_passed:
                    return False
        except sqlite3.OperationalError as error:
            if not is_read_only(error):
                raise
            return None
        return True

    async def put_writes(
        self,
        thread_id: str,
        namespace: str,
        checkpoint_id: str,
        task_id: str,
        writes: Sequence[Write],
        *,
        keep_numbered: bool = False,
    ) -> None:
        await self._change(
            lambda threads: threads.put_writes(thread_id, namespace, checkpoint_id, task_id, writes, keep_numbered)
        )

    async def get_writes(self, thread_id: str, namespace: str, checkpoint_id: str, task_id: str | None) -> list[Write]:
        return await self._read(sql_read.get_writes(self._sql, thread_id, namespace, checkpoint_id, task_id))

    async def outlived(
        self, kept: Retention, after: str = "", prefix: str = "", limit: int = PAGE
    ) -> AsyncGenerator[OutlivedPage]:
        while page := await self._read(sql_remove.outlived(self._sql, kept, after, prefix, limit)):
            yield page
            after = page.after

    async def measure(self, thread_id: str) -> Measured | None:
        return await self._read(sql_remove.measure(self._sql, thread_id))

    async def trim(self, thread_id: str, seqs: Mapping[int, str]) -> int:
        removed = await self._remove(lambda threads: trim_short(threads, thread_id, seqs))
        return await trim_long(self._look_at, self._remove_in_turn, thread_id, seqs) if removed is None else removed

    async def _look_at(self, operation: Callable[[SQLThreads], Steps[T]]) -> T:
        return await self._query(
            lambda connection, query: execute(connection, operation(SQLiteThreads(connection)), query)
        )

    async def _remove_in_turn(self, operation: Callable[[SQLThreads], Steps[T]]) -> T:
        """One of several removals that follow each other.

        Who waits for the file only looks now and then whether it is free. So it is left alone for as long as it was
        held.
        """
        began = time.monotonic()
        done = await self._remove(operation)
        await asyncio.sleep(min(time.monotonic() - began, LONGEST_PAUSE))
        return done

    async def delete_orphans(self, thread_id: str, places: Collection[Place]) -> int:
        return await self._remove(lambda threads: threads.delete_orphans(thread_id, places))

    async def expire(self, now: datetime) -> int:
        expired, more = await self._remove(lambda threads: threads.expire(now))
        while more:
            removed, more = await self._remove_in_turn(lambda threads: threads.expire(now))
            expired += removed
        try:
            begin = True
            # One portion at a time, so that saves can go on in between.
            while await self._write(partial(sqlite_search.clear_forgotten, begin=begin)):
                begin = False
        except sqlite3.OperationalError as error:
            if not is_full(error):  # then the next time will do
                raise
        return expired

    async def copy(self, source: str, dest: str, namespace: str | None, checkpoint_ids: Collection[str] | None) -> int:
        return await self._change(lambda threads: threads.copy(source, dest, namespace, checkpoint_ids))

    async def copy_line(self, source: str, dest: str, line: Line) -> int:
        return await self._change(lambda threads: threads.copy_line(source, dest, line))

    async def export(self, thread_id: str, after_seq: int, limit: int, known: Mapping[str, int]) -> Exported:
        return await self._read(sql_read.export(self._sql, thread_id, after_seq, limit, known))

    def translate(self, error: BaseException) -> CheckpointError:
        text = str(error)
        if "no such module: fts5" in text:
            return CapabilityError("this Python's SQLite was built without FTS5, so there is no search")
        if isinstance(error, TimeoutError):
            return BackendUnavailableError(f"{text}: ask for less, or raise it")
        if isinstance(error, sqlite3.DataError) or "too big" in text:
            return SerializationError(f"a value is larger than SQLite can hold: {text}")
        damaged = "no such table" in text or "vtable constructor failed" in text
        if isinstance(error, sqlite3.OperationalError) and not damaged:
            return BackendUnavailableError(f"the SQLite database cannot be used now: {text}")
        if isinstance(error, sqlite3.Error):
            return CorruptCheckpointError(f"the SQLite database cannot be read: {text}")
        return BackendUnavailableError(f"the SQLite database cannot be reached: {text}")

    async def close(self) -> None:
        await self._writer.close()
        await self._reader.close()
        if self._memory is not None:
            self._memory.discard()
