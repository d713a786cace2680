"""The LOBs that a session has handed out, or that its client has made: Database SecureFiles and Large Objects Guide."""

from __future__ import annotations

from collections import OrderedDict

from tests.servers.oracle.answers import LOB_DATA, PARAMETER, Answer
from tests.servers.oracle.buffers import Writer
from tests.servers.oracle.calls import LobCall
from tests.servers.oracle.errors import OracleError
from tests.servers.oracle.types import BLOB, Locator
from tests.servers.oracle.values import restored, stored

GET_LENGTH, READ, TRIM, WRITE, CHUNK_SIZE = 0x1, 0x2, 0x20, 0x40, 0x4000
CREATE, OPEN, CLOSE, IS_OPEN = 0x110, 0x8000, 0x10000, 0x11000
CHUNK = 8132
MOST = 20_000
TEMPORARY, WIDE, BINARY = 0x01, 0x80, 0x01


class Lobs:
    """By their locators. A CLOB is kept as UTF-16, whose units its offsets and its length are counted in."""

    def __init__(self) -> None:
        self._contents: OrderedDict[bytes, bytearray] = OrderedDict()
        self._open: set[bytes] = set()
        self._last = 0

    def add(self, content: bytes, type_: int, temporary: bool = False) -> bytes:
        self._last += 1
        locator = bytearray(40)
        locator[0:4] = b"\x00\x26\x00\x01"
        locator[4] = BINARY if type_ == BLOB else 0
        locator[5] = 0x08
        locator[6] = 0 if type_ == BLOB else WIDE
        locator[7] = TEMPORARY if temporary else 0
        locator[16:24] = self._last.to_bytes(8, "big")
        made = bytes(locator)
        self._contents[made] = bytearray(content)
        while len(self._contents) > MOST:
            self._contents.popitem(last=False)
        return made

    def write_locator(self, writer: Writer, text: bytes | None, type_: int) -> None:
        """Of a value that PostgreSQL has sent."""
        if text is None:
            writer.u8(0)
            return
        content = self.packed(text, type_)
        locator = self.add(content, type_)
        writer.ub(len(locator), len(content) // (1 if type_ == BLOB else 2), CHUNK)
        writer.chunks(locator)

    @staticmethod
    def packed(text: bytes, type_: int) -> bytes:
        return bytes.fromhex(text[2:].decode()) if type_ == BLOB else restored(text.decode()).encode("utf-16-be")

    def value(self, locator: Locator) -> bytes:
        """What a bind stands for, as PostgreSQL reads it."""
        content = bytes(self._content(locator.data))
        if self._is_binary(locator.data):
            return b"\\x" + content.hex().encode()
        return stored(content.decode("utf-16-be", "replace")).encode()

    def free(self, locators: list[bytes]) -> None:
        for locator in locators:
            self._contents.pop(locator, None)

    def do(self, call: LobCall, answer: Answer) -> None:
        locator, amount, shown = call.locator, call.amount, b""
        flag: int | None = None
        if call.operation == CREATE:
            locator = self.add(b"", call.type, temporary=True)
        elif call.operation == READ:
            data = self._read(call)
            amount = len(data) // self._unit(locator)
            if data:
                answer.writer.u8(LOB_DATA)
                answer.writer.chunks(data)
        elif call.operation == GET_LENGTH:
            amount = len(self._content(locator)) // self._unit(locator)
        elif call.operation == CHUNK_SIZE:
            amount = CHUNK
        elif call.operation in (WRITE, TRIM):
            self._change(call)
        else:
            flag = self._opened(call.operation, locator)
        answer.writer.u8(PARAMETER)
        answer.writer.raw(locator + shown)
        if call.operation == CREATE:
            answer.writer.ub(873)
            answer.writer.u8(0)
        elif amount is not None:
            answer.writer.ub(amount)
        if flag is not None:
            answer.writer.u8(flag)

    def _opened(self, operation: int, locator: bytes) -> int | None:
        self._content(locator)
        if operation == OPEN:
            self._open.add(locator)
        elif operation == CLOSE:
            self._open.discard(locator)
        elif operation == IS_OPEN:
            return int(locator in self._open)
        else:
            raise OracleError(3001, f"unimplemented feature: operation {operation} on a LOB")
        return None

    def _content(self, locator: bytes) -> bytearray:
        if locator not in self._contents:
            raise OracleError(22922, "nonexistent LOB value")
        return self._contents[locator]

    @staticmethod
    def _is_binary(locator: bytes) -> bool:
        return not locator[6] & WIDE

    def _unit(self, locator: bytes) -> int:
        return 1 if self._is_binary(locator) else 2

    def _read(self, call: LobCall) -> bytes:
        unit = self._unit(call.locator)
        start = (max(call.source_offset, 1) - 1) * unit
        return bytes(self._content(call.locator)[start : start + (call.amount or 0) * unit])

    def _change(self, call: LobCall) -> None:
        content, unit = self._content(call.locator), self._unit(call.locator)
        if not call.locator[7] & TEMPORARY:
            # Writing through a column's locator changes the column, if its row is locked: that is not emulated.
            raise OracleError(22920, "row containing the LOB value is not locked")
        if call.operation == TRIM:
            del content[(call.amount or 0) * unit :]
            return
        start = (max(call.source_offset, 1) - 1) * unit
        data = call.data or b""
        if len(content) < start:
            content += bytes(start - len(content))
        content[start : start + len(data)] = data
