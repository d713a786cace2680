"""Connections to PostgreSQL through psycopg, and the meaning of its errors."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import select
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncRawCursor, conninfo
from psycopg.abc import PQGen
from psycopg.adapt import Dumper
from psycopg.errors import Diagnostic
from psycopg.pq import ConnStatus, Format, TransactionStatus
from psycopg.rows import tuple_row
from psycopg.waiting import wait_async

from locus.errors import (
    BackendUnavailableError,
    CheckpointError,
    ConfigurationError,
    CorruptCheckpointError,
    SerializationError,
)
from locus.hints import did_you_mean
from locus.memory.backends.postgresql.config import PostgreSQLConfig
from locus.memory.backends.postgresql.schema import numbered
from locus.memory.backends.sql.engine import Connection, Trouble
from locus.memory.backends.sql.flavour import Row
from locus.memory.backends.sql.hosts import Hosts, NoHostError
from locus.memory.engine import NotAllowedError
from locus.memory.runtime.url import check_user

DRIVER_ERRORS = (psycopg.Error, OSError)
RV = TypeVar("RV")

CANCEL_SECONDS = 1.0
"""The time that the server has to confirm that it has ended a statement. Then its connection is closed."""

_WRITABLE = ("read-write", "primary")
"""The values of `target_session_attrs` that ask for the one server which takes writes."""

# Not READ WRITE: a standby would refuse that by a state that many other refusals have.
_BEGIN = {
    True: "BEGIN ISOLATION LEVEL READ COMMITTED",
    False: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
}


class RawConnection(AsyncConnection[tuple[Any, ...]]):
    """psycopg's connection, which does not wait for a silent server when its caller is cancelled.

    psycopg itself waits for ten seconds, and earlier versions of it (3.2.1) until the server answers.
    """

    async def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        limit = {} if timeout is None else {"timeout": timeout}
        try:
            return await wait_async(gen, self.pgconn.socket, interval=interval, **limit)
        except (asyncio.CancelledError, KeyboardInterrupt):
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                await self._end_statement(gen)
            raise

    async def _end_statement(self, gen: PQGen[Any]) -> None:
        try:
            async with asyncio.timeout(2 * CANCEL_SECONDS):
                await self.cancel_safe(timeout=CANCEL_SECONDS)
                await wait_async(gen, self.pgconn.socket, interval=0.1)
        except psycopg.errors.QueryCanceled:
            pass
        except DRIVER_ERRORS:
            self.pgconn.finish()


@dataclass(frozen=True)
class Connector:
    """Opens connections. The parameters are libpq's own; they may hold the password."""

    parameters: dict[str, Any] = field(repr=False)
    connect_timeout: float
    command_timeout: float
    prepared_statements: bool
    hosts: Hosts[Mapping[str, str]] | None = field(default=None, repr=False)
    """The servers that the parameters name, if they ask for the one which takes writes."""

    @classmethod
    def from_config(cls, config: PostgreSQLConfig) -> Connector:
        if config.dsn is not None:
            parameters = parsed(config.dsn.get_secret_value())
        else:
            parameters = {"host": config.host, "port": config.port, "dbname": config.database, "user": config.user}
            if config.password.get_secret_value():
                parameters["password"] = config.password.get_secret_value()
        parameters.setdefault("application_name", "locus")
        hosts = None
        if len(named := _hosts(parameters)) > 1:
            sought = os.environ.get("PGTARGETSESSIONATTRS") or "read-write"
            hosts = Hosts(named) if parameters.setdefault("target_session_attrs", sought) in _WRITABLE else None
        seconds = float(parameters.pop("connect_timeout", config.connect_timeout))
        return cls(parameters, seconds, config.command_timeout, config.prepared_statements, hosts)

    def __str__(self) -> str:
        """The host and the database, for messages, without secrets."""
        return f"{','.join(map(_place, _hosts(self.parameters)))}/{self.parameters.get('dbname', '')}"

    async def connect(self) -> PostgreSQLConnection:
        if self.hosts is not None:
            return await self.hosts.first_usable(
                self._open,
                self.connect_timeout,
                DRIVER_ERRORS,
                lambda host, error: first_line(error) or f"{_place(host)} does not answer",
                lambda error: trouble_of(error) is Trouble.FINAL,
            )
        async with asyncio.timeout(self.connect_timeout):
            return await self._open({})

    async def _open(self, host: Mapping[str, str]) -> PostgreSQLConnection:
        # psycopg counts whole seconds, for each of several hosts; the limit for all of them together is the caller's.
        number = 1 if host else len(_hosts(self.parameters))
        raw = await RawConnection.connect(
            **{**self.parameters, **host},
            autocommit=True,
            prepare_threshold=5 if self.prepared_statements else None,
            connect_timeout=max(2, math.ceil(self.connect_timeout / number)),
        )
        return PostgreSQLConnection(raw, self.command_timeout)


