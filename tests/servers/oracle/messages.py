"""Whole messages, out of packets and into them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tests.servers.oracle import packets
from tests.servers.oracle.answers import Answer
from tests.servers.oracle.buffers import Reader, UnderflowError
from tests.servers.oracle.packets import Channel, ClientGoneError

T = TypeVar("T")

NEARLY_FULL = 16


class Messages:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._data = b""

    def send(self, answer: Answer) -> None:
        self._channel.send_data(answer.bytes())

    async def request(self, read: Callable[[Reader], T]) -> T:
        """The next message, as soon as all of it is there: only its own content tells where it ends."""
        fresh = True
        while True:
            if self._data and fresh:
                reader = Reader(self._data)
                try:
                    found = read(reader)
                except UnderflowError:
                    pass
                else:
                    self._data = self._data[reader.pos :]
                    return found
            _, body = await self._channel.packet()
            if int.from_bytes(body[:2], "big") & packets.END_OF_FILE:
                raise ClientGoneError
            self._data += body[2:]
            # A packet that is full is hardly the last one.
            full = len(body) + packets.HEADER > self._channel.size - NEARLY_FULL
            fresh = not (full and self._channel.has_more)
