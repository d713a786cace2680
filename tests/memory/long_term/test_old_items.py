"""Items of the table that older versions had for LangGraph's store: they are moved, once and for all."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from locus.errors import ConfigurationError, DamagedThreadsWarning, UnsupportedFormatError
from locus.integrations.langgraph_store.store import LocusStore
from locus.memory import LongTermMemory
from locus.memory.long_term import old_items
from locus.memory.registry import get_checkpointer
from locus.testing.stores import DurableTestStore
from tests.backends.embedded import SQLiteStore
from tests.backends.postgresql.store import PostgreSQLStore, new_store
from tests.servers.postgresql import PostgreSQLServer
from tests.servers.proxy import Proxy

SQLITE = """
CREATE TABLE locus_store_format (version integer NOT NULL);
INSERT INTO locus_store_format VALUES (1);
CREATE TABLE locus_store (
    namespace TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
    created_at TEXT NOT NULL, updated_at TEXT NOT NULL, ttl_minutes REAL, expires_at TEXT,
    PRIMARY KEY (namespace, key)
);
CREATE INDEX locus_store_by_end ON locus_store (expires_at) WHERE expires_at IS NOT NULL;
"""
POSTGRESQL = """
CREATE TABLE "locus_store_format" (version integer NOT NULL);
INSERT INTO "locus_store_format" VALUES (1);
CREATE TABLE "locus_store" (
    namespace text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL, value jsonb NOT NULL,
    created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL,
    ttl_minutes double precision, expires_at timestamptz,
    PRIMARY KEY (namespace, key)
);
CREATE INDEX "locus_store_by_end" ON "locus_store" (expires_at) WHERE expires_at IS NOT NULL;
"""
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
FAR = datetime(2126, 3, 1, 12, tzinfo=UTC)
NAMESPACES = [("users", "ada"), ("a/b", "c~d"), ("~1",), ("ä b",), (" x", "!")]
PATHS = ["users/ada/", "a~1b/c~0d/", "~01/", "ä b/", " x/!/"]


class OldPlace:
    """A database with the old tables."""

    def __init__(self, place: DurableTestStore) -> None:
        self.place = place
        self.script(SQLITE if isinstance(place, SQLiteStore) else POSTGRESQL)

    def script(self, text: str) -> None:
        if isinstance(self.place, SQLiteStore):
            with closing(sqlite3.connect(self.place.path)) as file:
                file.executescript(text)
        else:
            assert isinstance(self.place, PostgreSQLStore)
            with self.place.connection() as connection:
                connection.execute(text.encode())

    def ask(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        if isinstance(self.place, SQLiteStore):
            with closing(sqlite3.connect(self.place.path)) as file, file:
                return file.execute(statement, values).fetchall()
        assert isinstance(self.place, PostgreSQLStore)
        with self.place.connection() as connection:
            found = connection.execute(statement.replace("?", "%s").encode(), values)
            return found.fetchall() if found.description else []

    def keep(self, path: str, key: str, value: Any, minutes: float | None = None, end: datetime | None = None) -> None:
        times: list[Any] = [AT, AT + timedelta(hours=1), minutes, end]
        if isinstance(self.place, SQLiteStore):
            times = [time.isoformat(timespec="microseconds") if isinstance(time, datetime) else time for time in times]
        self.ask("INSERT INTO locus_store VALUES (?, ?, ?, ?, ?, ?, ?)", [path, key, json.dumps(value), *times])


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.server("postgresql"))])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OldPlace]:
    if request.param == "sqlite":
        yield OldPlace(SQLiteStore(tmp_path))
        return
    server: PostgreSQLServer = request.getfixturevalue("postgresql_server")
    with Proxy(server.port) as proxy, new_store(server.url, proxy) as store:
        with store.connection() as connection:
            connection.execute(f'CREATE SCHEMA "{store.schema}"'.encode())
        yield OldPlace(store)


async def test_every_item_is_moved_with_its_times(old: OldPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_items, "PORTION", 2)
    for path in PATHS:
        old.keep(path, "k~!/", {"of": path, "n": [1, None, 0.5]})
    old.keep("users/ada/", "ends", {"n": 1}, 90, FAR)
    old.keep("users/ada/", "ended", {"n": 1}, 5, AT)
    async with LongTermMemory(old.place.url) as memory:
        for namespace, path in zip(NAMESPACES, PATHS, strict=True):
            item = await memory.get_item(namespace, "k~!/")
            assert item is not None
            assert item.value == {"of": path, "n": [1, None, 0.5]}
            assert (item.created_at, item.updated_at, item.version) == (AT, AT + timedelta(hours=1), 1)
        ends = await memory.get_item(("users", "ada"), "ends")
        assert ends is not None
        assert (ends.ttl_seconds, ends.expires_at) == (5_400, FAR)
        assert await memory.list_keys(("users", "ada")) == ["ends", "k~!/"]
        assert len(await memory.search(limit=100)) == 6
    assert old.ask("SELECT count(*) FROM locus_store") == [(0,)]
    # Versions that know only format 1 refuse a newer one.
    assert old.ask("SELECT version FROM locus_store_format") == [(2,)]


async def test_what_was_put_later_counts(old: OldPlace) -> None:
    old.keep("n/", "a", {"v": "old"})
    async with LongTermMemory(old.place.url) as memory:
        assert await memory.get(("n",), "a") == {"v": "old"}
        await memory.put(("n",), "a", {"v": "new"})
    old.keep("n/", "a", {"v": "older"})  # by a process that was running already
    old.keep("n/", "b", {"v": "later"})
    async with LongTermMemory(old.place.url) as memory:
        assert await memory.get_batch([(("n",), "a"), (("n",), "b")]) == [{"v": "new"}, {"v": "later"}]
    assert old.ask("SELECT count(*) FROM locus_store") == [(0,)]


KILLED = """
import asyncio, os, sys
from locus.memory import LongTermMemory
from locus.memory.backends.sql.engine import SQLEngine
from locus.memory.long_term import old_items

