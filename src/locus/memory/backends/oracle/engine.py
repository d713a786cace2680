"""The engine for Oracle Database, and the creation of its tables. Importing it needs python-oracledb."""

from __future__ import annotations

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
from locus.memory.model.records import Ancestor, AncestorQuery, Commit, Entry, Hit, Outcome, Verdict

CHARACTER_SET = "SELECT value FROM nls_database_parameters WHERE parameter = 'NLS_CHARACTERSET'"
_NOT_ALLOWED = (NO_PRIVILEGE, "ORA-01536", "ORA-01950", "ORA-01918", "ORA-01435")
"""Errors that say the user lacks a privilege, a quota or a schema."""
_NO_JSON = ("ORA-00902", "ORA-40441", "ORA-43853")
_NO_TEXT = ("ORA-29833", "ORA-29855", "ORA-20000")


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
        self.creates_tables = config.auto_create_table
        self._seen_threads = LastSeenThreads()

    @property
    def identity(self) -> str:
        return f"oracle:{self._place}/{self.sql.threads.lower()}"

    @property
    def _place(self) -> str:
        return self._connector.address

    def _with_tables_of(self, space: str) -> Self:
        table_name = space_tables(self._config.table_name, space)
        return type(self)(self._config.model_copy(update={"table_name": table_name}))

    async def _connect(self) -> OracleConnection:
        return await self._connector.connect()

    def trouble(self, error: BaseException) -> Trouble:
        return trouble_of(error)

    def translate(self, error: BaseException) -> CheckpointError:
        return translated(error, self._place, self._connector.secrets)

    def _script(self, version: int) -> str:
        options = [f"table_name={self.sql.prefix[:-1]!r}"]
        options += [f"schema_name={self.sql.schema!r}"] if self.sql.schema else []
        options += [f"from_format={version}"] if version else []
        return f"OracleBackend.ddl({', '.join(options)})"

    def _ddl(self, version: int) -> str:
        return oracle_schema.ddl(self.sql, version=version)

    def _explained(self, error: BaseException, script: str) -> ConfigurationError | None:
        message = message_of(error)
        if has_code(error, *_NOT_ALLOWED):
            return ConfigurationError(
                f"this user may not create the tables at {self._place} ({message}): let it, or have somebody run "
                f"what {script} returns, and set auto_create_table=False"
            )
        if has_code(error, NO_COLUMN):
            return ConfigurationError(
                f"a table at {self._place} is in the way, and is not ours: choose another table_name ({message})"
            )
        if has_code(error, *_NO_JSON):
            return ConfigurationError(
                f"the database at {self._place} has no JSON columns ({message}): it needs 21c or later, with "
                "compatible at 20 or higher"
            )
        if has_code(error, *_NO_TEXT):
            return ConfigurationError(
                f"the JSON search index cannot be made at {self._place} ({message}): Oracle Text is needed"
            )
        return None

    async def _set_up(self, connection: OracleConnection) -> None:
        check_version(connection.version, self._place)
        await super()._set_up(connection)

    async def _format(self, connection: OracleConnection, lock: str = "") -> int:
        try:
            rows = await connection.execute(f"SELECT version FROM {self.sql.format} WHERE id = 1{lock}")
        except oracledb.Error as error:
            if not has_code(error, NO_TABLE):
                raise
            return 0
        version = int(rows[0][0]) if rows else 0
        if version > oracle_schema.FORMAT:
            least = await self._least_format(connection)
            check_format(version, oracle_schema.FORMAT, least, self._place)
        return version

    async def _least_format(self, connection: OracleConnection) -> int | None:
        """Read which format is needed to use these tables, which are newer; None if they do not say."""
        row = oracle_schema.OLDEST_READER if self.reading_only else oracle_schema.OLDEST_WRITER
        rows = await connection.execute(f"SELECT version FROM {self.sql.format} WHERE id = {row}")
        return int(rows[0][0]) if rows else None

    async def _migrate(self, connection: OracleConnection) -> None:
        # DDL commits, and so releases every lock of its own session. Therefore a second session holds the lock.
        await self._check_characters(connection)
        table, row = oracle_schema.format_statements(self.sql)
        await self._alter(connection, table, oracle_schema.ALREADY_DONE)
        await self._alter(connection, row, (DUPLICATE,), commit=True)
        guard = await self._connector.connect()
        try:
            version = await self._format(guard, " FOR UPDATE")
            for statement in oracle_schema.statements(self.sql, version):
                await self._alter(connection, statement, oracle_schema.ALREADY_DONE)
            for probe in oracle_schema.probes(self.sql):
                await connection.execute(probe)
            await guard.execute(oracle_schema.set_version(self.sql, oracle_schema.FORMAT), commit=True)
        finally:
            await guard.quit()

    async def _alter(
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
                    f"the database at {self._place} has the character set {name}, and cannot hold every text: "
                    "use one with AL32UTF8"
                )

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

    async def ancestors(self, query: AncestorQuery) -> list[Ancestor]:
        # Oracle spells recursion in another way.
        return await KeepsWrites.ancestors(self, query)

    async def find(self, key: str, value: str, limit: int, prefix: str = "") -> list[Entry]:
        return await self._read(partial(oracle_read.find, self.sql, key, value, limit, prefix))

    async def ranked(self, terms: Sequence[str], limit: int, prefix: str) -> list[Hit]:
        return await self._read(partial(oracle_search.search, self.sql, terms, limit, prefix))

    async def index_until(self, prefix: str, deadline: Deadline) -> bool:
        return await self._index_portions(oracle_search.INDEXING, prefix, deadline)
