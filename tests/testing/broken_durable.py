"""Durable backends that are broken on purpose. `broken:<name>:<path>` opens them, in any process."""

from __future__ import annotations

import asyncio
import math
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeGuard, TypeVar

from locus.memory import register_checkpointer
from locus.memory.backends import FileCheckpointer
from locus.memory.backends.memory import MemoryEngine
from locus.memory.backends.sql.flavour import Steps
from locus.memory.backends.sqlite.client import Query
from locus.memory.backends.sqlite.commit import commit_apart
from locus.memory.backends.sqlite.engine import SQLiteEngine
from locus.memory.backends.sqlite.schema import SQL
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.records import ANY, Base, Commit, Entry, Outcome, Stored, TaskWrites, Verdict
from locus.memory.store import CheckpointStore
from locus.testing.stores import Stall
from tests.backends.embedded import FileStore, SQLiteStore, StallInSQLite

T = TypeVar("T")


class SQLite(SQLiteEngine):
    """The sound one."""

    def __init__(self, path: str) -> None:
        super().__init__(path, durability="full", timeout=30)
        self._path = path


class RunsAfterwards(SQLite):
    """The checkpoint is committed first, and what it refers to afterwards."""

    async def commit(self, commit: Commit) -> Outcome:
        outcome = await super().commit(replace(commit, runs=(), values=()))
        if outcome.verdict is Verdict.COMMITTED:
            await self._in_transaction(lambda connection: self._add_runs(connection, commit, outcome.seq))
        return outcome

    @staticmethod
    def _add_runs(connection: sqlite3.Connection, commit: Commit, seq: int) -> None:
        (thread,) = connection.execute(
            "SELECT id FROM locus_threads WHERE thread_id = ?", (commit.thread_id,)
        ).fetchone()

        for run in (*commit.runs, *commit.values):
            connection.execute(SQL.insert_run, SQL.new_run(thread, run, seq))


class LatestAfterwards(SQLite):
    """What is the latest is written down in a second step."""

    async def setup(self) -> None:
        await super().setup()
        await self._in_transaction(
            lambda connection: connection.execute("CREATE TABLE IF NOT EXISTS latest (thread, id)")
        )

    async def commit(self, commit: Commit) -> Outcome:
        outcome = await super().commit(commit)
        if outcome.verdict is Verdict.COMMITTED:
            row = (commit.thread_id, commit.checkpoint_id)
            await self._in_transaction(lambda connection: connection.execute("INSERT INTO latest VALUES (?, ?)", row))
        return outcome

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        sql = "SELECT id FROM latest WHERE thread = ? ORDER BY rowid DESC"

        def noted() -> Steps[str | None]:
            rows = yield sql, (thread_id,)
            return rows[0][0] if rows else None

        found = await super().read(thread_id, namespace, checkpoint_id or await self._read(noted))
        return found or await super().read(thread_id, namespace, checkpoint_id)

    async def read_since(self, thread_id: str, namespace: str, checkpoint_id: str | None, held: Base) -> Stored | None:
        return await self.read(thread_id, namespace, checkpoint_id)


