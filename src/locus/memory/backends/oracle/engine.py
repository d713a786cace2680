"""The engine for Oracle Database, and the creation of its tables. Importing it needs python-oracledb."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from functools import partial
from typing import Self

from locus.errors import CheckpointError, ConfigurationError
from locus.memory.backends.oracle import commit as oracle_commit
from locus.memory.backends.oracle import read as oracle_read
from locus.memory.backends.oracle import schema as oracle_schema
from locus.memory.backends.oracle import search as oracle_search
from locus.memory.backends.oracle.client import (
    DRIVER_ERRORS,
    DUPLICATE,
    NO_COLUMN,
    NO_PRIVILEGE,
    NO_TABLE,
    Connector,
    OracleConnection,
    check_version,
    has_code,
    message_of,
    oracledb,
    translated,
    trouble_of,
)
from locus.memory.backends.oracle.commit import OracleThreads
from locus.memory.backends.oracle.config import OracleConfig
from locus.memory.backends.oracle.schema import NATIVE, OracleFlavour
from locus.memory.backends.sql.commit import LastSeenThreads, SQLThread, can_be_first
from locus.memory.backends.sql.engine import SQLServerEngine, Trouble
from locus.memory.backends.sql.schema import check_format, space_tables
from locus.memory.engine import Deadline, KeepsWrites
from locus.memory.model.records import Ancestor, Commit, Entry, Hit, Outcome, StoredFormat, Verdict


class OracleEngine(SQLServerEngine[OracleConnection]):
    """Threads in Oracle Database."""

    dialect = NATIVE
    driver_errors = DRIVER_ERRORS
    sql: OracleFlavour

    def __init__(self, config: OracleConfig) -> None:
        sql = OracleFlavour(config.table_name, config.schema_name)
        pool = config.pool_options()
        super().__init__(
            sql, OracleThreads(sql), pool, retry_seconds=config.retry_seconds, first_seconds=config.first_seconds
        )
        self._config = config
        self._connector = Connector(config)
        self._address = self._connector.address
        self._setup = TableSetup(self._connector, sql, auto_create_table=config.auto_create_table)
        self._seen_threads = LastSeenThreads()

    @property
    def identity(self) -> str:
        return f"oracle:{self._address}/{self.sql.threads.lower()}"

    def _with_tables_of(self, space: str) -> Self:
        table_name = space_tables(self._config.table_name, space)
        return type(self)(self._config.model_copy(update={"table_name": table_name}))

    async def _connect(self) -> OracleConnection:
        return await self._connector.connect()

    def trouble(self, error: BaseException) -> Trouble:
        return trouble_of(error)

    def translate(self, error: BaseException) -> CheckpointError:
        return translated(error, self._address, self._connector.secrets)

    async def setup(self) -> None:
        create = not self.reading_only
        if not await self._insist(lambda connection: self._setup.run(connection, create=create), repeatable=True):
            raise self.nothing_there()

    async def stored_format(self) -> StoredFormat | None:
        version, newest = await self._insist(self._setup.version, repeatable=True), oracle_schema.FORMAT
        return StoredFormat(version, newest, oracle_schema.ddl(self.sql, version=version) if version < newest else "")

    async def _commit(self, connection: OracleConnection, commit: Commit) -> Outcome:
        """Save without questions if the thread is as this handle left it, or new; else step by step, under a lock."""
        connection.committing = True
        last_seen = self._seen_threads.get(commit.thread_id)
        if last_seen is not None and last_seen.continued_by(commit, any_id=True):
            outcome = await oracle_commit.in_seen_thread(self.sql, connection, commit, last_seen)
            if outcome is not None:
                self._seen_threads.note(commit, last_seen.key, outcome.seq, last_seen.removals, last_seen)
                return outcome
        self._seen_threads.forget(commit.thread_id)
        if last_seen is None and can_be_first(commit):
            key = await oracle_commit.in_new_thread(self.sql, connection, commit)
            if key is not None:
                self._seen_threads.note(commit, key, 1, 0)
                return Outcome(Verdict.COMMITTED, 1)
        changed: list[SQLThread] = []
        decided = await self._commit_in_steps(connection, commit, changed)
        for thread in changed:
            self._seen_threads.note(commit, thread.key, decided.seq, thread.removals)
        return decided

    async def ancestors(
        self,
        thread_id: str,
        namespace: str,
        checkpoint_id: str,
        limit: int,
        channels: Collection[str],
        known: Collection[str],
    ) -> list[Ancestor]:
        # Oracle spells recursion in another way.
        return await KeepsWrites.ancestors(self, thread_id, namespace, checkpoint_id, limit, channels, known)

    async def find(self, key: str, value: str, limit: int, prefix: str = "") -> list[Entry]:
        return await self._read(partial(oracle_read.find, self.sql, key, value, limit, prefix))

    async def ranked(self, terms: Sequence[str], limit: int, prefix: str) -> list[Hit]:
        return await self._read(partial(oracle_search.search, self.sql, terms, limit, prefix))

    async def index_until(self, prefix: str, deadline: Deadline) -> bool:
        if self.reading_only:
            return not (await self._read(lambda: oracle_search.next_portion(self.sql, prefix))).threads
        # A portion that is not full is the last one, so saves that go on meanwhile do not prolong this.
        while await self._index_more(prefix):
            if deadline.has_passed:
                return False
        return True

    async def _index_more(self, prefix: str) -> bool:
        """Index a portion of the threads whose ids start with a prefix; True if there may be more."""
        portion = await self._read(lambda: oracle_search.next_portion(self.sql, prefix))
        if portion.threads:
            texts = await asyncio.to_thread(oracle_search.texts_of, self.sql, portion)
            await self._write(partial(oracle_search.index_portion, self.sql, portion, texts), repeatable=True)
        return portion.is_full


CHARACTER_SET = "SELECT value FROM nls_database_parameters WHERE parameter = 'NLS_CHARACTERSET'"
_NOT_ALLOWED = (NO_PRIVILEGE, "ORA-01536", "ORA-01950", "ORA-01918", "ORA-01435")
"""Errors that say the user lacks a privilege, a quota or a schema."""
_NO_JSON = ("ORA-00902", "ORA-40441", "ORA-43853")
_NO_TEXT = ("ORA-29833", "ORA-29855", "ORA-20000")


class TableSetup:
    """Creates and migrates the tables, however many processes start at once.

    DDL commits, and so releases every lock of its own session. Therefore a second session holds the lock.
    """

    def __init__(self, connector: Connector, sql: OracleFlavour, *, auto_create_table: bool) -> None:
        self._connector = connector
        self._address = connector.address
        self._sql = sql
        self._auto_create = auto_create_table

    async def run(self, connection: OracleConnection, *, create: bool = True) -> int:
        """Create the tables that are missing, if `create`. Return the version of the tables, 0 if there are none."""
        check_version(connection.version, self._address)
        version = await self._version(connection, create=create)
        if version >= oracle_schema.FORMAT or not (version or create):
            return version
        if not self._auto_create or not create:
            state = f"have format {version}, not {oracle_schema.FORMAT}" if version else "are not there"
            raise ConfigurationError(
                f"the tables {self._sql.table('*')} at {self._address} {state}, and auto_create_table is off: "
                f"have somebody run what {self._command(version)} returns"
            )
        try:
            await self._migrate(connection)
        except oracledb.Error as error:
            wrong = self._explained(error)
            if wrong is None:
                raise
            raise wrong from error
        return oracle_schema.FORMAT

    async def version(self, connection: OracleConnection) -> int:
        """Read the version of the tables; 0 if there are none."""
        return await self._version(connection, create=False)

    def _command(self, version: int = 0) -> str:
        options = [f"table_name={self._sql.prefix[:-1]!r}"]
        options += [f"schema_name={self._sql.schema!r}"] if self._sql.schema else []
        options += [f"from_format={version}"] if version else []
        return f"OracleBackend.ddl({', '.join(options)})"

    def _explained(self, error: BaseException) -> ConfigurationError | None:
        """Make the error that says what to change, if the user, the database or the options are at fault."""
        message = message_of(error)
        if has_code(error, *_NOT_ALLOWED):
            return ConfigurationError(
                f"this user may not create the tables at {self._address} ({message}): let it, or have somebody run "
                f"what {self._command()} returns, and set auto_create_table=False"
            )
        if has_code(error, NO_COLUMN):
            return ConfigurationError(
                f"a table at {self._address} is in the way, and is not ours: choose another table_name ({message})"
            )
        if has_code(error, *_NO_JSON):
            return ConfigurationError(
                f"the database at {self._address} has no JSON columns ({message}): it needs 21c or later, with "
                "compatible at 20 or higher"
            )
        if has_code(error, *_NO_TEXT):
            return ConfigurationError(
                f"the JSON search index cannot be made at {self._address} ({message}): Oracle Text is needed"
            )
        return None

    async def _version(self, connection: OracleConnection, lock: str = "", *, create: bool = True) -> int:
        """Read the version of the tables; 0 if there are none, or not all of them."""
        try:
            rows = await connection.execute(f"SELECT version FROM {self._sql.format} WHERE id = 1{lock}")
        except oracledb.Error as error:
            if not has_code(error, NO_TABLE):
                raise
            return 0
        version = int(rows[0][0]) if rows else 0
        if version > oracle_schema.FORMAT:
            least = await self._least_format(connection, reading=not create)
            check_format(version, oracle_schema.FORMAT, least, self._address)
        return version

    async def _least_format(self, connection: OracleConnection, *, reading: bool) -> int | None:
        """Read which format is needed to use these tables, which are newer; None if they do not say."""
        row = oracle_schema.OLDEST_READER if reading else oracle_schema.OLDEST_WRITER
        rows = await connection.execute(f"SELECT version FROM {self._sql.format} WHERE id = {row}")
        return int(rows[0][0]) if rows else None

    async def _migrate(self, connection: OracleConnection) -> None:
        await self._check_characters(connection)
        table, row = oracle_schema.format_statements(self._sql)
        await self._change(connection, table, oracle_schema.ALREADY_DONE)
        await self._change(connection, row, (DUPLICATE,), commit=True)
        guard = await self._connector.connect()
        try:
            version = await self._version(guard, " FOR UPDATE")
            for statement in oracle_schema.statements(self._sql, version):
                await self._change(connection, statement, oracle_schema.ALREADY_DONE)
            for probe in oracle_schema.probes(self._sql):
                await connection.execute(probe)
            await guard.execute(oracle_schema.set_version(self._sql, oracle_schema.FORMAT), commit=True)
        finally:
            await guard.quit()

    async def _change(
        self, connection: OracleConnection, statement: str, expected: Collection[str], *, commit: bool = False
    ) -> None:
        """Run a statement that may have been run before: then it fails with one of the `expected` errors."""
        try:
            await connection.execute(statement, commit=commit)
        except oracledb.Error as error:
            if not has_code(error, *expected):
                raise
            if commit:
                await connection.rollback()

    async def _check_characters(self, connection: OracleConnection) -> None:
        for (name,) in await connection.execute(CHARACTER_SET):
            if name != "AL32UTF8":
                raise ConfigurationError(
                    f"the database at {self._address} has the character set {name}, and cannot hold every text: "
                    "use one with AL32UTF8"
                )
