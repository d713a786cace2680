"""The engine for MySQL: a save takes one round trip, and so does a load. Importing it needs aiomysql."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from operator import attrgetter
from typing import Any, Self

from locus.errors import CheckpointError, ConfigurationError
from locus.memory.backends.mysql import commit as mysql_commit
from locus.memory.backends.mysql import read as mysql_read
from locus.memory.backends.mysql import schema as mysql_schema
from locus.memory.backends.mysql import search as mysql_search
from locus.memory.backends.mysql.client import (
    DRIVER_ERRORS,
    DUPLICATE,
    LOCKED,
    NO_COLUMN,
    NO_TABLE,
    NOT_NULL,
    Connector,
    MySQLConnection,
    MySQLError,
    Result,
    Statement,
    code_of,
    is_from_server,
    is_read_only,
    translated,
    trouble_of,
)
from locus.memory.backends.mysql.commit import MySQLThreads
from locus.memory.backends.mysql.config import MySQLConfig
from locus.memory.backends.mysql.examine import findings
from locus.memory.backends.mysql.schema import NATIVE, MySQLFlavour
from locus.memory.backends.mysql.together import Group, GroupSave, GroupTask
from locus.memory.backends.sql.commit import LastSeenThreads, can_be_first
from locus.memory.backends.sql.engine import SQLServerEngine, Trouble, foreign_kind
from locus.memory.backends.sql.flavour import run_steps_async
from locus.memory.backends.sql.schema import check_format, script, space_tables
from locus.memory.engine import CommitsTogether, Deadline
from locus.memory.model.commit_rules import decide
from locus.memory.model.foreign import IN_MYSQL
from locus.memory.model.formats import oldest
from locus.memory.model.records import Commit, Entry, Finding, Hit, Outcome, Stored, TaskWrites, Verdict

ATTEMPTS = 3
"""The number of times that a save looks for a thread that others create and delete meanwhile.

