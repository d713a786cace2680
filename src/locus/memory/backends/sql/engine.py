"""Engines for SQL databases.

`SQLEngine` has the operations that are the same steps in every SQL database. `SQLServerEngine` carries steps out on a
database server: it keeps pooled connections, runs transactions on them, and decides what to try again. A subclass opens
connections (`Connection`), interprets its driver's errors (`trouble`, `translate`), and adds its tables, its search,
its look-up by metadata and, if it has one, a shorter way to save.

Every event loop has a pool of its own. A pool has no tasks, so nothing is left behind when a loop ends. Before it hands
out a connection it notices if the server has closed it, and errors in opening one reach the caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import datetime
from enum import Enum, auto
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, Generic, Self, TypeVar

from locus.errors import ConfigurationError, CorruptCheckpointError
from locus.memory.backends.sql import read as sql_read
from locus.memory.backends.sql import remove as sql_remove
from locus.memory.backends.sql import search as sql_search
from locus.memory.backends.sql.commit import SQLThread, SQLThreads
from locus.memory.backends.sql.config import PoolOptions
from locus.memory.backends.sql.flavour import Flavour, Row, Steps, run_steps_async
from locus.memory.backends.sql.schema import other_tables
from locus.memory.backends.sql.search import PortionIndexing
from locus.memory.backends.sql.trim import trim_long, trim_short
from locus.memory.engine import (
    PAGE,
    Copies,
    Deadline,
    Engine,
    Expires,
    Exports,
    FindsMetadata,
    KeepsWrites,
    ListsVersions,
    Maintains,
    NothingCommitted,
    Searches,
)
from locus.memory.model.foreign import FOREIGN_TABLES, kind_of_tables
from locus.memory.model.ids import Pattern
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
    Finding,
    Hit,
    Hits,
    NewestThreads,
    Outcome,
    Path,
    Stored,
    StoredFormat,
    TaskWrites,
    Write,
)
from locus.memory.model.retention import Copied, OutlivedPage, Place, Retention
from locus.memory.model.sizes import Measured
from locus.memory.runtime.per_loop import PerLoop
from locus.memory.runtime.retry import Backoff

T = TypeVar("T")
Operation = Callable[[], Steps[T]]
"""Makes the steps of an operation, anew for each attempt."""
ThreadChange = Callable[[SQLThreads], Steps[T]]
"""Makes the steps of an operation that changes threads."""


async def foreign_kind(connection: Any, schema: str, values: Sequence[Any], kinds: Sequence[str]) -> str | None:
    """The framework among `kinds` whose tables are in a schema, an SQL expression with these values."""
    columns = await connection.execute(
        "SELECT table_name, column_name FROM information_schema.columns"
        f" WHERE table_schema = {schema} AND table_name IN (?{', ?' * (len(FOREIGN_TABLES) - 1)})",
        (*values, *FOREIGN_TABLES),
    )
    return kind_of_tables([(str(table), str(column)) for table, column in columns], kinds)


class SQLEngine(Engine, KeepsWrites, FindsMetadata, Searches, Expires, ListsVersions, Copies, Exports, Maintains):
    """Threads in SQL tables: the operations that are the same steps in every SQL database.

    A subclass carries steps out: `_read`, `_write` and `_change`. It adds the save, the search and the look-up by
    metadata, and overrides operations for which its database has a shorter way.
    """

    sql: Flavour
    _threads: SQLThreads
    reads_at_once: ClassVar[bool] = False
    """True if all steps of any `_read` see the same instant."""
    creates_tables = True
    """False if an administrator makes all tables."""

    @abstractmethod
    async def _read(self, operation: Operation[T], *, at_once: bool = False) -> T:
        """Carry out steps that only read. With `at_once`, all of them see the same instant."""

    @abstractmethod
    async def _write(self, operation: Operation[T], *, repeatable: bool = False, alone: bool = False) -> T:
        """Carry out steps in one transaction.

        `repeatable`: doing it twice does no harm. `alone`: there is only one step, which needs no transaction.
        """

    @abstractmethod
    async def _change(self, change: ThreadChange[T], *, repeatable: bool = False) -> T:
        """Carry out steps that change threads, in one transaction. `repeatable`: doing it twice does no harm."""

    async def _remove(self, change: ThreadChange[T], *, in_turn: bool = False) -> T:
        """Carry out a change that frees space. `in_turn`: it follows another one, and leaves others their turn."""
        return await self._change(change)

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        place = (thread_id, namespace, checkpoint_id)
        return await self._read(partial(sql_read.read, self.sql, *place, at_once=self.reads_at_once))

    async def read_part(self, thread_id: str, namespace: str, checkpoint_id: str | None, part: Part) -> Stored | None:
        place = (thread_id, namespace, checkpoint_id)
        return await self._read(partial(sql_read.read, self.sql, *place, part, at_once=self.reads_at_once))

    async def read_since(self, thread_id: str, namespace: str, checkpoint_id: str | None, held: Base) -> Stored | None:
        place = (thread_id, namespace, checkpoint_id)
        return await self._read(partial(sql_read.read, self.sql, *place, held=held, at_once=self.reads_at_once))

    async def entry(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Entry | None:
        return await self._read(partial(sql_read.entry, self.sql, thread_id, namespace, checkpoint_id))

    async def manifest(self, thread_id: str, namespace: str, checkpoint_id: str) -> tuple[str, str] | None:
        return await self._read(partial(sql_read.manifest, self.sql, thread_id, namespace, checkpoint_id))

    async def history(
        self, thread_id: str, namespace: str | None, limit: int | None, before_seq: int | None
    ) -> list[Entry]:
        return await self._read(partial(sql_read.history, self.sql, thread_id, namespace, limit, before_seq))

    async def namespaces(self, thread_id: str) -> list[str]:
        return await self._read(partial(sql_read.namespaces, self.sql, thread_id))

    async def recent(self, limit: int, prefix: str = "") -> list[Entry]:
        return await self._read(partial(sql_read.recent, self.sql, limit, prefix))

    async def newest_threads(self, limit: int, before: str | None = None, prefix: str = "") -> NewestThreads:
        return await self._read(partial(sql_read.newest_threads, self.sql, limit, before, prefix))

    async def newest(self, prefix: str, after: str, limit: int) -> Contents:
        return await self._read(partial(sql_read.newest, self.sql, prefix, after, limit, at_once=self.reads_at_once))

    async def versions(self, prefix: str, after: str, limit: int) -> list[tuple[str, str]]:
        return await self._read(partial(sql_read.versions, self.sql, prefix, after, limit), at_once=True)

    async def newest_of(self, thread_ids: Sequence[str]) -> list[Stored | CorruptCheckpointError | None]:
        return await self._read(partial(sql_read.newest_of, self.sql, thread_ids, at_once=self.reads_at_once))

    async def threads(self, pattern: Pattern, limit: int | None) -> list[str]:
        return await self._read(partial(sql_read.threads, self.sql, pattern, limit))

    async def unlisted(self, prefix: str, after: str, limit: int) -> list[str]:
        return await self._read(partial(sql_read.unlisted, self.sql, prefix, after, limit))

    async def search(self, terms: Sequence[str], limit: int, prefix: str = "") -> list[Hit]:
        return await self.search_until(terms, limit, prefix, Deadline(math.inf))

    async def delete(self, thread_id: str, namespace: str | None = None, seqs: Mapping[int, str] | None = None) -> int:
        return await self._remove(lambda threads: threads.delete(thread_id, namespace, seqs))

    async def trim(self, thread_id: str, seqs: Mapping[int, str]) -> int:
        removed = await self._remove(lambda threads: trim_short(threads, thread_id, seqs))
        if removed is not None:
            return removed
        return await trim_long(self._threads, partial(self._read, at_once=True), self._remove_in_turn, thread_id, seqs)

    async def _remove_in_turn(self, change: ThreadChange[T]) -> T:
        return await self._remove(change, in_turn=True)

    async def delete_orphans(self, thread_id: str, places: Collection[Place]) -> int:
        return await self._remove(lambda threads: threads.delete_orphans(thread_id, places))

    async def expire(self, now: datetime) -> int:
        # One portion at a time, so that nobody waits long for a thread.
        expired, more = await self._remove(lambda threads: threads.expire(now))
        while more:
            removed, more = await self._remove(lambda threads: threads.expire(now), in_turn=True)
            expired += removed
        return expired

    async def put_writes(self, task: TaskWrites) -> None:
        await self._change(lambda threads: threads.put_writes(task), repeatable=True)

    async def get_writes(self, thread_id: str, namespace: str, checkpoint_id: str, task_id: str | None) -> list[Write]:
        return await self._read(partial(sql_read.get_writes, self.sql, thread_id, namespace, checkpoint_id, task_id))

    async def ancestors(self, query: AncestorQuery) -> list[Ancestor]:
        return await self._read(partial(sql_read.ancestors, self.sql, query), at_once=True)

    async def outlived(
        self, retention: Retention, after: str = "", prefix: str = "", limit: int = PAGE
    ) -> AsyncGenerator[OutlivedPage]:
        while page := await self._read(partial(sql_remove.outlived, self.sql, retention, after, prefix, limit)):
            yield page
            after = page.after

    async def measure(self, thread_id: str) -> Measured | None:
        return await self._read(partial(sql_remove.measure, self.sql, thread_id), at_once=True)

    async def copy(self, source: str, dest: str, copied: Copied) -> int:
        return await self._change(lambda threads: threads.copy(source, dest, copied))

    async def export(self, thread_id: str, after_seq: int, limit: int, known: Mapping[str, int]) -> Exported:
        return await self._read(partial(sql_read.export, self.sql, thread_id, after_seq, limit, known), at_once=True)

    async def carry_out(self, operation: Operation[T], *, writing: bool) -> T:
        """Carry out steps on tables that are not the engine's own, in one transaction.

        They may be carried out twice if a connection is lost.
        """
        return await (self._write(operation, repeatable=True) if writing else self._read(operation, at_once=True))

    async def change(self, change: ThreadChange[T]) -> T:
        """Carry out steps that change threads, and what else is in the database, in one transaction."""
        return await self._change(change, repeatable=True)


class Connection(ABC):
    """A connection to a server. One task uses it at a time."""

    committing = False
    """True once a commit was sent: if its answer is lost, nobody knows the outcome of the transaction."""

    @abstractmethod
    async def execute(self, statement: str, values: Sequence[Any]) -> list[Row]:
        """Run a statement, written with `?`, and return its rows (an empty list if it has none)."""

    @abstractmethod
    async def begin(self, writing: bool) -> None:
        """Begin a transaction: one that writes, or one that reads everything as of one instant."""

    @abstractmethod
    async def commit(self) -> None: ...

    @abstractmethod
    async def rollback(self) -> None: ...

    @abstractmethod
    def in_transaction(self) -> bool:
        """Tell whether there is a transaction to roll back, on a connection that still works."""

    @abstractmethod
    def is_usable(self) -> bool:
        """Tell whether the connection is open and idle, as far as that is known without asking the server."""

    @abstractmethod
    def close(self) -> None:
        """Release the connection at once; its event loop may be closed already. Never raises."""

    async def quit(self) -> None:
        """Say goodbye to the server, and close the connection. Never raises."""
        self.close()


C = TypeVar("C", bound=Connection)

BETWEEN_ATTEMPTS = Backoff(0.02, 0.5)
ROLLED_BACK_ATTEMPTS = 20
"""The number of attempts at a transaction that the server rolls back (a deadlock)."""


class Trouble(Enum):
    """The meaning of a driver's error for the operation."""

    ROLLED_BACK = auto()
    """The server undid the transaction (a deadlock, a serialisation failure): try again."""
    LOST = auto()
    """The connection is gone, or none could be opened: try again if it does no harm to repeat the operation."""
    DEMOTED = auto()
    """The server has become read-only, and has refused this one: another may take writes now."""
    FINAL = auto()
    """Trying again would give the same error."""


