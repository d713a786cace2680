"""The integers, strings and byte chunks of the protocol TTC, read and written."""

from __future__ import annotations

LONG_LENGTH = 254
NULL_LENGTH = 255
LONGEST_SHORT = 252


class UnderflowError(Exception):
    """The rest of the message is in packets that have not come yet."""


class Reader:
    """Reads one message. What is not there yet raises `UnderflowError`, and the message is read anew."""

    __slots__ = ("data", "pos")

    def __init__(self, data: bytes, pos: int = 0) -> None:
        self.data = data
        self.pos = pos

    def raw(self, count: int) -> bytes:
        end = self.pos + count
        if end > len(self.data):
            raise UnderflowError
        found = self.data[self.pos : end]
        self.pos = end
        return found

    def u8(self) -> int:
        pos = self.pos
        if pos >= len(self.data):
            raise UnderflowError
        self.pos = pos + 1
        return self.data[pos]

    def u16(self) -> int:
        return int.from_bytes(self.raw(2), "big")

    def ub(self) -> int:
        """An unsigned integer of any size: the number of its bytes, and they."""
        length = self.u8()
        return int.from_bytes(self.raw(length), "big") if length else 0

    def sb(self) -> int:
        length = self.u8()
        value = int.from_bytes(self.raw(length & 0x7F), "big")
        return -value if length & 0x80 else value

    def chunks(self) -> bytes | None:
        """Bytes with their length, in pieces if they are many. No bytes at all are NULL."""
        length = self.u8()
        if length in (0, NULL_LENGTH):
            return None
        if length != LONG_LENGTH:
            return self.raw(length)
        pieces = []
        while size := self.ub():
            pieces.append(self.raw(size))
        return b"".join(pieces)

    def counted(self) -> bytes:
        """A length, and then bytes with their length if it is not zero."""
        return (self.chunks() or b"") if self.ub() else b""

    def until_zero(self) -> bytes:
        end = self.data.find(b"\0", self.pos)
        if end < 0:
            raise UnderflowError
        return self.raw(end + 1 - self.pos)[:-1]


class Writer:
    """Collects one answer."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data = bytearray()

    def raw(self, data: bytes) -> None:
        self.data += data

    def u8(self, *values: int) -> None:
        self.data += bytes(values)

    def u16(self, value: int) -> None:
        self.data += value.to_bytes(2, "big")

    def ub(self, *values: int) -> None:
        for value in values:
            length = (value.bit_length() + 7) // 8
            self.data.append(length)
            self.data += value.to_bytes(length, "big")

    def sb(self, value: int) -> None:
        length = (abs(value).bit_length() + 7) // 8
        self.data.append(length | 0x80 if value < 0 else length)
        self.data += abs(value).to_bytes(length, "big")

    def chunks(self, data: bytes | None) -> None:
        length = len(data) if data else 0
        if length <= LONGEST_SHORT:
            self.data.append(length)
            self.data += data or b""
            return
        self.data.append(LONG_LENGTH)
        self.ub(length)
        self.data += data or b""
        self.ub(0)

    def counted(self, data: bytes) -> None:
        self.ub(len(data))
        if data:
            self.chunks(data)

    def text(self, text: str) -> None:
        self.counted(text.encode())
