"""An empty store of LangGraph's on each database that can hold one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from locus.integrations.langgraph_store.store import LocusStore
from locus.testing.stores import DurableTestStore
from tests.backends.embedded import SQLiteStore
from tests.backends.postgresql.store import PostgreSQLStore, new_store
from tests.servers.postgresql import PostgreSQLServer
from tests.servers.proxy import Proxy


@pytest.fixture(scope="module")
def schema(postgresql_server: PostgreSQLServer) -> Iterator[PostgreSQLStore]:
    """Made once: making the tables takes longer than most tests."""
    with Proxy(postgresql_server.port) as proxy, new_store(postgresql_server.url, proxy) as store:
        yield store


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.server("postgresql"))])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DurableTestStore]:
    if request.param == "sqlite":
        yield SQLiteStore(tmp_path)
        return
    schema: PostgreSQLStore = request.getfixturevalue("schema")
    yield schema
    with schema.connection() as connection:
        connection.execute("DROP TABLE IF EXISTS locus_store, locus_store_format")
        names = "SELECT tablename FROM pg_tables WHERE tablename LIKE 'locus\\_\\_memory\\_%'"
        for (name,) in connection.execute(names).fetchall():
            connection.execute(f'DROP TABLE "{name}" CASCADE')


@pytest_asyncio.fixture
async def store(place: DurableTestStore) -> AsyncIterator[LocusStore]:
    async with place.open() as handle:
        yield LocusStore(handle)


class Clock:
    """The time as the store sees it."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def pass_minutes(self, minutes: float) -> None:
        self.now += timedelta(minutes=minutes)


class _Times(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, datetime)


READ_THE_CLOCK = (
    "locus.memory.long_term.memory",
    "locus.memory.long_term.store",
    "locus.memory.long_term.held",
    "locus.memory.backends.sql.flavour",
    "locus.memory.backends.postgresql.commit",
)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()

    class Stopped(datetime, metaclass=_Times):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return clock.now

    for module in READ_THE_CLOCK:
        monkeypatch.setattr(f"{module}.datetime", Stopped)
    return clock