LEAST_SECONDS = 1.0
"""The time that a search may take after the full text was brought up to date, even if its deadline has passed."""


class SQLServerEngine(SQLEngine, Generic[C]):
    """Threads in a database server.

    `retry_seconds` is the time to try to replace a lost connection, `first_seconds` that to get the first connection.
    """

    has_several_hosts = False
    """True if another server may take writes when this one does not any more.

    If only one server is known, the caller is told at once. The next call opens a new connection: its name, or a proxy,
    may lead to another server by then.
    """

    def __init__(
        self, sql: Flavour, threads: SQLThreads, pool: PoolOptions, *, retry_seconds: float, first_seconds: float
    ) -> None:
        self.sql = sql
        self._threads = threads
        self._retry_seconds = retry_seconds
        self._first_seconds = first_seconds
        self._was_connected = False
        self._pools: LoopPools[C] = LoopPools(self._connect, pool)

    def _opened_space(self, name: str) -> Engine:
        space = self._with_tables_of(name)
        space._pools = self._pools
        return space

    @abstractmethod
    def _with_tables_of(self, space: str) -> Self:
        """Make an engine on the same server with the tables of another key space (see `space_tables`)."""

    async def setup(self) -> None:
        await self._insist(self._set_up, repeatable=True)

    async def _set_up(self, connection: C) -> None:
        """Create or migrate the tables, if that is needed and allowed."""
        version = await self._format(connection)
        if version >= self.sql.newest_format:
            return
        if not version:
            await self._look_for_others(connection)
            if self.reading_only:
                raise self.nothing_there()
        script = self._script(version)
        if not self.creates_tables or self.reading_only:
            what = f"the tables {self.sql.prefix}* at {self._place}"
            raise other_tables(what, version, self.sql.newest_format, script, reading=self.reading_only)
        try:
            await self._migrate(connection)
        except self.driver_errors as error:
            refusal = self._explained(error, script)
            if refusal is None:
                raise
            raise refusal from error

    async def _look_for_others(self, connection: C) -> None:
        """Refuse a place that has the tables of another program (see `foreign_kind`)."""

    async def stored_format(self) -> StoredFormat | None:
        version, newest = await self._insist(self._format, repeatable=True), self.sql.newest_format
        return StoredFormat(version, newest, self._ddl(version) if version < newest else "")

    @property
    @abstractmethod
    def _place(self) -> str:
        """The server and the database, for messages, without secrets."""

    @abstractmethod
    async def _format(self, connection: C) -> int:
        """Read the version of the tables; 0 if there are none, or not all of them."""

    @abstractmethod
    async def _migrate(self, connection: C) -> None:
        """Create the tables, or bring them to the newest version. Many processes may do so at once."""

    @abstractmethod
    def _script(self, version: int) -> str:
        """The public call that returns the statements which bring tables of this version to the newest one."""

    @abstractmethod
    def _ddl(self, version: int) -> str:
        """These statements."""

    @abstractmethod
    def _explained(self, error: BaseException, script: str) -> ConfigurationError | None:
        """The error that says what to change, if the user, the database or the options keep tables from being made."""

    @abstractmethod
    async def _connect(self) -> C:
        """Open a connection. Exceptions of the driver are passed to `trouble`."""

    @abstractmethod
    def trouble(self, error: BaseException) -> Trouble:
        """Interpret one of `driver_errors`."""

    def has_answered(self, error: BaseException) -> bool:
        """Tell whether the server itself sent one of `driver_errors`: it is reachable, and may only need some time."""
        return False

    def _borrowed(self) -> AbstractAsyncContextManager[C]:
        """Borrow a connection of the running loop's pool."""
        return Borrowed(self._pools.current())

    async def _insist(self, work: Callable[[C], Awaitable[T]], *, repeatable: bool, together: bool = False) -> T:
        """Do some work with a connection, and try again while that may help and can do no harm.

        Work that is not `repeatable` is tried again only if it certainly had no effect. `together` is for work on
        behalf of several callers: if it certainly had no effect and there is no more time, `NothingCommitted` spares
        them further attempts.
        """
        started = time.monotonic()
        attempt = 0
        while True:
            connection: C | None = None
            undone = False
            try:
                async with self._borrowed() as connection:
                    self._was_connected = True
                    return await work(connection)
            except self.driver_errors as error:
                trouble = self.trouble(error)
                pause = BETWEEN_ATTEMPTS.seconds(attempt)
                attempt += 1
                if trouble is Trouble.DEMOTED or (self.has_several_hosts and isinstance(error, TimeoutError)):
                    # The others lead to the same server, which refuses, or is silent.
                    self._pools.drop_idle()
                if trouble is Trouble.ROLLED_BACK:
                    hopeless = attempt >= ROLLED_BACK_ATTEMPTS
                else:
                    undone = connection is None or not connection.committing or trouble is Trouble.DEMOTED
                    again = (trouble is Trouble.LOST and (repeatable or undone)) or (
                        trouble is Trouble.DEMOTED and self.has_several_hosts
                    )
                    is_there = self._was_connected or self.has_answered(error)
                    seconds = self._retry_seconds if is_there else self._first_seconds
                    hopeless = not again or time.monotonic() + pause > started + seconds
                if hopeless and together and trouble in (Trouble.LOST, Trouble.DEMOTED) and undone:
                    raise NothingCommitted from error
                if hopeless:
                    raise
                # In the handler, so that whoever does not wait for the end finds the error behind the cancellation.
                await asyncio.sleep(pause)

    async def _transact(
        self, connection: Connection, operation: Operation[T], *, writing: bool, keep: Callable[[T], bool] | None = None
    ) -> T:
        """Run steps in one transaction, which is rolled back unless `keep` approves of the result."""
        await connection.begin(writing)
        try:
            result = await run_steps_async(operation(), connection.execute)
        except Exception:
            if connection.in_transaction():
                await connection.rollback()
            raise
        if keep is None or keep(result):
            connection.committing = writing
            await connection.commit()
        else:
            await connection.rollback()
        return result

    async def _read(self, operation: Operation[T], *, at_once: bool = False) -> T:
        if at_once:
            return await self._insist(lambda c: self._transact(c, operation, writing=False), repeatable=True)
        return await self._insist(lambda c: run_steps_async(operation(), c.execute), repeatable=True)

    async def _write(self, operation: Operation[T], *, repeatable: bool = False, alone: bool = False) -> T:
        if alone:
            return await self._insist(lambda c: run_steps_async(operation(), c.execute), repeatable=repeatable)
        return await self._insist(lambda c: self._transact(c, operation, writing=True), repeatable=repeatable)

    async def _change(self, change: ThreadChange[T], *, repeatable: bool = False) -> T:
        return await self._write(lambda: change(self._threads), repeatable=repeatable)

    async def commit(self, commit: Commit) -> Outcome:
        attempts = 0

        async def work(connection: C) -> Outcome:
            nonlocal attempts
            attempts += 1
            # An attempt whose answer was lost may have written it; then it is found by its id and rev.
            known = commit if attempts == 1 else replace(commit, fresh_id=False)
            return await self._commit(connection, known)

        return await self._insist(work, repeatable=True)

    async def _commit(self, connection: C, commit: Commit) -> Outcome:
        return await self._commit_in_steps(connection, commit)

    async def _commit_in_steps(self, connection: C, commit: Commit, changed: list[SQLThread] | None = None) -> Outcome:
        """Lock the thread, look, decide and write. The thread that was written is added to `changed`."""
        operation = partial(self._threads.commit, commit, changed)
        return await self._transact(connection, operation, writing=True, keep=attrgetter("is_written"))

    async def search_until(self, terms: Sequence[str], limit: int, prefix: str, deadline: Deadline) -> Hits:
        """Search what is indexed when the time is up. A handle that only reads indexes nothing."""
        is_indexed = await self.index_until(prefix, deadline)
        try:
            async with deadline.timeout(LEAST_SECONDS):
                return Hits(await self.ranked(terms, limit, prefix), is_indexed)
        except TimeoutError:
            if not deadline.has_passed:
                raise
        await self.entry("locus-search", DEFAULT_NAMESPACE, None)  # raises if the server cannot be reached
        return Hits(complete=False)

    @abstractmethod
    async def index_until(self, prefix: str, deadline: Deadline) -> bool:
        """Bring the full text up to date, in portions; False if something is left to be indexed."""

    async def _index_portions(self, indexing: PortionIndexing, prefix: str, deadline: Deadline) -> bool:
        """Do that with the steps of a database. Nothing is written on a handle that only reads."""
        while True:
            portion = await self._read(partial(indexing.next_portion, self.sql, prefix))
            if self.reading_only:
                return not portion.threads
            if portion.threads:
                texts = await asyncio.to_thread(indexing.texts_of, self.sql, portion)
                await self._write(partial(indexing.index_portion, self.sql, portion, texts), repeatable=True)
            # A portion that is not full is the last one, so saves that go on meanwhile do not prolong this.
            if not portion.is_full:
                return True
            if deadline.has_passed:
                return False

    @abstractmethod
    async def ranked(self, terms: Sequence[str], limit: int, prefix: str) -> list[Hit]:
        """Search the full text as it is, best hits first."""

    async def count(self, pattern: Pattern) -> int:
        """Count the checkpoints of all threads that match."""
        return await self._read(partial(sql_read.count, self.sql, pattern))

    async def search_data(self, path: Path, value: Any, limit: int) -> list[Entry]:
        """List entries of checkpoints whose payload has this value at this path, newest first."""
        return await self._read(partial(sql_search.search_data, self.sql, path, value, limit), at_once=True)

    async def ask(self, *statements: tuple[str, Sequence[Any]]) -> list[Row]:
        """Run statements on any tables, in a transaction that can only read, and return the rows of the last one.

        The engine's own tables are not set up for it.
        """

        def steps() -> Steps[list[Row]]:
            rows: list[Row] = []
            for statement in statements:
                rows = yield statement
            return rows

        try:
            return await self._read(steps, at_once=True)
        except self.driver_errors as error:
            raise self.translate(error) from error

    async def mend(self, finding: Finding) -> None:
        await self._insist(lambda connection: connection.execute(finding.repair, ()), repeatable=False)

    async def close(self) -> None:
        await self._pools.close()