class TooEarly(SQLite):
    """A save is acknowledged while it is still in memory; whoever asks this process does not notice."""

    _late: Sequence[Commit] = ()

    async def _catch_up(self) -> None:
        late, self._late = self._late, ()
        for commit in late:
            await super().commit(commit)

    async def commit(self, commit: Commit) -> Outcome:
        await self._catch_up()
        if not self._may_be_early(commit):
            return await super().commit(commit)
        self._late = [commit]
        return Outcome(Verdict.COMMITTED)

    def _may_be_early(self, member: Commit | TaskWrites) -> TypeGuard[Commit]:
        return isinstance(member, Commit) and member.fresh_id and member.if_latest is ANY

    async def commit_together(self, group: Sequence[Commit | TaskWrites]) -> list[Outcome | None]:
        await self._catch_up()
        return await super().commit_together(group)

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        await self._catch_up()
        return await super().read(thread_id, namespace, checkpoint_id)

    async def history(
        self, thread_id: str, namespace: str | None, limit: int | None, before_seq: int | None
    ) -> list[Entry]:
        await self._catch_up()
        return await super().history(thread_id, namespace, limit, before_seq)

    async def entry(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Entry | None:
        await self._catch_up()
        return await super().entry(thread_id, namespace, checkpoint_id)

    async def delete(self, thread_id: str, namespace: str | None = None, seqs: Mapping[int, str] | None = None) -> int:
        await self._catch_up()
        return await super().delete(thread_id, namespace, seqs)

    async def put_writes(self, task: TaskWrites) -> None:
        await self._catch_up()
        await super().put_writes(task)

    async def close(self) -> None:
        await self._catch_up()
        await super().close()


class GroupsTooEarly(TooEarly):
    """The same where saves share a commit; one that is alone is acknowledged in time."""

    async def commit(self, commit: Commit) -> Outcome:
        await self._catch_up()
        return await SQLite.commit(self, commit)

    async def commit_together(self, group: Sequence[Commit | TaskWrites]) -> list[Outcome | None]:
        others = [member for member in group if not self._may_be_early(member)]
        answers = iter(await super().commit_together(others))
        self._late = [member for member in group if self._may_be_early(member)]
        return [Outcome(Verdict.COMMITTED) if self._may_be_early(member) else next(answers) for member in group]


class OneForAll(SQLite):
    """A member of a group that is refused takes along what was written before it."""

    async def commit_together(self, group: Sequence[Commit | TaskWrites]) -> list[Outcome | None]:
        def work(connection: sqlite3.Connection) -> list[Outcome | None]:
            outcomes: list[Outcome | None] = []
            for member in group:
                outcomes.append(commit_apart(connection, member))
                if outcomes[-1] is None or not outcomes[-1].is_written:
                    connection.execute("ROLLBACK")
                    connection.execute("BEGIN IMMEDIATE")
            return outcomes

        return await self._in_transaction(work)


class WritesAtHome(SQLite):
    """Pending writes never leave the process."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._home = MemoryEngine()
        self.put_writes = self._home.put_writes  # type: ignore[method-assign]
        self.get_writes = self._home.get_writes  # type: ignore[method-assign]


class ExpectedOutside(SQLite):
    """What a save expects to be the latest is compared before its transaction begins."""

    async def commit(self, commit: Commit) -> Outcome:
        if commit.if_latest is not ANY:
            latest = await self.entry(commit.thread_id, commit.namespace, None)
            found = latest.checkpoint_id if latest else None
            if found != commit.if_latest:
                return Outcome(Verdict.CONFLICT, latest=found)
        return await super().commit(replace(commit, if_latest=ANY))


class Remembers(SQLite):
    """What was read once is not read again."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._known: dict[tuple[str, str], Stored | None] = {}

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        if checkpoint_id is not None:
            return await super().read(thread_id, namespace, checkpoint_id)
        if (thread_id, namespace) not in self._known:
            self._known[thread_id, namespace] = await super().read(thread_id, namespace, None)
        return self._known[thread_id, namespace]

    async def read_since(self, thread_id: str, namespace: str, checkpoint_id: str | None, held: Base) -> Stored | None:
        return await self.read(thread_id, namespace, checkpoint_id)

    async def commit(self, commit: Commit) -> Outcome:
        outcome = await super().commit(commit)
        self._known[commit.thread_id, commit.namespace] = await super().read(commit.thread_id, commit.namespace, None)
        return outcome


class RacesToCreate(SQLite):
    """Whoever finds no table makes it, a moment later."""

    async def setup(self) -> None:
        await super().setup()
        await self._writer.run(lambda file: self._create(file.current()))

    @staticmethod
    def _create(connection: sqlite3.Connection) -> None:
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'extra'").fetchone() is None:
            time.sleep(0.02)
            connection.execute("CREATE TABLE extra (id INTEGER PRIMARY KEY)")


class OutageIsNone(SQLite):
    """What could not be found out is not there."""

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        try:
            return await super().read(thread_id, namespace, checkpoint_id)
        except (sqlite3.Error, OSError):
            return None

    async def read_since(self, thread_id: str, namespace: str, checkpoint_id: str | None, held: Base) -> Stored | None:
        return await self.read(thread_id, namespace, checkpoint_id)


class NeverGivesUp(SQLite):
    """A query may take as long as it likes."""

    async def _query(self, work: Callable[[sqlite3.Connection, Query], T]) -> T:
        self._query_timeout = math.inf
        return await super()._query(work)


class OneAtATime(SQLite):
    """All handles of a process wait for one query."""

    _turn = asyncio.Lock()

    async def _query(self, work: Callable[[sqlite3.Connection, Query], T]) -> T:
        async with self._turn:
            return await super()._query(work)


def files_without_fsync(path: str) -> Checkpointer:
    """The file backend in a process where nothing waits for the disk."""
    for name in ("fsync", "fdatasync"):
        setattr(os, name, lambda _fd: None)
    return FileCheckpointer(path)


def over(engine: Callable[[str], SQLite]) -> Callable[[str], Checkpointer]:
    return lambda path: Checkpointer(CheckpointStore(engine(path)))


OPENERS: dict[str, Callable[[str], Checkpointer]] = {
    "sound sqlite": over(SQLite),
    "sound file": FileCheckpointer,
    "runs afterwards": over(RunsAfterwards),
    "latest afterwards": over(LatestAfterwards),
    "too early": over(TooEarly),
    "groups too early": over(GroupsTooEarly),
    "one for all": over(OneForAll),
    "expected outside": over(ExpectedOutside),
    "remembers": over(Remembers),
    "races to create": over(RacesToCreate),
    "writes at home": over(WritesAtHome),
    "outage is none": over(OutageIsNone),
    "never gives up": over(NeverGivesUp),
    "one at a time": over(OneAtATime),
    "no fsync": files_without_fsync,
}


def from_location(location: str) -> Checkpointer:
    name, _, path = location.partition(":")
    return OPENERS[name](path)


register_checkpointer("broken", from_location)


class BrokenSQLiteStore(SQLiteStore):
    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder)
        self._name = name

    @property
    def url(self) -> str:
        return f"broken:{self._name}:{self.path}"

    def open(self, *, ttl_seconds: float | None = None) -> Checkpointer:
        return OPENERS[self._name](str(self.path))

    @asynccontextmanager
    async def stalling(self, seconds: float) -> AsyncIterator[Stall]:
        async with self.open() as handle:
            engine = handle.store.engine
            assert isinstance(engine, SQLiteEngine)
            engine._query_timeout = seconds
            yield StallInSQLite(handle)


class BrokenFileStore(FileStore):
    """Only other processes get the broken one: this one goes on to wait for the disk."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder)
        self._name = name

    @property
    def url(self) -> str:
        return f"broken:{self._name}:{self.path}"
