"""`locus serve` on SQLite, in a process of its own on this machine, over loopback."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from pathlib import Path

import httpx

from benchmarks.subjects.base import Occupied, Subject
from benchmarks.subjects.floors import Floor, database_bytes, extend_wal
from benchmarks.subjects.http_floor import HTTPFloor
from locus.memory.backends import HTTPCheckpointer
from locus.memory.checkpointer import Checkpointer
from tests.servers.ports import free_port


class ServerProcess:
    """A Python program that listens on a port."""

    def __init__(self, folder: Path, *command: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        arguments = [word.replace("PORT", str(self.port)) for word in command]
        with (folder / f"server-{self.port}.log").open("wb") as log:
            self.process = subprocess.Popen([sys.executable, "-m", *arguments], stdout=log, stderr=log)
        self._wait()

    def _wait(self) -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until and self.process.poll() is None:
            with contextlib.suppress(httpx.TransportError):
                httpx.get(f"{self.url}/health", timeout=5)
                return
            time.sleep(0.02)
        raise RuntimeError("the server does not start; its log is beside its store")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


def serve(folder: Path, store: str, *options: str) -> ServerProcess:
    return ServerProcess(
        folder, "locus", "serve", "--store", store, "--port", "PORT", "--log-level", "warning", *options
    )


class HTTPSubject(Subject):
    """Occupied: the SQLite file behind the server, its search index included."""

    name = "http on sqlite"
    longest_thread = 1_000
    save_limit = 2.0
    stored_limit = 2.5  # with the search index, which cannot be told apart while the server has the file open

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._path = folder / "threads.db"
        self._server = serve(folder, f"sqlite:{self._path}")
        self._floor_server: ServerProcess | None = None

    def open(self) -> Checkpointer:
        return HTTPCheckpointer(self._server.url)

    def warm_up(self) -> None:
        extend_wal(self._path)

    def floor(self) -> Floor:
        place = self.folder / "floor"
        place.mkdir()
        self._floor_server = ServerProcess(place, "benchmarks.subjects.http_floor", "PORT", str(place))
        return HTTPFloor(self._floor_server.url, place)

    def occupied(self) -> Occupied:
        return Occupied(database_bytes(self._path))

    async def remove(self) -> None:
        self._server.stop()
        if self._floor_server is not None:
            self._floor_server.stop()