class Pool(Generic[C]):
    """The connections of one event loop."""

    def __init__(self, connect: Callable[[], Awaitable[C]], options: PoolOptions) -> None:
        self._connect = connect
        self._options = options
        self._places = asyncio.Semaphore(options.most)
        self._idle: list[tuple[float, C]] = []
        self._closed = False

    async def take(self) -> C:
        """Take a connection; raises TimeoutError if all are in use for too long."""
        await self._place()
        try:
            while self._idle:
                _, connection = self._idle.pop()
                if connection.is_usable():
                    connection.committing = False
                    return connection
                connection.close()
            return await self._connect()
        except BaseException:
            self._places.release()
            raise

    async def _place(self) -> None:
        if not self._places.locked():
            await self._places.acquire()
            return
        try:
            async with asyncio.timeout(self._options.wait_seconds):
                await self._places.acquire()
        except TimeoutError as error:
            raise TimeoutError(
                f"all {self._options.most} connections were in use for {self._options.wait_seconds:g} s: "
                "raise max_pool_size, or have fewer tasks at once"
            ) from error

    def give_back(self, connection: C, *, sound: bool) -> None:
        """Return a connection. `sound`: it is in no transaction, so the next task may use it."""
        self._places.release()
        now = time.monotonic()
        if self._closed or not sound:
            connection.close()
        else:
            self._idle.append((now, connection))
        while len(self._idle) > self._options.least and now - self._idle[0][0] > self._options.idle_seconds:
            self._idle.pop(0)[1].close()

    def drop_idle(self) -> None:
        """Close the idle connections. The next task opens a new one."""
        while self._idle:
            self._idle.pop()[1].close()

    async def close(self) -> None:
        """Close idle connections now, and the others when they are returned."""
        self._closed = True
        while self._idle:
            await self._idle.pop()[1].quit()

    def abandon(self) -> None:
        """Close the pool as `close` does, but without waiting: for a loop that is closed."""
        self._closed = True
        self.drop_idle()


