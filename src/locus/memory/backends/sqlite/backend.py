"""The public class of the SQLite backend, and the factory that its URLs call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from locus.memory.backends.sqlite.config import Durability, SQLiteConfig
from locus.memory.backends.sqlite.engine import SQLiteEngine
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.arguments import CACHE_MB
from locus.memory.storage import StorageBackend
from locus.memory.store import CheckpointStore


class SQLiteBackend(StorageBackend):
    """Threads in an SQLite file, as plain dicts; `sqlite_checkpointer(path)` keeps `AgentState` there.

    `durability="full"` waits until every save is on the disk; "normal" survives a killed process, and
    may lose the last saves when the power fails. `timeout` is how long, in seconds, to wait for other
    processes, and `query_timeout` how long a search or another read may take. `":memory:"` keeps everything
    in this process. The folder of an absolute path must exist; `create_folder=True` has it made.
    """

    def __init__(
        self,
        path: str | Path = "locus.db",
        *,
        durability: Durability = "full",
        ttl_seconds: float | None = None,
        timeout: float = 30.0,
        query_timeout: float = 60.0,
        create_folder: bool = False,
        cache_mb: float = CACHE_MB,
    ) -> None:
        config = SQLiteConfig.checked(path, durability, timeout, query_timeout, ttl_seconds, create_folder, cache_mb)
        self.path = config.path
        self.durability = config.durability
        self.ttl_seconds = config.ttl_seconds
        self.timeout = config.timeout
        self.query_timeout = config.query_timeout
        engine = SQLiteEngine(
            config.path,
            durability=config.durability,
            timeout=config.timeout,
            query_timeout=config.query_timeout,
            makes_folder=config.makes_folder,
        )
        super().__init__(CheckpointStore(engine, ttl_seconds=config.ttl_seconds, cache_mb=config.cache_mb))

    def __repr__(self) -> str:
        return f"SQLiteBackend({self.path!r})"


def from_location(location: str = "", **options: Any) -> Checkpointer:
    """`"sqlite:agents.db"`, `"sqlite:///agents.db"`."""
    from locus.memory.backends.adapters import sqlite_checkpointer

    config = SQLiteConfig.from_url(f"sqlite:{location}", **options)
    return sqlite_checkpointer(
        config.path,
        durability=config.durability,
        ttl_seconds=config.ttl_seconds,
        timeout=config.timeout,
        query_timeout=config.query_timeout,
        create_folder=config.makes_folder,
        cache_mb=config.cache_mb,
    )
