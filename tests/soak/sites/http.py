"""`locus serve` in a process of its own, on an SQLite file."""

from __future__ import annotations

import os
import sqlite3
import sys
import urllib.error
import urllib.request
from pathlib import Path

from locus import __version__
from tests.servers.base import Server
from tests.soak.sites.base import ServerSite

ROOT = Path(__file__).resolve().parents[3]


class LocusServer(Server):
    name = "http"

    @classmethod
    def install(cls) -> Path:
        """It is part of the tree."""
        return ROOT / "src"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def store(self) -> str:
        return f"sqlite:{self.data / 'locus.db'}"

    def command(self) -> list[str | Path]:
        return [
            sys.executable, "-m", "locus", "serve", "--store", self.store, "--port", str(self.port),
            "--grace", "5", "--log-level", "warning",
        ]  # fmt: skip

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(self.install())}

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


class HTTPSite(ServerSite[LocusServer]):
    name = "http"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, LocusServer(folder / "server", durable=True))

    def url_at(self, port: int) -> str:
        return f"http://127.0.0.1:{port}"

    def direct_url(self) -> str:
        """The file itself: what a server holds in its memory can't hide what is not stored."""
        return self.server.store

    def find_versions(self) -> str:
        return f"locus {__version__} on SQLite {sqlite3.sqlite_version}"
