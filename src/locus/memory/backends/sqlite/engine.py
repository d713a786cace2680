"""The engine for SQLite: one file, no server. Several processes may use it at once.

A save is one transaction on an OS thread of its own. Reads happen on others, and wait neither for saves nor, as long as
one of these threads is free, for each other.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
import weakref
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

from locus.errors import (
    BackendUnavailableError,
    CapabilityError,
    CheckpointError,
    CorruptCheckpointError,
    SerializationError,
)
from locus.memory.backends.sql import read as sql_read
from locus.memory.backends.sql.commit import SQLThreads
from locus.memory.backends.sql.engine import LEAST_SECONDS, Operation, SQLEngine, ThreadChange
from locus.memory.backends.sqlite import read as sqlite_read
from locus.memory.backends.sqlite import search as sqlite_search
from locus.memory.backends.sqlite.client import (
    MemoryFile,
    Query,
    SQLiteFile,
    cause_of,
    execute,
    is_full,
    is_read_only,
    raise_interrupt,
    transaction,
)
from locus.memory.backends.sqlite.commit import SQLiteThreads, commit_apart, commit_within, metadata_value
from locus.memory.backends.sqlite.config import IN_MEMORY
from locus.memory.backends.sqlite.examine import findings
from locus.memory.backends.sqlite.schema import (
    MIGRATIONS,
    SQL,
    TABLES,
    SQLiteFlavour,
    checked_version,
    foreign_kind,
    script,
    sql_of,
)
from locus.memory.engine import (
    CommitsTogether,
    CommitsWhole,
    CommitsWithWrites,
    Deadline,
    Engine,
    NothingCommitted,
    TellsState,
)
from locus.memory.model.records import (
    Base,
    Commit,
    Entry,
    Finding,
    Hits,
    Outcome,
    Stored,
    StoredFormat,
    TaskWrites,
    Verdict,
    Write,
)
from locus.memory.runtime.worker import Worker

T = TypeVar("T")

READERS = 4
LONGEST_PAUSE = 0.1
"""The longest time, in seconds, between two looks of SQLite whether a lock is free."""
NOT_UTF_8 = "Could not decode to UTF-8"
"""The beginning of the driver's error for a damaged text."""


class _Refused(Exception):
    """One of several commits cannot be written, so the others are not, either."""


def _stored_version(file: SQLiteFile) -> int:
    """The format of the tables in a file; 0 if there are none."""
    return checked_version(file.current(), reading=True) if file.is_there() else 0


def _foreign_kind(file: SQLiteFile) -> str | None:
    return foreign_kind(file.current()) if file.is_there() else None


def _carry_out(change: ThreadChange[T], connection: sqlite3.Connection) -> T:
    with transaction(connection):
        return execute(connection, change(SQLiteThreads(connection)))


