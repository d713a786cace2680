"""The messages of a request, read: their fields are those that the driver writes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from tests.servers.oracle import lexer
from tests.servers.oracle.answers import FIELD_VERSION
from tests.servers.oracle.buffers import Reader
from tests.servers.oracle.calls import (
    COMMIT,
    LOGOFF,
    PING,
    PIPELINE_END,
    ROLLBACK,
    Call,
    Execute,
    Fetch,
    KnownCursor,
    LobCall,
    Logon,
    Option,
    Simple,
)
from tests.servers.oracle.errors import OracleError
from tests.servers.oracle.types import Bind, Value

FUNCTION, ROW_DATA, PIGGYBACK, FAST_LOGON = 3, 7, 17, 34
LOGON_ONE, LOGON_TWO = 118, 115
REEXECUTE, FETCH, REEXECUTE_AND_FETCH, EXECUTE, LOB = 4, 5, 78, 94, 96
CLOSE_CURSORS, ATTRIBUTES, SET_SCHEMA, SESSION_STATE, PIPELINE_BEGIN = 105, 135, 152, 176, 199
SIMPLE = {COMMIT, ROLLBACK, PING, LOGOFF}
TOKEN_VERSION = 18
ARRAY = 0x40
LOB_CREATE, LOB_WRITE = 0x110, 0x40
LOCATOR_SIZE = 40


@lru_cache(maxsize=2000)
def read_statement(text: str) -> lexer.Statement | OracleError:
    try:
        return lexer.read(text)
    except OracleError as error:
        return error


def read_fast_logon(reader: Reader) -> Logon:
    """Three messages in one: the protocol, the forms of the data types, and the log-on's first half."""
    if reader.u8() != FAST_LOGON:
        raise OracleError(3120, "two-task conversion routine: integer overflow")
    reader.raw(6)
    reader.until_zero()
    reader.raw(5)
    version = reader.u8()
    reader.raw(6)
    reader.chunks()
    reader.chunks()
    while reader.u16():
        if reader.u16():
            reader.raw(4)
    reader.raw(3)
    if version >= TOKEN_VERSION:
        reader.ub()
    return _logon(reader)


def read_call(reader: Reader, known: Mapping[int, KnownCursor]) -> Call:
    call = Call(Simple(0))
    while (kind := reader.u8()) == PIGGYBACK:
        code = reader.u8()
        reader.u8()
        reader.ub()
        _piggyback(reader, code, call)
    if kind != FUNCTION:
        raise OracleError(3115, f"unsupported network message ({kind})")
    code = reader.u8()
    reader.u8()
    call.token = reader.ub() if FIELD_VERSION >= TOKEN_VERSION else 0
    call.body = _body(reader, code, known)
    return call


def _body(reader: Reader, code: int, known: Mapping[int, KnownCursor]) -> Logon | Execute | Fetch | LobCall | Simple:
    if code == EXECUTE:
        return _execute(reader, known)
    if code in (REEXECUTE, REEXECUTE_AND_FETCH):
        return _reexecute(reader, known, fetch=code == REEXECUTE_AND_FETCH)
    if code == FETCH:
        return Fetch(reader.ub(), reader.ub())
    if code == LOB:
        return _lob(reader)
    if code in (LOGON_ONE, LOGON_TWO):
        return _logon(reader)
    if code == PIPELINE_END:
        reader.ub()
    elif code not in SIMPLE:
        raise OracleError(3001, f"unimplemented feature: function {code} of the protocol")
    return Simple(code)


def _logon(reader: Reader) -> Logon:
    has_user = reader.u8()
    reader.ub()
    reader.ub()
    reader.u8()
    count = reader.ub()
    reader.raw(2)
    user = (reader.chunks() or b"").decode() if has_user else ""
    pairs = {}
    for _ in range(count):
        key = reader.counted().decode()
        pairs[key] = reader.counted().decode()
        reader.ub()
    return Logon(user, pairs)


def _piggyback(reader: Reader, code: int, call: Call) -> None:
    if code == CLOSE_CURSORS:
        reader.u8()
        call.closed += [reader.ub() for _ in range(reader.ub())]
    elif code == SET_SCHEMA:
        reader.u8()
        call.schema = reader.counted().decode()
    elif code == ATTRIBUTES:
        _attributes(reader)
    elif code == SESSION_STATE:
        reader.ub()
    elif code == PIPELINE_BEGIN:
        reader.ub()
        reader.u8()
        call.pipeline = reader.u8()
    elif code == LOB:
        call.freed += _freed(reader)
    else:
        raise OracleError(3001, f"unimplemented feature: piggyback {code} of the protocol")


