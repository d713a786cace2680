"""For courses of commits: a store of each kind, and three handles on it, reached without a proxy."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
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
from locus.memory.backends.opensearch.engine import OpenSearchEngine
from locus.memory.backends.opensearch.log import Log
from locus.memory.backends.opensearch.schema import Record
from locus.memory.backends.postgresql.engine import PostgreSQLEngine
from locus.memory.backends.redis import scripts
from locus.memory.backends.redis.engine import RedisEngine
from locus.memory.backends.redis.scripts import Script
from locus.memory.engine import Engine
from tests.backends.commit_courses import Overlap, Traits, Work, one_after_another
from tests.backends.mysql.stores import drop_tables, new_name
from tests.backends.objects.in_memory import MemoryObjectStore
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
def _objects(_request: pytest.FixtureRequest, _folder: Path) -> Iterator[Open]:
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


async def _as_coroutine(work: Work) -> None:
    await work()


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


def kinds(*names: str) -> list[object]:
    """The parameters of a test of these stores."""
    return [pytest.param(name, marks=KINDS[name].marks) for name in names]


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
