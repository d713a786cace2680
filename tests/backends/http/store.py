"""Stores behind a server: real requests, through a real socket, to a server in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx

from locus.memory.backends import HTTPCheckpointer
from locus.testing.stores import DurableTestStore, Stall, StallTestStore
from tests.backends.stalls import stalling_on_the_way
from tests.servers.ports import free_port

ROOT = Path(__file__).resolve().parents[3]


class ServerProcess:
    """A server with as many stores as there are folders in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "tests.server.many_stores", str(self.port), str(folder)]
        self.asking = httpx.Client(timeout=60, verify=False)  # reads no certificates
        self._log = (folder / "server.log").open("wb")
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=self._log, stderr=self._log)

    def wait(self) -> None:
        """Until it answers."""
        until = time.monotonic() + 30
        while True:
            try:
                self.asking.get(f"{self.url}/sqlite/none/health", timeout=5)
                return
            except httpx.TransportError:
                assert self._process.poll() is None, (self.folder / "server.log").read_text()
                assert time.monotonic() < until, "the server does not answer"
                time.sleep(0.02)

    def stop(self) -> None:
        self.asking.close()
        self._process.terminate()
        code = self._process.wait(30)
        self._log.close()
        assert code in (0, -15), (self.folder / "server.log").read_text()


@contextmanager
def server_process(folder: Path) -> Iterator[ServerProcess]:
    server = ServerProcess(folder)
    try:
        server.wait()
        yield server
    finally:
        server.stop()


class StoreOverHTTP(DurableTestStore, StallTestStore):
    """A store, and the way to it through a server."""

    def __init__(self, server: ServerProcess, kind: str, name: str, inner: DurableTestStore) -> None:
        self._path = f"/{kind}/{name}"
        self._server = server
        self._inner = inner

    @property
    def url(self) -> str:
        return f"{self._server.url}{self._path}"

    def open(self, *, ttl_seconds: float | None = None) -> HTTPCheckpointer:
        """Once the server is at rest: a client that was killed leaves requests that it still carries out."""
        self._server.asking.get(self.url).raise_for_status()
        return HTTPCheckpointer(self.url, ttl_seconds=ttl_seconds)

    async def corrupt(self, thread_id: str) -> None:
        await self._inner.corrupt(thread_id)

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        """The server is there, but what it keeps its threads in is not."""
        async with self._inner.outage():
            yield

    @asynccontextmanager
    async def stalling(self, seconds: float) -> AsyncIterator[Stall]:
        def open_through(port: int) -> HTTPCheckpointer:
            return HTTPCheckpointer(f"http://127.0.0.1:{port}{self._path}", timeout=seconds)

        async with stalling_on_the_way(self._server.port, open_through) as stall:
            yield stall

    def close(self) -> None:
        self._server.asking.delete(self.url).raise_for_status()
