"""What is deleted is gone from the bytes of the file, and not only from its tables."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.backends import sqlite_checkpointer
from locus.memory.backends.sqlite import search

SECRET = "the colour of the door is viridian"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@pytest.fixture(autouse=True)
def _built_to_leave_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As SQLite is built by default; Debian's overwrites what is deleted by itself."""
    real = sqlite3.connect

    def connect(*given: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = real(*given, **options)
        connection.execute("PRAGMA secure_delete=OFF")
        return connection

    monkeypatch.setattr(sqlite3, "connect", connect)


def bytes_of(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(path.parent.glob(f"{path.name}*")))


@pytest.mark.parametrize("how", ["thread", "checkpoint"])
async def test_a_deleted_text_is_not_in_the_file(path: Path, how: str) -> None:
    kept = AgentState().with_message(Message.user("the door stays"))
    async with sqlite_checkpointer(path) as checkpointer:
        await checkpointer.save(kept, "kept")
        # Large enough to be on pages of its own, and small enough to share one.
        told = [Message.user(f"{SECRET} {number} {'x' * size}") for number, size in enumerate((10, 9_000, 300))]
        for thread_id in ("t", "u"):
            first = await checkpointer.save(kept, thread_id)
            await checkpointer.save(kept.with_messages(told), thread_id, metadata={"said": SECRET})
            await checkpointer.put_writes(thread_id, first, "task", [("channel", SECRET)])
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert SECRET.encode() in bytes_of(path)
        for thread_id in ("t", "u"):
            if how == "thread":
                await checkpointer.delete(thread_id)
            else:
                for checkpoint_id in await checkpointer.list_checkpoints(thread_id):
                    await checkpointer.delete(thread_id, checkpoint_id)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert SECRET.encode() not in bytes_of(path)
    assert SECRET.encode() not in bytes_of(path)
    async with sqlite_checkpointer(path) as checkpointer:
        assert await checkpointer.load("kept") == kept


async def test_after_a_vacuum_no_word_is_in_the_index(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is brought up to date in portions, here many."""
    monkeypatch.setattr(search, "MERGED_PAGES", 1)
    async with sqlite_checkpointer(path) as checkpointer:
        for number in range(30):
            told = AgentState().with_message(Message.user(f"{'viridian' if number == 7 else ''} door {number}"))
            await checkpointer.save(told, f"t{number}")
            await checkpointer.search("door", limit=1)
        assert [hit["thread_id"] for hit in await checkpointer.search("viridian")] == ["t7"]
        await checkpointer.delete("t7")
        await checkpointer.vacuum()
        assert await checkpointer.search("viridian") == []
        assert len(await checkpointer.search("door", limit=100)) == 29
    assert b"viridian" not in bytes_of(path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT up_to FROM locus_indexed WHERE what = 'forgotten'").fetchall() == [(0,)]
