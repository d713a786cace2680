"""For courses of commits: a store of each kind, and three handles on it, reached without a proxy."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import psycopg
import pytest

from locus.memory.backends import (
    FileCheckpointer,
    mysql_checkpointer,
    oracle_checkpointer,
    postgresql_checkpointer,
    redis_checkpointer,
    s3_checkpointer,
    sqlite_checkpointer,
)
from locus.memory.backends.memory import MemoryEngine
from locus.memory.backends.objects.engine import ObjectEngine
from locus.memory.backends.objects.schema import parse_event
from locus.memory.backends.opensearch import commit as opensearch_commit
from locus.memory.backends.opensearch.client import Client
from locus.memory.backends.opensearch.engine import OpenSearchEngine
from locus.memory.backends.opensearch.log import Log
from locus.memory.backends.opensearch.schema import Record
from locus.memory.backends.postgresql import together as postgresql_together
from locus.memory.backends.postgresql.engine import PostgreSQLEngine
from locus.memory.backends.redis import scripts
from locus.memory.backends.redis.client import ScriptCall
from locus.memory.backends.redis.engine import RedisEngine
from locus.memory.backends.redis.scripts import Script
from locus.memory.engine import CommitsTogether, Engine
from locus.memory.model.records import Commit, Outcome, Verdict
from tests.backends.commit_courses import Overlap, Traits, Work, one_after_another
from tests.backends.groups import committing_together
from tests.backends.mysql.stores import drop_tables, new_name
from tests.backends.objects.in_memory import MemoryObjectStore
from tests.backends.objects.small import make_small
from tests.backends.opensearch.model import ModelEngine, ModelIndex
from tests.backends.opensearch.store import OpenSearchStore
from tests.backends.oracle.stores import place_of
from tests.backends.s3.store import set_credentials
from tests.servers.mysql import MySQLServer
from tests.servers.opensearch import OpenSearchServer
from tests.servers.oracle.fixtures import database_in
from tests.servers.postgresql import PostgreSQLServer
from tests.servers.redis import RedisServer
from tests.servers.seaweedfs import SeaweedServer

T = TypeVar("T")
Open = Callable[[], Engine]
"""A new handle on the store."""
Store = Callable[[pytest.FixtureRequest, Path], AbstractContextManager[Open]]

OF_OPENSEARCH = Traits(sure_of_branches=False)
NUMBERED_BY_EVENTS = Traits(counts=False, forgets_runs=False)


@contextmanager
def _memory(_request: pytest.FixtureRequest, _folder: Path) -> Iterator[Open]:
    engine = MemoryEngine()
    yield lambda: engine


@contextmanager
def _file(request: pytest.FixtureRequest, folder: Path) -> Iterator[Open]:
    # Nobody pulls the plug here, and waiting for the disk is most of the time that it takes.
    patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    for name in ("fsync", "fdatasync"):
        patch.setattr(os, name, lambda _fd: None, raising=False)
    yield lambda: FileCheckpointer(folder / "threads").store.engine


@contextmanager
def _sqlite(_request: pytest.FixtureRequest, folder: Path) -> Iterator[Open]:
    yield lambda: sqlite_checkpointer(folder / "locus.db", durability="normal").store.engine


@contextmanager
def _objects(request: pytest.FixtureRequest, _folder: Path) -> Iterator[Open]:
    make_small(request.getfixturevalue("monkeypatch"))  # a course is long then, and a new handle reads its end only
    objects = MemoryObjectStore()
    yield lambda: ObjectEngine(MemoryObjectStore(shared=objects))


@contextmanager
def _s3(request: pytest.FixtureRequest, _folder: Path) -> Iterator[Open]:
    server: SeaweedServer = request.getfixturevalue("s3_server")
    set_credentials(server, request.getfixturevalue("monkeypatch"))
    prefix, place = f"test-{secrets.token_hex(8)}", f"http://127.0.0.1:{server.port}"
    yield lambda: s3_checkpointer(server.bucket, prefix, endpoint_url=place).store.engine


@contextmanager
def _opensearch_model(_request: pytest.FixtureRequest, _folder: Path) -> Iterator[Open]:
    index = ModelIndex()
    yield lambda: ModelEngine(index)


@contextmanager
def _opensearch(request: pytest.FixtureRequest, _folder: Path) -> Iterator[Open]:
    server: OpenSearchServer = request.getfixturevalue("opensearch_server")
    store = OpenSearchStore(server.url)
    yield lambda: store.open().store.engine
    store.remove()


@contextmanager
def _redis(request: pytest.FixtureRequest, _folder: Path) -> Iterator[Open]:
    server: RedisServer = request.getfixturevalue("redis_server")
    url = f"redis://127.0.0.1:{server.port}/0?prefix=test:{secrets.token_hex(6)}:&search=False"
    yield lambda: redis_checkpointer(url).store.engine


@contextmanager
def _postgresql(request: pytest.FixtureRequest, _folder: Path) -> Iterator[Open]:
    server: PostgreSQLServer = request.getfixturevalue("postgresql_server")
    schema = f"t_{secrets.token_hex(6)}"
    yield lambda: postgresql_checkpointer(dsn=server.url, schema_name=schema).store.engine
    with psycopg.connect(server.url, autocommit=True, options="-c client_min_messages=warning") as connection:
        connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')


@contextmanager
def _mysql(request: pytest.FixtureRequest, _folder: Path) -> Iterator[Open]:
    server: MySQLServer = request.getfixturevalue("mysql_server")
    name = new_name()
    yield lambda: mysql_checkpointer(dsn=f"{server.url}?table_name={name}").store.engine
    drop_tables(server.url, name)


@contextmanager
def _oracle(request: pytest.FixtureRequest, _folder: Path) -> Iterator[Open]:
    with contextmanager(database_in)(request.getfixturevalue("oracle_home")) as database:
        place = {**place_of(database), "table_name": f"{database.prefix}{new_name()}"}
        yield lambda: oracle_checkpointer(**place).store.engine


def _together(store: Store) -> Store:
    """The same store, with each commit in a group."""

    @contextmanager
    def opened(request: pytest.FixtureRequest, folder: Path) -> Iterator[Open]:
        with store(request, folder) as open_handle:
            yield lambda: committing_together(open_handle())

    return opened


def _meddling(install: Callable[[pytest.MonkeyPatch, Engine, Work], None]) -> Overlap:
    """For an engine that looks first, and then commits if nothing has changed. `install` has something done in between:
    right before that engine sends what commits."""

    async def overlap(_first: Engine, do_first: Work, second: Engine, do_second: Work) -> bool:
        has_meddled = False

        async def meddle() -> None:
            nonlocal has_meddled
            if not has_meddled:
                has_meddled = True
                await do_first()

        with pytest.MonkeyPatch.context() as patch:
            install(patch, second, meddle)
            await do_second()
        if not has_meddled:
            await do_first()
            return False
        return True

    return overlap


def _before_scripts(patch: pytest.MonkeyPatch, engine: Engine, meddle: Work) -> None:
    assert isinstance(engine, RedisEngine)
    clients, run = engine._clients, engine._clients.run

    async def meddled(script: Script, *args: Any) -> Any:
        if script is scripts.COMMIT:
            await meddle()
        return await run(script, *args)

    patch.setattr(clients, "run", meddled)


def _before_events(patch: pytest.MonkeyPatch, engine: Engine, meddle: Work) -> None:
    assert isinstance(engine, ObjectEngine)
    store, put = engine.store, engine.store.put

    async def meddled(key: str, body: bytes, *, if_absent: bool) -> bool:
        if parse_event(key) is not None:
            await meddle()
        return await put(key, body, if_absent=if_absent)

    patch.setattr(store, "put", meddled)


def _before_records(patch: pytest.MonkeyPatch, engine: Engine, meddle: Work) -> None:
    assert isinstance(engine, OpenSearchEngine)
    append, loop = Log.append, asyncio.get_running_loop()

    def meddled(log: Log, record: Record) -> bool:
        # This engine works in threads of its own.
        if log.cache is engine._cache:
            asyncio.run_coroutine_threadsafe(_as_coroutine(meddle), loop).result()
        return append(log, record)

    patch.setattr(Log, "append", meddled)


def _before_groups_of_scripts(patch: pytest.MonkeyPatch, engine: Engine, meddle: Work) -> None:
    assert isinstance(engine, RedisEngine)
    clients, run_each = engine._clients, engine._clients.run_each

    async def meddled(calls: Sequence[ScriptCall]) -> list[Any]:
        await meddle()
        return await run_each(calls)

    patch.setattr(clients, "run_each", meddled)
    _before_scripts(patch, engine, meddle)


def _before_groups_of_records(patch: pytest.MonkeyPatch, engine: Engine, meddle: Work) -> None:
    assert isinstance(engine, OpenSearchEngine)
    write, loop = opensearch_commit._written, asyncio.get_running_loop()

    def meddled(client: Client, steps: Sequence[Any]) -> list[Any]:
        if any(step.log.cache is engine._cache for step in steps):
            asyncio.run_coroutine_threadsafe(_as_coroutine(meddle), loop).result()
        return write(client, steps)

    patch.setattr(opensearch_commit, "_written", meddled)
    _before_records(patch, engine, meddle)


async def _as_coroutine(work: Work) -> None:
    await work()


def _in_groups(open_store: Store) -> Store:
    """The same store, whose handles send each commit in a group with others. Who is not taken there goes alone."""

    @contextmanager
    def opened(request: pytest.FixtureRequest, folder: Path) -> Iterator[Open]:
        with open_store(request, folder) as open_handle:
            yield lambda: _sending_groups(open_handle())

    return opened


_numbers = count()
CREATED = "another thread that somebody creates"
_meeting: set[Engine] = set()
"""Those whose groups create that thread, too."""


def _sending_groups(engine: Engine) -> Engine:
    assert isinstance(engine, CommitsTogether)
    alone, standing, saved = engine.commit, f"standing {next(_numbers)}", count(1)

    async def commit(wanted: Commit) -> Outcome:
        number, name = next(saved), f"beside-{next(_numbers)}"
        # What gets into a thread that it does not belong to finds the same there already. The others come after this
        # one in the order of their ids: whoever counts its answers wrong gives them wrong ones.
        new = Commit(f"new {name}", wanted.namespace, wanted.checkpoint_id, name, wanted.created_at, "{}", "{}", "[]")
        new = replace(new, runs=tuple(run._replace(items=f'["{name}"]') for run in wanted.runs), fresh_id=True)
        own = tuple(run._replace(branch=name, number=0) for run in new.runs[:1])
        old = replace(new, thread_id=standing, namespace="", checkpoint_id=name, runs=own)
        met = [replace(new, thread_id=CREATED)] if engine in _meeting else []
        first, answer, last, *_ = await engine.commit_together([old, wanted, new, *met])
        parent_id = None if first is None else first.parent_id
        assert first == Outcome(Verdict.COMMITTED, number, parent_id), f"{first} of a thread that nobody else uses"
        assert (parent_id is None) == (number == 1), f"{first} of a thread that nobody else uses"
        assert last == Outcome(Verdict.COMMITTED, 1), f"{last} of a new thread"
        return await alone(wanted) if answer is None else answer

    engine.commit = commit  # type: ignore[assignment, method-assign]
    return engine


async def _while_a_thread_is_created(first: Engine, do_first: Work, second: Engine, do_second: Work) -> bool:
    """For groups on PostgreSQL: the second has looked, and waits for a thread that is created, when the first comes."""
    assert isinstance(first, PostgreSQLEngine)
    holder = await first._connect()
    blocked = "SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    task: asyncio.Future[None] | None = None
    _meeting.add(second)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(postgresql_together, "PATIENCE", "20s")
            await holder.begin(writing=True)
            await holder.execute(f"INSERT INTO {first.sql.threads} (thread_id, last_seq) VALUES ('{CREATED}', 0)")
            task = asyncio.ensure_future(do_second())
            while not task.done() and not await holder.execute(blocked):  # noqa: ASYNC110 - only the server knows
                await asyncio.sleep(0.001)
            in_order = not task.done()
            await do_first()
            await holder.rollback()
            await task
            await holder.execute(f"DELETE FROM {first.sql.threads} WHERE thread_id = '{CREATED}'")
    finally:
        _meeting.discard(second)
        holder.close()
        if task is not None:
            task.cancel()
    return in_order


async def _behind_a_lock(first: Engine, do_first: Work, _second: Engine, do_second: Work) -> bool:
    """For PostgreSQL: both see the threads as they are, and wait in this order for a lock that somebody else has."""
    assert isinstance(first, PostgreSQLEngine)
    holder = await first._connect()

    async def settled(*works: asyncio.Future[None]) -> None:
        """Until each work has ended, or waits for a lock."""
        while True:
            under_way = [work for work in works if not work.done()]
            ((waiting,),) = await holder.execute("SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted")
            if waiting >= len(under_way):
                return

    begun: list[asyncio.Future[None]] = []
    try:
        await holder.begin(writing=True)
        await holder.execute(f"SELECT 1 FROM {first.sql.threads} FOR UPDATE")
        for do in (do_first, do_second):
            begun.append(asyncio.ensure_future(do()))
            await settled(*begun)
        in_order = begun[0].done() or not begun[1].done()
        await holder.rollback()
        await asyncio.gather(*begun)
    finally:
        holder.close()
        for work in begun:
            work.cancel()
    return in_order


class Kind(NamedTuple):
    """A kind of store; `marks` name the server that it needs."""

    open: Store
    courses: Sequence[int]
    """Those that are always run: enough to find most of what a shortcut may lack."""
    enough: Sequence[int]
    """Those that find out about every condition that its shortcut may lack (see `test_commit_shortcuts`)."""
    traits: Traits = Traits()
    overlap: Overlap = one_after_another
    marks: tuple[pytest.MarkDecorator, ...] = ()


def _needs(server: str) -> tuple[pytest.MarkDecorator, ...]:
    return (pytest.mark.server(server),)


KINDS = {
    "memory": Kind(_memory, range(60), range(60)),
    "file": Kind(_file, range(20), range(20)),
    "sqlite": Kind(_sqlite, range(30), (*range(20), 46)),
    "objects": Kind(_objects, range(20), (*range(20), 56), NUMBERED_BY_EVENTS, _meddling(_before_events)),
    "opensearch model": Kind(_opensearch_model, range(16), range(20), OF_OPENSEARCH, _meddling(_before_records)),
    "opensearch model together": Kind(
        _together(_opensearch_model), range(6), range(20), OF_OPENSEARCH, _meddling(_before_groups_of_records)
    ),
    "redis together": Kind(
        _together(_redis),
        range(6),
        range(20),
        overlap=_meddling(_before_groups_of_scripts),
        marks=_needs("redis"),
    ),
    "postgresql": Kind(
        _postgresql, range(6), (*range(20), 33, 114), overlap=_behind_a_lock, marks=_needs("postgresql")
    ),
    "mysql": Kind(_mysql, range(6), (*range(20), 44), marks=_needs("mysql")),
    "redis": Kind(_redis, range(20), range(20), overlap=_meddling(_before_scripts), marks=_needs("redis")),
    # Its stand-in needs PostgreSQL.
    "oracle": Kind(_oracle, range(5), (*range(20), 44), marks=(*_needs("postgresql"), pytest.mark.oracle)),
    "opensearch": Kind(
        _opensearch, (8, 15), range(20), OF_OPENSEARCH, _meddling(_before_records), _needs("opensearch")
    ),
    "s3": Kind(_s3, range(2), range(20), NUMBERED_BY_EVENTS, _meddling(_before_events), _needs("s3")),
}


IN_GROUPS = {
    "postgresql in groups": Kind(
        _in_groups(_postgresql), (), range(20), overlap=_while_a_thread_is_created, marks=_needs("postgresql")
    ),
    "mysql in groups": Kind(_in_groups(_mysql), (), (*range(20), 44), marks=_needs("mysql")),
}
"""Engines that have another shortcut for groups."""


def kind_of(name: str) -> Kind:
    return KINDS[name] if name in KINDS else IN_GROUPS[name]


def kinds(*names: str) -> list[object]:
    """The parameters of a test of these stores."""
    return [pytest.param(name, marks=kind_of(name).marks) for name in names]


class Bench:
    """Three handles on a store, in an event loop of their own."""

    def __init__(self, runner: asyncio.Runner, handles: Sequence[Engine]) -> None:
        self._runner = runner
        self.handles = handles

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)


@contextmanager
def bench(open_handle: Open) -> Iterator[Bench]:
    with asyncio.Runner() as runner:
        handles = [open_handle() for _ in range(3)]
        try:
            for handle in handles:
                runner.run(handle.setup())
            yield Bench(runner, handles)
        finally:
            for handle in handles:
                runner.run(handle.close())
