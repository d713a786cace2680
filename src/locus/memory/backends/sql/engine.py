"""What the engines for database servers share: pooled connections, transactions on them, and what is tried again.

A subclass opens connections (`Connection`), says what its driver's errors mean (`trouble`, `translate`), and adds its
tables, its search, its look-up by metadata and, where it has one, a shorter way to save.

Every event loop has a pool of its own. A pool has no tasks, so nothing is left behind when a loop ends. Before it
hands out a connection it notices if the server has closed it, and errors in opening one reach the caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import datetime
from enum import Enum, auto
from functools import partial
from operator import attrgetter
from typing import Any, Generic, TypeVar

from locus.memory.backends.sql import read as sql_read
from locus.memory.backends.sql import search as sql_search
from locus.memory.backends.sql.commit import SQLThread, SQLThreads
from locus.memory.backends.sql.config import PoolOptions
from locus.memory.backends.sql.flavour import Flavour, Row, Steps, run_steps_async
from locus.memory.engine import Copies, Engine, Expires, Exports, FindsMetadata, KeepsWrites, Searches
from locus.memory.model.ids import Pattern
from locus.memory.model.parts import Part
from locus.memory.model.records import Base, Commit, Entry, Exported, Outcome, Path, Stored, Write
from locus.memory.runtime.per_loop import PerLoop
from locus.memory.runtime.retry import Backoff


class Connection(ABC):
    """One connection; one task uses it at a time."""

    committing = False
    """Whether a commit was sent: if its answer is lost, nobody knows the outcome of the transaction."""

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
        """Whether there is a transaction to roll back, on a connection that still works."""

    @abstractmethod
    def is_usable(self) -> bool:
        """Whether it is open and idle, as far as can be told without asking the server."""

    @abstractmethod
    def close(self) -> None:
        """Release it at once; its event loop may be closed already. Never raises."""

    async def quit(self) -> None:
        """Say goodbye to the server, and close. Never raises."""
        self.close()


C = TypeVar("C", bound=Connection)
T = TypeVar("T")
Operation = Callable[[], Steps[T]]
"""Makes the steps anew for each attempt."""

BETWEEN_ATTEMPTS = Backoff(0.02, 0.5)
ROLLED_BACK_ATTEMPTS = 20
"""How often in all to try a transaction that the server rolls back (a deadlock)."""


class Trouble(Enum):
    """What an error of a driver means for the operation."""

    ROLLED_BACK = auto()
    """The server undid the transaction (a deadlock, a serialisation failure): try again."""
    LOST = auto()
    """The connection is gone, or none could be opened: try again if repeating can do no harm."""
    FINAL = auto()
    """Trying again would give the same error."""


class SQLServerEngine(Engine, KeepsWrites, FindsMetadata, Searches, Expires, Copies, Exports, Generic[C]):
    """Threads in a database server.

    `retry_seconds` is how long to try to replace a lost connection, and `first_seconds` how long to try to get the
    first one of all.
    """

    creates_tables = True

    def __init__(
        self, sql: Flavour, changes: SQLThreads, pool: PoolOptions, *, retry_seconds: float, first_seconds: float
    ) -> None:
        self.sql = sql
        self._changes = changes
        self._retry_seconds = retry_seconds
        self._first_seconds = first_seconds
        self._was_connected = False
        self._pools: LoopPools[C] = LoopPools(self._connect, pool)

    @abstractmethod
    async def _connect(self) -> C:
        """Open a connection. What the driver raises here reaches `trouble`."""

    @abstractmethod
    def trouble(self, error: BaseException) -> Trouble:
        """What one of `driver_errors` means."""

    def has_answered(self, error: BaseException) -> bool:
        """Whether it was the server that sent one of `driver_errors`: it is there, and may only need some time."""
        return False

    def _borrowed(self) -> AbstractAsyncContextManager[C]:
        """A connection of the running loop's pool."""
        return Borrowed(self._pools.current())

    async def _insist(self, work: Callable[[C], Awaitable[T]], *, repeatable: bool) -> T:
        """Do some work with a connection, and try again while that may help and can do no harm.

        Work that is not `repeatable` is tried again only if it is certain that it had no effect.
        """
        started = time.monotonic()
        attempt = 0
        while True:
            connection: C | None = None
            try:
                async with self._borrowed() as connection:
                    self._was_connected = True
                    return await work(connection)
            except self.driver_errors as error:
                trouble = self.trouble(error)
                pause = BETWEEN_ATTEMPTS.seconds(attempt)
                attempt += 1
                if trouble is Trouble.ROLLED_BACK:
                    hopeless = attempt >= ROLLED_BACK_ATTEMPTS
                else:
                    undone = connection is None or not connection.committing
                    again = trouble is Trouble.LOST and (repeatable or undone)
                    is_there = self._was_connected or self.has_answered(error)
                    seconds = self._retry_seconds if is_there else self._first_seconds
                    hopeless = not again or time.monotonic() + pause > started + seconds
                if hopeless:
                    raise
                # In the handler, so that whoever does not wait for the end finds the error behind the cancellation.
                await asyncio.sleep(pause)

    async def _transact(
        self, connection: Connection, operation: Operation[T], *, writing: bool, keep: Callable[[T], bool] | None = None
    ) -> T:
        """Run the steps in one transaction, which is rolled back unless `keep` approves of the result."""
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
        """Run steps that only read; `at_once`: all of them see the same instant."""
        if at_once:
            return await self._insist(lambda c: self._transact(c, operation, writing=False), repeatable=True)
        return await self._insist(lambda c: run_steps_async(operation(), c.execute), repeatable=True)

    async def _write(self, operation: Operation[T], *, repeatable: bool = False) -> T:
        return await self._insist(lambda c: self._transact(c, operation, writing=True), repeatable=repeatable)

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
        """Lock the thread, ask, decide and write. The thread that was written is added to `changed`."""
        operation = partial(self._changes.commit, commit, changed)
        return await self._transact(connection, operation, writing=True, keep=attrgetter("is_written"))

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        return await self._read(lambda: sql_read.read(self.sql, thread_id, namespace, checkpoint_id), at_once=True)

    async def read_part(self, thread_id: str, namespace: str, checkpoint_id: str | None, part: Part) -> Stored | None:
        return await self._read(
            lambda: sql_read.read(self.sql, thread_id, namespace, checkpoint_id, part), at_once=True
        )

    async def read_since(self, thread_id: str, namespace: str, checkpoint_id: str | None, held: Base) -> Stored | None:
        return await self._read(
            lambda: sql_read.read_since(self.sql, thread_id, namespace, checkpoint_id, held), at_once=True
        )

    async def entry(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Entry | None:
        return await self._read(lambda: sql_read.entry(self.sql, thread_id, namespace, checkpoint_id))

    async def manifest(self, thread_id: str, namespace: str, checkpoint_id: str) -> tuple[str, str] | None:
        return await self._read(lambda: sql_read.manifest(self.sql, thread_id, namespace, checkpoint_id))

    async def history(
        self, thread_id: str, namespace: str | None, limit: int | None, before_seq: int | None
    ) -> list[Entry]:
        return await self._read(lambda: sql_read.history(self.sql, thread_id, namespace, limit, before_seq))

    async def namespaces(self, thread_id: str) -> list[str]:
        return await self._read(lambda: sql_read.namespaces(self.sql, thread_id))

    async def recent(self, limit: int, prefix: str = "") -> list[Entry]:
        return await self._read(lambda: sql_read.recent(self.sql, limit, prefix))

    async def threads(self, pattern: Pattern, limit: int | None) -> list[str]:
        return await self._read(lambda: sql_read.threads(self.sql, pattern, limit))

    async def count(self, pattern: Pattern) -> int:
        """How many checkpoints the threads that match have together."""
        return await self._read(lambda: sql_read.count(self.sql, pattern))

    async def search_data(self, path: Path, value: Any, limit: int) -> list[Entry]:
        """Entries of checkpoints whose payload has this value at this path, newest first."""
        return await self._read(lambda: sql_search.search_data(self.sql, path, value, limit), at_once=True)

    async def delete(self, thread_id: str, namespace: str | None = None, seqs: Mapping[int, str] | None = None) -> int:
        return await self._write(lambda: self._changes.delete(thread_id, namespace, seqs))

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
        await self._write(
            lambda: self._changes.put_writes(thread_id, namespace, checkpoint_id, task_id, writes, keep_numbered),
            repeatable=True,
        )

    async def get_writes(self, thread_id: str, namespace: str, checkpoint_id: str, task_id: str | None) -> list[Write]:
        return await self._read(lambda: sql_read.get_writes(self.sql, thread_id, namespace, checkpoint_id, task_id))

    async def expire(self, now: datetime) -> int:
        return await self._write(lambda: self._changes.expire(now))

    async def copy(self, source: str, dest: str, namespace: str | None, checkpoint_ids: Collection[str] | None) -> int:
        return await self._write(lambda: self._changes.copy(source, dest, namespace, checkpoint_ids))

    async def export(self, thread_id: str, after_seq: int, limit: int, known: Mapping[str, int]) -> Exported:
        return await self._read(lambda: sql_read.export(self.sql, thread_id, after_seq, limit, known), at_once=True)

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

    async def carry_out(self, operation: Operation[T], *, writing: bool, alone: bool = False) -> T:
        """Run steps on tables that are not the engine's, in one transaction.

        `alone`: there is one step only, which is a transaction by itself. The steps may run again when a connection is
        lost.
        """
        if alone or not writing:
            return await self._read(operation, at_once=not alone)
        return await self._write(operation, repeatable=True)

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
        """A connection; raises TimeoutError if all are in use for too long."""
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
        """`sound`: the connection is in no transaction, so the next task may use it."""
        self._places.release()
        now = time.monotonic()
        if self._closed or not sound:
            connection.close()
        else:
            self._idle.append((now, connection))
        while len(self._idle) > self._options.least and now - self._idle[0][0] > self._options.idle_seconds:
            self._idle.pop(0)[1].close()

    async def close(self) -> None:
        """Close what is idle now, and what is in use when it is given back."""
        self._closed = True
        while self._idle:
            await self._idle.pop()[1].quit()

    def abandon(self) -> None:
        """The same, from anywhere and at once: for a loop that is closed."""
        self._closed = True
        while self._idle:
            self._idle.pop()[1].close()


class Borrowed(AbstractAsyncContextManager[C]):
    """A connection of a pool, for a while. If something is raised, it is closed, unless it is idle.

    A class, because every save passes through here, and a generator would cost three times as much.
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
    """A pool for each event loop that asks."""

    def __init__(self, connect: Callable[[], Awaitable[C]], options: PoolOptions) -> None:
        self._connect = connect
        owner = weakref.ref(self)

        async def connect_for_owner() -> C:
            # The pools must not keep their owner alive.
            found = owner()
            assert found is not None, "whoever waits for this connection holds the owner"
            return await found._connect()

        super().__init__(lambda: Pool(connect_for_owner, options), Pool.close, abandon=Pool.abandon)

    def current(self) -> Pool[C]:
        # Every save passes here. The look-up is repeated so that following one does not lead through another module.
        kept = self._resources.get(asyncio.get_running_loop())
        return super().current() if kept is None else kept.resource


def close_without_loop(transport: Any) -> None:
    """Close a socket whose event loop, where asyncio would do that, is closed already."""
    below = getattr(transport, "_ssl_protocol", None)
    if below is not None:
        transport = below._transport
    with contextlib.suppress(RuntimeError):
        transport._call_connection_lost(None)