def _attributes(reader: Reader) -> None:
    """The names of a module, an action and so on, which nobody asks this server for."""
    reader.raw(2)
    reader.ub()
    sizes = [(reader.u8(), reader.ub()) for _ in range(4)]
    reader.u8()
    reader.ub()
    sizes += [(reader.u8(), reader.ub()) for _ in range(4)]
    for told, size in sizes:
        if told and size:
            reader.chunks()


def _freed(reader: Reader) -> list[bytes]:
    reader.u8()
    total = reader.ub()
    reader.u8()
    reader.ub(), reader.ub(), reader.ub()
    reader.raw(3)
    reader.ub()
    reader.u8()
    reader.ub(), reader.ub(), reader.ub()
    reader.u8()
    for _ in range(3):
        reader.u8()
        reader.ub()
    return [reader.raw(LOCATOR_SIZE) for _ in range(total // LOCATOR_SIZE)]


def _execute(reader: Reader, known: Mapping[int, KnownCursor]) -> Execute:
    options, cursor = reader.ub(), reader.ub()
    has_text = reader.u8()
    reader.ub()
    reader.u8(), reader.ub(), reader.raw(2), reader.ub()
    rows_wanted = reader.ub()
    reader.ub(), reader.u8()
    bind_count = reader.ub()
    reader.raw(6)
    define_count = reader.ub()
    reader.ub(), reader.raw(3), reader.ub(), reader.u8(), reader.ub(), reader.ub()
    counts_wanted = bool(reader.u8())
    reader.ub(), reader.u8()
    reader.u8(), reader.ub(), reader.u8(), reader.ub(), reader.u8(), reader.u8(), reader.ub()
    text = (reader.chunks() or b"").decode() if has_text else None
    numbers = [reader.ub() for _ in range(13)]
    call = Execute(cursor, options, text, rows_wanted, counts_wanted=counts_wanted)
    statement = read_statement(text) if text is not None else known[cursor].statement if cursor in known else None
    if not isinstance(statement, lexer.Statement) or not statement.is_query:
        call.times = numbers[1]
    if define_count:
        call.defines = [_column(reader) for _ in range(define_count)]
    elif bind_count:
        call.binds = [_column(reader) for _ in range(bind_count)]
        returned = statement.returned if isinstance(statement, lexer.Statement) else set()
        block = isinstance(statement, lexer.Statement) and statement.is_block
        call.rows = _rows(reader, call.binds, returned, call.times, block)
    return call


def _reexecute(reader: Reader, known: Mapping[int, KnownCursor], fetch: bool) -> Execute:
    cursor, count, _, commit = reader.ub(), reader.ub(), reader.ub(), reader.ub()
    options = Option.EXECUTE | (Option.FETCH if fetch else 0) | (Option.COMMIT if commit & 1 else 0)
    call = Execute(cursor, options, None, count if fetch else 0, 1 if fetch else count)
    if cursor not in known:
        raise OracleError(1001, "invalid cursor")
    before = known[cursor]
    if before.binds:
        call.binds = before.binds
        call.rows = _rows(reader, before.binds, before.statement.returned, call.times, before.statement.is_block)
    return call


def _rows(reader: Reader, binds: list[Bind], returned: set[int], times: int, block: bool) -> list[list[Value]]:
    """Long values come after all others, whatever their place."""
    sent = [index for index in range(len(binds)) if index not in returned]
    order = sorted(sent, key=lambda index: binds[index].is_long and not block)
    rows = []
    for _ in range(times if sent else 0):
        if reader.u8() != ROW_DATA:
            raise OracleError(3115, "unsupported network message among the values")
        row: list[Value] = [None] * len(binds)
        for index in order:
            if binds[index].is_array:
                raise OracleError(3001, "unimplemented feature: arrays as binds")
            row[index] = binds[index].read(reader)
        rows.append(row)
    return rows or [[None] * len(binds) for _ in range(times)]


def _column(reader: Reader) -> Bind:
    type_, flags = reader.u8(), reader.u8()
    reader.raw(2)
    size = reader.ub()
    reader.ub(), reader.ub()
    if reader.ub():
        reader.chunks()
    reader.ub(), reader.ub()
    form = reader.u8()
    reader.ub(), reader.ub()
    return Bind(type_, form, size, bool(flags & ARRAY))


def _lob(reader: Reader) -> LobCall:
    reader.u8()
    length = reader.ub()
    reader.u8(), reader.ub(), reader.ub(), reader.ub(), reader.raw(3)
    operation = reader.ub()
    reader.raw(2)
    source_offset, type_ = reader.ub(), reader.ub()
    has_amount = reader.u8()
    reader.raw(6)
    locator = reader.raw(length)
    if operation == LOB_CREATE:
        reader.ub()
    data = None
    if operation == LOB_WRITE:
        reader.u8()
        data = reader.chunks() or b""
    amount = reader.ub() if has_amount else None
    return LobCall(operation, locator, source_offset, type_, amount, data)
