"""Connections to Oracle Database, the binding of values, and the meaning of Oracle's errors.

The driver is python-oracledb in thin mode, so no Oracle client has to be installed. It encodes most values itself;
`prepared` and `input_sizes` are about those that need help. In an error, numbers with ORA- come from the server and
those with DPY- from the driver, which often puts one of its own before the server's.
"""

from __future__ import annotations

import asyncio
import contextlib
import encodings.idna  # noqa: F401 - host names need it, and a fork during its import would leave a child without it
import gc
import json
import re
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

from locus.errors import (
    BackendUnavailableError,
    CheckpointError,
    ConfigurationError,
    CorruptCheckpointError,
    SerializationError,
)
from locus.extras import require
from locus.memory.backends.oracle.config import OracleConfig
from locus.memory.backends.oracle.schema import JSONText, oracle_sql
from locus.memory.backends.sql.engine import Connection, Trouble, close_without_loop
from locus.memory.backends.sql.flavour import Row
from locus.memory.engine import NotAllowedError

oracledb: Any = require("oracledb", "oracle")

T = TypeVar("T")

SESSION = "ALTER SESSION SET NLS_SORT = BINARY NLS_COMP = BINARY"
"""Makes ids equal only if their bytes are, whatever the database's default is."""


class Connector:
    """Opens connections to the database that a configuration names."""

    def __init__(self, config: OracleConfig) -> None:
        # The configuration itself is not kept: it may be the backend that owns this connector.
        self.address = config.address
        self.secrets = config.secrets
        """The texts that no error may show."""
        self._parameters = config.driver_parameters()
        self._connect_timeout = config.connect_timeout
        self._command_timeout = config.command_timeout

    async def connect(self) -> OracleConnection:
        raw = await self._open()
        connection = OracleConnection(raw, self._command_timeout)
        try:
            await connection.execute(SESSION)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _open(self) -> Any:
        try:
            async with asyncio.timeout(self._connect_timeout):
                return await oracledb.connect_async(**self._parameters)
        except TimeoutError as error:
            raise ConnectionError(f"no connection within connect_timeout, {self._connect_timeout:g} s") from error
        except oracledb.Error as error:
            wrong = misconfigured(error, self.address, self.secrets)
            if wrong is None:
                raise
        raise wrong  # without the driver's error behind it, which quotes the dsn


READ_ONLY = "SET TRANSACTION READ ONLY"
GRACE_SECONDS = 1.0
"""The time that the server has to stop a statement that took too long, before the connection is given up."""
FETCHED_AT_ONCE = 500


