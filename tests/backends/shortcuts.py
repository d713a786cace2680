"""The shortcut of each engine: what decides on a commit there, and how one condition of it is taken away."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from locus.memory.backends.file import log as file_log
from locus.memory.backends.file.engine import FileEngine
from locus.memory.backends.file.log import LogFile
from locus.memory.backends.mysql import commit as mysql_commit
from locus.memory.backends.mysql import together as mysql_together
from locus.memory.backends.mysql.client import MySQLConnection, Statement
from locus.memory.backends.mysql.engine import MySQLEngine
from locus.memory.backends.objects.engine import ObjectEngine
from locus.memory.backends.objects.index import ThreadIndex
from locus.memory.backends.objects.log import ThreadLog
from locus.memory.backends.opensearch import commit as opensearch_commit
from locus.memory.backends.opensearch.client import ReadClient
from locus.memory.backends.opensearch.engine import OpenSearchEngine
from locus.memory.backends.opensearch.log import Log, ThreadCache
from locus.memory.backends.oracle import commit as oracle_commit
from locus.memory.backends.oracle.client import OracleConnection
from locus.memory.backends.oracle.engine import OracleEngine
from locus.memory.backends.postgresql import commit as postgresql_commit
from locus.memory.backends.postgresql import together as postgresql_together
from locus.memory.backends.postgresql.client import PostgreSQLConnection
from locus.memory.backends.postgresql.engine import PostgreSQLEngine
from locus.memory.backends.redis import commit as redis_commit
from locus.memory.backends.redis import engine as redis_engine
from locus.memory.backends.redis import scripts as redis_scripts
from locus.memory.backends.redis.engine import RedisEngine
from locus.memory.backends.sql import commit as sql_commit
from locus.memory.backends.sqlite import commit as sqlite_commit
from locus.memory.backends.sqlite.engine import SQLiteEngine
from locus.memory.engine import Engine
from tests.backends.commit_courses import Course, DifferenceFound, seeds_of
from tests.backends.course_stores import bench, kind_of
from tests.backends.mutants import Mutant, Statements, lua_mutants, python_mutants

SECONDS = 20.0
"""How long a course may take: a mutant may wait for something that never comes, or go round in circles."""

AnyCourse = int | str
"""A random course, by its number, or a directed one, by its name."""


class Shortcut(NamedTuple):
    """`listen` lets statements be heard, and changed, on their way to a database; `forget` drops what was built."""

    functions: tuple[Callable[..., Any], ...]
    engine: type[Engine]
    listen: Callable[[Statements, pytest.MonkeyPatch], None] = lambda _statements, _patch: None
    scripts: Callable[[], list[Mutant]] = list
    forget: Callable[[], None] = lambda: None
    method: str = "commit"
    """Whose statements decide."""


def _listen_to_sqlite(statements: Statements, patch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect

    def connected(*args: Any, factory: type[sqlite3.Connection] = sqlite3.Connection, **options: Any) -> Any:
        class Connection(factory):  # type: ignore[misc, valid-type]
            def execute(self, text: str, *values: Any) -> sqlite3.Cursor:
                cursor: sqlite3.Cursor = super().execute(statements.changed_in_thread(text), *values)
                return cursor

        return connect(*args, factory=Connection, **options)

    patch.setattr(sqlite3, "connect", connected)


def _listen_to_connection(kind: type[Any]) -> Callable[[Statements, pytest.MonkeyPatch], None]:
    def listen(statements: Statements, patch: pytest.MonkeyPatch) -> None:
        execute, begin = kind.execute, kind.begin

        async def heard(self: Any, text: str, *values: Any, **options: Any) -> Any:
            return await execute(self, statements.changed(text), *values, **options)

        async def begun(self: Any, writing: bool) -> None:
            statements.changed("BEGIN")
            await begin(self, writing)

        patch.setattr(kind, "execute", heard)
        patch.setattr(kind, "begin", begun)

    return listen


def _listen_to_mysql(statements: Statements, patch: pytest.MonkeyPatch) -> None:
    send = MySQLConnection.send

    async def heard(self: MySQLConnection, sent: Sequence[Statement]) -> Any:
        return await send(self, [(statements.changed(text), values) for text, values in sent])

    patch.setattr(MySQLConnection, "send", heard)


def _redis_scripts() -> list[Mutant]:
    before, start, rest = redis_scripts.COMMIT.text.partition("---- Decide.")
    decide, end, after = rest.partition("---- Write.")
    assert start
    assert end

    def install(text: str, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(redis_scripts, "COMMIT", redis_scripts.Script(f"{before}{start}{text}{end}{after}"))

    return lua_mutants(decide, install)


def _forget_statements() -> None:
    postgresql_commit._for_thread.cache_clear()
    postgresql_commit._for_new_thread.cache_clear()
    postgresql_together._statement.cache_clear()


LAST_SEEN = (sql_commit.LastSeenThread.continued_by, sql_commit.LastSeenThreads.note, sql_commit.can_be_first)

SHORTCUTS = {
    "sqlite": Shortcut(
        (
            sqlite_commit.append,
            sqlite_commit._check_newest,
            sqlite_commit._follows,
            sql_commit.SQLThread.look,
            sql_commit.SQLThreads.commit,
        ),
        SQLiteEngine,
        _listen_to_sqlite,
    ),
    "file": Shortcut(
        (
            FileEngine.commit,
            LogFile._index,
            LogFile._index_runs,
            LogFile._indexed_runs,
            LogFile._older,
            LogFile.newest_first,
            LogFile.checkpoints,
            LogFile.find,
            LogFile.has_run,
            LogFile._only_grew,
            file_log.CommitView.find,
            file_log.CommitView.latest,
            file_log.CommitView.has_run,
            file_log._known,
        ),
        FileEngine,
    ),
    "objects": Shortcut(
        (
            ObjectEngine.commit,
            ThreadIndex.find,
            ThreadIndex.latest,
            ThreadIndex.has_run,
            ThreadIndex.parent,
            ThreadIndex._parent_id,
            ThreadIndex._commit,
            ThreadIndex._add,
            ThreadIndex._add_run,
            ThreadLog._change,
            ThreadLog._put_event,
        ),
        ObjectEngine,
    ),
    "opensearch model": Shortcut(
        (
            opensearch_commit.commit_to_log,
            opensearch_commit._attempt,
            opensearch_commit._drafted,
            opensearch_commit._referenced_names,
            opensearch_commit.CommitView.__init__,
            opensearch_commit.CommitView.find,
            opensearch_commit.CommitView.latest,
            opensearch_commit.CommitView.has_run,
            opensearch_commit.CommitView._is_opened,
            opensearch_commit.CommitView._named_runs,
            opensearch_commit._record,
            opensearch_commit._stored_runs,
            opensearch_commit._find_run,
            opensearch_commit._run_locations,
            Log.use_cached_state,
            Log.find,
            Log.latest,
            ThreadCache.get,
            ThreadCache.put,
        ),
        OpenSearchEngine,
    ),
    "opensearch model together": Shortcut(
        (
            opensearch_commit.commit_group,
            opensearch_commit._ids_to_read,
            opensearch_commit._step,
            opensearch_commit._written,
            opensearch_commit._complete_all,
            ReadClient.get_many,
            Log.ids_to_find,
        ),
        OpenSearchEngine,
    ),
    "redis together": Shortcut(
        (RedisEngine.commit_together, RedisEngine._call, redis_commit.outcome_together),
        RedisEngine,
    ),
    "redis": Shortcut(
        (
            RedisEngine.commit,
            redis_engine._replacing_arguments,
            redis_commit.commit_arguments,
            redis_commit._mode_and_id,
            redis_commit.commit_outcome,
        ),
        RedisEngine,
        scripts=_redis_scripts,
    ),
    "postgresql": Shortcut(
        (
            PostgreSQLEngine._commit,
            PostgreSQLEngine._only_lacks_its_base,
            postgresql_commit.in_new_thread,
            postgresql_commit._statement_key,
            postgresql_commit._Builder.in_thread,
            postgresql_commit._Builder._conditions,
            postgresql_commit._Builder._exists,
            postgresql_commit._Builder._parent,
            postgresql_commit._contested,
            sql_commit.can_be_first,
        ),
        PostgreSQLEngine,
        _listen_to_connection(PostgreSQLConnection),
        forget=_forget_statements,
    ),
    "mysql": Shortcut(
        (
            *LAST_SEEN,
            MySQLEngine._commit,
            MySQLEngine._sent,
            MySQLEngine._commit_to_thread,
            mysql_commit.reliance,
            mysql_commit.in_seen_thread,
            mysql_commit.seen_thread_outcome,
            mysql_commit.questions,
            mysql_commit.questions_in_lock,
            mysql_commit.looked,
        ),
        MySQLEngine,
        _listen_to_mysql,
    ),
    "postgresql in groups": Shortcut(
        (
            postgresql_together._commit,
            postgresql_together._member_row,
            postgresql_together._run_rows,
            postgresql_together._statement,
        ),
        PostgreSQLEngine,
        _listen_to_connection(PostgreSQLConnection),
        forget=_forget_statements,
        method="commit_together",
    ),
    "mysql in groups": Shortcut(
        (
            MySQLEngine._group,
            MySQLEngine._send_group,
            mysql_together.Group.questions,
            mysql_together.Group._that_may_create,
            mysql_together.Group.decide,
            mysql_together.Group._runs,
            mysql_together.Group._moves,
            mysql_together._outcome,
        ),
        MySQLEngine,
        _listen_to_mysql,
        method="commit_together",
    ),
    "oracle": Shortcut(
        (
            *LAST_SEEN,
            OracleEngine._commit,
            oracle_commit.in_seen_thread,
            oracle_commit.in_new_thread,
            sql_commit.SQLThreads.open,
        ),
        OracleEngine,
        _listen_to_connection(OracleConnection),
    ),
}


@contextmanager
def _interrupted_after(seconds: float) -> Iterator[None]:
    """For what does not let the event loop go on."""

    def interrupt(*_: object) -> None:
        raise TimeoutError

    begun, handler = time.monotonic(), signal.signal(signal.SIGALRM, interrupt)
    left, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        # Somebody else may have set an alarm, too.
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, max(0.001, left - (time.monotonic() - begun)) if left else 0)


class Trial:
    """The shortcut of one engine, which courses are to hold against the rule: as it is, and as mutants."""

    def __init__(self, name: str, request: pytest.FixtureRequest, folder: Path, statements: Statements) -> None:
        self._kind = kind_of(name)
        self._shortcut = SHORTCUTS[name]
        self._request = request
        self._folder = folder
        self._statements = statements
        self._numbers = count()

    def differs(self, courses: Iterable[AnyCourse]) -> AnyCourse | None:
        """The first of these courses, on a new store, that finds a difference."""
        folder = self._folder / str(next(self._numbers))
        folder.mkdir()
        with self._kind.open(self._request, folder) as open_handle, bench(open_handle) as place:
            for course in courses:
                running = Course(place.handles, self._kind.traits, self._kind.overlap)
                steps = running.follow(course) if isinstance(course, str) else running.run(seeds_of(course))
                try:
                    with _interrupted_after(SECONDS * 1.5):
                        place.run(asyncio.wait_for(steps, SECONDS))
                except (DifferenceFound, TimeoutError):
                    return course
        return None

    def differs_without(self, mutant: Mutant, courses: Iterable[AnyCourse]) -> AnyCourse | None:
        self._shortcut.forget()
        try:
            with pytest.MonkeyPatch.context() as patch:
                mutant.apply(patch)
                return self.differs(courses)
        finally:
            self._shortcut.forget()

    def mutants(self) -> list[Mutant]:
        """All of them. Conditions of SQL are known if they were asked in a course before."""
        shortcut = self._shortcut
        return [*python_mutants(*shortcut.functions), *shortcut.scripts(), *self._statements.mutants()]


@contextmanager
def trial_of(name: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[Trial]:
    """The trial of an engine."""
    shortcut, statements = SHORTCUTS[name], Statements()
    commit: Any = getattr(shortcut.engine, shortcut.method)

    async def told(self: Engine, *args: Any) -> Any:
        with statements.committing():
            return await commit(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        shortcut.listen(statements, patch)
        patch.setattr(shortcut.engine, shortcut.method, told)
        yield Trial(name, request, folder, statements)
