"""A process that is killed while it writes leaves a part of a record.

That record was never saved, and nothing else is lost.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.backends import FileCheckpointer
from locus.memory.backends.file.log import LogFile
from locus.memory.model.codec import encode
from locus.memory.model.manifest import wanted
from locus.memory.model.states import loaded_state

Tail = tuple[Path, bytes, int]
"""A log, all its bytes, and where its last record begins."""


def state_of(number: int) -> AgentState:
    """A state with items that look like the lines which end a record."""
    seal = {"seal": "checkpoint", "bytes": number, "prev": None}
    return AgentState(
        agent_id=str(number),
        run_id="run",
        metadata={"list": [{"n": number}, seal, {"seal": "x" * 60, "n": number}, f"{number}\n" + "{"]},
    ).with_message(Message.user("{}\n" * number))


@pytest.fixture(params=[True, False], ids=["pretty", "compact"])
def cp(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FileCheckpointer]:
    checkpointer = FileCheckpointer(tmp_path, request.param)
    yield checkpointer
    checkpointer.sync.close()


@pytest.fixture
def saved(cp: FileCheckpointer) -> list[AgentState]:
    states = [state_of(number) for number in (1, 2, 3)]
    for number, state in enumerate(states, 1):
        cp.sync.save(state, "t", f"c{number}")
    return states


@pytest.fixture
def tail(cp: FileCheckpointer, saved: list[AgentState]) -> Tail:
    log = cp.get_storage_path() / "t.jsonl"
    before = log.stat().st_size
    cp.sync.save(state_of(4), "t", "torn")
    return log, log.read_bytes(), before


def loaded(path: Path, count: int = 9) -> dict[str, AgentState | None]:
    """The checkpoints of a log, newest first, as somebody sees it who opens it for the first time.

    Of more than `count` of them only the names are read.
    """
    log = LogFile(path, "t")
    assert log.refresh()
    try:
        return {
            seal.facts["checkpoint_id"]: loaded_state(log.stored(seal, wanted(encode(seal.facts["manifest"]))))[0]
            if number < count
            else None
            for number, seal in enumerate(log.checkpoints())
        }
    finally:
        log.release()


def test_a_record_torn_at_any_byte_was_never_saved(saved: list[AgentState], tail: Tail) -> None:
    path, whole, start = tail
    assert b'\n{"seal":"checkpoint"' in whole[start:]
    for end in reversed(range(start, len(whole))):
        os.truncate(path, end)
        found = loaded(path, count=3 if end % 50 == 0 else end % 7 == 0)
        assert list(found) == ["c3", "c2", "c1"], f"torn after {end - start} bytes"
        assert found["c3"] in (None, saved[2])
        assert found["c1"] in (None, saved[0])
    path.write_bytes(whole)
    assert list(loaded(path)) == ["torn", "c3", "c2", "c1"]


def test_the_next_save_cuts_the_tail_off_and_loses_nothing(
    cp: FileCheckpointer, saved: list[AgentState], tail: Tail
) -> None:
    path, whole, start = tail
    # The bytes around the ends of lines, where a scan could go wrong, and some of the rest.
    around = {at + step for at, byte in enumerate(whole) if byte == ord("\n") for step in (0, 1, 2, 9, 10)}
    for end in sorted({at for at in around if start < at < len(whole)} | {*range(start, len(whole), 97)}):
        path.write_bytes(whole[:end])
        cp.sync.save(state_of(5), "t", "next")
        assert path.read_bytes()[:start] == whole[:start]
        assert b'"torn"' not in path.read_bytes()
        found = loaded(path)
        assert list(found) == ["next", "c3", "c2", "c1"], f"torn after {end - start} bytes"
        assert found["next"] is not None
        assert found["next"].agent_id == "5"
        assert [found[name] for name in ("c1", "c2", "c3")] == saved
        assert cp.sync.load("t") == found["next"]


def test_a_torn_record_longer_than_the_next_leaves_nothing_behind(
    cp: FileCheckpointer, saved: list[AgentState]
) -> None:
    path = cp.get_storage_path() / "t.jsonl"
    whole = path.read_bytes()
    cp.sync.save(state_of(4).with_message(Message.user("torn " * 2_000)), "t")
    os.truncate(path, path.stat().st_size - 10)
    cp.sync.save(state_of(5), "t", "next")
    assert path.read_bytes().startswith(whole)
    assert path.stat().st_size < len(whole) + 3_000
    assert b"torn" not in path.read_bytes()


def test_pending_writes_after_a_torn_record(cp: FileCheckpointer, saved: list[AgentState], tail: Tail) -> None:
    path, whole, start = tail
    path.write_bytes(whole[: start + 20])
    cp.sync.put_writes("t", "c3", "task", [("channel", 1)])
    assert [write.value for write in cp.sync.get_writes("t", "c3")] == [1]
    assert cp.sync.load("t") == saved[2]


def test_a_delete_after_a_torn_record(cp: FileCheckpointer, saved: list[AgentState], tail: Tail) -> None:
    path, whole, _ = tail
    path.write_bytes(whole[:-1])
    assert cp.sync.delete("t", "c2")
    assert cp.sync.list_checkpoints("t") == ["c3", "c1"]
    assert cp.sync.load("t", "c3") == saved[2]


def test_a_draft_that_a_killed_process_left_is_no_thread_and_is_swept(
    cp: FileCheckpointer, saved: list[AgentState]
) -> None:
    draft = cp.get_storage_path() / "u.jsonl.new"
    draft.write_bytes(b'{"seal":"thr')
    assert cp.sync.list_threads() == ["t"]
    assert not cp.sync.exists("u")
    cp.sync.vacuum(1_000)
    assert not draft.exists()
    draft.write_bytes(b"half")
    cp.sync.save(saved[0], "u")
    assert cp.sync.load("u") == saved[0]


def test_zeros_at_the_end_are_a_torn_record(cp: FileCheckpointer, saved: list[AgentState], tail: Tail) -> None:
    """What a file system may leave when the power fails: the length is there, and the bytes are not."""
    path, whole, start = tail
    path.write_bytes(whole[:start] + b"\0" * 700)
    assert cp.sync.load("t") == saved[2]
    cp.sync.save(state_of(5), "t", "next")
    assert cp.sync.list_checkpoints("t") == ["next", "c3", "c2", "c1"]
