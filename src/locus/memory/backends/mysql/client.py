"""Connections to MySQL with aiomysql, the text of statements, and the meaning of MySQL's errors.

Several statements go to the server together where that saves round trips. The server runs them in order and stops at
the first that fails. Values are written into the text of a statement (see `literal`). That is safe because the
character set of every connection is utf8mb4, and because its SQL mode is set here.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from locus.errors import (
    BackendUnavailableError,
    CheckpointError,
    ConfigurationError,
    CorruptCheckpointError,
    SerializationError,
)
from locus.extras import require
from locus.memory.backends.mysql.config import MySQLConfig
from locus.memory.backends.sql.engine import Connection, Trouble, close_without_loop
from locus.memory.backends.sql.flavour import Row
from locus.memory.backends.sql.hosts import Hosts, NoHostError
from locus.memory.engine import NotAllowedError

aiomysql = require("aiomysql", "mysql")

Statement = tuple[str, Sequence[Any]]
"""A statement written with `?`, and its values."""

FIRST_PACKET_LIMIT = 1 << 24
"""The largest statement, in bytes, until the server has told its own limit."""


class Connector:
    """Opens connections to the server that a configuration names.

    If it names several, the one that takes writes is used.
    """

    def __init__(self, config: MySQLConfig) -> None:
        self._config = config
        self._tls = config.tls()
        places = config.places if config.unix_socket is None else []
        self.hosts = Hosts(places) if len(places) > 1 else None

    async def connect(self) -> MySQLConnection:
        config = self._config
        if self.hosts is not None:
            return await self.hosts.first_usable(
                self._connect_to_writable,
                config.connect_timeout,
                DRIVER_ERRORS,
                lambda place, error: f"{place[0]}:{place[1]}: {str(error) or 'no answer'}",
                lambda error: trouble_of(error) is Trouble.FINAL and not is_read_only(error),
            )
        return await self._connect((config.host, config.port))

    async def _connect_to_writable(self, place: tuple[str, int]) -> MySQLConnection:
        connection = await self._connect(place)
        try:
            ((*values,),) = await connection.execute(f"SELECT {_TAKES_NO_WRITES}")
            if any(values):
                raise MySQLError(READ_ONLY, "the server is read-only")
        except BaseException:
            connection.close()
            raise
        return connection

    async def _connect(self, place: tuple[str, int]) -> MySQLConnection:
        config = self._config
        try:
            with _driver_errors_as_ours():
                async with asyncio.timeout(config.connect_timeout):
                    raw = await self._open(place)
        except TimeoutError as error:
            raise ConnectionError(f"no connection within connect_timeout, {config.connect_timeout:g} s") from error
        connection = MySQLConnection(raw, config.command_timeout)
        try:
            if self._tls is not None and not raw._secure:
                raise ConfigurationError(f"MySQL at {config.address} offers no TLS, and this connection was to have it")
            await connection.prepare(config.address)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _open(self, place: tuple[str, int]) -> Any:
        config = self._config
        host, port = place
        raw = aiomysql.Connection(
            host=host,
            port=port,
            unix_socket=config.unix_socket,
            db=config.database,
            user=config.user,
            # The driver encodes it as latin1. This way it arrives as UTF-8, which is what the server expects.
            password=config.password.get_secret_value().encode().decode("latin1"),
            charset="utf8mb4",
            ssl=self._tls,
            autocommit=None,
        )
        try:
            await raw._connect()
        except BaseException:
            raw.close()
            raise
        return raw


SQL_MODE = "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
_BEGIN = {
    True: ("BEGIN",),
    False: ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "START TRANSACTION READ ONLY"),
}
_ROLLBACK = ("ROLLBACK",)


GRACE_SECONDS = 1.0
"""The time, at most, that the server works on a query that nobody waits for any more. It does not notice by itself."""
LONGEST_QUERY = 2**32 - 1
"""The highest `max_execution_time`, in milliseconds."""


class Result(NamedTuple):
    """The result of one statement."""

    rows: list[Row]
    changed: int
    new_id: int


class MySQLConnection(Connection):
    """A connection of aiomysql, `raw`. A statement may take `seconds`."""

    def __init__(self, raw: Any, seconds: float) -> None:
        self.raw = raw
        self._seconds = seconds
        self._largest = FIRST_PACKET_LIMIT
        self._waiting: tuple[str, ...] = ()
        """Statements that are sent together with the next one."""

    async def prepare(self, where: str) -> None:
        """Check that the server fulfils all requirements, and set up the session."""
        check_server(self.raw.get_server_info(), where)
        lock_seconds = max(1, int(self._seconds / 2))
        results = await self.send(
            [
                ("SELECT VERSION(), @@max_allowed_packet", ()),
                ("SET NAMES utf8mb4", ()),
                (
                    "SET SESSION autocommit = 1, sql_mode = ?, time_zone = '+00:00',"
                    " transaction_isolation = 'READ-COMMITTED', innodb_lock_wait_timeout = ?, max_execution_time = ?",
                    (SQL_MODE, lock_seconds, min(int((self._seconds + GRACE_SECONDS) * 1_000), LONGEST_QUERY)),
                ),
            ]
        )
        version, largest = results[0].rows[0]
        check_server(str(version), where)
        check_version(str(version), where)
        self._largest = int(largest)

    async def execute(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        return (await self.send([(statement, values)]))[-1].rows

    async def send(self, statements: Sequence[Statement]) -> list[Result]:
        """Run several statements in one round trip."""
        texts = [rendered(statement, values) for statement, values in statements]
        waiting, self._waiting = self._waiting, ()
        message = ";\n".join([*waiting, *texts]).encode()
        if len(message) + 1 > self._largest:
            raise SerializationError(
                f"a statement of {len(message):,} bytes is larger than the server's max_allowed_packet, "
                f"{self._largest:,}: raise that, or save less at once. Nothing was written"
            )
        try:
            with _driver_errors_as_ours():
                try:
                    async with asyncio.timeout(self._seconds):
                        return (await self._results(message))[len(waiting) :]
                except TimeoutError as error:
                    self.close()
                    raise TimeoutError(f"a statement took longer than command_timeout, {self._seconds:g} s") from error
        except MySQLError as error:
            if is_read_only(error):
                self.close()
            raise

    async def _results(self, message: bytes) -> list[Result]:
        # A cursor would do the same, but then fetch the server's warnings and issue them as Python warnings.
        raw = self.raw
        await raw.query(message)
        results = [_result(raw)]
        while raw._result.has_next:
            await raw.next_result()
            results.append(_result(raw))
        return results

    async def begin(self, writing: bool) -> None:
        """Begin a transaction, together with the first statement that is sent."""
        self._waiting += _BEGIN[writing]

    async def commit(self) -> None:
        await self._end("COMMIT")

    async def rollback(self) -> None:
        await self._end("ROLLBACK")

    def roll_back_later(self) -> None:
        """Roll back, together with the next statement that is sent."""
        self._waiting = _ROLLBACK

    async def _end(self, statement: str) -> None:
        if self._waiting:
            # The transaction has not begun; but the one before it may still have to be rolled back.
            self._waiting = _ROLLBACK if self._waiting[:1] == _ROLLBACK else ()
        else:
            await self.execute(statement)

    def in_transaction(self) -> bool:
        return not self.raw.closed and not self._waiting and bool(self.raw.get_transaction_status())

    def is_usable(self) -> bool:
        raw = self.raw
        if raw.closed or raw.get_transaction_status():
            return False
        # A server that ends a session first says why, so `at_eof` alone does not tell.
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
        await asyncio.sleep(0)  # for the transport to release its socket


def _result(raw: Any) -> Result:
    result = raw._result
    return Result(list(result.rows or ()), result.affected_rows or 0, result.insert_id or 0)


OLDEST = (8, 0, 17)
"""The first version with the collation utf8mb4_0900_bin and with multi-valued indexes."""


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


@dataclass(frozen=True)
class Expression:
    """SQL in the place of a value."""

    text: str


def rendered(statement: str, values: Sequence[Any]) -> str:
    """Write values into a statement in the place of its question marks. The statement itself has no text from users."""
    parts = _parts(statement)
    if len(parts) != len(values) + 1:
        raise ValueError(f"a statement has {len(parts) - 1} marks, and {len(values)} values")
    written = [parts[0]]
    for value, part in zip(values, parts[1:], strict=True):
        # Most values are text or numbers, and a save has thirty of them: `literal` for these, without a call.
        kind = type(value)
        if kind is str:
            escaped = value.replace("\\", "\\\\").replace("'", "''")
            written += ("'", escaped, "'", part)
        else:
            written += (repr(value) if kind is int else literal(value), part)
    return "".join(written)


@lru_cache(maxsize=512)
def _parts(statement: str) -> list[str]:
    return statement.split("?")


def literal(value: Any) -> str:
    """Write a value as SQL.

    Inside quotes only a quote and a backslash are special. That holds in utf8mb4, and as long as the SQL mode does not
    include NO_BACKSLASH_ESCAPES. The driver's own escaping also escapes every double quote, and JSON is full of them.
    """
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "''")
        return f"'{escaped}'"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, bytes):
        # In hexadecimal it could be longer than the JSON that was packed, and than the server accepts.
        return f"FROM_BASE64('{b64encode(value).decode()}')"
    if value is None:
        return "NULL"
    if isinstance(value, Expression):
        return value.text
    raise TypeError(f"no value of a statement: {type(value).__name__}")


NOT_NULL, DUPLICATE = 1048, 1062
NO_TABLE, NO_COLUMN = 1146, 1054
DEADLOCK, LOCK_TIMEOUT, LOCKED = 1213, 1205, 3572
CONNECTION_LOST = 2013
READ_ONLY = 1836
_READ_ONLY = {1290, 1792, READ_ONLY}
_TAKES_NO_WRITES = "@@global.read_only, @@global.super_read_only, @@global.innodb_read_only"

_LOST = {
    1040, 1053, 1080, 1152, 1158, 1159, 1160, 1161, 1203, 1317, 1927, 2002, 2003, 2006, CONNECTION_LOST, 2055, 3169,
    4031,
}  # fmt: skip
_NOT_GRANTED = {1044, 1142, 1143, 1227}
_HINTS = {
    1044: "the user may not use this database",
    1045: "it does not let this user in: check user and password",
    1049: "the database is not there: create it, or name another",
    1130: "it does not take connections from this host",
    1698: "it does not let this user in: check user and password",
    2059: "it asks for a way to log in that the driver does not know: use caching_sha2_password",
    1021: "its disk is full",
    1114: "a table, or its disk, is full",
    1040: "it has no connection left: lower max_pool_size, or raise max_connections",
    1203: "the user has no connection left: lower max_pool_size, or raise max_user_connections",
    1142: "the user may not do that: see the page on MySQL for what has to be granted",
    1143: "the user may not do that: see the page on MySQL for what has to be granted",
    1227: "the user may not do that: see the page on MySQL for what has to be granted",
    1290: "it is read-only: a replica, or a server that is being replaced; connect to the primary",
    1792: "it is read-only: a replica, or a server that is being replaced; connect to the primary",
    READ_ONLY: "it is read-only: a replica, or a server that is being replaced; connect to the primary",
    3024: "a statement took longer than command_timeout",
    LOCK_TIMEOUT: "another transaction holds a lock for too long",
    DEADLOCK: "transactions got into each other's way again and again",
}
_TOO_MUCH = {
    1153: "it is larger than the server's max_allowed_packet: raise that, or save less at once",
    1406: "it is too long for its column",
    3151: "a key of an object has more than 65,535 bytes",
    3157: "it is nested too deeply",
    3150: "it is too large for a JSON column",
}
_CORRUPT = {NO_COLUMN, NO_TABLE, 1034, 1035, 1194, 1712, 1932, 3140, 3141, 3144}


class MySQLError(Exception):
    """An error of the server or the driver, with its number (0 if it has none). The driver's error is its cause."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"({code}) {message}" if code else message)
        self.code = code


