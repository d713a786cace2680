"""Sessions that the OpenAI Agents SDK has written to SQLite, moved in and gone on with."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from agents import SQLiteSession
from agents.extensions.memory import AdvancedSQLiteSession

from locus.errors import ConfigurationError, LocusError
from locus.integrations.openai_agents import LocusSession
from locus.memory.backends import sqlite_checkpointer
from locus.transfer import copy_store, import_store

ITEMS: list[Any] = [
    {"role": "user", "content": "Where is my order? 😀"},
    {"type": "function_call", "call_id": "c1", "name": "find", "arguments": '{"n": 1}'},
    {"type": "function_call_output", "call_id": "c1", "output": "on its way"},
    {"role": "assistant", "content": [{"type": "output_text", "text": "It is on its way.", "annotations": []}]},
]


@asynccontextmanager
async def session(path: Path, name: str, **options: Any) -> AsyncIterator[SQLiteSession]:
    opened = SQLiteSession(name, path, **options)
    try:
        yield opened
    finally:
        opened.close()


def _backdate(path: Path, *times: str, table: str = "agent_messages") -> None:
    """The SDK notes the second: let each message have been written in one of its own."""
    with closing(sqlite3.connect(path)) as database, database:
        for number, at in enumerate(times, start=1):
            database.execute(f"UPDATE {table} SET created_at = ? WHERE id = ?", (at, number))


async def test_sessions_are_moved_and_gone_on_with(tmp_path: Path) -> None:
    path, url = tmp_path / "sessions.db", f"sqlite:{tmp_path / 'agents.db'}"
    async with session(path, "alice") as alice, session(path, "bob/2") as bob, session(path, "empty"):
        await alice.add_items(ITEMS)
        await bob.add_items(ITEMS[:1])
    before = hashlib.sha256(path.read_bytes()).digest()
    report = await import_store("openai-agents", str(path), url)
    assert report.ok, report.problems
    assert (report.threads, report.moved, report.verified) == (2, 2, 2)
    assert hashlib.sha256(path.read_bytes()).digest() == before
    async with sqlite_checkpointer(tmp_path / "agents.db") as store:
        moved = LocusSession("alice", store)
        assert await moved.get_items() == ITEMS
        assert await moved.get_items(2) == ITEMS[-2:]
        await moved.add_items([{"role": "user", "content": "Thanks!"}])
        assert await moved.get_items() == [*ITEMS, {"role": "user", "content": "Thanks!"}]
        assert await moved.pop_item() == {"role": "user", "content": "Thanks!"}
        assert [point.change for point in await moved.history()] == ["pop", "add", "import"]
        assert await LocusSession("bob/2", store).get_items() == ITEMS[:1]
    again = await import_store("openai-agents", f"sqlite:{path}", url)
    assert (again.ok, again.moved, again.present) == (True, 0, 2), "what has gone on at the destination stays as it is"


async def test_times_become_the_history(tmp_path: Path) -> None:
    path, url = tmp_path / "sessions.db", f"sqlite:{tmp_path / 'agents.db'}"
    async with session(path, "alice") as alice:
        await alice.add_items(ITEMS)
    _backdate(path, "2026-01-01 10:00:00", "2026-01-01 10:00:07", "2026-01-01 10:00:07", "2026-01-02 00:00:00")
    assert (await import_store("openai-agents", str(path), url)).ok
    async with sqlite_checkpointer(tmp_path / "agents.db") as store:
        moved = LocusSession("alice", store)
        points = await moved.history()
        assert [point.items for point in points] == [4, 3, 1]
        assert [point.created_at.isoformat() for point in points] == [
            "2026-01-02T00:00:00+00:00",
            "2026-01-01T10:00:07+00:00",
            "2026-01-01T10:00:00+00:00",
        ]
        assert await moved.at(points[1].checkpoint_id).get_items() == ITEMS[:3]
        await moved.rewind(points[2].checkpoint_id)
        assert await moved.get_items() == ITEMS[:1]
    with closing(sqlite3.connect(tmp_path / "agents.db")) as database:
        (runs,) = database.execute("SELECT sum(count) FROM locus_runs").fetchone()
    assert runs == 4, "each item is stored once"


async def test_what_was_said_since_is_added(tmp_path: Path) -> None:
    path, url = tmp_path / "sessions.db", f"sqlite:{tmp_path / 'agents.db'}"
    async with session(path, "alice") as alice:
        await alice.add_items(ITEMS[:2])
        _backdate(path, "2026-01-01 10:00:00", "2026-01-01 10:00:00")
        assert (await import_store("openai-agents", str(path), url)).moved == 1
        await alice.add_items(ITEMS[2:])
        report = await import_store("openai-agents", str(path), url)
    assert (report.ok, report.moved, report.present) == (True, 1, 1)
    async with LocusSession("alice", url) as moved:
        assert await moved.get_items() == ITEMS


async def test_branches_become_lines_of_the_history(tmp_path: Path) -> None:
    path, url = tmp_path / "sessions.db", f"sqlite:{tmp_path / 'agents.db'}"
    advanced = AdvancedSQLiteSession(session_id="alice", db_path=path, create_tables=True)
    first: list[Any] = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "1"}]
    second: list[Any] = [{"role": "user", "content": "two"}, {"role": "assistant", "content": "2"}]
    other: list[Any] = [{"role": "user", "content": "other"}]
    await advanced.add_items(first)
    await advanced.add_items(second)
    await advanced.create_branch_from_turn(2, "aside")
    await advanced.add_items(other)
    expected = {
        "aside": await advanced.get_items(branch_id="aside"),
        "main": await advanced.get_items(branch_id="main"),
    }
    advanced.close()
    assert expected["main"] == [*first, *second]
    assert expected["aside"][-1:] == other
    assert (await import_store("openai-agents", str(path), url)).ok
    async with LocusSession("alice", url) as moved:
        assert await moved.get_items() == expected["main"]
        names = [point.checkpoint_id for point in await moved.history()]
        (aside,) = [name for name in names if name.startswith("import-aside-")][:1]
        assert await moved.at(aside).get_items() == expected["aside"]


async def test_tables_of_other_names(tmp_path: Path) -> None:
    path, url = tmp_path / "sessions.db", f"sqlite:{tmp_path / 'agents.db'}"
    names = {"sessions_table": "s", "messages_table": "m"}
    async with session(path, "alice", **names) as alice:
        await alice.add_items(ITEMS)
    with pytest.raises(ConfigurationError, match="has no table agent_messages, agent_sessions"):
        await import_store("openai-agents", str(path), url)
    report = await import_store("openai-agents", str(path), url, sessions_table="s", messages_table="m")
    assert report.ok
    async with LocusSession("alice", url) as moved:
        assert await moved.get_items() == ITEMS


async def test_a_damaged_message_is_named_and_other_sessions_are_moved(tmp_path: Path) -> None:
    path, url = tmp_path / "sessions.db", f"sqlite:{tmp_path / 'agents.db'}"
    async with session(path, "alice") as alice, session(path, "bob") as bob:
        await alice.add_items(ITEMS)
        await bob.add_items(ITEMS)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE agent_messages SET message_data = '{' WHERE id = 2")
    report = await import_store("openai-agents", str(path), url)
    (problem,) = report.problems
    assert problem.thread == "alice"
    assert "message 2 of session 'alice' is no JSON" in problem.message
    async with LocusSession("bob", url) as moved:
        assert await moved.get_items() == ITEMS


@pytest.mark.parametrize("source", ["none.db", "postgresql://u:s3cret@h/d", "folder", "text.db"])
async def test_what_is_no_such_file_is_told(tmp_path: Path, source: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text.db").write_text("no database at all, but longer than a header of one would be" * 20)
    place = source if ":" in source else str(tmp_path / source)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(LocusError, match=r"there is no file|this is read from sqlite|cannot be read: ") as told:
        await import_store("openai-agents", place, f"sqlite:{tmp_path / 'agents.db'}")
    assert "s3cret" not in str(told.value)
    assert sorted(tmp_path.rglob("*")) == before


async def test_sessions_are_copied_between_stores_and_gone_on_with(tmp_path: Path) -> None:
    """Where the items of a session are is noted in its metadata, and is another place in another store."""
    url, other = f"sqlite:{tmp_path / 'a.db'}", f"sqlite:{tmp_path / 'b.db'}"
    async with LocusSession("alice", url) as alice:
        await alice.add_items(ITEMS[:2])
        await alice.add_items(ITEMS[2:3])
    assert (await copy_store(url, other)).ok
    async with LocusSession("alice", other) as moved:
        await moved.add_items(ITEMS[3:])
        assert await moved.get_items() == ITEMS
    assert (await copy_store(url, other)).ok
    async with LocusSession("alice", other) as fresh:
        assert await fresh.get_items() == ITEMS
