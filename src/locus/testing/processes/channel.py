"""JSON lines over a socket: how the suite and its worker processes talk. Nothing here is ever executed."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

Message = dict[str, Any]


class Channel:
    """One end of a conversation. What was sent stays readable after the sender was killed."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._unread = b""
        self._ended = False

    def send(self, **facts: Any) -> None:
        self._connection.settimeout(None)
        self._connection.sendall(json.dumps(facts).encode() + b"\n")

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message; None when the other end is gone. `TimeoutError` if neither happens in time."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while b"\n" not in self._unread and not self._ended:
            # A timeout of 0 would make the socket non-blocking, which has errors of its own.
            self._connection.settimeout(None if deadline is None else max(0.0001, deadline - time.monotonic()))
            try:
                chunk = self._connection.recv(65_536)
            except ConnectionResetError:
                chunk = b""
            self._ended = not chunk
            self._unread += chunk
        line, newline, self._unread = self._unread.partition(b"\n")
        if not newline:
            return None
        message: Message = json.loads(line)
        return message

    def close(self) -> None:
        self._connection.close()