class OracleConnection(Connection):
    """A connection of the driver, `raw`. A statement may take `seconds`. The last one wrote `changed` rows."""

    def __init__(self, raw: Any, seconds: float) -> None:
        self.raw = raw
        self.changed = 0
        self._seconds = seconds
        self._begun = False
        self._loop = asyncio.get_running_loop()
        self._transport = _transport_of(raw)

    @property
    def version(self) -> str:
        """The version of the server."""
        return str(self.raw.version)

    async def execute(self, statement: str, values: Sequence[Any] = (), *, commit: bool = False) -> list[Row]:
        """Run a statement and return its rows. `commit` commits it in the same round trip if it succeeds."""
        rows = await self._call(self._execute(oracle_sql(statement), values, commit))
        self._begun = self._begun and not commit
        return rows

    async def _execute(self, text: str, values: Sequence[Any], commit: bool) -> list[Row]:
        rows: list[Row] = []
        pieces = batches(text, values if isinstance(values, BindRows) else [values])
        for number, (statement, given) in enumerate(pieces, 1):
            self.raw.autocommit = commit and number == len(pieces)
            with self.raw.cursor() as cursor:
                cursor.arraysize = FETCHED_AT_ONCE
                sizes = input_sizes(given, oracledb.DB_TYPE_JSON)
                if any(sizes):
                    cursor.setinputsizes(*sizes)
                bound = [[await self._bound(value, cursor) for value in row] for row in given]
                if isinstance(values, BindRows):
                    await cursor.executemany(statement, bound)
                else:
                    await cursor.execute(statement, bound[0])
                    rows = await _rows_of(cursor, values, bound[0])
                self.changed = cursor.rowcount
        return rows

    async def _bound(self, value: Any, cursor: Any) -> Any:
        if isinstance(value, DriverJSON):
            return value.value
        if isinstance(value, ServerJSON):
            return await self.raw.createlob(oracledb.DB_TYPE_CLOB, str(value))
        return cursor.var(int) if isinstance(value, OutBind) else value

    async def _call(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for the driver, but not forever, and not longer than the caller waits.

        When cancelled, the driver asks the server to stop, and waits for the answer, however long that takes. So it
        works in a task of its own, and loses its connection once nobody waits for it.
        """
        task = asyncio.ensure_future(work)
        try:
            done, _ = await asyncio.wait({task}, timeout=self._seconds)
            if not done:
                with contextlib.suppress(Exception):
                    self.raw.cancel()  # if the server stops in time, the connection remains usable
                await asyncio.wait({task}, timeout=GRACE_SECONDS)
        finally:
            if not task.done():
                self.close()
                task.cancel()
                task.add_done_callback(_ignore_result)
        if not done and (not task.done() or task.cancelled() or task.exception() is not None):
            raise TimeoutError(f"a statement took longer than command_timeout, {self._seconds:g} s")
        return task.result()

    async def begin(self, writing: bool) -> None:
        """Begin a transaction. One that writes begins by itself."""
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
        """Close the connection as if the network had failed: the driver's `terminate` must not run while it works."""
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
        await asyncio.sleep(0)  # for the transport to release its socket


async def _rows_of(cursor: Any, values: Sequence[Any], bound: Sequence[Any]) -> list[Row]:
    """The rows of a statement that was run: those that it found, or the value of its `OutBind`."""
    if cursor.description:
        rows = list(await cursor.fetchall())
        # Only the tables of other programs have CLOBs.
        if any(column[1] is oracledb.DB_TYPE_CLOB for column in cursor.description):
            return [[await _read_lob(value) for value in row] for row in rows]
        return rows
    places = [at for at, value in enumerate(reversed(values)) if isinstance(value, OutBind)]
    return [(bound[-1 - at].getvalue()[0],) for at in places]


async def _read_lob(value: Any) -> Any:
    return await value.read() if isinstance(value, oracledb.AsyncLOB) else value


def _transport_of(raw: Any) -> asyncio.Transport | None:
    """Find the transport of a connection of the driver, or return None.

    No attribute leads to it, so it is looked for among the objects that the connection refers to.
    """
    owned = [raw._impl]
    for _ in range(3):
        owned = [below for above in owned for below in gc.get_referents(above)]
        transport = next((below for below in owned if isinstance(below, asyncio.Transport)), None)
        if transport is not None:
            return transport
        owned = [below for below in owned if type(below).__module__ == "oracledb.thin_impl"]
    return None


def _ignore_result(task: asyncio.Future[Any]) -> None:
    """Retrieve the exception of a task for which nobody waits any more."""
    if not task.cancelled():
        task.exception()


OLDEST = 21
"""The first version with JSON columns."""


def check_version(version: str, where: str) -> None:
    major = version.partition(".")[0]
    if not major.isdigit() or int(major) < OLDEST:
        raise ConfigurationError(
            f"the database at {where} is version {version}, and {OLDEST}c or later, with compatible at 20 or higher, "
            "is needed: older ones have no JSON columns"
        )


class BindRows(list[Sequence[Any]]):
    """Values for a statement that runs once for each row of them, in one round trip."""


class OutBind:
    """Stands for the value that a statement returns `INTO`. That value becomes the statement's only row."""


class DriverJSON(NamedTuple):
    """A JSON value that the driver encodes."""

    value: Any


class ServerJSON(str):
    """A JSON value that the server parses, from a temporary LOB.

    The driver's encoder is quadratic in the number of objects and lists (7 s for 800), because each of them makes its
    buffer grow by a chunk, whether needed or not.
    """

    __slots__ = ()


MOST_CONTAINERS = 24
"""The number of objects and lists up to which the driver encodes a JSON value; see `ServerJSON`."""


def prepared(value: Any) -> Any:
    """Convert a value to its bind, except that the LOB of a `ServerJSON` has yet to be created."""
    if not isinstance(value, JSONText):
        return value
    if value.count("{") + value.count("[") > MOST_CONTAINERS:  # some of them may be in strings
        decoded = json.loads(value)
        return DriverJSON(decoded) if has_at_most(decoded, MOST_CONTAINERS) else ServerJSON(value)
    return DriverJSON(json.loads(value))


def has_at_most(value: Any, containers: int) -> bool:
    """Tell whether a JSON value has no more objects and lists than that."""
    waiting, count = [value], 0
    while waiting and count <= containers:
        node = waiting.pop()
        if isinstance(node, dict | list):
            count += 1
            waiting += node.values() if isinstance(node, dict) else node
    return count <= containers


Batch = tuple[str, list[list[Any]]]
"""A statement with the values of all rows that it runs for."""


def batches(text: str, rows: Sequence[Sequence[Any]]) -> list[Batch]:
    """Split the rows of a statement into batches whose values are all bound in the same way."""
    alike: dict[tuple[int, ...], list[list[Any]]] = {}
    for row in rows:
        values = [prepared(value) for value in row]
        as_text = tuple(at for at, value in enumerate(values) if isinstance(value, ServerJSON))
        alike.setdefault(as_text, []).append(values)
    return [(_with_parsing(text, as_text), group) for as_text, group in alike.items()]


def _with_parsing(text: str, places: Sequence[int]) -> str:
    """Add the parsing of JSON to a statement for the values in these places."""
    for at in places:
        text = re.sub(rf":{at + 1}\b", f"JSON(:{at + 1})", text, count=1)
    return text


LONGEST_TEXT = 1_000
"""The longest text, in bytes, that needs no declaration; see `input_sizes`."""


def input_sizes(rows: Sequence[Sequence[Any]], json_type: Any) -> list[Any]:
    """The declarations of a statement's binds for the driver; None where it needs none.

    By itself it declares four times the bytes of a text. A bind declared with more than 4,000 bytes is a LONG, which
    cannot be compared (ORA-01461). Told a number of characters, the driver declares four bytes for each of them.
    """
    sizes: list[Any] = [json_type if isinstance(value, DriverJSON) else None for value in rows[0]]
    for row in rows:
        for at, value in enumerate(row):
            if type(value) is str and len(value) * 4 > LONGEST_TEXT:
                sizes[at] = max(sizes[at] or 0, len(value))
    return sizes


DRIVER_ERRORS: tuple[type[BaseException], ...] = (oracledb.Error, OSError)

DUPLICATE, NO_PARENT = "ORA-00001", "ORA-02291"
NO_TABLE, NO_COLUMN, NO_PRIVILEGE = "ORA-00942", "ORA-00904", "ORA-01031"

_ROLLED_BACK = {DUPLICATE, NO_PARENT, "ORA-00060", "ORA-08177"}
"""Errors of a transaction that another one has beaten (a key exists, a row is gone), or that a deadlock has ended."""
_LOST = {
    "DPY-1001", "DPY-4011", "DPY-4033", "DPY-6000", "DPY-6001", "DPY-6003", "DPY-6005",
    "ORA-00018", "ORA-00020", "ORA-00028", "ORA-01012", "ORA-01033", "ORA-01034", "ORA-01089", "ORA-01090",
    "ORA-01092", "ORA-02391", "ORA-02396", "ORA-03113", "ORA-03114", "ORA-03135", "ORA-12153", "ORA-12170",
    "ORA-12203", "ORA-12514", "ORA-12516", "ORA-12518", "ORA-12519", "ORA-12520", "ORA-12528", "ORA-12537",
    "ORA-12541", "ORA-12543", "ORA-12547", "ORA-12570", "ORA-12571", "ORA-12757", "ORA-25408",
}  # fmt: skip
_LOCKED = {"ORA-00054", "ORA-04021", "ORA-30006"}
_HINTS = {
    "ORA-01017": "it does not let this user in: check user and password",
    "ORA-01005": "it does not let this user in: no password was given",
    "DPY-4001": "it does not let this user in: no password was given",
    "ORA-01045": "this user may not log on: GRANT CREATE SESSION",
    "ORA-28000": "the user's account is locked: have it unlocked, and its password checked",
    "ORA-28001": "the user's password has expired: have it changed",
    "ORA-28759": "the wallet cannot be opened: check wallet_location",
    "ORA-01031": "the user may not do that: see the page on Oracle for what has to be granted",
    "ORA-01536": "the user's quota of disk space is used up: raise it",
    "ORA-01950": "the user has no quota of disk space: ALTER USER … QUOTA UNLIMITED ON its tablespace",
    "ORA-01652": "a tablespace is full",
    "ORA-01653": "a tablespace is full: add or extend a data file",
    "ORA-01654": "a tablespace is full: add or extend a data file",
    "ORA-01658": "a tablespace is full: add or extend a data file",
    "ORA-01691": "a tablespace is full: add or extend a data file",
    "ORA-01692": "a tablespace is full: add or extend a data file",
    "ORA-30036": "its undo tablespace is full",
    "ORA-00257": "its archiver is stuck: its recovery area is full",
    "ORA-16000": "it is open for reading only: connect to the primary",
    "ORA-00020": "it has no process left: lower max_pool_size, or raise processes",
    "ORA-00018": "it has no session left: lower max_pool_size, or raise sessions",
    "ORA-02391": "the user has no session left: lower max_pool_size, or raise sessions_per_user",
    "ORA-00054": "another transaction holds a lock for too long",
    "ORA-04021": "another transaction holds a lock for too long",
    "ORA-30006": "another transaction holds a lock for too long",
    "ORA-00060": "transactions got into each other's way again and again",
    "ORA-08177": "transactions got into each other's way again and again",
    "DPY-4024": "a statement took longer than command_timeout",
    "DPY-6001": "it does not know this service: check service_name, or wait until the database is open",
    "DPY-6003": "it does not know this SID: give a service_name",
    "ORA-40467": "the JSON search index is not there: run what OracleBackend.ddl() says about it",
    "ORA-29861": "the JSON search index is unusable: have it dropped, and run what OracleBackend.ddl() says about it",
}
_TOO_MUCH = {
    "ORA-12899": "a text is too long for its column",
    "ORA-01461": "a text is too long for its column",
    "ORA-40478": "it is larger than the 32 MB that a JSON column holds",
    "ORA-40591": "it is larger than the 32 MB that a JSON column holds",
    "DPY-3020": "a key is too long",
}
_CORRUPT = {NO_TABLE, NO_COLUMN, "ORA-01578", "ORA-08103", "ORA-01410", "DPY-3019", "DPY-3021", "DPY-5004"}
_MISCONFIGURED = {
    "DPY-4000": "the TNS alias is in no tnsnames.ora: check dsn and config_dir",
    "DPY-4026": "tnsnames.ora cannot be read: config_dir (or wallet_location) is the folder that it is in",
    "DPY-4027": "dsn is a TNS alias, and config_dir (or wallet_location) has to say where its tnsnames.ora is",
    "DPY-4017": "dsn cannot be understood",
    "DPY-4018": "dsn cannot be understood",
    "DPY-4021": "the protocol is tcp or tcps",
    "DPY-2018": "a file of the wallet is missing: wallet_location is the folder with ewallet.pem",
    "DPY-2049": "dsn names no address",
    "DPY-2053": "this program has called init_oracle_client(), and in thick mode the driver cannot be async",
    "DPY-3010": "it is too old: 21c or later is needed",
    "DPY-3040": "its character set is none that the driver knows",
    "DPY-6002": "its certificate is for another server",
}


_CODE = re.compile(r"^((?:ORA-[0-9]{5}|DPY-[0-9]{4})):", re.MULTILINE)


def codes_of(error: BaseException) -> list[str]:
    """The numbers of an error, each before the one that explains it; none for an error of the operating system."""
    if not isinstance(error, oracledb.Error) or not error.args:
        return []
    code = getattr(error.args[0], "code", 0)
    return [*_CODE.findall(str(error)), *([f"ORA-{code:05}"] if code else [])]


def has_code(error: BaseException, *codes: str) -> bool:
    return not set(codes).isdisjoint(codes_of(error))


def message_of(error: BaseException) -> str:
    """The first three lines of an error's text, without the addresses of help pages."""
    lines = [line for line in str(error).splitlines() if line and not line.startswith("Help: ")]
    return "; ".join(lines[:3])


def trouble_of(error: BaseException) -> Trouble:
    if isinstance(error, TimeoutError):
        return Trouble.FINAL
    codes = codes_of(error)
    if not _ROLLED_BACK.isdisjoint(codes):
        return Trouble.ROLLED_BACK
    # The lock may be released soon, but twenty attempts of many seconds each would be too long to wait for it.
    return Trouble.LOST if not codes or not (_LOST | _LOCKED).isdisjoint(codes) else Trouble.FINAL


def _hint(table: dict[str, str], codes: list[str]) -> str:
    """The hint of a table for the last code that it has; "" if it has none."""
    return next((table[code] for code in reversed(codes) if code in table), "")


def _masked(error: BaseException, secrets: Sequence[str]) -> str:
    """The text of an error without anything secret."""
    text = message_of(error)
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def misconfigured(error: BaseException, where: str, secrets: Sequence[str] = ()) -> ConfigurationError | None:
    """Make the error for options that cannot work, whatever the server does; None if the error is of another kind."""
    hint = _hint(_MISCONFIGURED, codes_of(error))
    if not hint:
        return None
    return ConfigurationError(f"Oracle Database at {where} cannot be used: {hint} ({_masked(error, secrets)})")


def translated(error: BaseException, where: str, secrets: Sequence[str]) -> CheckpointError:
    """Make an error of Locus from an error of the driver. It shows the server's text, but never a password."""
    text = _masked(error, secrets)
    codes = codes_of(error)
    too_much, hint = _hint(_TOO_MUCH, codes), _hint(_HINTS, codes)
    if too_much:
        return SerializationError(f"Oracle Database cannot hold a value: {too_much} ({text})")
    if not _CORRUPT.isdisjoint(codes):
        return CorruptCheckpointError(f"the tables at {where} are damaged, or not what they were: {text}")
    if hint:
        kind = NotAllowedError if NO_PRIVILEGE in codes else BackendUnavailableError
        return kind(f"Oracle Database at {where} cannot be used, because {hint} ({text})")
    if trouble_of(error) is Trouble.LOST:
        return BackendUnavailableError(
            f"Oracle Database at {where} cannot be reached, or ended the connection: {text or type(error).__name__}"
        )
    return BackendUnavailableError(f"Oracle Database at {where} failed: {text or type(error).__name__}")