old_items.PORTION, left, change = 2, [int(sys.argv[2])], SQLEngine.change

async def counted(engine, steps):
    moved = await change(engine, steps)
    left[0] -= 1
    if not left[0]:
        os._exit(9)
    return moved

SQLEngine.change = counted
asyncio.run(LongTermMemory(sys.argv[1]).setup())
"""


async def test_a_move_that_was_killed_is_finished_by_the_next_use(old: OldPlace) -> None:
    for number in range(11):
        old.keep("n/", f"{number:02}", {"n": number})
    for portions in (1, 2):
        command = [sys.executable, "-c", KILLED, old.place.url, str(portions)]
        done = await asyncio.to_thread(subprocess.run, command, env={**os.environ}, check=False)
        assert done.returncode == 9
    assert old.ask("SELECT count(*) FROM locus_store") == [(5,)]
    async with LongTermMemory(old.place.url) as one, LongTermMemory(old.place.url) as other:
        await asyncio.gather(one.setup(), other.setup())
        found = await one.search(("n",), limit=20)
        assert [(item.key, item.value["n"], item.version) for item in found] == [(f"{n:02}", n, 1) for n in range(11)]
    assert old.ask("SELECT count(*) FROM locus_store") == [(0,)]


async def test_two_who_move_at_once_move_each_item_once(old: OldPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_items, "PORTION", 3)
    for number in range(20):
        old.keep("n/", f"{number:02}", {"n": number})
    memories = [LongTermMemory(old.place.url) for _ in range(3)]
    await asyncio.gather(*(memory.setup() for memory in memories))
    for memory in memories:
        assert [item.version for item in await memory.search(("n",), limit=30)] == [1] * 20
        await memory.close()


async def test_what_cannot_be_read_stays_and_is_told(tmp_path: Path) -> None:
    """On SQLite: in a column of PostgreSQL's type for JSON there is always JSON."""
    old = OldPlace(SQLiteStore(tmp_path))
    for key in "abc":
        old.keep("n/", key, {"n": key})
    old.ask("UPDATE locus_store SET value = '{' WHERE key = 'b'")
    async with LongTermMemory(old.place.url) as memory:
        with pytest.warns(DamagedThreadsWarning, match="1 items of an older version"):
            await memory.setup()
        assert await memory.list_keys(("n",)) == ["a", "c"]
    assert old.ask("SELECT key FROM locus_store") == [("b",)]


async def test_a_table_of_a_newer_version_is_refused(old: OldPlace) -> None:
    old.keep("n/", "a", {"v": 1})
    old.ask("UPDATE locus_store_format SET version = 3")
    async with LocusStore(old.place.url) as store:
        with pytest.raises(UnsupportedFormatError, match=r"has format 3.*upgrade locus-state"):
            await store.aget(("n",), "a")
        with pytest.raises(UnsupportedFormatError, match="upgrade locus-state"):
            await store.aput(("n",), "a", {"v": 2})
    async with LongTermMemory(old.place.url) as memory:
        with pytest.raises(UnsupportedFormatError, match="upgrade locus-state"):
            await memory.setup()
    assert old.ask("SELECT key FROM locus_store") == [("a",)]
    assert old.ask("SELECT version FROM locus_store_format") == [(3,)]


async def test_a_table_that_may_only_be_read_is_refused(tmp_path: Path) -> None:
    old = OldPlace(SQLiteStore(tmp_path))
    old.keep("n/", "a", {})
    async with LongTermMemory(old.place.url) as memory:
        await memory.setup()
    old.keep("n/", "b", {})
    reading = get_checkpointer(old.place.url)
    reading.store.engine.reading_only = True
    async with reading:
        with pytest.raises(ConfigurationError, match="for writing once"):
            await LongTermMemory(reading).list_keys(("n",))


async def test_a_database_in_memory_has_none() -> None:
    async with get_checkpointer("sqlite::memory:") as store:
        memory = LongTermMemory(store)
        await memory.put(("a",), "k", {"x": 1})
        assert await memory.get(("a",), "k") == {"x": 1}
