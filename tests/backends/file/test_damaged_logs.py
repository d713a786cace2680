"""One damaged log among good ones: calls about many threads go on, and tell."""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import CorruptCheckpointError, DamagedThreadsWarning, UnsupportedFormatError
from locus.memory import VacuumProgress
from locus.memory.backends import FileCheckpointer
from locus.memory.backends.file.schema import SEAL_START
from locus.memory.model.records import Commit, Run

STATE = AgentState().with_message(Message.user("a word"))
GOOD = ["Good", "good"]
BAD = ["Bad", "bad"]
"""One of each whose file has the id as its name, and one whose id is in the log only."""


def _log(folder: Path, thread_id: str) -> Path:
    named = folder / f"{thread_id}.jsonl"
    return named if named.exists() else next(folder.glob(f"{thread_id.lower()}~*.jsonl"))


@pytest_asyncio.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Path]:
    async with FileCheckpointer(tmp_path) as checkpointer:
        for thread_id in (*GOOD, *BAD):
            for number in range(3):
                await checkpointer.save(STATE, thread_id, f"c{number}", metadata={"a": 1})
    yield tmp_path


def _damage(folder: Path, thread_id: str, old: bytes, new: bytes) -> None:
    log = _log(folder, thread_id)
    changed = log.read_bytes().replace(old, new, 1)
    assert changed != log.read_bytes()
    log.write_bytes(changed)


async def _asked(folder: Path) -> dict[str, set[str]]:
    """What each call about many threads finds."""
    async with FileCheckpointer(folder) as checkpointer:
        return {
            "recent": {found["thread_id"] for found in await checkpointer.list_with_metadata()},
            "find": {found["thread_id"] for found in await checkpointer.query_by_metadata("a", 1)},
            "search": {found["thread_id"] for found in await checkpointer.search("word")},
        }


@pytest.mark.parametrize("thread_id", BAD)
async def test_a_damaged_log_is_left_out_with_a_warning(folder: Path, thread_id: str) -> None:
    _damage(folder, thread_id, b'"checkpoint_id":"c1"', b'"checkpoint_id":"cx"')
    with pytest.warns(DamagedThreadsWarning, match="1 damaged thread was left out") as told:
        found = await _asked(folder)
    others = {*GOOD, *BAD} - {thread_id}
    assert found == {"recent": others, "find": others, "search": others}
    assert len(told) == 3
    assert all(str(folder) not in str(one.message) and "bad" not in str(one.message).lower() for one in told)
    async with FileCheckpointer(folder) as checkpointer:
        assert await checkpointer.list_threads() == sorted([*GOOD, *BAD]), "by its name, so that it can be looked at"
        with pytest.raises(CorruptCheckpointError):
            await checkpointer.history(thread_id, None)
        assert await checkpointer.delete(thread_id)
        assert await checkpointer.list_threads() == sorted(others)
    assert await _asked(folder) == {"recent": others, "find": others, "search": others}


@pytest.mark.parametrize("thread_id", BAD)
async def test_a_vacuum_and_sizes_do_the_others(folder: Path, thread_id: str) -> None:
    _damage(folder, thread_id, b'"checkpoint_id":"c1"', b'"checkpoint_id":"cx"')
    async with FileCheckpointer(folder) as checkpointer:
        sizes = {}
        for name in await checkpointer.list_threads():
            if name == thread_id:
                with pytest.raises(CorruptCheckpointError):
                    await checkpointer.sizes(name)
            else:
                sizes[name] = await checkpointer.sizes(name, keep_last=1)
        assert all(one is not None and one.freed is not None and one.freed.checkpoints == 2 for one in sizes.values())
        told: list[VacuumProgress] = []
        for dry_run in (True, False):
            with pytest.raises(CorruptCheckpointError):
                await checkpointer.vacuum(keep_last=1, dry_run=dry_run, progress=told.append)
            assert told[-1] == VacuumProgress(threads=4, checkpoints=6, writes=0, damaged=1)
        for name in sizes:
            assert await checkpointer.list_checkpoints(name) == ["c2"]