class Borrowed(AbstractAsyncContextManager[C]):
    """A context that borrows a connection of a pool. After an exception the connection is closed, unless it is idle.

    This is a class because every save passes through it, and a generator would take three times as long.
    """

    __slots__ = ("_connection", "_pool")

    def __init__(self, pool: Pool[C]) -> None:
        self._pool = pool
        self._connection: C | None = None

    async def __aenter__(self) -> C:
        connection = self._connection = await self._pool.take()
        return connection

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        connection = self._connection
        assert connection is not None
        sound = error is None or (isinstance(error, Exception) and connection.is_usable())
        self._pool.give_back(connection, sound=sound)


class LoopPools(PerLoop[Pool[C]]):
    """The pools of connections, one for each event loop."""

    def __init__(self, connect: Callable[[], Awaitable[C]], options: PoolOptions) -> None:
        self._connect = connect
        owner = weakref.ref(self)

        async def connect_for_owner() -> C:
            # The pools must not keep their owner alive.
            pools = owner()
            assert pools is not None, "whoever waits for this connection holds the owner"
            return await pools._connect()

        super().__init__(lambda: Pool(connect_for_owner, options), Pool.close, abandon=Pool.abandon)

    def drop_idle(self) -> None:
        """Close the idle connections of the running loop's pool."""
        if (kept := self._resources.get(asyncio.get_running_loop())) is not None:
            kept.resource.drop_idle()


def close_without_loop(transport: Any) -> None:
    """Close a socket whose event loop, which would normally close it, is closed already."""
    below = getattr(transport, "_ssl_protocol", None)
    if below is not None:
        transport = below._transport
    with contextlib.suppress(RuntimeError):
        transport._call_connection_lost(None)
