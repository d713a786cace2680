"""How logs look, what they take, and what they are called."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import ConfigurationError, InvalidIdError
from locus.memory.backends import FileCheckpointer
from locus.memory.backends.file.client import LOCKS, locked
from locus.memory.backends.file.schema import file_name
from locus.memory.engine import Expires
from locus.testing.data import HOSTILE_IDS, budget, conversation


@pytest.fixture(params=[True, False], ids=["pretty", "compact"])
def cp(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FileCheckpointer]:
    checkpointer = FileCheckpointer(tmp_path / "logs", request.param)
    yield checkpointer
    checkpointer.sync.close()


def lines(cp: FileCheckpointer, thread_id: str = "t") -> list[str]:
    return (cp.get_storage_path() / file_name(thread_id)).read_text(encoding="utf-8").split("\n")[:-1]


def test_a_compact_log_has_a_line_for_each_record_and_one_for_each_seal(tmp_path: Path) -> None:
    cp = FileCheckpointer(tmp_path, pretty=False)
    state = AgentState().with_messages(conversation(5)).with_metadata("list", [{"n": n} for n in range(9)])
    cp.sync.save(state, "t")
    cp.sync.save(state.with_messages(conversation(2, start=5)).with_metadata("big", "x\n" * 2_000), "t")
    cp.sync.put_writes("t", "c", "task", [("a", {"x": "\n"}), ("b", [1, 2])])
    found = [json.loads(line) for line in lines(cp)]
    assert [line.get("seal", "record") for line in found] == [
        "thread",
        *("record", "checkpoint") * 2,
        "record",
        "writes",
    ]
    cp.sync.close()


def test_a_pretty_log_has_a_line_for_each_message(tmp_path: Path) -> None:
    cp = FileCheckpointer(tmp_path)
    cp.sync.save(AgentState().with_messages([Message.user("café"), Message.user("b"), Message.user("c")]), "t")
    found = lines(cp)
    assert sum('{"role":"user"' in line for line in found) == 3
    assert any("café" in line for line in found)
    cp.sync.close()


def test_a_record_is_json_whichever_way_it_is_written(cp: FileCheckpointer) -> None:
    cp.sync.save(AgentState(agent_id="a").with_messages(conversation(3)), "t")
    first, *record, seal = lines(cp)
    data = json.loads("\n".join(record))
    assert data["head"]["agent_id"] == "a"
    assert json.loads(first)["thread_id"] == "t"
    assert json.loads(seal)["seal"] == "checkpoint"


def test_handles_of_both_kinds_share_a_log(tmp_path: Path) -> None:
    pretty, compact = FileCheckpointer(tmp_path), FileCheckpointer(tmp_path, pretty=False)
    state = AgentState()
    for number, cp in enumerate([pretty, compact] * 3):
        state = state.with_message(Message.user(str(number)))
        cp.sync.save(state, "t")
        assert pretty.sync.load("t") == compact.sync.load("t") == state
    pretty.sync.close()
    compact.sync.close()


async def test_disk_usage_is_the_size_of_the_logs(cp: FileCheckpointer) -> None:
    assert await cp.get_disk_usage() == 0
    assert await cp.get_disk_usage("t") == 0
    for thread_id in ("t", "Alice/1"):
        await cp.save(AgentState().with_messages(conversation(4)), thread_id)
    sizes = {name: (cp.get_storage_path() / file_name(name)).stat().st_size for name in ("t", "Alice/1")}
    assert await cp.get_disk_usage("t") == sizes["t"] > 0
    assert await cp.get_disk_usage("Alice/1") == sizes["Alice/1"]
    assert await cp.get_disk_usage() == sum(sizes.values())
    await cp.delete("t")
    assert await cp.get_disk_usage() == sizes["Alice/1"]
    with pytest.raises(InvalidIdError):
        await cp.get_disk_usage("")


def test_the_storage_path_is_absolute_and_made_when_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert FileCheckpointer().get_storage_path() == tmp_path / ".locus_checkpoints"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert FileCheckpointer("~/logs").get_storage_path() == tmp_path / "home" / "logs"
    cp = FileCheckpointer(Path("deep") / "er")
    assert list(tmp_path.iterdir()) == []
    cp.sync.save(AgentState(), "t")
    assert (tmp_path / "deep" / "er" / "t.jsonl").is_file()
    cp.sync.close()


@pytest.mark.parametrize("base_dir", ["", "a\0b", None, 5, b"dir"], ids=repr)
def test_what_is_no_folder_is_refused(base_dir: Any) -> None:
    with pytest.raises(ConfigurationError, match="path of a folder"):
        FileCheckpointer(base_dir)


def test_a_folder_whose_name_is_too_long_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        FileCheckpointer(tmp_path / ("x" * 300))


@pytest.mark.parametrize("thread_id", ["support-42", "a", "0", "a_b-c", "x" * 80])
def test_an_id_that_fits_everywhere_is_the_name(thread_id: str) -> None:
    assert file_name(thread_id) == f"{thread_id}.jsonl"


@pytest.mark.parametrize(
    "thread_id", ["Alice", "con", "nul", "com1", "lpt9", "-rf", "_a", ".", "..", "a.b", "a~b", "x" * 81, "é"]
)
def test_another_id_gets_its_digest(thread_id: str) -> None:
    name = file_name(thread_id)
    assert "~" in name
    assert name.endswith(".jsonl")


def folded(name: str) -> str:
    """What a file system that ignores case and the form of accents makes of a name."""
    return name.casefold().rstrip(". ")


similar = st.text("aAäÄßsS.~ -1", min_size=1, max_size=6)


@given(st.lists(similar | st.sampled_from(HOSTILE_IDS), unique=True, max_size=30))
@budget(40)
def test_no_two_ids_share_a_name_on_any_file_system(ids: list[str]) -> None:
    assert len({folded(file_name(thread_id)) for thread_id in ids}) == len(ids)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Alice", "alice"),
        ("ALICE", "Alice"),
        ("josé", "jose"),
        ("josé", "jose\u0301"),
        ("ß", "ss"),
        ("a ", "a"),
        ("a.", "a"),
    ],
)
def test_ids_that_differ_in_little_have_names_that_differ_in_more(a: str, b: str) -> None:
    assert folded(file_name(a)) != folded(file_name(b))


@pytest.mark.parametrize("thread_id", HOSTILE_IDS, ids=ascii)
def test_every_name_is_one_that_every_file_system_takes(thread_id: str, tmp_path: Path) -> None:
    name = file_name(thread_id)
    assert name.isascii()
    assert len(name.encode()) <= 255 - len(".new")
    assert not set(name) & set('/\\:*?"<>|\0\n ')
    assert name.partition(".")[0].lower() not in {"con", "prn", "aux", "nul", "com1", "lpt1"}
    (tmp_path / name).write_text("x")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_the_longest_ids_are_kept_apart(cp: FileCheckpointer) -> None:
    ids = ["x" * 255, "x" * 254 + "y", "😀" * 255]
    for thread_id in ids:
        cp.sync.save(AgentState(agent_id=thread_id[-1]), thread_id)
    assert cp.sync.list_threads() == sorted(ids)
    for thread_id in ids:
        state = cp.sync.load(thread_id)
        assert state is not None
        assert state.agent_id == thread_id[-1]


def test_locks_are_few_and_stay(tmp_path: Path) -> None:
    for number in range(40):
        with locked(tmp_path, str(number)):
            pass
    names = {path.name for path in tmp_path.iterdir()}
    assert 1 < len(names) <= min(40, LOCKS)
    with locked(tmp_path, "0"):
        pass
    assert {path.name for path in tmp_path.iterdir()} == names


async def test_threads_are_removed_whose_time_has_come_by_the_time_that_is_given(tmp_path: Path) -> None:
    async with FileCheckpointer(tmp_path, ttl_seconds=3_600) as cp:
        await cp.save(AgentState(), "t")
        engine = cp.store.engine
        assert isinstance(engine, Expires)
        now = datetime.now(UTC)
        assert await engine.expire(now) == 0
        assert await engine.expire(now + timedelta(hours=2)) == 1
        assert await cp.load("t") is None
