"""What the server tells the client: the messages of an answer, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from tests.servers.oracle.buffers import Writer
from tests.servers.oracle.errors import OracleError
from tests.servers.oracle.types import Column

PROTOCOL, DATA_TYPES, ERROR, ROW_DATA, PARAMETER, STATUS = 1, 2, 4, 7, 8, 9
IO_VECTOR, LOB_DATA, DESCRIBE, END_OF_RESPONSE, TOKEN = 11, 14, 16, 29, 33
TRANSACTION_IN_PROGRESS = 0x2
FIELD_VERSION = 24
"""Of 23.4 and later: it decides which fields the messages have."""
CHARACTER_SET, NATIONAL_CHARACTER_SET = 873, 2000
NO_DATA_FOUND, ARRAY_ERRORS = 1403, 24381


class Answer:
    def __init__(self, token: int = 0) -> None:
        self.writer = Writer()
        self.failed = False
        self._complete = False
        if token:
            self.writer.u8(TOKEN)
            self.writer.ub(token)

    def bytes(self) -> bytes:
        if not self._complete:
            self.status(False)
        self.writer.u8(END_OF_RESPONSE)
        return bytes(self.writer.data)

    def protocol(self) -> None:
        """What this server is capable of: AL32UTF8, and strings of 4000 bytes."""
        writer = self.writer
        writer.u8(PROTOCOL, 6, 0)
        writer.raw(b"Oracle stand-in\0")
        writer.raw(CHARACTER_SET.to_bytes(2, "little"))
        writer.u8(1, 0, 0)
        format_ = bytes(9) + NATIONAL_CHARACTER_SET.to_bytes(2, "big")
        writer.u16(len(format_))
        writer.raw(format_)
        compiled = bytearray(53)
        compiled[7] = FIELD_VERSION
        writer.chunks(bytes(compiled))
        writer.chunks(bytes(11))
        writer.u8(DATA_TYPES, 0, 0)

    def pairs(self, pairs: Sequence[tuple[str, str, int]]) -> None:
        self.writer.u8(PARAMETER)
        self.writer.ub(len(pairs))
        for key, value, flags in pairs:
            self.writer.text(key)
            self.writer.text(value)
            self.writer.ub(flags)

    def status(self, in_transaction: bool) -> None:
        self._complete = True
        self.writer.u8(STATUS)
        self.writer.ub(TRANSACTION_IN_PROGRESS if in_transaction else 0, 0)

    def describe(self, columns: Sequence[Column]) -> None:
        writer = self.writer
        writer.u8(DESCRIBE, 0)
        writer.ub(sum(column.size for column in columns), len(columns))
        if columns:
            writer.u8(0)
        for position, column in enumerate(columns):
            column.describe(writer, position)
        writer.ub(0, 0, 0, 0, 0, 0)

    def row_counts(self, counts: Sequence[int]) -> None:
        self.writer.u8(PARAMETER)
        self.writer.ub(0, 0, 0, 0, len(counts), *counts)

    def error(self, error: OracleError, in_transaction: bool = False) -> None:
        self.failed = True
        self.end(in_transaction, error=error)

    def end(
        self,
        in_transaction: bool,
        *,
        cursor: int = 0,
        row_count: int = 0,
        error: OracleError | None = None,
        batch: Sequence[tuple[int, OracleError]] = (),
    ) -> None:
        """How it went. Every answer of a statement ends like this."""
        writer = self.writer
        self._complete = True
        code = error.code if error else 0
        writer.u8(ERROR)
        writer.ub(TRANSACTION_IN_PROGRESS if in_transaction else 0, 0, 0, code & 0xFFFF, 0, 0, cursor)
        writer.sb(min(error.position, 32767) if error else 0)
        writer.u8(0, 0, 0, 0, 0, 0)
        writer.ub(0, 0)
        writer.u8(0)
        writer.ub(0, 0)
        writer.ub(0)
        writer.u8(0, 0)
        writer.ub(0, 0, 0)
        self._batch(batch)
        writer.ub(code, row_count, 0, 0)
        if error:
            writer.chunks(error.text.encode())

    def _batch(self, batch: Sequence[tuple[int, OracleError]]) -> None:
        """The errors of single rows: their codes, their rows and their texts."""
        writer = self.writer
        for numbers in ([error.code for _, error in batch], [offset for offset, _ in batch]):
            writer.ub(len(numbers))
            if numbers:
                writer.u8(1)
                writer.ub(*numbers)
        writer.ub(len(batch))
        if batch:
            writer.u8(0)
        for _, error in batch:
            text = error.text.encode()
            writer.ub(min(len(text), 0xFFFF))
            writer.chunks(text)
            writer.u8(0, 0)
