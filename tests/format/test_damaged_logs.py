"""A damaged log is an error of ours, or does not matter; it never reads as something else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import (
    BackendUnavailableError,
    CheckpointError,
    ConfigurationError,
    CorruptCheckpointError,
    UnsupportedFormatError,
)
from locus.memory.backends import FileCheckpointer
from locus.memory.backends.file.client import write_new
from locus.memory.backends.file.log import LogFile
from locus.memory.backends.file.schema import FORMAT, file_name, records_of
from locus.memory.model.codec import encode
from locus.memory.model.manifest import wanted
from locus.memory.model.states import loaded_state


@pytest.fixture
def cp(tmp_path: Path) -> Iterator[FileCheckpointer]:
    checkpointer = FileCheckpointer(tmp_path / "logs")
    yield checkpointer
    checkpointer.sync.close()


@pytest.fixture
def log(cp: FileCheckpointer) -> Path:
    """The log of thread "t", with two checkpoints."""
    state = AgentState(agent_id="a", run_id="r")
    for number in (1, 2):
        state = state.with_message(Message.user(f"message {number}"))
        cp.sync.save(state, "t", f"c{number}", {"n": number})
    return cp.get_storage_path() / "t.jsonl"


def everything(path: Path) -> list[Any]:
    """All that can be read of a log: entries and states."""
    log = LogFile(path, "t")
    try:
        assert log.refresh()
        return [
            (seal.entry("t"), loaded_state(log.stored(seal, wanted(encode(seal.facts["manifest"]))))[0])
            for seal in log.checkpoints()
        ]
    finally:
        log.release()


def with_a_changed_byte(log: Path, places: range) -> Iterator[tuple[str, list[Any]]]:
    """What is read after each of these bytes was changed, unless that is refused; and where it was."""
    whole = log.read_bytes()
    with log.open("r+b", buffering=0) as file:
        for place in places:
            os.pwrite(file.fileno(), bytes([whole[place] ^ 0x01]), place)
            where = repr(whole[max(0, place - 30) : place + 10])
            try:
                yield where, everything(log)
            except CorruptCheckpointError:
                pass
            except Exception as error:
                raise AssertionError(f"{type(error).__name__} at {where}") from error
            os.pwrite(file.fileno(), whole[place : place + 1], place)


def test_a_changed_byte_is_never_read_as_something_else(log: Path) -> None:
    before = everything(log)
    # The last record has tests of its own.
    for where, found in with_a_changed_byte(log, range(log.read_bytes().rindex(b'{"head"'))):
        assert found == before, f"unnoticed at {where}"


def test_a_changed_byte_in_the_last_record_hides_that_one_at_most(log: Path) -> None:
    whole, before = log.read_bytes(), everything(log)
    for where, found in with_a_changed_byte(log, range(whole.rindex(b'{"head"'), len(whole))):
        assert found in (before, before[1:]), f"unnoticed at {where}"


@pytest.mark.parametrize("pretty", [True, False], ids=["pretty", "compact"])
def test_a_changed_bit_in_the_last_seal_undoes_no_save(tmp_path: Path, pretty: bool) -> None:
    """It is told, and the next save does not cut off what was acknowledged."""
    with FileCheckpointer(tmp_path, pretty).sync as cp:
        cp.save(AgentState(agent_id="a"), "t", "c1")
        cp.put_writes("t", "c1", "task", [])
        cp.save(AgentState(agent_id="b").with_message(Message.user("said")), "t", "c2")
    log = tmp_path / "t.jsonl"
    whole = log.read_bytes()
    for place in range(whole.rindex(b'{"seal"') - 1, len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            log.write_bytes(damaged)
            with pytest.raises(CorruptCheckpointError):
                everything(log)
    for place in range(whole.rindex(b'{"seal"'), len(whole), 40):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        log.write_bytes(damaged)
        with FileCheckpointer(tmp_path, pretty).sync as cp:
            for call in (lambda: cp.load("t"), lambda: cp.save(AgentState(), "t"), lambda: cp.history("t")):
                with pytest.raises(CorruptCheckpointError):
                    call()
        assert log.read_bytes() == damaged


def test_a_changed_seal_of_a_record_without_parts_is_told(cp: FileCheckpointer, log: Path) -> None:
    cp.sync.put_writes("t", "c2", "task", [])
    whole = log.read_bytes()
    seal = whole.rindex(b'{"seal"')
    for place in range(seal, seal + 9):
        log.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(CorruptCheckpointError):
            everything(log)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"message 1", b"massage 1"),
        (b'"agent_id":"a"', b'"agent_id":"b"'),
        (b'"seal":"checkpoint","bytes"', b'"seal":"chackpoint","bytes"'),
        (b'"prev":0,', b'"prev":1,'),
        (b'"prev":0,', b'"prev":9,'),
        (b'"namespace":"default"', b'"namespace":"defauIt"'),
        (b'"checkpoint_id":"c1"', b'"checkpoint_id":"c9"'),
        (b'"created_at":"2', b'"created_at":"x'),
        (b'"seq":1', b'"seq":7'),
        (b'"n":1', b'"n":7'),
        (b'"crc":', b'"crx":'),
    ],
    ids=lambda text: text.decode(),
)
def test_damage_is_told_and_not_taken_for_missing(cp: FileCheckpointer, log: Path, old: bytes, new: bytes) -> None:
    whole = log.read_bytes()
    first_record = whole.index(b"\n") + 1
    assert old in whole[first_record:]
    log.write_bytes(whole[:first_record] + whole[first_record:].replace(old, new, 1))
    fresh = FileCheckpointer(cp.get_storage_path())
    with pytest.raises(CorruptCheckpointError):
        fresh.sync.load("t", "c1")
    fresh.sync.close()


def test_a_first_line_that_names_another_thread_is_damage(cp: FileCheckpointer) -> None:
    cp.sync.save(AgentState(), "Alice")
    path = cp.get_storage_path() / file_name("Alice")
    path.write_bytes(path.read_bytes().replace(b'"Alice"', b'"Alicf"', 1))
    with pytest.raises(CorruptCheckpointError):
        cp.sync.list_threads()


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"not a log\n", b"{}\n", b"[]\n", b'{"seal":1}\n', b"\xff\xfe\n", b"null\n"]
)
@pytest.mark.parametrize("thread_id", ["t", "Alice"])
def test_a_file_that_is_no_log_is_an_error_of_ours_and_is_not_overwritten(
    cp: FileCheckpointer, thread_id: str, content: bytes
) -> None:
    cp.sync.list_threads()
    path = cp.get_storage_path() / file_name(thread_id)
    path.write_bytes(content)
    for call in (
        lambda: cp.sync.load(thread_id),
        lambda: cp.sync.save(AgentState(), thread_id),
        lambda: cp.sync.list_threads(),
    ):
        with pytest.raises(CheckpointError):
            call()
    assert path.read_bytes() == content


def test_a_log_in_the_place_of_another_is_damage(cp: FileCheckpointer, log: Path) -> None:
    """Somebody renamed a file."""
    log.rename(log.with_name("u.jsonl"))
    with pytest.raises(CheckpointError):
        cp.sync.load("u")
    assert not cp.sync.exists("t")


def test_a_folder_where_a_log_should_be_is_an_error_of_ours(cp: FileCheckpointer) -> None:
    cp.sync.list_threads()
    (cp.get_storage_path() / "t.jsonl").mkdir()
    for call in (lambda: cp.sync.load("t"), lambda: cp.sync.save(AgentState(), "t")):
        with pytest.raises(BackendUnavailableError):
            call()


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigurationError, match="name a folder"):
        FileCheckpointer(tmp_path / "file")
    with pytest.raises((ConfigurationError, BackendUnavailableError)):
        FileCheckpointer(tmp_path / "file" / "inside").sync.save(AgentState(), "t")


def test_a_log_that_is_deleted_is_a_thread_that_is_gone(cp: FileCheckpointer, log: Path) -> None:
    log.unlink()
    assert cp.sync.load("t") is None
    assert cp.sync.list_threads() == []
    cp.sync.save(AgentState(agent_id="new"), "t")
    assert [entry.seq for entry in cp.sync.history("t")] == [1]


def test_a_log_that_is_replaced_is_read_as_it_is_now(cp: FileCheckpointer, log: Path, tmp_path: Path) -> None:
    state = cp.sync.load("t")
    assert state is not None
    with FileCheckpointer(tmp_path / "other").sync as other:
        other.save(AgentState(agent_id="other"), "t", "other")
    (tmp_path / "other" / "t.jsonl").replace(log)
    found = cp.sync.load("t")
    assert found is not None
    assert found.agent_id == "other"
    saved = cp.sync.save(state.with_message(Message.user("more")), "t")
    again = FileCheckpointer(cp.get_storage_path()).sync.load("t", saved)
    assert again is not None
    assert len(again.messages) == 3
    assert cp.sync.list_checkpoints("t") == [saved, "other"]


@pytest.mark.parametrize(
    ("least", "readable", "writable"),
    [
        ({}, False, False),
        ({"min_reader": FORMAT}, True, False),
        ({"min_reader": FORMAT, "min_writer": FORMAT}, True, True),
        ({"min_reader": FORMAT + 1, "min_writer": FORMAT + 1}, False, False),
    ],
    ids=str,
)
def test_a_log_in_a_newer_format_says_who_may_use_it(
    cp: FileCheckpointer, log: Path, least: dict[str, int], readable: bool, writable: bool
) -> None:
    read = LogFile(log, "t")
    assert read.refresh()
    first, *others = records_of(read.table())
    read.release()
    write_new(log, [replace(first, facts={**first.facts, "locus": FORMAT + 1, **least}), *others], pretty=True)
    before = log.read_bytes()
    with FileCheckpointer(cp.get_storage_path()).sync as fresh:
        with nullcontext() if readable else pytest.raises(UnsupportedFormatError, match="upgrade"):
            assert fresh.load("t") is not None
        calls: list[Callable[[], object]] = [
            lambda: fresh.save(AgentState(), "t"),
            lambda: fresh.put_writes("t", "c1", "task", [("channel", 1)]),
            lambda: fresh.delete("t", "c1"),
        ]
        for call in calls:
            with nullcontext() if writable else pytest.raises(UnsupportedFormatError, match="upgrade"):
                call()
    assert (log.read_bytes() == before) == (not writable)
