"""The backends without a server: memory, files and SQLite."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import ClassVar, Literal

from benchmarks.subjects.base import Occupied, Subject
from benchmarks.subjects.floors import FileFloor, Floor, MemoryFloor, SQLiteFloor, database_bytes, extend_wal
from locus.memory.backends import FileCheckpointer, sqlite_checkpointer
from locus.memory.backends.memory import MemoryEngine
from locus.memory.checkpointer import Checkpointer
from locus.memory.store import CheckpointStore


class MemorySubject(Subject):
    """Occupied: the texts in the tables (not the objects around them)."""

    name = "memory"
    save_limit = None

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._engine = MemoryEngine()

    def open(self) -> Checkpointer:
        return Checkpointer(CheckpointStore(self._engine))

    def floor(self) -> Floor:
        return MemoryFloor()

    def occupied(self) -> Occupied:
        tables = self._engine._tables.values()
        texts = [text for table in tables for row in table.rows.values() for text in (row.head, row.manifest)]
        texts += [row.entry.metadata for table in tables for row in table.rows.values()]
        texts += [run.items for table in tables for runs in table.runs.values() for run in runs]
        return Occupied(sum(len(text.encode()) for text in texts))


class FileSubject(Subject):
    """Occupied: the sizes of all files."""

    name = "file"
    turn_limit = 3.0
    save_limit = 2.0
    blocking_limit = 2.0

    def open(self) -> Checkpointer:
        return FileCheckpointer(self.folder / "threads")

    def floor(self) -> Floor:
        return FileFloor(self.folder)

    def occupied(self) -> Occupied:
        files = (path for path in (self.folder / "threads").rglob("*") if path.is_file())
        return Occupied(sum(path.stat().st_size for path in files))


class SQLiteSubject(Subject):
    """Occupied: the file after a checkpoint of the WAL; the pages of the full-text index counted apart."""

    name = "sqlite FULL"
    save_limit = 1.5
    blocking_limit: ClassVar[float | None] = 1.6
    many_limit = 1.0
    durability: ClassVar[Literal["full", "normal"]] = "full"

    @property
    def _path(self) -> Path:
        return self.folder / "threads.db"

    def open(self) -> Checkpointer:
        return sqlite_checkpointer(self._path, durability=self.durability)

    def warm_up(self) -> None:
        extend_wal(self._path)

    def floor(self) -> Floor:
        return SQLiteFloor(self.folder, self.durability)

    def occupied(self) -> Occupied:
        size = database_bytes(self._path)
        search = _search_bytes(self._path)
        return Occupied(size - search, search)


class SQLiteNormalSubject(SQLiteSubject):
    name = "sqlite NORMAL"
    longest_thread = 1_000
    save_limit = 2.2
    blocking_limit = None
    many_limit = 0.6
    durability: ClassVar[Literal["full", "normal"]] = "normal"


def _search_bytes(path: Path) -> int:
    """The size of the full-text index: what becomes free when a copy of the database drops it."""
    copy = path.with_suffix(".copy")
    shutil.copyfile(path, copy)
    with closing(sqlite3.connect(copy)) as connection:
        (page,) = connection.execute("PRAGMA page_size").fetchone()
        (before,) = connection.execute("PRAGMA freelist_count").fetchone()
        tables = connection.execute("SELECT name FROM sqlite_master WHERE sql LIKE '%USING fts5%'").fetchall()
        for (table,) in tables:
            connection.execute(f'DROP TABLE "{table}"')
        connection.commit()
        (after,) = connection.execute("PRAGMA freelist_count").fetchone()
    for leftover in path.parent.glob(f"{copy.name}*"):
        leftover.unlink()
    return int(after - before) * int(page)
