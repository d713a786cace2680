"""Sessions that Strands has written to files, moved in and gone on with."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from strands.session import FileSessionManager, RepositorySessionManager
from strands.types.session import SessionAgent, SessionMessage

from locus.errors import ConfigurationError, LocusError
from locus.integrations.strands import LocusSessionRepository
from locus.transfer import copy_store, import_store
from tests.integrations.strands.test_repository import Orchestrator


def said(text: str, number: int) -> SessionMessage:
    return SessionMessage({"role": "user", "content": [{"text": text}]}, number)


def written(folder: Path, session_id: str, count: int = 12) -> FileSessionManager:
    files = FileSessionManager(session_id, storage_dir=str(folder))
    files.create_agent(session_id, SessionAgent("default", {"todo": [{"n": 1}], "text": "x" * 2_000}, {"removed": 0}))
    files.create_agent(session_id, SessionAgent("empty", {}, {}))
    for number in range(count):
        files.create_message(session_id, "default", said(f"message {number} 😀", number))
    graph: Any = Orchestrator("graph", {"status": "completed"})
    files.create_multi_agent(session_id, graph)
    return files


def digest(folder: Path) -> str:
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        found.update(f"{path} {path.stat().st_mtime_ns}".encode() + (path.read_bytes() if path.is_file() else b""))
    return found.hexdigest()


async def test_sessions_are_moved_and_gone_on_with(tmp_path: Path) -> None:
    folder, url = tmp_path / "sessions", f"sqlite:{tmp_path / 'agents.db'}"
    alice, _ = written(folder, "alice"), written(folder, "bob", 0)
    (folder / "session_empty").mkdir()
    before = digest(folder)
    report = await import_store("strands", str(folder), url)
    assert report.ok, report.problems
    assert (report.threads, report.moved, report.verified) == (2, 2, 2)
    assert digest(folder) == before
    with LocusSessionRepository(url) as sessions:
        assert sessions.list_sessions() == ["alice", "bob"]
        assert sessions.read_session("alice") == alice.read_session("alice")
        assert sessions.read_agent("alice", "default") == alice.read_agent("alice", "default")
        assert sessions.list_messages("alice", "default") == alice.list_messages("alice", "default")
        assert sessions.list_messages("alice", "empty") == []
        assert sessions.read_multi_agent("alice", "graph") == {"status": "completed"}
        assert sessions.read_message("alice", "default", 7) == alice.read_message("alice", "default", 7)
        RepositorySessionManager("alice", sessions)
        sessions.create_message("alice", "default", said("and on", 12))
        assert [(point.change, point.items) for point in sessions.history("alice")] == [("message", 13), ("import", 12)]
    again = await import_store("strands", f"file:{folder}", url)
    assert (again.ok, again.moved, again.present) == (True, 0, 2), "what has gone on at the destination stays as it is"
    assert (await copy_store(url, f"file:{tmp_path / 'copy'}")).ok
    with LocusSessionRepository(f"file:{tmp_path / 'copy'}") as copied:
        assert len(copied.list_messages("alice", "default")) == 13


async def test_an_import_goes_on_with_what_is_missing(tmp_path: Path) -> None:
    folder, url = tmp_path / "sessions", f"sqlite:{tmp_path / 'agents.db'}"
    written(folder, "alice")
    assert (await import_store("strands", str(folder), url)).moved == 1
    changed = written(folder, "bob")
    assert (await import_store("strands", str(folder), url)).moved == 1
    changed.create_message("bob", "default", said("later", 12))
    report = await import_store("strands", str(folder), url)
    (problem,) = report.problems
    assert problem.thread == "bob"
    assert "other content" in problem.message


async def test_numbers_with_gaps(tmp_path: Path) -> None:
    folder, url = tmp_path / "sessions", f"sqlite:{tmp_path / 'agents.db'}"
    files = written(folder, "alice", 0)
    for number in (3, 10, 9, 0):
        files.create_message("alice", "default", said(f"{number}", number))
    assert (await import_store("strands", str(folder), url)).ok
    with LocusSessionRepository(url) as sessions:
        assert [message.message_id for message in sessions.list_messages("alice", "default")] == [0, 3, 9, 10]
        found = sessions.read_message("alice", "default", 9)
        assert found is not None
        assert found.message["content"] == [{"text": "9"}]


@pytest.mark.parametrize("damage", ["json", "list", "number", "name", "gone", "link", "time"])
async def test_a_damaged_file_is_named_and_other_sessions_are_moved(tmp_path: Path, damage: str) -> None:
    folder, url = tmp_path / "sessions", f"sqlite:{tmp_path / 'agents.db'}"
    written(folder, "alice")
    written(folder, "bob")
    messages = folder / "session_alice" / "agents" / "agent_default" / "messages"
    path = messages / "message_3.json"
    if damage == "json":
        path.write_text("{")
    elif damage == "list":
        path.write_text("[]")
    elif damage == "number":
        path.write_text(json.dumps({**json.loads(path.read_text()), "message_id": 4}))
    elif damage == "name":
        path.rename(messages / "message_x.json")
    elif damage == "gone":
        path = folder / "session_alice" / "agents" / "agent_default" / "agent.json"
        path.unlink()
    elif damage == "link":
        path.rename(tmp_path / "elsewhere.json")
        path.symlink_to(tmp_path / "elsewhere.json")
    else:
        path.write_text(json.dumps({**json.loads(path.read_text()), "updated_at": "yesterday"}))
    report = await import_store("strands", str(folder), url)
    (problem,) = report.problems
    assert problem.thread == "alice"
    with LocusSessionRepository(url) as sessions:
        assert sessions.list_sessions() == ["bob"]


@pytest.mark.parametrize("source", ["none", "postgresql://u:s3cret@h/d", "file.txt", "empty"])
async def test_what_is_no_such_folder_is_told(tmp_path: Path, source: str) -> None:
    (tmp_path / "file.txt").write_text("no folder")
    (tmp_path / "empty").mkdir()
    place = source if ":" in source else str(tmp_path / source)
    with pytest.raises((ConfigurationError, LocusError), match=r"there is no|this is read from file") as told:
        await import_store("strands", place, f"sqlite:{tmp_path / 'agents.db'}")
    assert "s3cret" not in str(told.value)