_PLACE = ("host", "hostaddr", "port")


def _hosts(parameters: Mapping[str, Any]) -> list[Mapping[str, str]]:
    """The address of each server that the parameters name, in libpq's own words."""
    lists = {name: str(parameters[name]).split(",") for name in _PLACE if parameters.get(name)}
    if not lists.keys() & {"host", "hostaddr"}:
        # What libpq finds elsewhere (a service, PGHOST) is its own affair.
        return [{"host": str(parameters.get("service") or "localhost"), "port": str(parameters.get("port", ""))}]
    number = max(len(lists.get(name, ())) for name in ("host", "hostaddr"))
    if len(lists.get("port", ())) == 1:
        lists["port"] *= number
    if any(len(values) != number for values in lists.values()):
        raise ConfigurationError("the dsn has to name as many ports as hosts, or one port for all of them")
    return [{name: values[place] for name, values in lists.items()} for place in range(number)]


def _place(host: Mapping[str, str]) -> str:
    port = host.get("port", "")
    return f"{host.get('host') or host.get('hostaddr') or 'localhost'}{':' if port else ''}{port}"


def parsed(dsn: str) -> dict[str, Any]:
    """Parse a connection string. The error does not repeat it, because it may hold a password."""
    refusal = (
        "dsn is no connection string that libpq understands: write "
        "postgresql://user:password@host:5432/database?sslmode=require, and percent-encode what is special in it"
    )
    if dsn.startswith(("postgresql://", "postgres://")):
        check_user(dsn, refusal)
    parameters: dict[str, Any] | None = None
    # Its error may quote a part of the password, and is gone before another one is raised.
    with contextlib.suppress(psycopg.Error, ValueError):
        parameters = conninfo.conninfo_to_dict(dsn)
    if parameters is None:
        _check_names(dsn)
        raise ConfigurationError(refusal)
    return {name: value for name, value in parameters.items() if value is not None}


def _check_names(dsn: str) -> None:
    """Raise an error that names an unknown option after the question mark, if there is one."""
    query = dsn.partition("?")[2]
    # A question mark may also stand in a password, and this be the rest of it.
    if not dsn.startswith("postgres") or "@" in query:
        return
    # `ssl` is not among them, but libpq takes it, as in URLs of other drivers.
    libpq = ["ssl", *(option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults())]
    for name in (pair.partition("=")[0] for pair in query.split("&")):
        if name in PostgreSQLConfig.model_fields and name not in libpq:
            raise ConfigurationError(f"{name} is no option of libpq, which reads the dsn: give it by keyword")
        if name.isidentifier() and name not in libpq:
            near = did_you_mean(name, [*PostgreSQLConfig.model_fields, *libpq])
            raise ConfigurationError(
                f"the URL of a PostgreSQL server has no option {name!r:.80}{near}; there are those of "
                "PostgreSQLBackend and of libpq"
            )


