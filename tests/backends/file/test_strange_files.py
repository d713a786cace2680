"""Files in the folder that are no logs, and reads that return less than was asked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import CorruptCheckpointError
from locus.memory.backends import FileCheckpointer
from tests.server.running import ACME, asking, guarded

NOTES = b"Dear diary, this is no log.\n"
STATE = AgentState().with_message(Message.user("a word"))
FOREIGN: dict[str, Callable[[Path], object]] = {
    "a name of ours": lambda folder: (folder / "notes.jsonl").write_bytes(NOTES),
    "an empty file": lambda folder: (folder / "notes.jsonl").touch(),
    "another name": lambda folder: (folder / "My notes (1).jsonl").write_bytes(NOTES),
    "a tilde": lambda folder: (folder / "notes~1.jsonl").write_bytes(NOTES),
    "a folder": lambda folder: (folder / "notes.jsonl").mkdir(),
    "a pipe": lambda folder: os.mkfifo(folder / "notes.jsonl"),
    "a link to nowhere": lambda folder: (folder / "notes.jsonl").symlink_to(folder / "nowhere"),
}


@pytest.mark.parametrize("make", FOREIGN.values(), ids=FOREIGN)
async def test_a_file_that_is_no_log_stops_nobody(tmp_path: Path, make: Callable[[Path], object]) -> None:
    async with FileCheckpointer(tmp_path) as checkpointer:
        saved = await checkpointer.save(STATE, "t", metadata={"a": 1})
        make(tmp_path)
        assert [found["checkpoint_id"] for found in await checkpointer.list_with_metadata()] == [saved]
        assert [found["checkpoint_id"] for found in await checkpointer.query_by_metadata("a", 1)] == [saved]
        assert [found["thread_id"] for found in await checkpointer.search("word")] == ["t"]
        assert await checkpointer.list_threads(pattern="t*") == ["t"]
        # A file that has the name of a log may be a damaged one, and is not left out of a list of all in silence.
        if (tmp_path / "notes.jsonl").is_file():
            for call in (checkpointer.load("notes"), checkpointer.list_threads()):
                with pytest.raises(CorruptCheckpointError):
                    await call
        else:
            assert await checkpointer.list_threads() == ["t"]


async def test_a_damaged_thread_does_not_keep_the_others_from_being_trimmed(tmp_path: Path) -> None:
    async with FileCheckpointer(tmp_path) as checkpointer:
        for thread_id in ("damaged", "whole"):
            for number in range(3):
                await checkpointer.save(STATE, thread_id, f"c{number}")
        log = tmp_path / "damaged.jsonl"
        log.write_bytes(log.read_bytes().replace(b'"checkpoint_id":"c1"', b'"checkpoint_id":"cx"', 1))
    async with FileCheckpointer(tmp_path) as checkpointer:
        with pytest.raises(CorruptCheckpointError):
            await checkpointer.vacuum(keep_last=1)
        assert await checkpointer.list_checkpoints("whole") == ["c2"]


async def test_no_tenant_of_a_server_notices(tmp_path: Path) -> None:
    async with FileCheckpointer(tmp_path) as checkpointer:
        await checkpointer.save(STATE, "acme/t")
        (tmp_path / "notes.jsonl").write_bytes(NOTES)
        async with asking(guarded(checkpointer), ACME) as client:
            answers = [await client.get(path) for path in ("/recent", "/threads")]
    assert [answer.status_code for answer in answers] == [200, 200], [answer.text for answer in answers]
    assert all(str(tmp_path) not in answer.text for answer in answers)


async def test_a_log_under_the_name_of_another_is_reported_without_its_name(tmp_path: Path) -> None:
    async with FileCheckpointer(tmp_path) as checkpointer:
        for thread_id in ("Alice", "Bob"):
            await checkpointer.save(STATE, thread_id)
        one, other = sorted(tmp_path.glob("*~*.jsonl"))
        one.write_bytes(other.read_bytes())
        with pytest.raises(CorruptCheckpointError) as raised:
            await checkpointer.list_threads()
    assert one.stem not in str(raised.value)
    assert str(tmp_path) not in str(raised.value)


async def test_a_read_may_return_less_than_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one of more than 2 GB does, and any on some network file systems."""
    async with FileCheckpointer(tmp_path) as checkpointer:
        state = AgentState()
        for number in range(5):
            state = state.with_message(Message.user(f"{number} {'x' * 300}"))
            await checkpointer.save(state, "t")
        real = os.read
        monkeypatch.setattr(os, "read", lambda fd, length: real(fd, min(length, 100)))
        async with FileCheckpointer(tmp_path) as another:
            assert await another.load("t") == state
            assert len(await another.history("t")) == 5
            await another.save(state.with_message(Message.user("on")), "t")
        monkeypatch.undo()
        found = await checkpointer.load("t")
        assert found is not None
        assert len(found.messages) == 6