Then it proceeds step by step.
"""
_NOT_ALLOWED = {1044, 1142, 1143, 1227}
"""Errors that say the user lacks a privilege."""


class MySQLEngine(SQLServerEngine[MySQLConnection], CommitsTogether):
    """Threads in MySQL."""

    dialect = NATIVE
    driver_errors = DRIVER_ERRORS
    sql: MySQLFlavour
    _threads: MySQLThreads
    backend_name = "MySQLBackend"
    """The public class that errors name because of its `ddl`. A subclass of it sets its own name."""

    def __init__(self, config: MySQLConfig) -> None:
        sql = MySQLFlavour(config.table_name)
        pool = config.pool_options()
        super().__init__(
            sql, MySQLThreads(sql), pool, retry_seconds=config.retry_seconds, first_seconds=config.first_seconds
        )
        self._config = config
        self._connector = Connector(config)
        self.has_several_hosts = self._connector.hosts is not None
        self.creates_tables = config.auto_create_table
        self._seen_threads = LastSeenThreads()
        self._parser_checked = False

    @property
    def identity(self) -> str:
        return f"mysql:{self._place}/{self.sql.prefix}"

    def _with_tables_of(self, space: str) -> Self:
        table_name = space_tables(self._config.table_name, space)
        made = self._with_config(self._config.model_copy(update={"table_name": table_name}))
        made.backend_name = self.backend_name
        return made

    def _with_config(self, config: MySQLConfig) -> Self:
        return type(self)(config)

    async def _connect(self) -> MySQLConnection:
        return await self._connector.connect()

    def trouble(self, error: BaseException) -> Trouble:
        return Trouble.DEMOTED if is_read_only(error) else trouble_of(error)

    def has_answered(self, error: BaseException) -> bool:
        return is_from_server(error)

    def translate(self, error: BaseException) -> CheckpointError:
        return translated(error, self._place)

    @property
    def _place(self) -> str:
        return self._config.address

    async def _look_for_others(self, connection: MySQLConnection) -> None:
        self.check_foreign(await foreign_kind(connection, "database()", (), IN_MYSQL))

    def _explained(self, error: BaseException, script: str) -> ConfigurationError | None:
        if code_of(error) not in _NOT_ALLOWED:
            return None
        return ConfigurationError(
            f"this user may not create the tables at {self._place} ({error}): let it, or have somebody run "
            f"what {script} returns, and set auto_create_table=False"
        )

    def _script(self, version: int) -> str:
        return script(self.backend_name, version)

    def _ddl(self, version: int) -> str:
        return mysql_schema.ddl(self.sql, version)

    async def _format(self, connection: MySQLConnection) -> int:
        try:
            rows = await connection.execute(f"SELECT max(version) FROM {self.sql.format}")
        except MySQLError as error:
            if error.code != NO_TABLE:
                raise
            return 0
        version = int(rows[0][0] or 0)
        if version > mysql_schema.FORMAT:
            check_format(version, mysql_schema.FORMAT, await self._least_format(connection), self._place)
        return version

    async def _least_format(self, connection: MySQLConnection) -> int | None:
        """Read which format is needed to use these tables, which are newer; None if they do not say."""
        try:
            rows = await connection.execute(f"SELECT max({oldest(self.reading_only)}) FROM {self.sql.format}")
        except MySQLError as error:
            if error.code != NO_COLUMN:
                raise
            return None
        least: int | None = rows[0][0]
        return least

    async def _migrate(self, connection: MySQLConnection) -> None:
        name = mysql_schema.lock_name(self.sql, self._config.database)
        seconds = max(1, int(self._config.command_timeout * 0.9))
        ((locked,),) = await connection.execute("SELECT GET_LOCK(?, ?)", (name, seconds))
        if locked != 1:
            raise TimeoutError(f"another process has been creating or migrating the tables for {seconds} s")
        try:
            version = await self._format(connection)
            if version < mysql_schema.FORMAT:
                for statement in mysql_schema.statements(self.sql, version):
                    await self._alter(connection, statement)
                await self._probe(connection)
        finally:
            if connection.is_usable():
                await connection.execute("DO RELEASE_LOCK(?)", (name,))

    async def _alter(self, connection: MySQLConnection, statement: str) -> None:
        try:
            await connection.execute(statement)
        except MySQLError as error:
            if error.code == NO_COLUMN:
                raise self._in_the_way(error) from error
            if error.code not in mysql_schema.ALREADY_DONE:
                raise

    async def _probe(self, connection: MySQLConnection) -> None:
        for statement in mysql_schema.probes(self.sql):
            try:
                await connection.execute(statement)
            except MySQLError as error:
                if error.code != NO_COLUMN:
                    raise
                raise self._in_the_way(error) from error

    def _in_the_way(self, error: MySQLError) -> ConfigurationError:
        return ConfigurationError(
            f"a table at {self._place} is in the way, and is not ours: choose another table_name ({error})"
        )

    async def examine(self) -> list[Finding]:
        return await self._insist(lambda connection: findings(connection, self.sql), repeatable=True)

    async def _commit(self, connection: MySQLConnection, commit: Commit) -> Outcome:
        """Save in one round trip if the thread is as this handle left it, or new; else in two."""
        connection.committing = True
        last_seen = self._seen_threads.get(commit.thread_id)
        if last_seen is not None:
            reliance = mysql_commit.reliance(self.sql, commit, last_seen)
            if reliance is not None and await self._sent(
                connection, mysql_commit.in_seen_thread(self.sql, commit, last_seen, reliance)
            ):
                self._seen_threads.note(commit, last_seen.key, last_seen.seq + 1, last_seen.removals, last_seen)
                return mysql_commit.seen_thread_outcome(commit, last_seen)
        self._seen_threads.forget(commit.thread_id)
        is_new = last_seen is None
        for _ in range(ATTEMPTS):
            if is_new and can_be_first(commit):
                results = await self._sent(connection, mysql_commit.in_new_thread(self.sql, commit))
                if results:
                    self._seen_threads.note(commit, results[1].new_id, 1, 0)
                    return Outcome(Verdict.COMMITTED, 1)
            outcome = await self._commit_to_thread(connection, commit)
            if outcome is not None:
                return outcome
            is_new = True
        return await super()._commit(connection, commit)

    async def _sent(self, connection: MySQLConnection, statements: Sequence[Statement]) -> list[Result]:
        """Send statements; no results if the thread has changed or exists already, and then nothing was written."""
        try:
            return await connection.send(statements)
        except MySQLError as error:
            if error.code not in (NOT_NULL, DUPLICATE):
                raise
            connection.roll_back_later()
            return []

    async def _commit_to_thread(self, connection: MySQLConnection, commit: Commit) -> Outcome | None:
        """Ask, decide and write. None if the thread does not exist or has expired, and this commit can begin it."""
        _, locked, known, latest, *taken = await connection.send(mysql_commit.questions(self.sql, commit))
        if not locked.rows:
            outcome = decide(commit, mysql_commit.looked(0, [], [], []))
            if outcome.is_written:
                connection.roll_back_later()
                return None
            await connection.rollback()
            return outcome
        key, last_seq, removals = locked.rows[0]
        looked = mysql_commit.looked(last_seq, known.rows, latest.rows, [result.rows for result in taken])
        outcome = decide(commit, looked)
        if not outcome.is_written:
            await connection.rollback()
            return outcome
        steps = self._threads.thread(key, commit.thread_id, last_seq).add(commit, outcome)
        if outcome.replaced is None:
            await connection.send([*mysql_commit.statements_of(steps), mysql_commit.COMMIT])
            self._seen_threads.note(commit, key, outcome.seq, removals)
        else:
            await run_steps_async(steps, connection.execute)
            await connection.commit()
        return outcome

    async def commit_together(self, group: Sequence[Commit | TaskWrites]) -> list[Outcome | None]:
        return await self._insist(partial(self._commit_group, group), repeatable=False, together=True)

    async def _commit_group(
        self, members: Sequence[Commit | TaskWrites], connection: MySQLConnection
    ) -> list[Outcome | None]:
        # Mostly threads are as they were last seen, and nobody else creates one. If not, the server says so.
        for relying, creating in ((True, True), (False, True), (False, False)):
            group = self._group(members, relying=relying, creating=creating)
            if await self._send_group(connection, group):
                break
        answers = {save.commit.thread_id: save.outcome for save in group.saves}
        answers |= {task.writes.thread_id: Outcome(Verdict.COMMITTED) for task in group.tasks if task.key is not None}
        return [answers.get(member.thread_id) for member in members]

    def _group(self, members: Sequence[Commit | TaskWrites], *, relying: bool, creating: bool) -> Group:
        saves, tasks = [], []
        for member in sorted(members, key=attrgetter("thread_id")):
            if isinstance(member, TaskWrites):
                tasks.append(GroupTask(member))
            else:
                last_seen = self._seen_threads.get(member.thread_id) if relying else None
                is_continued = last_seen is not None and last_seen.continued_by(member)
                saves.append(GroupSave(member, last_seen if is_continued else None))
        return Group(self.sql, saves, tasks, creating)

    async def _send_group(self, connection: MySQLConnection, group: Group) -> bool:
        """Ask, decide and write. False if an assumption was wrong, and then nothing was written.

        Somebody else may just have created a thread, or continued a branch that a handle takes for its own.
        """
        group.decide(await connection.send(group.questions()))
        statements = group.writes()
        if not statements:
            await connection.rollback()
            return True
        connection.committing = True
        try:
            results = await connection.send(statements)
        except MySQLError as error:
            if not group.creating or error.code not in (LOCKED, DUPLICATE):
                raise
            connection.roll_back_later()
            return False
        for save in group.saves:
            if save.outcome is None or not save.outcome.is_written:
                self._seen_threads.forget(save.commit.thread_id)
            else:
                key = save.key if save.created is None else results[save.created].new_id
                self._seen_threads.note(save.commit, key, save.outcome.seq, save.removals, save.last_seen)
        return True

    async def delete(self, thread_id: str, namespace: str | None = None, seqs: Mapping[int, str] | None = None) -> int:
        if namespace is not None or seqs is not None:
            return await super().delete(thread_id, namespace, seqs)
        return await self._insist(partial(self._delete_thread, thread_id), repeatable=False)

    async def _delete_thread(self, thread_id: str, connection: MySQLConnection) -> int:
        """Delete a thread in only two round trips, because others may be waiting for its lock."""
        _, locked = await connection.send(mysql_commit.lock(self.sql, thread_id))
        if not locked.rows:
            await connection.rollback()
            return 0
        key, last_seq, alive = locked.rows[0]
        connection.committing = True
        deletions = self._threads.thread(key, thread_id, last_seq).deletions()
        results = await connection.send([*deletions, mysql_commit.COMMIT])
        return results[0].changed if alive else 0

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        return await self._read(partial(mysql_read.read, self.sql, thread_id, namespace, checkpoint_id))

    async def find(self, key: str, value: str, limit: int, prefix: str = "") -> list[Entry]:
        return await self._read(partial(mysql_read.find, self.sql, key, value, limit, prefix))

    async def ranked(self, terms: Sequence[str], limit: int, prefix: str) -> list[Hit]:
        if not self._parser_checked:
            await self._read(lambda: mysql_search.check_parser(self.sql))
            self._parser_checked = True
        search = partial(mysql_search.search_within, prefix=prefix) if prefix else mysql_search.search
        return await self._read(lambda: search(self.sql, terms, limit), at_once=True)

    async def index_until(self, prefix: str, deadline: Deadline) -> bool:
        return await self._index_portions(mysql_search.INDEXING, prefix, deadline)


_SESSION = (
    "@@autocommit, @@sql_mode, @@time_zone, @@transaction_isolation, @@innodb_lock_wait_timeout, @@max_execution_time"
)
"""The session variables that `MySQLConnection.prepare` sets, and that have to be restored in a caller's connection."""


