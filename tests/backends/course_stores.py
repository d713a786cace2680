"""For courses of commits: a store of each kind, and two handles on it, reached without a proxy."""

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
from locus.memory.engine import Engine
from tests.backends.commit_courses import Traits
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


class Kind(NamedTuple):
    """A kind of store; `marks` name the server that it needs."""

    open: Store
    traits: Traits = Traits()
    marks: tuple[pytest.MarkDecorator, ...] = ()


def _needs(server: str) -> tuple[pytest.MarkDecorator, ...]:
    return (pytest.mark.server(server),)


KINDS = {
    "memory": Kind(_memory),
    "file": Kind(_file),
    "sqlite": Kind(_sqlite),
    "objects": Kind(_objects, NUMBERED_BY_EVENTS),
    "opensearch model": Kind(_opensearch_model, Traits(sure_of_branches=False)),
    "postgresql": Kind(_postgresql, marks=_needs("postgresql")),
    "mysql": Kind(_mysql, marks=_needs("mysql")),
    "redis": Kind(_redis, marks=_needs("redis")),
    # Its stand-in needs PostgreSQL.
    "oracle": Kind(_oracle, marks=(*_needs("postgresql"), pytest.mark.oracle)),
    "opensearch": Kind(_opensearch, Traits(sure_of_branches=False), _needs("opensearch")),
    "s3": Kind(_s3, NUMBERED_BY_EVENTS, _needs("s3")),
}


def kinds(*names: str) -> list[object]:
    """The parameters of a test of these stores."""
    return [pytest.param(name, marks=KINDS[name].marks) for name in names]


class Bench:
    """Two handles on a store, in an event loop of their own."""

    def __init__(self, runner: asyncio.Runner, handles: Sequence[Engine]) -> None:
        self._runner = runner
        self.handles = handles

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)


@contextmanager
def bench(open_handle: Open) -> Iterator[Bench]:
    with asyncio.Runner() as runner:
        handles = [open_handle(), open_handle()]
        try:
            for handle in handles:
                runner.run(handle.setup())
            yield Bench(runner, handles)
        finally:
            for handle in handles:
                runner.run(handle.close())
