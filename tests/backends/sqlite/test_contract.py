"""The contract, kept by SQLite; and what may happen to a database file."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import ConfigurationError, CorruptCheckpointError, UnsupportedFormatError
from locus.memory.backends import sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.testing import REQUIRED, CheckpointerContract, OutageLaws
from locus.testing.contract import DurableContract, StallLaws
from locus.testing.processes.crash import kill_at_random
from locus.testing.processes.jobs import try_to_read
from locus.testing.processes.ledger import content_of
from locus.testing.processes.workers import Crew
from locus.testing.roads import blocking
from tests.backends.creation import CreationLaws
from tests.backends.effort import EmbeddedRepetitions
from tests.backends.embedded import SQLiteStore


class TestSQLite(EmbeddedRepetitions, CreationLaws, DurableContract, StallLaws):
    required = REQUIRED["sqlite"]
    commits_together = True

    def store_in(self, folder: Path) -> SQLiteStore:
        return SQLiteStore(folder)


class BlockingSQLiteStore(SQLiteStore):
    def open(self, *, ttl_seconds: float | None = None) -> Checkpointer:
        return blocking(super().open(ttl_seconds=ttl_seconds))


class TestSQLiteBlocking(EmbeddedRepetitions, CheckpointerContract, OutageLaws, StallLaws):
    required = REQUIRED["sqlite"]
    commits_together = True
    in_order = False

    @pytest.fixture
    def store(self, tmp_path: Path) -> SQLiteStore:
        return BlockingSQLiteStore(tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> SQLiteStore:
    return SQLiteStore(tmp_path)


async def _save_some(store: SQLiteStore, count: int = 3) -> None:
    state = AgentState()
    async with store.open() as checkpointer:
        for number in range(count):
            state = state.with_message(Message.user(f"message {number}"))
            await checkpointer.save(state, "thread", f"c{number}")


async def _assert_refused(store: SQLiteStore, error: type[CorruptCheckpointError]) -> None:
    """Neither read nor written, here and in another process, and the file stays as it is."""
    before = store.path.read_bytes()
    for _ in range(2):
        async with store.open() as checkpointer:
            with pytest.raises(error):
                await checkpointer.load("thread")
            with pytest.raises(error):
                await checkpointer.list_checkpoints("thread")
            with pytest.raises(error):
                await checkpointer.save(AgentState(), "thread")
    with Crew(store.url) as crew:
        answer = crew.start(try_to_read, url=store.url, thread_id="thread").finish()
    assert error.__name__ in answer["raised"], answer
    assert store.path.read_bytes() == before


async def test_a_file_that_is_no_database_is_refused_and_left_alone(store: SQLiteStore) -> None:
    store.path.write_text("Dear diary, this is no database. " * 200)
    await _assert_refused(store, CorruptCheckpointError)


async def test_a_database_cut_off_in_the_middle_is_refused(store: SQLiteStore) -> None:
    await _save_some(store)
    data = store.path.read_bytes()
    store.path.write_bytes(data[: len(data) // 2])
    async with store.open() as checkpointer:
        with pytest.raises(CorruptCheckpointError):
            await checkpointer.load("thread")


async def test_a_newer_format_is_refused_and_left_alone(store: SQLiteStore) -> None:
    await _save_some(store)
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute("UPDATE locus_format SET version = 99, min_reader = 99, min_writer = 99")
    await _assert_refused(store, UnsupportedFormatError)


async def test_a_folder_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="directory"):
        sqlite_checkpointer(tmp_path)


async def test_every_save_waits_for_the_disk(store: SQLiteStore) -> None:
    """SQLite's own word for it; FULL is 2."""
    async with store.open() as checkpointer:
        await checkpointer.save(AgentState(), "thread")
        engine = checkpointer.store.engine
        level = await engine._writer.run(  # type: ignore[attr-defined]
            lambda file: file.current().execute("PRAGMA synchronous").fetchone()
        )
    assert level == (2,)


async def test_a_write_ahead_log_cut_off_anywhere_leaves_whole_checkpoints(tmp_path: Path) -> None:
    """What a power failure may leave: a beginning of what was written last."""
    store = SQLiteStore(tmp_path)
    await _save_some(store, 1)
    async with store.open() as checkpointer:
        state = await checkpointer.load("thread")
        assert state is not None
        for number in range(1, 6):
            state = state.with_message(Message.user(f"message {number} {'x' * 3_000}"))
            await checkpointer.save(state, "thread", f"c{number}")
        whole = (await content_of(checkpointer, "thread")).checkpoints
        wal = Path(f"{store.path}-wal").read_bytes()
        found = set()
        for number, length in enumerate([*range(0, len(wal), max(1, len(wal) // 40)), len(wal)]):
            folder = tmp_path / str(number)
            folder.mkdir()
            cut = SQLiteStore(folder)
            shutil.copy(store.path, cut.path)
            Path(f"{cut.path}-wal").write_bytes(wal[:length])
            async with cut.open() as reader:
                left = (await content_of(reader, "thread")).checkpoints
            assert left == whole[: len(left)]
            found.add(len(left))
    assert found == set(range(1, 7)), "the cuts did not fall before, between and after the commits"


@pytest.mark.crash
async def test_killed_processes_leave_no_files_behind(store: SQLiteStore) -> None:
    with Crew(store.url) as crew:
        await kill_at_random(crew, store.open, seed=4, kills=10)
    assert [path.name for path in store.path.parent.iterdir()] == [store.path.name]
