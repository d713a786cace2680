"""`locus serve` as a process, and apps that are asked without a socket."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import httpx
import uvicorn

from locus.memory.backends import MemoryCheckpointer
from locus.server import Token, create_app
from tests.servers.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
WRITER = "a-token-that-may-write"
READER = "a-token-that-may-read"
ACME = "a-token-for-acme-alone"
ACME_READER = "a-token-to-read-acme"
CORP = "a-token-for-acme-corp"
TOKENS = (
    Token(WRITER),
    Token(READER, "read"),
    Token(ACME, prefix="acme/"),
    Token(ACME_READER, "read", "acme/"),
    Token(CORP, prefix="acme-corp/"),
)


def asking(app: Any, token: str | None = None, **options: Any) -> httpx.AsyncClient:
    """A client that hands its requests to an app directly."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://locus", headers=headers, **options)


def guarded(checkpointer: Any = None) -> Any:
    return create_app(checkpointer or MemoryCheckpointer(), TOKENS)


class Serving:
    """A running `locus serve`."""

    def __init__(
        self,
        folder: Path,
        store: str | None,
        *options: str,
        port: int | None = None,
        python: str = sys.executable,
        **variables: str,
    ) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / f"serve-{self.port}.log"
        named = [] if store is None else ["--store", store]  # else the environment names it
        command = [python, "-m", "locus", "serve", *named, "--port", str(self.port), *options]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, env={**os.environ, **variables}, stdout=log, stderr=log, start_new_session=True
            )

    def wait(self) -> None:
        until = time.monotonic() + 60
        # Each client that verifies reads all certificates first, which takes longer than to ask a hundred times.
        with httpx.Client(timeout=5, verify=False) as asking:
            while True:
                try:
                    if asking.get(f"{self.url}/health").is_success:
                        return
                except httpx.TransportError:
                    assert self.process.poll() is None, self.log.read_text()
                assert time.monotonic() < until, self.log.read_text()
                time.sleep(0.02)

    def terminate(self) -> int:
        """SIGTERM, and wait for its end."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def kill(self) -> None:
        """SIGKILL, to the workers, too."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(60)


@contextmanager
def serving(folder: Path, store: str | None, *options: str, **more: Any) -> Iterator[Serving]:
    server = Serving(folder, store, *options, **more)
    try:
        server.wait()
        yield server
    finally:
        server.kill()


class HTTPConnection:
    """A connection to a server of this machine, byte by byte."""

    def __init__(self, port: int, *, receive_buffer: int | None = None) -> None:
        self.socket = socket.socket()
        self.socket.settimeout(30)
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.connect(("127.0.0.1", port))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self) -> tuple[int, bytes]:
        """The status and the body of the next answer, which has a length."""
        data = b""
        while b"\r\n\r\n" not in data:
            piece = self.socket.recv(65_536)
            assert piece, f"the connection was closed after {data!r}"
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        while len(body) < length:
            body += self.socket.recv(65_536)
        return int(head[9:12]), body

    def rest(self) -> bytes:
        """What still comes, until the server has closed the connection."""
        data = b""
        try:
            while piece := self.socket.recv(65_536):
                data += piece
        except ConnectionResetError:
            pass
        return data

    def drip(self, piece: bytes) -> None:
        """Send a piece again and again, until the server has closed the connection."""
        until = time.monotonic() + 30
        try:
            while True:
                assert time.monotonic() < until, "the connection is still open"
                self.socket.sendall(piece)
                if select.select([self.socket], [], [], 0.02)[0] and not self.socket.recv(65_536):
                    return
        except OSError:
            return


@contextmanager
def threaded(app: Any, *, port: int = 0, send_buffer: int | None = None, **bounds: Any) -> Iterator[int]:
    """An app that a thread of this process serves; its port, a free one if none is given.

    `send_buffer` is the operating system's, in bytes.
    """
    from locus.server.connections import BoundedProtocol, Bounds
    from locus.server.serving import uvicorn_config

    class Protocol(BoundedProtocol):
        pass

    Protocol.bounds = Bounds(**bounds)
    given = uvicorn_config(app, host="127.0.0.1", port=0, grace_seconds=1)
    server = uvicorn.Server(uvicorn.Config(**given | {"http": Protocol}))
    listening = socket.create_server(("127.0.0.1", port))
    if send_buffer is not None:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()
