"""What is stored in an SQLite file comes back as it was said, or not at all."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import CorruptCheckpointError, UnsupportedFormatError
from locus.memory.backends import StorageBackendAdapter, sqlite_checkpointer
from locus.memory.backends.sqlite.schema import MIGRATIONS
from locus.transfer.copies import copy_store
from tests.format.story import DATA, HOSTILE, PLAIN

COLUMNS = [
    ("locus_checkpoints", "head"),
    ("locus_checkpoints", "manifest"),
    ("locus_checkpoints", "metadata"),
    ("locus_checkpoints", "rev"),
    ("locus_runs", "items"),
    ("locus_runs", "items_before"),
    ("locus_runs", "start"),
    ("locus_runs", "count"),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@pytest.fixture
def cp(path: Path) -> Iterator[StorageBackendAdapter]:
    with sqlite_checkpointer(path).sync as checkpointer:
        state = AgentState(agent_id="a").with_messages([Message.user("one"), Message.assistant("two")])
        checkpointer.save(state, "t", "c1", {"user": "eve"})
        state = state.with_message(Message.user("three")).with_metadata("long", "x" * 2_000)
        checkpointer.save(state, "t", "c2", {"user": "bob"})
        checkpointer.put_writes("t", "c2", "task", [("channel", "written"), ("channel", "w" * 2_000)])
    opened = sqlite_checkpointer(path)
    yield opened
    opened.sync.close()


def changes(value: object, chance: random.Random) -> Iterator[object]:
    """The value with another letter, here and there; or another number."""
    if isinstance(value, int):
        yield value + 1
        return
    assert isinstance(value, str)
    for at in sorted(chance.sample(range(len(value)), min(12, len(value)))):
        yield f"{value[:at]}{'x' if value[at] != 'x' else 'y'}{value[at + 1 :]}"


@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_every_change_is_found(cp: StorageBackendAdapter, path: Path, table: str, column: str) -> None:
    found = 0
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(f"SELECT id, {column} FROM {table} WHERE {column} IS NOT NULL").fetchall()
        for key, value in rows:
            for changed in changes(value, random.Random(key)):
                connection.execute(f"UPDATE {table} SET {column} = ? WHERE id = ?", (changed, key))
                connection.commit()
                told = 0
                for name in ("c1", "c2"):
                    try:
                        cp.sync.load("t", name)
                    except CorruptCheckpointError:
                        told += 1
                assert told, f"{value!r} came back as {changed!r}"
                found += 1
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE id = ?", (value, key))
            connection.commit()
    assert found


def test_a_changed_pending_write_is_found(cp: StorageBackendAdapter, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE locus_writes SET value = replace(value, 'written', 'written?') WHERE idx = 0")
    with pytest.raises(CorruptCheckpointError, match="checksum"):
        cp.sync.get_writes("t", "c2")


def test_a_removal_and_a_copy_keep_the_checksums_right(cp: StorageBackendAdapter) -> None:
    state = cp.sync.load("t")
    assert cp.sync.copy_thread("t", "copy")
    assert cp.sync.delete("t", "c1")
    assert cp.sync.load("t") == cp.sync.load("copy") == state
    assert len(cp.sync.get_writes("copy", "c2")) == 2


def edited(path: Path) -> None:
    """A list with an edit in the middle of its history: run 1 takes the place of the last item of run 0."""
    with sqlite_checkpointer(path).sync as cp:
        one = AgentState(agent_id="a").with_messages([Message.user("a"), Message.user("wrong")])
        cp.save(one, "t", "c1")
        two = one.with_messages_replaced(one.messages[:-1] + (Message.user("right"),))
        cp.save(two, "t", "c2")
        cp.save(two.with_message(Message.user("c")), "t", "c3")


@pytest.mark.parametrize("checkpoint_id", ["c2", "c3"])
def test_a_lost_edit_does_not_bring_back_what_it_replaced(path: Path, checkpoint_id: str) -> None:
    edited(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute("DELETE FROM locus_runs WHERE number = 1").rowcount == 1
    with sqlite_checkpointer(path).sync as cp, pytest.raises(CorruptCheckpointError):
        cp.load("t", checkpoint_id)


def test_a_run_that_nothing_shows_may_go(path: Path) -> None:
    edited(path)
    with sqlite_checkpointer(path).sync as cp:
        state = cp.load("t")
        assert state is not None
        again = state.with_messages_replaced(state.messages[:1] + (Message.user("better"), Message.user("d")))
        cp.save(again, "t", "c4")
        for name in ("c1", "c2", "c3"):
            assert cp.delete("t", name)
        assert cp.load("t") == again
        assert cp.save(again.with_message(Message.user("e")), "t")


def test_runs_that_are_swapped_are_found(path: Path) -> None:
    edited(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE locus_runs SET number = 9 WHERE number = 1")
        connection.execute("UPDATE locus_runs SET number = 1 WHERE number = 0")
        connection.execute("UPDATE locus_runs SET number = 0 WHERE number = 9")
    with sqlite_checkpointer(path).sync as cp, pytest.raises(CorruptCheckpointError):
        cp.load("t", "c1")


def with_format(path: Path, **numbers: int) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for name, number in numbers.items():
            connection.execute(f"UPDATE locus_format SET {name} = ?", (number,))


def test_a_newer_format_that_allows_it_is_used(cp: StorageBackendAdapter, path: Path) -> None:
    newest = len(MIGRATIONS)
    with_format(path, version=newest + 1, min_reader=newest, min_writer=newest)
    state = cp.sync.load("t")
    assert state is not None
    assert cp.sync.save(state.next_iteration(), "t")
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT version FROM locus_format").fetchall() == [(newest + 1,)]


async def test_a_newer_format_may_be_only_for_readers(cp: StorageBackendAdapter, path: Path) -> None:
    newest = len(MIGRATIONS)
    with_format(path, version=newest + 1, min_reader=newest, min_writer=newest + 1)
    with pytest.raises(UnsupportedFormatError, match=f"format {newest + 1}"):
        cp.sync.save(AgentState(), "t")
    report = await copy_store(f"sqlite:{path}", f"sqlite:{path.with_name('copy.db')}")
    assert report.checkpoints == 2


@pytest.mark.parametrize("number", range(1, len(MIGRATIONS) + 1))
async def test_an_old_database_is_read_as_it_is(tmp_path: Path, number: int) -> None:
    """By whoever only reads, and so may not migrate it."""
    old = tmp_path / "old.db"
    shutil.copy(DATA / f"sqlite-{number}.db", old)
    before = old.read_bytes()
    await copy_store(f"sqlite:{old}", f"sqlite:{tmp_path / 'new.db'}")
    assert old.read_bytes() == before
    with sqlite_checkpointer(tmp_path / "new.db").sync as cp:
        assert cp.list_threads() == sorted([PLAIN, HOSTILE])
        assert len(cp.get_writes(PLAIN, "two")) == 2