DRIVER_ERRORS: tuple[type[BaseException], ...] = (MySQLError, OSError)


@contextmanager
def _driver_errors_as_ours() -> Iterator[None]:
    """Raise the driver's errors as `MySQLError`."""
    try:
        yield
    except aiomysql.Error as error:
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        message = str(error.args[-1]) if error.args else ""
        if isinstance(error.__cause__, OSError):
            message += f" ({error.__cause__})"
        # An error without a number is about the connection: it is closed, or out of step with the server.
        raise MySQLError(code or CONNECTION_LOST, message) from error


def code_of(error: BaseException) -> int:
    """The number of an error. An error of the operating system has that of a lost connection."""
    return error.code if isinstance(error, MySQLError) else CONNECTION_LOST


def trouble_of(error: BaseException) -> Trouble:
    if isinstance(error, TimeoutError):
        return Trouble.FINAL
    code = code_of(error)
    if code == DEADLOCK:
        return Trouble.ROLLED_BACK
    # The lock may be released soon, but twenty attempts of many seconds each would be too long to wait for it.
    return Trouble.LOST if code in _LOST or code == LOCK_TIMEOUT else Trouble.FINAL


def is_from_server(error: BaseException) -> bool:
    """Tell whether the server, or one of several, has sent this error. Those from 2000 to 2999 are the driver's own."""
    if isinstance(error, NoHostError):
        return any(map(is_from_server, error.failures))
    return code_of(error) // 1000 != 2


def is_read_only(error: BaseException) -> bool:
    """Tell whether the server takes no writes. It has then refused this one, and nothing was written."""
    return code_of(error) in _READ_ONLY


def translated(error: BaseException, where: str) -> CheckpointError:
    """Make an error of Locus from an error of the driver."""
    code = code_of(error)
    if isinstance(error, NoHostError):
        return BackendUnavailableError(f"no server of MySQL at {where} takes writes: {error}")
    if code in _TOO_MUCH:
        return SerializationError(f"MySQL cannot hold a value: {_TOO_MUCH[code]} ({error})")
    if code in _CORRUPT:
        return CorruptCheckpointError(f"the tables at {where} are damaged, or not what they were: {error}")
    if code in _HINTS:
        kind = NotAllowedError if code in _NOT_GRANTED else BackendUnavailableError
        return kind(f"MySQL at {where} cannot be used, because {_HINTS[code]} ({error})")
    if code in _LOST:
        return BackendUnavailableError(f"MySQL at {where} cannot be reached, or ended the connection: {error}")
    return BackendUnavailableError(f"MySQL at {where} failed: {error}")
