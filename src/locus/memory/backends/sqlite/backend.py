"""locus.memory.backends.sqlite.backend"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from locus.errors import (
    ConfigurationError,
)
from locus.memory.backends.sqlite.client import prepare
from locus.memory.backends.sqlite.engine import SQLiteEngine
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.arguments import checked_seconds, possible_path
from locus.memory.runtime.url import path_of
from locus.memory.storage import StorageBackend
from locus.memory.store import CheckpointStore


class SQLiteBackend(StorageBackend):
    """Threads in an SQLite file, as plain dicts; `sqlite_checkpointer(path)` keeps `AgentState` there.

    `durability="full"` waits until every save is on the disk; "normal" survives a killed process, and
    may lose the last saves when the power fails. `timeout` is how long, in seconds, to wait for other
    processes. `":memory:"` keeps everything in this process.
    """

    def __init__(
        self,
        path: str | Path = "locus.db",
        *,
        durability: Literal["full", "normal"] = "full",
        ttl_seconds: float | None = None,
        timeout: float = 30.0,
    ) -> None:
        if not isinstance(path, str | Path) or not str(path) or "\0" in str(path):
            raise ConfigurationError(f"path must be the path of a file, got {path!r:.80}")
        if durability not in ("full", "normal"):
            raise ConfigurationError(f'durability is "full" or "normal", got {durability!r}')
        checked_seconds(timeout, "timeout")
        with possible_path(path):
            is_folder = str(path) != ":memory:" and Path(path).expanduser().is_dir()
        if is_folder:
            raise ConfigurationError(
                f"{str(path)!r} is a directory; name a file in it: {str(Path(path) / 'agents.db')!r}"
            )
        self.path = prepare(str(path))
        super().__init__(
            CheckpointStore(SQLiteEngine(self.path, durability=durability, timeout=timeout), ttl_seconds=ttl_seconds)
        )

    def __repr__(self) -> str:
        return f"SQLiteBackend({self.path!r})"


def from_location(location: str = "", **options: Any) -> Checkpointer:
    """`"sqlite:agents.db"`, `"sqlite:///agents.db"`."""
    from locus.memory.backends.adapters import sqlite_checkpointer

    path = path_of(location)
    return sqlite_checkpointer(path, **options) if path else sqlite_checkpointer(**options)
