"""Uvicorn's HTTP protocol, with bounds on time, on headers and on the number of connections.

No client can hold a connection for ever. Each state that depends on the client has a deadline, and nothing that the
client sends moves it:

    headers     from the first byte, or the beginning of the connection, to the end of the headers
    body        the app has a time-out while it reads one; after the answer, the unread rest has as long again
    idle        between two requests, however many empty lines come
    answer      each piece, from when it does not fit into the buffer until the client has taken most of the buffer
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from operator import itemgetter
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

KEEP_ALIVE_SECONDS = 75
"""How long an idle connection is kept. `HTTPCheckpointer` closes its connections before that."""

ON_SHUTDOWN = "locus.on_shutdown"
"""The key in the ASGI scope of a request for callbacks at shutdown. Answers without an end need them."""

_RESTS = count()
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


@dataclass(frozen=True)
class Bounds:
    """The bounds of the connections of a process."""

    header_seconds: float = 15.0
    body_seconds: float = 30.0
    send_seconds: float = 30.0
    header_bytes: int = 65_536
    connections: int = 500
    keep_alive_seconds: float = KEEP_ALIVE_SECONDS


class BoundedProtocol(HttpToolsProtocol):
    """Uvicorn's protocol, which also disconnects clients that are too slow, or whose headers are too large."""

    bounds: ClassVar[Bounds] = Bounds()

    _deadline: asyncio.TimerHandle | None = None
    _write_deadline: asyncio.TimerHandle | None = None
    _in_headers = False
    _in_message = False
    _parsed_bytes = 0
    _unparsed_bytes = 0
    _headers_too_large = False
    _idle_since: int | None = None
    """A number that orders idle connections by when they became idle. Clocks of event loops are too coarse for that."""
    _on_shutdown: Sequence[Callable[[], object]] = ()

    # Callbacks of the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._idle_since = next(_RESTS)
        self._set_deadline(self.bounds.header_seconds)
        if len(self.connections) > self.bounds.connections and not self._close_an_idle_one():
            transport.write(_TOO_MANY)
            transport.close()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        was_in_headers = self._in_headers
        super().data_received(data)
        if was_in_headers and self._in_headers:
            # The parser buffers an unfinished header, however long it gets.
            self._unparsed_bytes += len(data)
            if self._unparsed_bytes > self.bounds.header_bytes and not self.transport.is_closing():
                self.transport.write(_TOO_LARGE)
                self.transport.close()

    def shutdown(self) -> None:
        super().shutdown()
        for call in self._on_shutdown:
            call()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_deadline is None:
            self._write_deadline = self.loop.call_later(self.bounds.send_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._clear_write_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._clear_deadline()
        self._clear_write_deadline()
        super().connection_lost(exc)

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._on_shutdown = []
        self.scope[ON_SHUTDOWN] = self._on_shutdown  # type: ignore[literal-required]
        self._in_headers = self._in_message = True
        self._parsed_bytes = self._unparsed_bytes = 0
        self._idle_since = None
        self._set_deadline(self.bounds.header_seconds)

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)  # trailers count as well
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._clear_deadline()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_message = False
        if self.cycle.response_complete:
            self._rest()

    # Callbacks of the answer

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._set_deadline(self.bounds.send_seconds)
        elif not self.cycle.response_complete:
            return  # the next request is being answered
        elif self._in_message:
            self._set_deadline(self.bounds.header_seconds if self._in_headers else self.bounds.body_seconds)
        else:
            self._rest()

    def send_400_response(self, msg: str) -> None:
        if self._headers_too_large:
            self.transport.write(_TOO_LARGE)
            self.transport.close()
        else:
            super().send_400_response(msg)
        self._set_deadline(self.bounds.send_seconds)

    def _rest(self) -> None:
        """Begin to be idle, between two requests."""
        self._idle_since = next(_RESTS)
        self._set_deadline(
            self.bounds.keep_alive_seconds + 1
        )  # uvicorn closes silent connections; this deadline holds for those that send empty lines, too

    def _count(self, size: int) -> None:
        self._parsed_bytes += size
        if self._parsed_bytes > self.bounds.header_bytes:
            self._headers_too_large = True
            raise ValueError("the headers are too large")

    def _close_an_idle_one(self) -> bool:
        """Close the connection that has been idle longest, to make room for a new one. False if none is idle."""
        idle = [
            (connection._idle_since, connection)
            for connection in self.connections
            if isinstance(connection, BoundedProtocol) and connection._idle_since is not None and connection is not self
        ]
        if not idle:
            return False
        oldest = min(idle, key=itemgetter(0))[1]
        oldest._idle_since = None
        oldest.transport.close()
        return True

    def _set_deadline(self, seconds: float) -> None:
        self._clear_deadline()
        self._deadline = self.loop.call_later(seconds, self._end)

    def _end(self) -> None:
        """Close the connection. If the client has not read all data by now, drop the rest rather than wait for it."""
        if self.transport.is_closing() or self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _clear_write_deadline(self) -> None:
        if self._write_deadline is not None:
            self._write_deadline.cancel()
            self._write_deadline = None
