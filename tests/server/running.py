"""`locus serve` as a process, and apps that are asked without a socket."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

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
        store: str,
        *options: str,
        port: int | None = None,
        python: str = sys.executable,
        **variables: str,
    ) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / f"serve-{self.port}.log"
        command = [python, "-m", "locus", "serve", "--store", store, "--port", str(self.port), *options]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, env={**os.environ, **variables}, stdout=log, stderr=log, start_new_session=True
            )

    def wait(self) -> None:
        until = time.monotonic() + 60
        while True:
            try:
                if httpx.get(f"{self.url}/health", timeout=5).is_success:
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
def serving(folder: Path, store: str, *options: str, **more: Any) -> Iterator[Serving]:
    server = Serving(folder, store, *options, **more)
    try:
        server.wait()
        yield server
    finally:
        server.kill()
