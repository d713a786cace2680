"""How an SQLite file is opened, and which options make no sense."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import pytest

from locus.core.state import AgentState
from locus.errors import ConfigurationError
from locus.memory.backends import FileCheckpointer, MemoryCheckpointer, SQLiteBackend, sqlite_checkpointer
from locus.memory.backends.sqlite.engine import SQLiteEngine
from locus.memory.backends.sqlite.schema import MIGRATIONS, migrate, version

FULL, NORMAL = 2, 1


async def pragma(backend: SQLiteBackend, name: str, *, writer: bool = True) -> Any:
    """A setting of the connection that the backend itself uses."""
    engine = backend.store.engine
    assert isinstance(engine, SQLiteEngine)
    await engine.setup()
    worker = engine._writer if writer else engine._reader
    return await worker.run(lambda file: file.current().execute(f"PRAGMA {name}").fetchone()[0])


@pytest.mark.parametrize(("durability", "level"), [("full", FULL), ("normal", NORMAL)])
async def test_durability_is_as_asked(tmp_path: Path, durability: Literal["full", "normal"], level: int) -> None:
    async with SQLiteBackend(tmp_path / "a.db", durability=durability) as backend:
        assert await pragma(backend, "synchronous") == level
        assert await pragma(backend, "journal_mode") == "wal"
    async with sqlite_checkpointer(tmp_path / "b.db", durability=durability) as cp:
        assert await pragma(cp.backend, "synchronous") == level


async def test_saves_are_on_the_disk_unless_something_else_is_asked_for(tmp_path: Path) -> None:
    async with SQLiteBackend(tmp_path / "a.db") as backend:
        assert await pragma(backend, "synchronous") == FULL


async def test_the_journal_mode_is_a_property_of_the_file(tmp_path: Path) -> None:
    async with SQLiteBackend(tmp_path / "a.db") as backend:
        await backend.save("t", {})
        with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_what_reads_cannot_write(tmp_path: Path) -> None:
    async with SQLiteBackend(tmp_path / "a.db") as backend:
        await backend.save("t", {})
        assert await pragma(backend, "query_only", writer=False) == 1
        assert await pragma(backend, "query_only", writer=True) == 0


async def test_how_long_to_wait_is_as_asked(tmp_path: Path) -> None:
    async with SQLiteBackend(tmp_path / "a.db", timeout=1.5) as backend:
        assert await pragma(backend, "busy_timeout") == 1_500


async def test_a_save_is_in_the_file_when_it_returns(tmp_path: Path) -> None:
    async with SQLiteBackend(tmp_path / "a.db") as backend:
        await backend.save("t", {"n": 1}, "c")
        with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
            assert connection.execute("SELECT checkpoint_id FROM locus_checkpoints").fetchall() == [("c",)]


async def test_what_stands_beside_a_file_is_where_a_link_leads(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "a.db").symlink_to(tmp_path / "disk" / "b.db")
    async with SQLiteBackend(tmp_path / "a.db") as backend:
        await backend.save("t", {})
        found = sorted(path.name for path in (tmp_path / "disk").iterdir())
        assert found == ["b.db", "b.db-reserve", "b.db-shm", "b.db-wal"]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.db", "b.db", "disk"]


async def test_a_database_in_memory_writes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with SQLiteBackend(":memory:") as backend:
        await backend.save("t", {})
        await backend.delete("t")
    assert list(tmp_path.iterdir()) == []


async def test_closing_leaves_one_file(tmp_path: Path) -> None:
    async with SQLiteBackend(tmp_path / "a.db") as backend:
        await backend.save("t", {})
        await backend.load("t")
    assert [path.name for path in tmp_path.iterdir()] == ["a.db"]
    assert await backend.load("t") == {}
    await backend.close()


def test_the_tables_may_live_in_an_applications_own_database(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection, connection:
        connection.execute("CREATE TABLE mine (x)")
        connection.execute("INSERT INTO mine VALUES (1)")
        connection.execute("PRAGMA user_version = 7")
    with SQLiteBackend(tmp_path / "a.db").sync as backend:
        backend.save("t", {"n": 1})
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        assert connection.execute("SELECT x FROM mine").fetchall() == [(1,)]
        assert connection.execute("PRAGMA user_version").fetchone() == (7,)
    assert {name for name in names if not name.startswith("locus_")} <= {"mine"}


def test_migrating_is_done_once_and_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as connection:
        broken = (*MIGRATIONS, ("CREATE TABLE locus_new (x)", "CREATE NONSENSE"))
        monkeypatch.setattr("locus.memory.backends.sqlite.schema.MIGRATIONS", broken)
        with pytest.raises(sqlite3.OperationalError):
            migrate(connection)
        assert version(connection) == 0
        assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
        monkeypatch.undo()
        for _ in range(2):
            migrate(connection)
            assert version(connection) == len(MIGRATIONS)
            assert connection.execute("SELECT count(*) FROM locus_format").fetchone() == (1,)


def test_paths_with_characters_that_mean_something_in_a_uri(tmp_path: Path) -> None:
    for name in ("a?mode=ro.db", "a#b.db", "a%20b.db", "é 😀.db", "a&b=c.db"):
        with SQLiteBackend(tmp_path / name).sync as backend:
            backend.save("t", {"name": name})
            assert backend.load("t") == {"name": name}
        assert (tmp_path / name).is_file()


@pytest.mark.parametrize("durability", ["none", "FULL", "", None, 1, True])
def test_a_durability_that_there_is_not_is_refused(tmp_path: Path, durability: Any) -> None:
    with pytest.raises(ConfigurationError, match='"full" or "normal"'):
        SQLiteBackend(tmp_path / "a.db", durability=durability)
    assert list(tmp_path.iterdir()) == []


BAD_NUMBERS: list[Any] = [0, -1, float("nan"), float("inf"), -float("inf"), "5", [5]]


@pytest.mark.parametrize("ttl_seconds", BAD_NUMBERS, ids=repr)
def test_a_time_to_live_that_makes_no_sense_is_refused(tmp_path: Path, ttl_seconds: Any) -> None:
    for make in (
        lambda: SQLiteBackend(tmp_path / "a.db", ttl_seconds=ttl_seconds),
        lambda: FileCheckpointer(tmp_path / "dir", ttl_seconds=ttl_seconds),
        lambda: MemoryCheckpointer(ttl_seconds=ttl_seconds),
    ):
        with pytest.raises(ConfigurationError, match="ttl_seconds"):
            make()


@pytest.mark.parametrize("timeout", [-1, float("nan"), "soon", None], ids=repr)
def test_a_time_to_wait_that_makes_no_sense_is_refused(tmp_path: Path, timeout: Any) -> None:
    with pytest.raises(ConfigurationError, match="timeout"):
        SQLiteBackend(tmp_path / "a.db", timeout=timeout)


def test_a_vacuum_of_what_is_older_than_history_itself_removes_nothing() -> None:
    cp = MemoryCheckpointer().sync
    cp.save(AgentState(), "t")
    assert cp.vacuum(10_000_000) == 0
    assert cp.exists("t")


@pytest.mark.parametrize("options", [{"older_than_days": -1}, {"older_than_days": float("nan")}, {"keep_last": 0}])
def test_a_vacuum_that_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    cp = MemoryCheckpointer().sync
    cp.save(AgentState(), "t")
    with pytest.raises(ConfigurationError):
        cp.vacuum(**options)
    assert cp.exists("t")


async def test_the_name_of_a_file_need_not_be_text(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff%.db")
    for _ in range(2):
        async with SQLiteBackend(path) as backend:
            await backend.save("t", {"n": 1})
            assert await backend.load("t") == {"n": 1}
    assert [os.fsencode(found.name) for found in tmp_path.iterdir()] == [b"\xff%.db"]
    with pytest.raises(ConfigurationError, match="path of a file"):
        SQLiteBackend(tmp_path / "a\ud800b.db")
