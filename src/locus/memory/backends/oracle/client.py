"""Connections to Oracle Database, by python-oracledb in thin mode: no Oracle client has to be installed."""

from __future__ import annotations

import asyncio
import contextlib
import encodings.idna  # noqa: F401 - host names need it, and a fork while it is imported would leave a child without
import gc
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from locus.errors import ConfigurationError
from locus.memory.backends.oracle.oracle_binds import (
    Native,
    Returned,
    Rows,
    Textual,
    batches,
    input_sizes,
)
from locus.memory.backends.oracle.oracle_errors import misconfigured, oracledb
from locus.memory.backends.oracle.oracle_flavour import spoken
from locus.memory.backends.sql.flavour import Row
from locus.memory.backends.sql.sql_pool import Connection, close_without_loop

T = TypeVar("T")

OLDEST = 21
"""The first version with JSON columns."""
SESSION = "ALTER SESSION SET NLS_SORT = BINARY NLS_COMP = BINARY"
"""Ids are equal if their bytes are, whatever the database has for its default."""
READ_ONLY = "SET TRANSACTION READ ONLY"
GRACE_SECONDS = 1.0
"""How long the server has to stop a statement that took too long, before the connection is given up."""
FETCHED_AT_ONCE = 500


class OracleConnection(Connection):
    """`raw` is the driver's connection. `changed` is how many rows the last statement wrote."""

    def __init__(self, raw: Any, seconds: float) -> None:
        self.raw = raw
        self.changed = 0
        self._seconds = seconds
        self._begun = False
        self._loop = asyncio.get_running_loop()
        self._transport = _transport_of(raw)

    @property
    def version(self) -> str:
        """The server's."""
        return str(self.raw.version)

    async def execute(self, statement: str, values: Sequence[Any] = (), *, commit: bool = False) -> list[Row]:
        """`commit`: in the same round trip, once the statement has succeeded."""
        rows = await self._call(self._execute(spoken(statement), values, commit))
        self._begun = self._begun and not commit
        return rows

    async def _execute(self, text: str, values: Sequence[Any], commit: bool) -> list[Row]:
        rows: list[Row] = []
        pieces = batches(text, values if isinstance(values, Rows) else [values])
        for number, (statement, given) in enumerate(pieces, 1):
            self.raw.autocommit = commit and number == len(pieces)
            with self.raw.cursor() as cursor:
                cursor.arraysize = FETCHED_AT_ONCE
                sizes = input_sizes(given, oracledb.DB_TYPE_JSON)
                if any(sizes):
                    cursor.setinputsizes(*sizes)
                bound = [[await self._bound(value, cursor) for value in row] for row in given]
                if isinstance(values, Rows):
                    await cursor.executemany(statement, bound)
                else:
                    await cursor.execute(statement, bound[0])
                    rows = await _rows_of(cursor, values, bound[0])
                self.changed = cursor.rowcount
        return rows

    async def _bound(self, value: Any, cursor: Any) -> Any:
        if isinstance(value, Native):
            return value.value
        if isinstance(value, Textual):
            return await self.raw.createlob(oracledb.DB_TYPE_CLOB, str(value))
        return cursor.var(int) if isinstance(value, Returned) else value

    async def _call(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for the driver, but not for ever, and not longer than whoever waits for us.

        The driver would ask the server to stop what is cancelled, and wait for its answer, however long that takes.
        So it works in a task of its own, and loses its connection if nobody waits any more.
        """
        task = asyncio.ensure_future(work)
        try:
            done, _ = await asyncio.wait({task}, timeout=self._seconds)
            if not done:
                with contextlib.suppress(Exception):
                    self.raw.cancel()  # the server may stop, and the connection be of use again
                await asyncio.wait({task}, timeout=GRACE_SECONDS)
        finally:
            if not task.done():
                self.close()
                task.cancel()
                task.add_done_callback(_forget)
        if not done and (not task.done() or task.cancelled() or task.exception() is not None):
            raise TimeoutError(f"a statement took longer than command_timeout, {self._seconds:g} s")
        return task.result()

    async def begin(self, writing: bool) -> None:
        """A transaction that writes begins by itself."""
        if not writing:
            await self.execute(READ_ONLY)
        self._begun = True

    async def commit(self) -> None:
        await self._call(self.raw.commit())
        self._begun = False

    async def rollback(self) -> None:
        await self._call(self.raw.rollback())
        self._begun = False

    def in_transaction(self) -> bool:
        return self._begun and self._is_open()

    def is_usable(self) -> bool:
        return not self._begun and self._is_open() and not self.raw.transaction_in_progress

    def _is_open(self) -> bool:
        return bool(self.raw.is_healthy())

    def close(self) -> None:
        """As if the network had failed: the driver's own `terminate` must not be called while it works."""
        if self._transport is None:
            with contextlib.suppress(Exception):
                self.raw.terminate()
        elif self._loop.is_closed():
            close_without_loop(self._transport)
        else:
            self._transport.abort()

    async def quit(self) -> None:
        if self._is_open():
            with contextlib.suppress(Exception):
                async with asyncio.timeout(GRACE_SECONDS):
                    await self._call(self.raw.close())
        self.close()
        await asyncio.sleep(0)  # for the transport to let go of its socket


async def _rows_of(cursor: Any, values: Sequence[Any], bound: Sequence[Any]) -> list[Row]:
    """What a statement gave: the rows that it found, or the value that it returned into a bind."""
    if cursor.description:
        rows = list(await cursor.fetchall())
        # Our own tables have no CLOBs.
        if any(column[1] is oracledb.DB_TYPE_CLOB for column in cursor.description):
            return [[await _whole(value) for value in row] for row in rows]
        return rows
    places = [at for at, value in enumerate(reversed(values)) if isinstance(value, Returned)]
    return [(bound[-1 - at].getvalue()[0],) for at in places]


async def _whole(value: Any) -> Any:
    return await value.read() if isinstance(value, oracledb.AsyncLOB) else value


def _transport_of(raw: Any) -> asyncio.Transport | None:
    """The driver's connection to the server: it is in no attribute, but three steps away. None if it is not found."""
    owned = [raw._impl]
    for _ in range(3):
        owned = [below for above in owned for below in gc.get_referents(above)]
        found = next((below for below in owned if isinstance(below, asyncio.Transport)), None)
        if found is not None:
            return found
        owned = [below for below in owned if type(below).__module__ == "oracledb.thin_impl"]
    return None


def _forget(task: asyncio.Future[Any]) -> None:
    """Nobody waits for its result."""
    if not task.cancelled():
        task.exception()


@dataclass(frozen=True)
class Address:
    """Where the database is, and how to behave towards it: `parameters` are the driver's own, secrets included."""

    name: str
    parameters: dict[str, Any] = field(repr=False)
    connect_timeout: float
    command_timeout: float

    def __str__(self) -> str:
        """For people: no secrets."""
        return self.name

    @property
    def secrets(self) -> list[str]:
        found = (self.parameters.get(name) for name in ("password", "wallet_password"))
        return [secret for secret in found if secret]

    async def connect(self) -> OracleConnection:
        raw = await self._open()
        connection = OracleConnection(raw, self.command_timeout)
        try:
            await connection.execute(SESSION)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _open(self) -> Any:
        try:
            async with asyncio.timeout(self.connect_timeout):
                return await oracledb.connect_async(**self.parameters)
        except TimeoutError as error:
            raise ConnectionError(f"no connection within connect_timeout, {self.connect_timeout:g} s") from error
        except oracledb.Error as error:
            wrong = misconfigured(error, str(self))
            if wrong is None:
                raise
            raise wrong from error


def check_version(version: str, where: str) -> None:
    major = version.partition(".")[0]
    if not major.isdigit() or int(major) < OLDEST:
        raise ConfigurationError(
            f"the database at {where} is version {version}, and {OLDEST}c or later, with compatible at 20 or higher, "
            "is needed: older ones have no JSON columns"
        )