class StatementTimeout:
    """Ends a statement that takes too long: asks the server to cancel it, and hangs up if that does not help.

    Cancelling the task that waits would do so as well, but then psycopg waits ten seconds more for a silent server.
    """

    def __init__(self, raw: RawConnection, seconds: float) -> None:
        self._raw = raw
        self._timer = asyncio.get_running_loop().call_later(seconds, self._expire)
        self._ending: asyncio.Task[None] | None = None

    @property
    def has_expired(self) -> bool:
        return self._ending is not None

    def _expire(self) -> None:
        self._ending = asyncio.get_running_loop().create_task(self._end_statement())

    async def _end_statement(self) -> None:
        with contextlib.suppress(*DRIVER_ERRORS):
            await self._raw.cancel_safe(timeout=CANCEL_SECONDS)
            await asyncio.sleep(0.5)
        with contextlib.suppress(*DRIVER_ERRORS), socket.socket(fileno=os.dup(self._raw.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        """Stop the timer, because the statement is over."""
        self._timer.cancel()
        if self._ending is not None:
            self._ending.cancel()


@lru_cache(maxsize=512)
def _encoded(statement: str) -> bytes:
    return numbered(statement).encode()


def _listener(line: int) -> Callable[[], bool]:
    """Make a function that tells whether there is something to read."""
    if not hasattr(select, "poll"):
        return lambda: bool(select.select([line], [], [], 0)[0])
    waiting = select.poll()
    waiting.register(line, select.POLLIN)
    return lambda: bool(waiting.poll(0))


class JSONArray(NamedTuple):
    """An array of JSON texts for a parameter of the type `json[]` or `jsonb[]`. None is NULL."""

    kind: str
    """The type of its elements."""
    texts: Sequence[str | None]


class _JSONArrayDumper(Dumper):
    """Writes an array in binary: nothing has to be escaped here, nor looked for there, which takes half of the time."""

    format = Format.BINARY
    _ELEMENTS: ClassVar = {"json": (114, b""), "jsonb": (3802, b"\x01")}
    """The numbers of the types, which never change, and what each element begins with: the version of its notation."""

    def dump(self, obj: JSONArray) -> bytes:
        number, version = self._ELEMENTS[obj.kind]
        parts = [struct.pack("!5i", 1, None in obj.texts, number, len(obj.texts), 1)]
        for text in obj.texts:
            if text is None:
                parts.append(_NULL)
            else:
                data = text.encode()
                parts += (struct.pack("!i", len(version) + len(data)), version, data)
        return b"".join(parts)


_NULL = struct.pack("!i", -1)


class NotReplicatedError(psycopg.OperationalError):
    """A commit is on this server, and its synchronous standby has not confirmed it."""


class ReplicationWaits:
    """Notices when the server stops waiting for its synchronous standby.

    The server does so when a statement is cancelled while its commit waits. It says so in a warning, and answers as if
    all were well. This is a class of its own, because a connection must not refer to itself.
    """

    ended = False

    def note(self, warning: Diagnostic) -> None:
        # Its text is in the server's language, and its SQLSTATE that of any warning.
        if warning.source_function == "SyncRepWaitForLSN":
            self.ended = True


class PostgreSQLConnection(Connection):
    def __init__(self, raw: RawConnection, seconds: float) -> None:
        self.raw = raw
        self._seconds = seconds
        self._cursor = AsyncRawCursor(raw, row_factory=tuple_row)
        self._cursor.adapters.register_dumper(JSONArray, _JSONArrayDumper)
        self._can_read: Callable[[], bool] | None = None
        self._waits = ReplicationWaits()
        raw.add_notice_handler(self._waits.note)

    def let_go(self) -> None:
        """Leave a caller's connection as it was."""
        self.raw.remove_notice_handler(self._waits.note)

    async def execute(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        cursor, timeout = self._cursor, StatementTimeout(self.raw, self._seconds)
        try:
            await cursor.execute(_encoded(statement), values)
            # `description` would describe every column first.
            result = cursor.pgresult
            rows: list[Row] = list(await cursor.fetchall()) if result is not None and result.nfields else []
        except psycopg.Error as error:
            if timeout.has_expired:
                self.close()
                raise self._too_long() from error
            if error.sqlstate == READ_ONLY:
                self.close()
            raise
        finally:
            timeout.stop()
        if self._waits.ended:
            self.close()
            raise NotReplicatedError("no synchronous standby has confirmed what was written")
        if timeout.has_expired:
            # The server was asked to cancel it, and that may still reach the next statement.
            self.close()
            raise self._too_long()
        return rows

    def _too_long(self) -> TimeoutError:
        return TimeoutError(f"a statement took longer than command_timeout, {self._seconds:g} s")

    async def begin(self, writing: bool) -> None:
        await self.execute(_BEGIN[writing])

    async def commit(self) -> None:
        await self.execute("COMMIT")

    async def rollback(self) -> None:
        await self.execute("ROLLBACK")

    def in_transaction(self) -> bool:
        return self.raw.pgconn.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR)

    def is_usable(self) -> bool:
        raw = self.raw.pgconn
        if raw.status != ConnStatus.OK or raw.transaction_status != TransactionStatus.IDLE:
            return False
        # A server that ends a session says so first: on an idle connection there is nothing else to read.
        self._can_read = self._can_read or _listener(raw.socket)
        return not self._can_read()

    def close(self) -> None:
        """Close the connection at once. psycopg's own `close` needs no event loop either, but is a coroutine."""
        self.raw.pgconn.finish()


READ_ONLY = "25006"
NOT_GRANTED = "42501"
_UNREACHABLE = ("08", "57P01", "57P02", "57P03", "57P05", "53300")
_REFUSED = ("28", "3D", NOT_GRANTED)
_HINTS = {
    "53100": "its disk is full",
    "53200": "it is out of memory",
    "53300": "it has no connection left: lower max_pool_size, raise max_connections, or put PgBouncer in between",
    READ_ONLY: "it is read-only: connect to the primary, with target_session_attrs=read-write among several hosts",
    "28": "it does not let this user in: check user, password and pg_hba.conf",
    "3D": "the database is not there: create it, or name another",
    NOT_GRANTED: "the user may not do that: see the page on PostgreSQL for what has to be granted",
    "55P03": "another transaction holds a lock for too long",
    "57014": "a statement was cancelled, or took longer than the server's statement_timeout",
}
_CORRUPT = {"22023", "22P02", "42703", "42P01", "XX001", "XX002"}
# When a connection is refused, libpq tells the server's reason as text only.
_REASONS = {
    "the database system is": "57P03",  # starting up, shutting down, in recovery
    "too many clients": "53300",
    "remaining connection slots": "53300",
    "too many connections": "53300",
    "password authentication failed": "28",
    "no password supplied": "28",
    "pg_hba.conf": "28",
    'role "': "28",
    'database "': "3D",
}


def state_of(error: BaseException) -> str:
    """The SQLSTATE of an error, as far as it is known: "" for a connection that failed or broke."""
    if not isinstance(error, psycopg.Error):
        return ""
    if error.sqlstate is None and isinstance(error, psycopg.OperationalError):
        return next((state for words, state in _REASONS.items() if words in str(error)), "")
    return error.sqlstate or "?"


def has_answered(error: BaseException) -> bool:
    """Tell whether a server has sent this error, or one of several has."""
    if isinstance(error, NoHostError):
        return any(map(has_answered, error.failures))
    # libpq says this of a server that it has asked.
    return bool(state_of(error)) or "read-only" in str(error) or "hot standby" in str(error)


def first_line(error: BaseException) -> str:
    """The text of an error without the statement, and the arrow below it."""
    return str(error).strip().partition("\n")[0]


def trouble_of(error: BaseException) -> Trouble:
    if isinstance(error, TimeoutError | NotReplicatedError):
        return Trouble.FINAL
    state = state_of(error)
    if state in ("40001", "40P01"):
        return Trouble.ROLLED_BACK
    return Trouble.LOST if not state or state.startswith(_UNREACHABLE) else Trouble.FINAL


def translated(error: BaseException, connector: Connector) -> CheckpointError:
    """Make an error of Locus from an error of the driver. It repeats the server's text, and never the password."""
    state, text = state_of(error), first_line(error)
    password = connector.parameters.get("password")
    if password:
        text = text.replace(password, "***")
    if isinstance(error, NoHostError):
        return BackendUnavailableError(f"no server of PostgreSQL at {connector} takes writes: {text}")
    if isinstance(error, NotReplicatedError):
        return BackendUnavailableError(
            f"PostgreSQL at {connector} has what was written, but no synchronous standby has confirmed it, and a "
            "failover may lose it: see whether the standby is there"
        )
    if state in _CORRUPT:
        return CorruptCheckpointError(f"the tables at {connector} are damaged, or not what they were: {text}")
    if state.startswith(("22", "54")):
        return SerializationError(f"PostgreSQL cannot hold a value: {text}")
    hint = next((hint for start, hint in _HINTS.items() if state.startswith(start)), "")
    if hint:
        kind = NotAllowedError if state == NOT_GRANTED else BackendUnavailableError
        return kind(f"PostgreSQL at {connector} cannot be used, because {hint} ({text})")
    if not state or state.startswith(_UNREACHABLE):
        return BackendUnavailableError(f"PostgreSQL at {connector} cannot be reached, or ended the connection: {text}")
    return BackendUnavailableError(f"PostgreSQL at {connector} failed ({state}): {text}")
