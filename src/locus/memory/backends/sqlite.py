"""SQLite: one file, no server. Several processes may use it at once.

A save is one transaction on a thread of its own; reading happens on another, and waits for no save. The
tables are shown in `sqlite_file`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar
from uuid import uuid4

from locus.errors import (
    BackendUnavailableError,
    CapabilityError,
    CheckpointError,
    ConfigurationError,
    CorruptCheckpointError,
    SerializationError,
)
from locus.memory.backends import sqlite_search
from locus.memory.backends.sqlite_file import MemoryFile, SQLiteFile, prepare
from locus.memory.backends.sqlite_rows import (
    ALIVE,
    ENTRY,
    JOINED,
    PASSED,
    Connection,
    instant,
    now,
    select_one,
    select_runs,
    to_entry,
)
from locus.memory.backends.sqlite_threads import (
    SQLiteThread,
    commit_in,
    create_thread,
    metadata_value,
    open_thread,
    transaction,
)
from locus.memory.checks import checked_seconds, possible_path
from locus.memory.engine import Copies, Engine, Expires, FindsMetadata, KeepsWrites, Searches
from locus.memory.keys import Pattern
from locus.memory.payloads import wanted
from locus.memory.records import Commit, Entry, Hit, Outcome, Run, Stored, Verdict, Write
from locus.memory.registry import path_of
from locus.memory.storage import StorageBackend
from locus.memory.thread_checkpointer import ThreadCheckpointer
from locus.memory.threads import Threads
from locus.memory.worker import Worker

T = TypeVar("T")


class SQLiteEngine(Engine, KeepsWrites, FindsMetadata, Searches, Expires, Copies):
    """Threads in an SQLite file."""

    driver_errors = (sqlite3.Error, OSError)

    def __init__(self, path: str, *, durability: str, timeout: float) -> None:
        self._identity = f"sqlite:{path}" if path != ":memory:" else f"sqlite::memory:{uuid4().hex}"

        self._memory: MemoryFile | None = None
        if path == ":memory:":
            kept = self._memory = MemoryFile(path, durability=durability, timeout=timeout, writable=True)
            self._writer: Worker[SQLiteFile] = Worker("locus-sqlite", lambda: kept)
            self._reader = self._writer
            return

        def opener(writable: bool) -> Callable[[], SQLiteFile]:
            return lambda: SQLiteFile(path, durability=durability, timeout=timeout, writable=writable)

        self._writer = Worker("locus-sqlite-writer", opener(True))
        self._reader = Worker("locus-sqlite-reader", opener(False))

    @property
    def identity(self) -> str:
        return self._identity

    async def setup(self) -> None:
        await self._writer.run(SQLiteFile.current)

    async def _write(self, work: Callable[[Connection], T]) -> T:
        def job(file: SQLiteFile) -> T:
            connection = file.current()
            with transaction(connection):
                return work(connection)

        return await self._writer.run(job)

    async def _read(self, work: Callable[[Connection], T]) -> T:
        def job(file: SQLiteFile) -> T:
            connection = file.current()
            with transaction(connection, "DEFERRED"):
                return work(connection)

        return await self._reader.run(job)

    async def commit(self, commit: Commit) -> Outcome:
        def work(file: SQLiteFile) -> Outcome:
            connection = file.current()
            connection.execute("BEGIN IMMEDIATE")
            try:
                outcome = commit_in(connection, commit)
                written = outcome.verdict is Verdict.COMMITTED and not outcome.repeated
                connection.execute("COMMIT" if written else "ROLLBACK")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            return outcome

        return await self._writer.run(work)

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        def work(connection: Connection) -> Stored | None:
            columns = f"{ENTRY}, c.head, c.manifest, c.thread, {PASSED}"
            row = select_one(connection, columns, thread_id, namespace, checkpoint_id)
            if row is None:
                return None
            runs: dict[str, list[Run]] = {}
            for extent in wanted(row[9]):
                runs.setdefault(extent.branch, []).extend(select_runs(connection, row[10], extent))
            return Stored(to_entry(row), row[8], row[9], runs, bool(row[11]))

        return await self._read(work)

    async def entry(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Entry | None:
        row = await self._read(lambda c: select_one(c, ENTRY, thread_id, namespace, checkpoint_id))
        return None if row is None else to_entry(row)

    async def history(
        self, thread_id: str, namespace: str | None, limit: int | None, before_seq: int | None
    ) -> list[Entry]:
        conditions = ["t.thread_id = ?", ALIVE]
        values: list[Any] = [thread_id, now()]
        for condition, value in (("c.namespace = ?", namespace), ("c.seq < ?", before_seq)):
            if value is not None:
                conditions.append(condition)
                values.append(value)
        return await self._entries(f"{' AND '.join(conditions)} ORDER BY c.seq DESC", values, limit)

    async def _entries(self, condition: str, values: Sequence[Any], limit: int | None) -> list[Entry]:
        sql = f"SELECT {ENTRY} FROM {JOINED} WHERE {condition} LIMIT ?"
        rows = await self._read(lambda c: c.execute(sql, (*values, -1 if limit is None else limit)).fetchall())
        return [to_entry(row) for row in rows]

    async def recent(self, limit: int) -> list[Entry]:
        return await self._entries(f"{ALIVE} ORDER BY c.id DESC", [now()], limit)

    async def find(self, key: str, value: str, limit: int) -> list[Entry]:
        condition = (
            "c.id IN (SELECT checkpoint FROM locus_metadata WHERE key = ? AND value = ?)"
            f" AND {ALIVE} ORDER BY c.id DESC"
        )
        return await self._entries(condition, [key, metadata_value(value), now()], limit)

    async def threads(self, pattern: Pattern, limit: int | None) -> list[str]:
        def work(connection: Connection) -> list[str]:
            rows = connection.execute(
                f"SELECT thread_id FROM locus_threads t WHERE thread_id >= ? AND {ALIVE}"
                " AND EXISTS (SELECT 1 FROM locus_checkpoints WHERE thread = t.id) ORDER BY thread_id",
                (pattern.prefix, now()),
            )
            found: list[str] = []
            for (thread_id,) in rows:
                if (limit is not None and len(found) >= limit) or not thread_id.startswith(pattern.prefix):
                    break
                if pattern.matches(thread_id):
                    found.append(thread_id)
            return found

        return await self._read(work)

    async def delete(self, thread_id: str, namespace: str | None = None, seqs: Mapping[int, str] | None = None) -> int:
        def work(connection: Connection) -> int:
            thread = open_thread(connection, thread_id)
            if thread is None:
                return 0
            entries = thread.entries(thread_id)
            doomed = {
                seq
                for seq, (entry, _, _) in entries.items()
                if (namespace is None or entry.namespace == namespace) and (seqs is None or seqs.get(seq) == entry.rev)
            }
            if len(doomed) == len(entries):
                return thread.drop()
            if doomed:
                thread.remove(doomed)
            return len(doomed)

        return await self._write(work)

    async def search(self, terms: Sequence[str], limit: int) -> list[Hit]:
        while await self._write(sqlite_search.index_more):
            # In portions, so that saves can go on in between.
            pass
        return await self._read(lambda connection: sqlite_search.search(connection, terms, limit))

    async def put_writes(
        self, thread_id: str, namespace: str, checkpoint_id: str, task_id: str, writes: Sequence[Write]
    ) -> None:
        def work(connection: Connection) -> None:
            thread = open_thread(connection, thread_id) or create_thread(connection, thread_id, None)
            place = (thread.key, namespace, checkpoint_id, task_id)
            connection.execute(
                "DELETE FROM locus_writes WHERE thread = ? AND namespace = ? AND checkpoint_id = ? AND task_id = ?"
                " AND idx >= 0",
                place,
            )
            connection.executemany(
                "INSERT OR REPLACE INTO locus_writes VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [(*place, write.idx, write.task_path, write.channel, write.value) for write in writes],
            )

        await self._write(work)

    async def get_writes(self, thread_id: str, namespace: str, checkpoint_id: str, task_id: str | None) -> list[Write]:
        sql = (
            "SELECT w.task_id, w.task_path, w.idx, w.channel, w.value FROM locus_writes w"
            " JOIN locus_threads t ON t.id = w.thread"
            f" WHERE t.thread_id = ? AND {ALIVE} AND w.namespace = ? AND w.checkpoint_id = ?"
            " AND (? IS NULL OR w.task_id = ?) ORDER BY w.task_path, w.task_id, w.idx"
        )
        values = (thread_id, now(), namespace, checkpoint_id, task_id, task_id)
        return [Write(*row) for row in await self._read(lambda c: c.execute(sql, values).fetchall())]

    async def expire(self, now: datetime) -> int:
        def work(connection: Connection) -> int:
            ended = connection.execute("SELECT id FROM locus_threads WHERE expires_at <= ?", (instant(now),)).fetchall()
            return sum(SQLiteThread(connection, key, 0).drop() for (key,) in ended)

        return await self._write(work)

    async def copy(self, source: str, dest: str, namespace: str | None, checkpoint_ids: Collection[str] | None) -> int:
        def work(connection: Connection) -> int:
            origin = open_thread(connection, source)
            existing = open_thread(connection, dest)
            if origin is None or not origin.entries(source):
                return 0
            if existing is not None and existing.entries(dest):
                return -1
            expires_at = connection.execute(
                "SELECT expires_at FROM locus_threads WHERE id = ?", (origin.key,)
            ).fetchone()[0]
            target = existing or create_thread(connection, dest, expires_at)
            connection.execute("UPDATE locus_threads SET last_seq = ? WHERE id = ?", (origin.last_seq, target.key))
            return origin.copy_to(target, namespace, checkpoint_ids)

        return await self._write(work)

    def translate(self, error: BaseException) -> CheckpointError:
        text = str(error)
        if "no such module: fts5" in text:
            return CapabilityError("this Python's SQLite was built without FTS5, so there is no search")
        if isinstance(error, sqlite3.DataError) or "too big" in text:
            return SerializationError(f"a value is larger than SQLite can hold: {text}")
        if isinstance(error, sqlite3.OperationalError) and "no such table" not in text:
            return BackendUnavailableError(f"the SQLite database cannot be used now: {text}")
        if isinstance(error, sqlite3.Error):
            return CorruptCheckpointError(f"the SQLite database cannot be read: {text}")
        return BackendUnavailableError(f"the SQLite database cannot be reached: {text}")

    async def close(self) -> None:
        await self._writer.close()
        await self._reader.close()
        if self._memory is not None:
            self._memory.discard()


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
            Threads(SQLiteEngine(self.path, durability=durability, timeout=timeout), ttl_seconds=ttl_seconds)
        )

    def __repr__(self) -> str:
        return f"SQLiteBackend({self.path!r})"


def from_location(location: str = "", **options: Any) -> ThreadCheckpointer:
    """`"sqlite:agents.db"`, `"sqlite:///agents.db"`."""
    from locus.memory.backends.adapters import sqlite_checkpointer

    path = path_of(location)
    return sqlite_checkpointer(path, **options) if path else sqlite_checkpointer(**options)