async def test_a_log_that_does_not_say_whose_it_is(folder: Path) -> None:
    _damage(folder, "Bad", b'"thread_id":"Bad"', b'"thread_id":"Mad"')
    with pytest.warns(DamagedThreadsWarning, match="does not say of which thread"):
        found = await _asked(folder)
    assert found == {name: {*GOOD, "bad"} for name in found}
    async with FileCheckpointer(folder) as checkpointer:
        told: list[VacuumProgress] = []
        with pytest.raises(CorruptCheckpointError, match="does not say of which thread"):
            await checkpointer.vacuum(keep_last=1, progress=told.append)
        assert told[-1] == VacuumProgress(threads=3, checkpoints=6, writes=0, damaged=1)
        with pytest.raises(CorruptCheckpointError, match="does not say of which thread"):
            await checkpointer.list_threads()  # nobody can name it, and it must not be missing in silence
        assert await checkpointer.delete("Bad")
        assert await checkpointer.list_threads() == sorted([*GOOD, "bad"])


async def test_a_log_of_a_newer_format_is_not_taken_for_damage(folder: Path) -> None:
    _damage(folder, "bad", b'"locus":2', b'"locus":9')
    async with FileCheckpointer(folder) as checkpointer:
        for call in (checkpointer.list_threads(), checkpointer.list_with_metadata(), checkpointer.search("word")):
            with pytest.raises(UnsupportedFormatError):
                await call


async def test_writes_without_a_time_in_their_id_are_as_old_as_the_log(tmp_path: Path) -> None:
    async with FileCheckpointer(tmp_path) as checkpointer:
        await checkpointer.save(STATE, "t")
        await checkpointer.put_writes("t", "never came", "task", [("x", 1)])
        log = _log(tmp_path, "t")
        for days, writes in ((0.9, 0), (2, 1)):
            changed = log.stat().st_mtime - days * 86_400
            os.utime(log, (changed, changed))
            told: list[VacuumProgress] = []
            await checkpointer.vacuum(keep_last=1, progress=told.append)
            assert told[-1].writes == writes
        assert await checkpointer.get_writes("t", "never came") == []


async def _is_told_of(folder: Path, thread_id: str, most: int) -> None:
    """A search tells of the log, and takes no more memory than some copies of it."""
    async with FileCheckpointer(folder) as checkpointer:
        tracemalloc.start()
        with pytest.warns(DamagedThreadsWarning):
            found = await checkpointer.search("word")
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert {hit["thread_id"] for hit in found} == {*GOOD, *BAD} - {thread_id}
        assert peak < most
        with pytest.raises(CorruptCheckpointError):
            await checkpointer.load(thread_id)


@pytest.mark.parametrize("rest", [b"\n", b",\n", b"}\n", b"\0\n"], ids=["ends", "commas", "braces", "zeros"])
async def test_very_many_lines_behind_the_last_seal_are_told_at_once(folder: Path, rest: bytes) -> None:
    size = 8 << 20
    with _log(folder, "bad").open("ab") as log:
        log.write(rest * (size // len(rest)))
    await _is_told_of(folder, "bad", 8 * size)


@pytest.mark.parametrize("pretty", [True, False])
async def test_no_value_begins_a_line_as_a_seal_does(tmp_path: Path, pretty: bool) -> None:
    """Whoever commits over HTTP says how a value is encoded, line ends between its tokens included."""
    forged = '[{"a":\n\n{"seal":"checkpoint"},"b":"x"}]'
    async with FileCheckpointer(tmp_path, pretty) as checkpointer, checkpointer.store.using() as engine:
        run = Run("k3v9", 0, 0, 1, forged)
        about = ("t", "default", "c1", "rev", datetime.now(UTC), "{}", '{"list":[]}', '[[["list"],[["k3v9",0,0,1]]]]')
        outcome = await engine.commit(Commit(*about, runs=(run,), parent_id=None))
        assert outcome.is_written
        stored = await engine.read("t", "default", "c1")
        assert stored is not None
        assert json.loads(stored.runs["k3v9"][0].items) == json.loads(forged)
    lines = (tmp_path / "t.jsonl").read_bytes().split(b"\n")
    kinds = [line[:28] for line in lines if line.startswith(SEAL_START)]
    assert kinds == [b'{"seal":"thread","bytes":0,"', b'{"seal":"checkpoint","bytes"']
