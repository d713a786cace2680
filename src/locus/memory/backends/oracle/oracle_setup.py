"""How the tables come to be there, however many processes start at once."""

from __future__ import annotations

from collections.abc import Collection

from locus.errors import ConfigurationError
from locus.memory.backends.oracle import schema as oracle_schema
from locus.memory.backends.oracle.client import Address, OracleConnection, check_version
from locus.memory.backends.oracle.oracle_errors import (
    DUPLICATE,
    MAY_NOT,
    NO_COLUMN,
    NO_TABLE,
    has_code,
    oracledb,
    told,
)
from locus.memory.backends.oracle.oracle_flavour import OracleFlavour
from locus.memory.backends.sql.engine import check_format

CHARACTER_SET = "SELECT value FROM nls_database_parameters WHERE parameter = 'NLS_CHARACTERSET'"
_MAY_NOT = (MAY_NOT, "ORA-01536", "ORA-01950", "ORA-01918", "ORA-01435")
_NO_JSON = ("ORA-00902", "ORA-40441", "ORA-43853")
_NO_TEXT = ("ORA-29833", "ORA-29855", "ORA-20000")


class Setup:
    """DDL commits, and would let go of any lock that its own session holds. So another session holds it."""

    def __init__(self, address: Address, sql: OracleFlavour, *, auto_create_table: bool) -> None:
        self._address = address
        self._sql = sql
        self._auto_create = auto_create_table

    async def run(self, connection: OracleConnection, *, making: bool = True) -> int:
        """Make what is missing, if that is wanted; return the version of the tables, 0 if there are none."""
        check_version(connection.version, str(self._address))
        found = await self._version(connection)
        if found == oracle_schema.FORMAT or not (found or making):
            return found
        if not self._auto_create or not making:
            state = f"have format {found}, not {oracle_schema.FORMAT}" if found else "are not there"
            raise ConfigurationError(
                f"the tables {self._sql.table('*')} at {self._address} {state}, and auto_create_table is off: "
                f"have somebody run what {self._command()} returns"
            )
        try:
            await self._migrate(connection)
        except oracledb.Error as error:
            wrong = self._explained(error)
            if wrong is None:
                raise
            raise wrong from error
        return oracle_schema.FORMAT

    def _command(self) -> str:
        options = [f"table_name={self._sql.prefix[:-1]!r}"]
        options += [f"schema_name={self._sql.schema!r}"] if self._sql.schema else []
        return f"OracleBackend.ddl({', '.join(options)})"

    def _explained(self, error: BaseException) -> ConfigurationError | None:
        """What is wrong with the user, the database or the options, if it is one of these."""
        if has_code(error, *_MAY_NOT):
            return ConfigurationError(
                f"this user may not create the tables at {self._address} ({told(error)}): let it, or have somebody run "
                f"what {self._command()} returns, and set auto_create_table=False"
            )
        if has_code(error, NO_COLUMN):
            return ConfigurationError(
                f"a table at {self._address} is in the way, and is not ours: choose another table_name ({told(error)})"
            )
        if has_code(error, *_NO_JSON):
            return ConfigurationError(
                f"the database at {self._address} has no JSON columns ({told(error)}): it needs 21c or later, with "
                "compatible at 20 or higher"
            )
        if has_code(error, *_NO_TEXT):
            return ConfigurationError(
                f"the JSON search index cannot be made at {self._address} ({told(error)}): Oracle Text is needed"
            )
        return None

    async def _version(self, connection: OracleConnection, lock: str = "") -> int:
        """The version of the tables; 0 if there are none, or not all of them yet."""
        try:
            rows = await connection.execute(f"SELECT version FROM {self._sql.format} WHERE id = 1{lock}")
        except oracledb.Error as error:
            if not has_code(error, NO_TABLE):
                raise
            return 0
        found = int(rows[0][0]) if rows else 0
        check_format(found, oracle_schema.FORMAT, str(self._address))
        return found

    async def _migrate(self, connection: OracleConnection) -> None:
        await self._check_characters(connection)
        table, row = oracle_schema.beginnings(self._sql)
        await self._change(connection, table, oracle_schema.DONE_BEFORE)
        await self._change(connection, row, (DUPLICATE,), commit=True)
        guard = await self._address.connect()
        try:
            found = await self._version(guard, " FOR UPDATE")
            for statements in oracle_schema.steps(self._sql, found):
                for statement in statements:
                    await self._change(connection, statement, oracle_schema.DONE_BEFORE)
            for probe in oracle_schema.probes(self._sql):
                await connection.execute(probe)
            await guard.execute(oracle_schema.set_version(self._sql, oracle_schema.FORMAT), commit=True)
        finally:
            await guard.quit()

    async def _change(
        self, connection: OracleConnection, statement: str, expected: Collection[str], *, commit: bool = False
    ) -> None:
        """Make something, unless it is there already."""
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
