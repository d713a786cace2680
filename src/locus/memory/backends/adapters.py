"""Storage backends as checkpointers, and a factory for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from locus.memory.backends.sqlite import SQLiteBackend
from locus.memory.storage import StorageBackend
from locus.memory.thread_checkpointer import ThreadCheckpointer


class StorageBackendAdapter(ThreadCheckpointer):
    def __init__(self, backend: StorageBackend) -> None:
        super().__init__(backend.threads)
        self.backend = backend


def sqlite_checkpointer(path: str | Path = "locus.db", **options: Any) -> StorageBackendAdapter:
    """A checkpointer in an SQLite file; `options` are those of `SQLiteBackend`."""
    return StorageBackendAdapter(SQLiteBackend(path, **options))
