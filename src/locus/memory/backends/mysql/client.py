"""Connections to MySQL, by aiomysql.

Several statements go to the server together where that saves round trips: it carries them out in order, and stops
at the first that fails. Values are put into the text (see `mysql_flavour.literal`); that is safe because the
connection's character set is utf8mb4, and its SQL mode is set here.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from locus.errors import ConfigurationError, SerializationError
from locus.extras import require
from locus.memory.backends.mysql.mysql_errors import MySQLError
from locus.memory.backends.mysql.mysql_flavour import rendered
from locus.memory.backends.sql.flavour import Row
from locus.memory.backends.sql.sql_pool import Connection, close_without_loop

aiomysql = require("aiomysql", "mysql")

OLDEST = (8, 0, 17)
"""The first with the collation utf8mb4_0900_bin and with multi-valued indexes."""
SQL_MODE = "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"

_BEGIN = {
    True: ("BEGIN",),
    False: ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "START TRANSACTION READ ONLY"),
}
_UNDO = ("ROLLBACK",)


class Result(NamedTuple):
    """What one statement gave."""

    rows: list[Row]
    changed: int
    new_id: int


class MySQLConnection(Connection):
    """`raw` is aiomysql's connection."""

    def __init__(self, raw: Any, seconds: float, largest_packet: int) -> None:
        self.raw = raw
        self._seconds = seconds
        self._largest = largest_packet
        self._waiting: tuple[str, ...] = ()

    async def execute(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        return (await self.send([(statement, values)]))[-1].rows

    async def send(self, statements: Sequence[tuple[str, Sequence[Any]]]) -> list[Result]:
        """Carry out several statements in one round trip."""
        texts = [rendered(statement, values) for statement, values in statements]
        waiting, self._waiting = self._waiting, ()
        message = ";\n".join([*waiting, *texts]).encode()
        if len(message) + 1 > self._largest:
            raise SerializationError(
                f"a statement of {len(message):,} bytes is larger than the server's max_allowed_packet, "
                f"{self._largest:,}: raise that, or save less at once. Nothing was written"
            )
        with _errors_told():
            try:
                async with asyncio.timeout(self._seconds):
                    return (await self._results(message))[len(waiting) :]
            except TimeoutError as error:
                self.close()
                raise TimeoutError(f"a statement took longer than command_timeout, {self._seconds:g} s") from error

    async def _results(self, message: bytes) -> list[Result]:
        # A cursor would do the same, and then ask for the server's warnings and issue them as Python's.
        raw = self.raw
        await raw.query(message)
        results = [_result(raw)]
        while raw._result.has_next:
            await raw.next_result()
            results.append(_result(raw))
        return results

    async def begin(self, writing: bool) -> None:
        """Sent together with the first statement."""
        self._waiting += _BEGIN[writing]

    async def commit(self) -> None:
        await self._end("COMMIT")

    async def rollback(self) -> None:
        await self._end("ROLLBACK")

    def undo(self) -> None:
        """Roll back, together with whatever is sent next."""
        self._waiting = _UNDO

    async def _end(self, statement: str) -> None:
        if self._waiting:
            # What was to be ended has not begun; but what was before it may still have to be undone.
            self._waiting = _UNDO if self._waiting[:1] == _UNDO else ()
        else:
            await self.execute(statement)

    def in_transaction(self) -> bool:
        return not self.raw.closed and not self._waiting and bool(self.raw.get_transaction_status())

    def is_usable(self) -> bool:
        raw = self.raw
        if raw.closed or raw.get_transaction_status():
            return False
        # A server that ends a session says why first, so `at_eof` alone would not tell.
        reader = raw._reader
        return not (reader.at_eof() or reader.exception() or reader.eof_received)

    def close(self) -> None:
        raw = self.raw
        if raw.closed:
            return
        try:
            raw._writer.transport.close()
        except RuntimeError:  # its event loop is closed
            close_without_loop(raw._writer.transport)
        raw._writer = raw._reader = None

    async def quit(self) -> None:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(1):
                await self.raw.ensure_closed()
        self.close()
        await asyncio.sleep(0)  # for the transport to let go of its socket


def _result(raw: Any) -> Result:
    result = raw._result
    return Result(list(result.rows or ()), result.affected_rows or 0, result.insert_id or 0)


@contextmanager
def _errors_told() -> Iterator[None]:
    """The driver's errors as ours, with their numbers."""
    try:
        yield
    except aiomysql.Error as error:
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        message = str(error.args[-1]) if error.args else ""
        if isinstance(error.__cause__, OSError):
            message += f" ({error.__cause__})"
        # Without a number it is about the connection: closed, or out of step with the server.
        raise MySQLError(code or 2013, message) from error


@dataclass(frozen=True)
class Address:
    """Where the server is, and how to behave towards it."""

    host: str
    port: int
    unix_socket: str | None
    database: str
    user: str
    password: str = field(repr=False)
    tls: ssl.SSLContext | None
    connect_timeout: float
    command_timeout: float

    def __str__(self) -> str:
        """For people: no secrets."""
        return f"{self.unix_socket or f'{self.host}:{self.port}'}/{self.database}"

    async def connect(self) -> MySQLConnection:
        try:
            with _errors_told():
                async with asyncio.timeout(self.connect_timeout):
                    raw = await self._open()
        except TimeoutError as error:
            raise ConnectionError(f"no connection within connect_timeout, {self.connect_timeout:g} s") from error
        connection = MySQLConnection(raw, self.command_timeout, 1 << 24)
        try:
            if self.tls is not None and not raw._secure:
                raise ConfigurationError(f"MySQL at {self} offers no TLS, and this connection was to have it")
            await prepare(connection, str(self))
        except BaseException:
            connection.close()
            raise
        return connection

    async def _open(self) -> Any:
        raw = aiomysql.Connection(
            host=self.host,
            port=self.port,
            unix_socket=self.unix_socket,
            db=self.database,
            user=self.user,
            # The driver writes it as latin1; so it arrives as UTF-8, which is what the server expects.
            password=self.password.encode().decode("latin1"),
            charset="utf8mb4",
            ssl=self.tls,
            autocommit=None,
        )
        try:
            await raw._connect()
        except BaseException:
            raw.close()
            raise
        return raw


async def prepare(connection: MySQLConnection, where: str) -> None:
    """Look who is there, and set what everything else relies on."""
    check_server(connection.raw.get_server_info(), where)
    lock_seconds = max(1, int(connection._seconds / 2))
    results = await connection.send(
        [
            ("SELECT VERSION(), @@max_allowed_packet", ()),
            ("SET NAMES utf8mb4", ()),
            (
                "SET SESSION autocommit = 1, sql_mode = ?, time_zone = '+00:00',"
                " transaction_isolation = 'READ-COMMITTED', innodb_lock_wait_timeout = ?",
                (SQL_MODE, lock_seconds),
            ),
        ]
    )
    version, largest = results[0].rows[0]
    check_server(str(version), where)
    check_version(str(version), where)
    connection._largest = int(largest)


def check_server(version: str, where: str) -> None:
    if "mariadb" in version.lower():
        raise ConfigurationError(
            f"the server at {where} is MariaDB ({version}), not MySQL: its JSON is plain text, and it has neither "
            "multi-valued indexes nor the collation utf8mb4_0900_bin. Use MySQL 8.0.17 or later"
        )


def check_version(version: str, where: str) -> None:
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if found is None or tuple(map(int, found.groups())) < OLDEST:
        raise ConfigurationError(
            f"the server at {where} is MySQL {version}, and {'.'.join(map(str, OLDEST))} or later is needed"
        )
