"""The engine for PostgreSQL: one statement for a save, and one for a load. Importing it needs psycopg."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Self

import psycopg
from psycopg.pq import TransactionStatus

from locus.errors import CheckpointError, ConfigurationError, CorruptCheckpointError
from locus.memory.backends.postgresql import commit as postgresql_commit
from locus.memory.backends.postgresql import read as postgresql_read
from locus.memory.backends.postgresql import search as postgresql_search
from locus.memory.backends.postgresql import together as postgresql_together
from locus.memory.backends.postgresql.client import (
    DRIVER_ERRORS,
    READ_ONLY,
    Connector,
    NotReplicatedError,
    PostgreSQLConnection,
    first_line,
    has_answered,
    state_of,
    translated,
    trouble_of,
)
from locus.memory.backends.postgresql.commit import PostgreSQLThreads
from locus.memory.backends.postgresql.config import PostgreSQLConfig
from locus.memory.backends.postgresql.examine import asked_for, findings, partitions_of
from locus.memory.backends.postgresql.schema import JSONB, PostgreSQLFlavour, ddl, statements
from locus.memory.backends.sql import read as sql_read
from locus.memory.backends.sql.engine import Operation, SQLServerEngine, Trouble, foreign_kind
from locus.memory.backends.sql.flavour import Steps, run_steps_async
from locus.memory.backends.sql.schema import check_format, script, space_tables
from locus.memory.engine import CommitsTogether, CommitsWhole, CommitsWithWrites, Deadline, NotConfirmed
from locus.memory.model.foreign import IN_POSTGRESQL
from locus.memory.model.formats import oldest
from locus.memory.model.parts import Part
from locus.memory.model.records import (
    ANY,
    Ancestor,
    AncestorQuery,
    Base,
    Commit,
    Entry,
    Finding,
    Hit,
    Outcome,
    Stored,
    TaskWrites,
    Verdict,
    Write,
)

_log = logging.getLogger(__name__)


class PostgreSQLEngine(SQLServerEngine[PostgreSQLConnection], CommitsTogether, CommitsWhole, CommitsWithWrites):
    """Threads in PostgreSQL."""

    dialect = JSONB
    driver_errors = DRIVER_ERRORS
    sql: PostgreSQLFlavour
    backend_name = "PostgreSQLBackend"
    """The public class that errors name because of its `ddl`. A subclass of it sets its own name."""

    def __init__(self, config: PostgreSQLConfig, sql: PostgreSQLFlavour, given_pool: Any = None) -> None:
        """`given_pool` is a caller's psycopg_pool.AsyncConnectionPool, to be used instead of an own pool."""
        pool = config.pool_options()
        super().__init__(
            sql, PostgreSQLThreads(sql), pool, retry_seconds=config.retry_seconds, first_seconds=config.first_seconds
        )
        self._config = config
        self._connector = Connector.from_config(config)
        self._identity = f"postgresql:{self._connector}/{sql.threads}"
        self.has_several_hosts = self._connector.hosts is not None and given_pool is None
        self.creates_tables = config.auto_create_table
        self._given_pool = given_pool
        self._given_pool_loop: asyncio.AbstractEventLoop | None = None

    @property
    def identity(self) -> str:
        return self._identity

    def _with_tables_of(self, space: str) -> Self:
        table_name = space_tables(self._config.table_name, space)
        config = self._config.model_copy(update={"table_name": table_name})
        sql = type(self.sql)(table_name, config.schema_name, config.partitions)
        made = type(self)(config, sql, self._given_pool)
        made.backend_name = self.backend_name
        return made

    async def _connect(self) -> PostgreSQLConnection:
        return await self._connector.connect()

    def _borrowed(self) -> AbstractAsyncContextManager[PostgreSQLConnection]:
        return super()._borrowed() if self._given_pool is None else self._from_given_pool()

    @asynccontextmanager
    async def _from_given_pool(self) -> AsyncIterator[PostgreSQLConnection]:
        """Borrow a connection of the caller's pool, which gets it back as it was."""
        here = asyncio.get_running_loop()
        self._given_pool_loop = self._given_pool_loop or here
        if self._given_pool_loop is not here:
            raise ConfigurationError(
                "the pool that this backend was given belongs to another event loop (the blocking face has one of "
                "its own): give a dsn instead, and the backend opens a pool for each loop"
            )
        async with self._given_pool.connection() as raw:
            autocommit = raw.autocommit
            await raw.set_autocommit(True)
            connection = PostgreSQLConnection(raw, self._connector.command_timeout)
            try:
                yield connection
            finally:
                connection.let_go()
                if raw.pgconn.transaction_status == TransactionStatus.IDLE:
                    await raw.set_autocommit(autocommit)

    def trouble(self, error: BaseException) -> Trouble:
        return Trouble.DEMOTED if state_of(error) == READ_ONLY else trouble_of(error)

    def has_answered(self, error: BaseException) -> bool:
        return has_answered(error)

    def translate(self, error: BaseException) -> CheckpointError:
        return translated(error, self._connector)

    @property
    def _place(self) -> str:
        return str(self._connector)

    async def _set_up(self, connection: PostgreSQLConnection) -> None:
        await super()._set_up(connection)
        if self.sql.partitions:
            # That the tables have others than were asked for is no error: they are used as they are.
            for finding in asked_for(self.sql, await partitions_of(connection, self.sql), self.backend_name):
                _log.warning("%s: %s", finding.what, finding.advice)

    async def _look_for_others(self, connection: PostgreSQLConnection) -> None:
        schema = self.sql.schema_name
        here = "current_schema()" if schema is None else "?"
        values = () if schema is None else (schema,)
        self.check_foreign(await foreign_kind(connection, here, values, IN_POSTGRESQL))

    def _explained(self, error: BaseException, script: str) -> ConfigurationError | None:
        if isinstance(error, psycopg.errors.DuplicateTable):
            return ConfigurationError(
                f"a table at {self._connector} is in the way, and is not ours ({first_line(error)}): "
                "choose another table_name"
            )
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            return ConfigurationError(
                f"this user may not create the tables at {self._connector} ({first_line(error)}): let it, or have "
                f"somebody run what {script} returns, and set auto_create_table=False"
            )
        return None

    def _script(self, version: int) -> str:
        return script(self.backend_name, version, partitions=self.sql.partitions)

    def _ddl(self, version: int) -> str:
        return ddl(self.sql, version)

    async def _format(self, connection: PostgreSQLConnection) -> int:
        return await run_steps_async(self._version(), connection.execute)

    def _version(self) -> Steps[int]:
        ((encoding, has_tables),) = yield self.sql.tables_exist()
        if encoding != "UTF8":
            raise ConfigurationError(
                f"the database at {self._connector} has the encoding {encoding}, and cannot hold every text: "
                "create one with ENCODING 'UTF8'"
            )
        rows = (yield f"SELECT max(version) FROM {self.sql.format}", ()) if has_tables else [(0,)]
        version = int(rows[0][0] or 0)
        if version > self.sql.newest_format:
            # As JSON, because the tables of older formats do not have this column.
            ((least,),) = yield (
                f"SELECT max((to_jsonb(f) ->> '{oldest(self.reading_only)}')::integer) FROM {self.sql.format} f",
                (),
            )
            check_format(version, self.sql.newest_format, least, str(self._connector))
        return version

    async def _migrate(self, connection: PostgreSQLConnection) -> None:
        await self._transact(connection, self._migration, writing=True)

    def _migration(self) -> Steps[None]:
        yield self.sql.migration_lock()
        # CREATE SCHEMA IF NOT EXISTS asks for the right to create a schema even if it exists.
        if self.sql.schema is not None and not (yield self.sql.schema_exists()):
            yield f"CREATE SCHEMA {self.sql.schema}", ()
        version = yield from self._version()
        if version < self.sql.newest_format:
            for statement in statements(self.sql, version):
                yield statement, ()

    async def examine(self) -> list[Finding]:
        return await self._insist(lambda connection: findings(connection, self.sql, self.backend_name), repeatable=True)

    async def _commit(self, connection: PostgreSQLConnection, commit: Commit) -> Outcome:
        """Save in one statement, if nothing is in the way. Otherwise find out step by step what it is."""
        connection.committing = True
        for statement_for in (postgresql_commit.in_new_thread, postgresql_commit.in_thread):
            statement = statement_for(self.sql, commit)
            if statement is not None:
                outcome = await self._at_once(connection, partial(postgresql_commit.at_once, statement, commit), commit)
                if outcome is not None:
                    return outcome
        if await self._only_lacks_its_base(connection, commit):
            return Outcome(Verdict.STALE_BASE)
        outcome = await super()._commit(connection, commit)
        if outcome.repeated or outcome.verdict is Verdict.EXISTS:
            # The caller will say that it is saved, if it is the same.
            await run_steps_async(postgresql_commit.confirm(self.sql, commit.thread_id), connection.execute)
        return outcome

    async def _at_once(
        self, connection: PostgreSQLConnection, operation: Operation[Outcome | None], commit: Commit
    ) -> Outcome | None:
        """Carry out a save that is one statement, and a transaction by itself unless it has pending writes."""
        if not commit.writes:
            return await run_steps_async(operation(), connection.execute)
        return await self._transact(connection, operation, writing=True, keep=lambda outcome: outcome is not None)

    async def _only_lacks_its_base(self, connection: PostgreSQLConnection, commit: Commit) -> bool:
        """Tell whether a missing base is the only obstacle. No lock is needed to know that.

        The caller retries with a full save.
        """
        base = commit.base
        if base is None or not commit.fresh_id or commit.if_latest is not ANY:
            return False
        place = (commit.thread_id, commit.namespace, base.checkpoint_id)
        entry = await run_steps_async(sql_read.entry(self.sql, *place), connection.execute)
        return entry is None or entry.rev != base.rev

    async def commit_together(self, group: Sequence[Commit | TaskWrites]) -> list[Outcome | None]:
        try:
            return await self._insist(partial(self._commit_group, group), repeatable=False, together=True)
        except NotReplicatedError as error:
            raise NotConfirmed from error

    async def _commit_group(
        self, group: Sequence[Commit | TaskWrites], connection: PostgreSQLConnection
    ) -> list[Outcome | None]:
        try:
            return await self._send_group(connection, group, creating=True)
        except psycopg.errors.LockNotAvailable:
            # Somebody else is creating a thread, and it takes long. Nothing was written.
            return await self._send_group(connection, group, creating=False)

    async def _send_group(
        self, connection: PostgreSQLConnection, group: Sequence[Commit | TaskWrites], *, creating: bool
    ) -> list[Outcome | None]:
        operation = partial(postgresql_together.steps, self.sql, group, creating=creating)
        if any(isinstance(member, TaskWrites) for member in group):
            return await self._transact(connection, operation, writing=True)
        # One statement, which is a transaction by itself.
        connection.committing = True
        return await run_steps_async(operation(), connection.execute)

    async def commit_whole(self, group: Sequence[Commit]) -> list[Outcome] | None:
        attempts = 0

        async def work(connection: PostgreSQLConnection) -> list[Outcome] | None:
            nonlocal attempts
            attempts += 1
            known = group
            if attempts > 1:
                # An attempt whose answer was lost may have written them; then they are found by their ids and revs.
                known = [replace(commit, fresh_id=False) for commit in group]
            elif outcomes := await self._whole_at_once(connection, group):
                return outcomes
            operation = partial(self._threads.commit_all, known)
            return await self._transact(connection, operation, writing=True, keep=lambda outcomes: outcomes is not None)

        return await self._insist(work, repeatable=True)

    async def _whole_at_once(self, connection: PostgreSQLConnection, group: Sequence[Commit]) -> list[Outcome] | None:
        """Write all members in one statement, if nothing is in the way of any of them."""
        operation = partial(postgresql_together.steps, self.sql, group, creating=True)
        try:
            written = await self._transact(connection, operation, writing=True, keep=lambda found: None not in found)
        except psycopg.errors.LockNotAvailable:
            return None
        outcomes = [outcome for outcome in written if outcome is not None]
        return outcomes if len(outcomes) == len(group) else None

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        return await self._read_one(partial(postgresql_read.read, self.sql, thread_id, namespace, checkpoint_id))

    async def read_part(self, thread_id: str, namespace: str, checkpoint_id: str | None, part: Part) -> Stored | None:
        place = (thread_id, namespace, checkpoint_id)
        return await self._read_one(partial(postgresql_read.read_part, self.sql, *place, part))

    async def read_since(self, thread_id: str, namespace: str, checkpoint_id: str | None, held: Base) -> Stored | None:
        place = (thread_id, namespace, checkpoint_id)
        try:
            return await self._read(partial(postgresql_read.read_since, self.sql, *place, held))
        except (psycopg.DataError, CorruptCheckpointError):
            # Something cannot be read. If it is the manifest of the held checkpoint, that one is just of no use.
            return await self.read(*place)

    async def read_with_writes(
        self, thread_id: str, namespace: str, checkpoint_id: str | None, held: Base | None
    ) -> tuple[Stored, list[Write]] | None:
        place = (thread_id, namespace, checkpoint_id)
        try:
            return await self._read(partial(postgresql_read.read_with_writes, self.sql, *place, held))
        except (psycopg.DataError, CorruptCheckpointError):
            # Whatever cannot be read is told by the separate requests.
            return await super().read_with_writes(*place, held)

    async def ancestors(self, query: AncestorQuery) -> list[Ancestor]:
        return await self._read(partial(postgresql_read.ancestors, self.sql, query))

    async def _read_one(self, operation: Operation[Stored | None]) -> Stored | None:
        try:
            return await self._read(operation)
        except psycopg.errors.NumericValueOutOfRange:
            # All numbers of that statement stand in the manifest.
            raise CorruptCheckpointError("stored manifest cannot be read: a number in it is too large") from None

    async def find(self, key: str, value: str, limit: int, prefix: str = "") -> list[Entry]:
        return await self._read(partial(postgresql_read.find, self.sql, key, value, limit, prefix))

    async def ranked(self, terms: Sequence[str], limit: int, prefix: str) -> list[Hit]:
        return await self._read(partial(postgresql_search.search, self.sql, terms, limit, prefix), at_once=True)

    async def index_until(self, prefix: str, deadline: Deadline) -> bool:
        last = ""
        while threads := await self._read(partial(postgresql_search.behind, self.sql, prefix, last)):
            for _, thread, after in threads:
                if self.reading_only or not await self._index(thread, after, deadline):
                    return False
            last = threads[-1][0]
        return True

    async def _index(self, thread: int, after: int, deadline: Deadline) -> bool:
        """Index a thread in portions, so that its saves do not wait for long; False if there was not enough time."""
        while not deadline.has_passed:
            portion = await self._read(partial(postgresql_search.next_portion, self.sql, thread, after), at_once=True)
            vectors = await asyncio.to_thread(postgresql_search.vectors_of, self.sql, portion)
            reached = await self._write(partial(postgresql_search.add, self.sql, portion, vectors), repeatable=True)
            # Saves in the meantime do not keep it going, and whoever else indexes in the meantime helps.
            if reached is None or (reached == portion.up_to and len(portion.rows) < postgresql_search.PORTION):
                return True
            after = reached
        return False
