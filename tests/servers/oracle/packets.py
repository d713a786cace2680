"""Packets of TNS, the lowest layer: a length, a type, and for data two bytes of flags."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

CONNECT, ACCEPT, REFUSE, DATA, MARKER = 1, 2, 4, 6, 12
BREAK, RESET, INTERRUPT = 1, 2, 3
HEADER = 8
END_OF_FILE, END_OF_RESPONSE = 0x0040, 0x2000


class ClientGoneError(Exception):
    """There is nobody to wait for any more."""


class Channel(asyncio.Protocol):
    """One client's connection. A marker, by which it interrupts a call, is told at once.

    What a client has sent before it went is done to its end, as by a real server, and only then is the connection
    closed: whoever sees it closed can look at what has become of it.
    """

    def __init__(self, serve: Callable[[Channel], None]) -> None:
        self._serve = serve
        self._buffer = bytearray()
        self._packets: list[tuple[int, bytes]] = []
        self._waiter: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None
        self.on_marker: Callable[[int], None] = lambda kind: None
        self.large = False
        """Four bytes for the length, from the moment on that the connection was accepted."""
        self.gone = False
        self.size = 8192

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._serve(self)

    def eof_received(self) -> bool:
        self._end()
        return self._transport is None or self._transport.get_extra_info("sslcontext") is None

    def connection_lost(self, error: Exception | None) -> None:
        self._end()

    def _end(self) -> None:
        self.gone = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= HEADER:
            length = int.from_bytes(self._buffer[:4] if self.large else self._buffer[:2], "big")
            if len(self._buffer) < max(length, HEADER):
                break
            packet = bytes(self._buffer[:length])
            del self._buffer[: max(length, HEADER)]
            if packet[4] == MARKER:
                self.on_marker(packet[HEADER + 2])
            else:
                self._packets.append((packet[4], packet[HEADER:]))
        if self._packets:
            self._wake()

    @property
    def has_more(self) -> bool:
        return bool(self._packets or self._buffer)

    async def packet(self) -> tuple[int, bytes]:
        while not self._packets:
            if self.gone:
                raise ClientGoneError
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._packets.pop(0)

    def send(self, kind: int, body: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        length = HEADER + len(body)
        size = length.to_bytes(4, "big") if self.large else length.to_bytes(2, "big") + b"\0\0"
        self._transport.write(size + bytes([kind, 0, 0, 0]) + body)

    def send_marker(self, kind: int) -> None:
        self.send(MARKER, bytes([1, 0, kind]))

    def send_data(self, data: bytes) -> None:
        """One whole answer, in as many packets as it needs; the last one says that it is."""
        room = self.size - HEADER - 2
        for start in range(0, max(len(data), 1), room):
            last = start + room >= len(data)
            flags = END_OF_RESPONSE if last else 0
            self.send(DATA, flags.to_bytes(2, "big") + data[start : start + room])

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