class SQLiteEngine(SQLEngine, CommitsTogether, CommitsWhole, CommitsWithWrites, TellsState):
    """Threads in an SQLite file."""

    # The text of SQLite's own error may have what it could not read of a damaged file.
    driver_errors = (sqlite3.Error, OSError, UnicodeDecodeError)
    works_in_place = True
    reads_at_once = True
    sql: SQLiteFlavour = SQL
    """The SQL of the tables. Tables of an older format may be read without a migration."""
    _threads = SQLThreads(SQL)

    def __init__(
        self,
        path: str,
        *,
        durability: str,
        timeout: float,
        query_timeout: float = 60.0,
        makes_folder: bool = True,
        tables: str = TABLES,
    ) -> None:
        """`tables` is how the names of all tables begin."""
        self._path = path
        self._tables = tables
        self._identity = f"sqlite:{path}" if path != IN_MEMORY else f"sqlite::memory:{uuid4().hex}"
        self._identity += "" if tables == TABLES else f"/{tables}"
        self._with_tables = partial(
            SQLiteEngine,
            path,
            durability=durability,
            timeout=timeout,
            query_timeout=query_timeout,
            makes_folder=makes_folder,
        )
        self._memory: MemoryFile | None = None
        self._query_timeout = query_timeout
        if path == IN_MEMORY:
            file = self._memory = MemoryFile(path, durability=durability, timeout=timeout, writable=True, tables=tables)
            self._writer: Worker[SQLiteFile] = Worker("locus-sqlite", lambda: file)
            self._reader: Worker[SQLiteFile] = self._writer
            return

        held = weakref.ref(self)  # the workers' threads must not keep the engine alive

        def check_foreign(kind: str | None) -> None:
            engine = held()
            if engine is not None:
                engine.check_foreign(kind)

        def opened(writable: bool) -> SQLiteFile:
            engine = held()
            return SQLiteFile(
                path,
                durability=durability,
                timeout=timeout,
                writable=writable,
                untouched=engine is not None and engine.reading_only,
                makes_folder=makes_folder,
                check_foreign=check_foreign,
                tables=tables,
            )

        self._writer = Worker("locus-sqlite-writer", partial(opened, True))
        self._reader = Worker("locus-sqlite-reader", partial(opened, False), READERS)

    @property
    def identity(self) -> str:
        return self._identity

    def _opened_space(self, name: str) -> Engine:
        return self._with_tables(tables=f"{TABLES}_{name}_")

    async def setup(self) -> None:
        stored = 0
        if not self.reading_only:
            try:
                await self._writer.run(SQLiteFile.current)
                return
            except sqlite3.OperationalError as error:
                # A file that may only be read can be read. A save will say why it can't be kept.
                if not is_read_only(error):
                    raise
                stored = await self._reader.run(_stored_version)
                if not stored:
                    raise
        else:
            stored = await self._reader.run(_stored_version)
        if not stored:
            self.check_foreign(await self._reader.run(_foreign_kind))
            raise self.nothing_there()
        self.sql = sql_of(stored)

    async def _run(self, worker: Worker[SQLiteFile], job: Callable[[SQLiteFile], T]) -> T:
        try:
            return await worker.run(job)
        except sqlite3.OperationalError as error:
            raise_interrupt(error)
            if NOT_UTF_8 not in str(error):
                raise
            # The driver's text has what it could not read, which may be anything that a user said.
            raise CorruptCheckpointError("the SQLite database is damaged: a text in it is not UTF-8") from None

    async def _read(self, operation: Operation[T], *, at_once: bool = False) -> T:
        return await self._query(lambda connection, query: execute(connection, operation(), query))

    async def _query(self, work: Callable[[sqlite3.Connection, Query], T]) -> T:
        """Do some work that only reads. It ends when its time is up, or when the caller stops waiting for it."""
        query = Query(self._query_timeout)
        try:
            return await self._run(self._reader, lambda file: file.read(work, query))
        except asyncio.CancelledError:
            query.abandon()
            raise

    async def _write(self, operation: Operation[T], *, repeatable: bool = False, alone: bool = False) -> T:
        return await self._in_transaction(lambda connection: execute(connection, operation()))

    async def _change(self, change: ThreadChange[T], *, repeatable: bool = False) -> T:
        return await self._in_transaction(lambda connection: execute(connection, change(SQLiteThreads(connection))))

    async def _in_transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do some work in a transaction that writes."""

        def job(file: SQLiteFile) -> T:
            connection = file.current()
            with transaction(connection):
                result = work(connection)
            file.after_write(connection)
            return result

        return await self._run(self._writer, job)

    async def _remove(self, change: ThreadChange[T], *, in_turn: bool = False) -> T:
        """Carry out a change that frees space, even if the disk is full. After one `in_turn`, pause as long as it took.

        Whoever waits for the file only looks now and then whether it is free.
        """
        began = time.monotonic()
        try:
            result = await self._change(change)
        except sqlite3.OperationalError as error:
            if not is_full(error):
                raise
            result = await self._run(self._writer, lambda file: file.with_reserve(partial(_carry_out, change)))
        if in_turn:
            await asyncio.sleep(min(time.monotonic() - began, LONGEST_PAUSE))
        return result

    async def carry_out(self, operation: Operation[T], *, writing: bool) -> T:
        if not writing and not await self._reader.run(lambda file: file.is_there()):
            raise self.nothing_there()
        return await super().carry_out(operation, writing=writing)

    async def examine(self) -> list[Finding]:
        return await self._reader.run(lambda file: findings(file.current(), self._tables))

    async def stored_format(self) -> StoredFormat | None:
        stored = await self._reader.run(_stored_version)
        migration = script(stored).replace(TABLES, self._tables) if stored else ""
        return StoredFormat(stored, len(MIGRATIONS), migration)

    async def mend(self, finding: Finding) -> None:
        statement = finding.repair.replace(self._tables, TABLES)  # the connection puts the names of its tables in
        await self._in_transaction(lambda connection: connection.execute(statement))

    async def read_with_writes(
        self, thread_id: str, namespace: str, checkpoint_id: str | None, held: Base | None
    ) -> tuple[Stored, list[Write]] | None:
        place = (thread_id, namespace, checkpoint_id)
        return await self._read(partial(sql_read.read_with_writes, self.sql, *place, held, at_once=True))

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

    async def commit_whole(self, group: Sequence[Commit]) -> list[Outcome] | None:
        def work(connection: sqlite3.Connection) -> list[Outcome]:
            outcomes = []
            for commit in group:
                outcomes.append(commit_within(connection, commit))
                if outcomes[-1].verdict is not Verdict.COMMITTED:
                    raise _Refused
            return outcomes

        with suppress(_Refused):
            return await self._in_transaction(work)
        return None

    async def find(self, key: str, value: str, limit: int, prefix: str = "") -> list[Entry]:
        return await self._read(partial(sqlite_read.find, self.sql, key, metadata_value(value), limit, prefix))

    async def state(self) -> Hashable:
        query = Query(self._query_timeout)
        return await self._run(self._reader, lambda file: file.read(partial(self._state, file), query))

    def _state(self, file: SQLiteFile, connection: sqlite3.Connection, query: Query) -> tuple[Any, ...]:
        """The state, which is counted only if this connection or another one has written since the last time."""
        ((version,),) = connection.execute("PRAGMA data_version").fetchall()
        writes = connection, version, connection.total_changes
        if file.counted is None or file.counted[0] != writes:
            file.counted = writes, execute(connection, sqlite_read.state(self.sql), query)
        return file.counted[1]

    async def changed(self, since: Hashable, prefix: str) -> list[str] | None:
        if not isinstance(since, tuple):
            return None
        return await self._read(partial(sqlite_read.changed, self.sql, since, prefix), at_once=True)

    async def search_until(self, terms: Sequence[str], limit: int, prefix: str, deadline: Deadline) -> Hits:
        indexed = await self._index_until(deadline)

        def work(connection: sqlite3.Connection, query: Query) -> Hits:
            query.end_within(max(deadline.left, LEAST_SECONDS))
            if indexed is None:
                return sqlite_search.search_reading(connection, query, terms, limit, prefix, self.sql)
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
            while await self._in_transaction(sqlite_search.index_more):
                # One portion at a time, so that saves can go on in between.
                if deadline.has_passed:
                    return False
        except sqlite3.OperationalError as error:
            if not is_read_only(error):
                raise
            return None
        return True

    async def expire(self, now: datetime) -> int:
        expired = await super().expire(now)
        try:
            begin = True
            # One portion at a time, so that saves can go on in between.
            while await self._in_transaction(partial(sqlite_search.clear_forgotten, begin=begin)):
                begin = False
        except sqlite3.OperationalError as error:
            if not is_full(error):  # then the next time will do
                raise
        return expired

    def translate(self, error: BaseException) -> CheckpointError:
        text = str(error)
        if "no such module: fts5" in text:
            return CapabilityError("this Python's SQLite was built without FTS5, so there is no search")
        if isinstance(error, TimeoutError):
            return BackendUnavailableError(f"{text}: ask for less, or raise it")
        if isinstance(error, UnicodeDecodeError):
            return CorruptCheckpointError("the SQLite database is damaged: a text in it is not UTF-8")
        if isinstance(error, sqlite3.DataError) or "too big" in text:
            return SerializationError(f"a value is larger than SQLite can hold: {text}")
        damaged = "no such table" in text or "vtable constructor failed" in text
        if isinstance(error, sqlite3.OperationalError) and not damaged:
            return BackendUnavailableError(f"{self._identity} cannot be used now: {cause_of(error, self._path)}")
        if isinstance(error, sqlite3.Error):
            return CorruptCheckpointError(f"{self._identity} cannot be read: {cause_of(error, self._path)}")
        return BackendUnavailableError(f"{self._identity} cannot be reached: {text}")

    async def close(self) -> None:
        if (memory := self._memory) is not None:
            await self._writer.run(lambda _file: memory.discard())  # in turn, because others may be using it
        await self._writer.close()
        await self._reader.close()