class GivenPoolEngine(MySQLEngine):
    """An engine that uses an `aiomysql.Pool` which the caller opened and will close."""

    def __init__(self, config: MySQLConfig, pool: Any) -> None:
        super().__init__(config)
        self._given_pool = pool
        self.has_several_hosts = False

    def _with_config(self, config: MySQLConfig) -> Self:
        return type(self)(config, self._given_pool)

    @asynccontextmanager
    async def _borrowed(self) -> AsyncIterator[MySQLConnection]:
        """Borrow a connection of the caller's pool, which gets it back with its settings restored."""
        if self._given_pool._loop is not asyncio.get_running_loop():
            raise ConfigurationError(
                "the pool that this backend was given belongs to another event loop (the blocking face has one of "
                "its own): give a dsn instead, and the backend opens a pool for each loop"
            )
        async with self._given_pool.acquire() as raw:
            connection = MySQLConnection(raw, self._config.command_timeout)
            before = (await connection.execute(f"SELECT {_SESSION}"))[0]
            await connection.prepare(self._place)
            try:
                yield connection
            finally:
                if connection.is_usable():
                    names = _SESSION.replace("@@", "").split(", ")
                    settings = ", ".join(f"{name} = ?" for name in names)
                    await connection.execute(f"SET SESSION {settings}", before)
