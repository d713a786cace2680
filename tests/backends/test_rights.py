"""Who can open what Locus writes: files, folders, databases and locks."""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
from pathlib import Path

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import BackendUnavailableError
from locus.memory.backends import FileCheckpointer, sqlite_checkpointer
from locus.memory.backends.file.client import DRAFT, locked
from locus.memory.backends.file.schema import file_name
from locus.memory.checkpointer import Checkpointer
from locus.memory.runtime.private import hide_from_readers
from tests.backends.as_nobody import FAILED, as_nobody, open_folder

__all__ = ["open_folder"]

STATE = AgentState().with_message(Message.user("a secret"))


@pytest.fixture(autouse=True)
def _usual_umask() -> object:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def modes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): mode(path) for path in folder.rglob("*")}


async def use(checkpointer: Checkpointer) -> None:
    """What makes each kind of file; it stays open, so that a journal stays, too."""
    saved = await checkpointer.save(STATE, "t")
    await checkpointer.save(STATE.with_message(Message.user("more")), "t")
    await checkpointer.delete("t", saved)
    await checkpointer.load("t")


@pytest.mark.parametrize("kind", ["file", "sqlite"])
async def test_only_the_owner_can_open_what_is_made(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "above" / "store"
    made = (
        FileCheckpointer(place, create_folder=True)
        if kind == "file"
        else sqlite_checkpointer(place / "a.db", create_folder=True)
    )
    async with made as checkpointer:
        await use(checkpointer)
        found = modes(tmp_path)
    assert len(found) >= (5 if kind == "file" else 6), found
    folders = {name for name in found if (tmp_path / name).is_dir()}
    assert {name: value for name, value in found.items() if value != (0o700 if name in folders else 0o600)} == {}


@pytest.mark.parametrize("kind", ["file", "sqlite"])
async def test_what_is_there_keeps_its_mode(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "store"
    place.mkdir(0o755)
    kept = place / ("t.jsonl" if kind == "file" else "a.db")
    for count in range(2):
        async with FileCheckpointer(place) if kind == "file" else sqlite_checkpointer(kept) as checkpointer:
            await use(checkpointer)
            if count:
                assert mode(kept) == 0o640
                assert mode(place) == 0o755
                if kind == "sqlite":
                    assert mode(place / "a.db-wal") == 0o640
        kept.chmod(0o640)


@pytest.mark.parametrize("kind", ["file", "sqlite"])
async def test_a_folder_that_was_opened_to_a_group_stays_open_to_it(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "store"
    place.mkdir()
    place.chmod(0o2770)
    async with FileCheckpointer(place) if kind == "file" else sqlite_checkpointer(place / "a.db") as checkpointer:
        await use(checkpointer)
        found = modes(place)
    assert {value & 0o777 for value in found.values()} <= {0o660, 0o770}, found


async def test_the_draft_of_a_log_is_never_written_through_a_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched", encoding="ascii")
    async with FileCheckpointer(tmp_path / "logs") as checkpointer:
        await checkpointer.save(STATE, "another")
        draft = tmp_path / "logs" / (file_name("t") + DRAFT)
        draft.symlink_to(victim)
        await use(checkpointer)
        assert await checkpointer.load("t") is not None
    assert victim.read_text(encoding="ascii") == "untouched"
    assert not draft.is_symlink()


async def test_neither_a_log_nor_a_lock_is_written_through_a_link(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    async with FileCheckpointer(logs) as checkpointer:
        await checkpointer.save(STATE, "t")
        for path in [logs / "t.jsonl", *(logs / ".locks").iterdir()]:
            moved = path.rename(tmp_path / "moved")
            before = moved.read_bytes()
            path.symlink_to(moved)
            with pytest.raises(BackendUnavailableError):
                await checkpointer.save(STATE, "t")
            assert moved.read_bytes() == before
            path.unlink()
            moved.rename(path)
        await checkpointer.save(STATE, "t")


def test_who_may_only_read_cannot_hold_a_lock(open_folder: Path) -> None:
    """Not even on the files that an older version has made readable for all."""
    with locked(open_folder, "a"):
        pass
    (lock,) = open_folder.iterdir()
    lock.chmod(0o644)
    assert as_nobody(lambda: hold(lock), PermissionError) == 0, "this test proves nothing"
    with locked(open_folder, "a"):
        assert mode(lock) == 0o600
    assert as_nobody(lambda: hold(lock), PermissionError) == FAILED


def hold(path: Path) -> int:
    fd = os.open(path, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return 0


@pytest.mark.parametrize(
    ("before", "after"), [(0o644, 0o600), (0o664, 0o660), (0o666, 0o666), (0o600, 0o600), (0o640, 0o600)]
)
def test_who_may_write_can_still_lock(tmp_path: Path, before: int, after: int) -> None:
    path = tmp_path / "lock"
    path.touch()
    path.chmod(before)
    fd = os.open(path, os.O_RDWR)
    hide_from_readers(fd)
    os.close(fd)
    assert mode(path) == after


@pytest.mark.parametrize("kind", ["file", "sqlite"])
async def test_a_store_that_may_only_be_read_is_read(open_folder: Path, kind: str) -> None:
    """On a read-only disk, say: everything loads, and only what would change it fails."""

    def store() -> Checkpointer:
        return FileCheckpointer(open_folder) if kind == "file" else sqlite_checkpointer(open_folder / "a.db")

    async with store() as checkpointer:
        await use(checkpointer)
        await checkpointer.save(STATE, "Another ~ thread")
    for path in [*open_folder.rglob("*"), open_folder]:
        path.chmod(0o555 if path.is_dir() else 0o444)

    async def read() -> int:
        async with store() as reader:
            loaded = await reader.load("t")
            assert loaded is not None
            assert len(loaded.messages) == 2
            assert sorted(await reader.list_threads()) == ["Another ~ thread", "t"]
            assert len(await reader.history("t")) == 1
            assert len(await reader.list_with_metadata()) == 2
            assert await reader.load("nothing") is None
            return 7

    async def write() -> int:
        async with store() as writer:
            await writer.save(STATE, "t")
        return 8

    before = modes(open_folder)
    assert await asyncio.to_thread(lambda: asyncio.run(read())) == 7
    assert as_nobody(lambda: asyncio.run(read())) == 7
    assert modes(open_folder) == before
    assert as_nobody(lambda: asyncio.run(write()), BackendUnavailableError) == FAILED
