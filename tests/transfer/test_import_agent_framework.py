"""Sessions that the Agent Framework's file history has written, moved in and gone on with."""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_framework import Content, FileHistoryProvider, Message
from agent_framework._feature_stage import ExperimentalWarning

from locus.errors import ConfigurationError
from locus.integrations.agent_framework import LocusHistoryProvider
from locus.memory.backends import sqlite_checkpointer
from locus.transfer import import_store
from locus.transfer.sources.agent_framework import session_of

TALK = [
    Message("user", ["Where is my order? 😀"]),
    Message("assistant", [Content.from_function_call("c1", "find", arguments={"n": 1})]),
    Message("tool", [Content.from_function_result("c1", result="on its way")]),
    Message("assistant", ["It is on its way."], message_id="m1"),
    Message("user", ["Thanks!"]),
    Message("assistant", ["Bye."]),
]
ODD_IDS = ["Alice", "bob/2", "../up", "con", "ä" * 20, "x y"]


@pytest.fixture(autouse=True)
def without_notices() -> Iterator[None]:
    """The framework calls its file history experimental when it is first used."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        yield


def _digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def _dicts(messages: list[Message]) -> list[dict[str, Any]]:
    return [message.to_dict() for message in messages]


@pytest.mark.parametrize("kind", ["json", "msgpack"])
async def test_sessions_are_moved_and_gone_on_with(tmp_path: Path, kind: Any) -> None:
    folder, url = tmp_path / "history", f"sqlite:{tmp_path / 'agents.db'}"
    theirs = FileHistoryProvider(folder, serialization_format=kind)
    await theirs.save_messages("alice", TALK)
    await theirs.save_messages(None, TALK[:1])
    for odd in ODD_IDS:
        await theirs.save_messages(odd, TALK[:2])
    before = _digests(folder)
    report = await import_store("agent-framework", str(folder), url)
    assert report.ok, report.problems
    assert (report.threads, report.moved, report.verified) == (8, 9, 9)
    assert _digests(folder) == before
    async with sqlite_checkpointer(tmp_path / "agents.db") as store:
        moved = LocusHistoryProvider(store)
        assert _dicts(await moved.get_messages("alice")) == _dicts(await theirs.get_messages("alice"))
        assert _dicts(await moved.get_messages(None)) == _dicts(TALK[:1])
        for odd in ODD_IDS:
            assert _dicts(await moved.get_messages(odd)) == _dicts(TALK[:2])
        points = await moved.history("alice")
        assert [(point.items, point.change) for point in points] == [(6, "import"), (4, "import")]
        await moved.save_messages("alice", [Message("user", ["Hello?"])])
        await moved.fork("alice", "carol", points[1].checkpoint_id)
        assert len(await moved.get_messages("carol")) == 4
    again = await import_store("agent-framework", f"file:{folder}", url)
    assert (again.ok, again.moved, again.present) == (True, 0, 9), "what has gone on at the destination stays as it is"


async def test_a_session_that_has_grown_since_is_not_mixed(tmp_path: Path) -> None:
    folder, url = tmp_path / "history", f"sqlite:{tmp_path / 'agents.db'}"
    theirs = FileHistoryProvider(folder)
    await theirs.save_messages("alice", TALK[:4])
    await theirs.save_messages("bob", TALK[:1])
    assert (await import_store("agent-framework", str(folder), url)).moved == 2
    await theirs.save_messages("alice", TALK)
    report = await import_store("agent-framework", str(folder), url)
    assert not report.ok
    (problem,) = report.problems
    assert "Delete it there" in problem.message
    async with LocusHistoryProvider(url) as moved:
        assert len(await moved.get_messages("alice")) == 4


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("alice.jsonl", b'{"type": "message", "role": "user", "contents": []}\n{"type": "mess', "message 2 .* no JSON"),
        ("alice.jsonl", b'{"type": "secret", "role": "user"}\n', "message 1 .* no message of the Agent Framework"),
        ("alice.jsonl", b"[1]\n", "message 1 .* no message of the Agent Framework"),
        ("alice.jsonl", b'{"role": "user", "contents": [], "n": NaN}\n', "message 1 .* cannot be kept"),
        ("alice.msgpack", b"\x00\x00\x00\x09\x80", "message 1 .* is cut off"),
        ("alice.msgpack", b"\xff\xff\xff\xff\x80", "message 1 .* is cut off"),
        ("alice.msgpack", b"\x00\x00", "message 1 .* is cut off"),
        ("alice.msgpack", b"\x00\x00\x00\x01\xc1", "message 1 .* no MessagePack"),
    ],
)
async def test_a_damaged_file_is_told_and_does_not_stop_others(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    folder = tmp_path / "history"
    await FileHistoryProvider(folder).save_messages("bob", TALK)
    (folder / name).write_bytes(content)
    report = await import_store("agent-framework", str(folder), f"sqlite:{tmp_path / 'agents.db'}")
    (problem,) = report.problems
    assert problem.thread == "alice"
    assert re.search(said, problem.message)
    assert "secret" not in problem.message
    assert report.done == 1


async def test_what_is_no_such_folder_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'agents.db'}"
    with pytest.raises(ConfigurationError, match="there is no folder"):
        await import_store("agent-framework", str(tmp_path / "none"), url)
    with pytest.raises(ConfigurationError, match="read from file, not from 'redis'"):
        await import_store("agent-framework", "redis://host", url)
    folder = tmp_path / "history"
    await FileHistoryProvider(folder).save_messages("alice", TALK)
    await FileHistoryProvider(folder, serialization_format="msgpack").save_messages("alice", TALK)
    with pytest.raises(ConfigurationError, match="in two files"):
        await import_store("agent-framework", str(folder), url)


def test_an_id_that_is_a_digest_is_the_name_of_its_file() -> None:
    provider = FileHistoryProvider.__new__(FileHistoryProvider)
    for session_id in [*ODD_IDS, "alice", "~session-x"]:
        assert session_of(provider._session_file_stem(session_id)) == session_id
    long = provider._session_file_stem("X" * 200)
    assert session_of(long) == long
    assert long.startswith("~session-sha256-")
    assert session_of("~session-1!") == "~session-1!"
