"""What Strands expects of a session repository, on the stores that need no server."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from strands.session import SessionRepository
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

from locus.errors import (
    CheckpointNotFoundError,
    ConfigurationError,
    ConflictError,
    CorruptCheckpointError,
    InvalidIdError,
    SerializationError,
)
from locus.integrations.strands import LocusSessionRepository
from locus.integrations.strands.document import position_of, with_id
from locus.memory.backends import SQLiteBackend, sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.memory.store import CheckpointStore
from tests.backends.embedded import SQLiteStore
from tests.backends.strangers import AsyncStore

ODD = {"nested": {"a": [[], {}, None, True], "": "", "n": 2**70, "f": -0.0}, "text": "NUL \0, \u2028 and 🧵"}


@pytest.fixture
def sessions(handle: Checkpointer) -> LocusSessionRepository:
    return LocusSessionRepository(handle)


def begun(sessions: LocusSessionRepository, session_id: str = "alice", agent_id: str = "default") -> None:
    sessions.create_session(Session(session_id, SessionType.AGENT))
    sessions.create_agent(session_id, SessionAgent(agent_id, {"city": "Oslo"}, {}))


def said(text: str, number: int) -> SessionMessage:
    return SessionMessage({"role": "user", "content": [{"text": text}]}, number)


def add(sessions: LocusSessionRepository, *numbers: int, session_id: str = "alice") -> None:
    for number in numbers:
        sessions.create_message(session_id, "default", said(f"message {number}", number))


def texts(messages: list[SessionMessage]) -> list[str]:
    return [message.to_message()["content"][0]["text"] for message in messages]


async def test_nothing_is_there_at_first(sessions: LocusSessionRepository) -> None:
    assert isinstance(sessions, SessionRepository)
    assert sessions.read_session("alice") is None
    assert sessions.read_agent("alice", "default") is None
    assert sessions.read_message("alice", "default", 0) is None
    assert sessions.read_multi_agent("alice", "graph") is None
    assert sessions.history("alice") == []
    assert sessions.list_sessions() == []
    for call in (
        lambda: sessions.list_messages("alice", "default"),
        lambda: sessions.create_agent("alice", SessionAgent("default", {}, {})),
        lambda: sessions.create_message("alice", "default", said("x", 0)),
        lambda: sessions.update_message("alice", "default", said("x", 0)),
        lambda: sessions.update_agent("alice", SessionAgent("default", {}, {})),
        lambda: sessions.delete_session("alice"),
        lambda: sessions.fork("alice", "bob"),
    ):
        with pytest.raises(SessionException, match="does not exist"):
            call()


async def test_a_session_with_its_agents_comes_back_equal(
    sessions: LocusSessionRepository, handle: Checkpointer
) -> None:
    session = sessions.create_session(Session("alice", SessionType.AGENT))
    one, two = SessionAgent("one", ODD, {"removed": 3}), SessionAgent("two/ä", {"large": "x" * 5_000}, {})
    sessions.create_agent("alice", one)
    sessions.create_agent("alice", two)
    message = SessionMessage(
        {"role": "user", "content": [{"image": {"format": "png", "source": {"bytes": b"\0\xff"}}}, {"text": "NUL \0"}]},
        0,
    )
    sessions.create_message("alice", "two/ä", message)
    for reader in (sessions, LocusSessionRepository(handle)):
        assert reader.read_session("alice") == session
        assert reader.read_agent("alice", "one") == one
        assert reader.read_agent("alice", "two/ä") == two
        assert reader.read_agent("alice", "three") is None
        assert reader.list_messages("alice", "one") == []
        assert reader.list_messages("alice", "two/ä") == [message]
        assert reader.read_message("alice", "two/ä", 0) == message
    with pytest.raises(SessionException, match="already exists"):
        sessions.create_session(Session("alice", SessionType.AGENT))
    assert sessions.list_sessions() == ["alice"]


async def test_an_agent_is_updated_and_keeps_its_time(sessions: LocusSessionRepository) -> None:
    begun(sessions)
    first = sessions.read_agent("alice", "default")
    assert first is not None
    changed = SessionAgent("default", {"city": "Rome"}, {"removed": 1}, created_at="later")
    sessions.update_agent("alice", changed)
    assert changed.created_at == first.created_at
    assert sessions.read_agent("alice", "default") == changed
    with pytest.raises(SessionException, match="'nobody' in session 'alice' does not exist"):
        sessions.update_agent("alice", SessionAgent("nobody", {}, {}))


async def test_pages_of_messages(sessions: LocusSessionRepository) -> None:
    begun(sessions)
    add(sessions, *range(7))
    every = [f"message {number}" for number in range(7)]
    assert texts(sessions.list_messages("alice", "default")) == every
    assert texts(sessions.list_messages("alice", "default", limit=2)) == every[:2]
    assert texts(sessions.list_messages("alice", "default", limit=2, offset=3)) == every[3:5]
    assert texts(sessions.list_messages("alice", "default", offset=5)) == every[5:]
    assert texts(sessions.list_messages("alice", "default", offset=-3)) == every[-3:]
    assert sessions.list_messages("alice", "default", offset=9) == []
    assert sessions.list_messages("alice", "default", limit=0) == []
    assert sessions.read_message("alice", "default", 7) is None


async def test_a_message_takes_the_place_of_no_other(sessions: LocusSessionRepository, handle: Checkpointer) -> None:
    begun(sessions)
    add(sessions, 0)
    first = said("one", 1)
    sessions.create_message("alice", "default", first)
    for writer in (sessions, LocusSessionRepository(handle)):
        with pytest.raises(SessionException, match="message 1 of agent 'default' exists already, with other content"):
            writer.create_message("alice", "default", said("another", 1))
        writer.create_message("alice", "default", first)  # an answer was lost, and it is sent once more
    assert texts(sessions.list_messages("alice", "default")) == ["message 0", "one"]
    assert [point.change for point in sessions.history("alice")] == ["message", "message", "agent", "session"]


async def test_a_stale_repository_is_told_and_goes_on(sessions: LocusSessionRepository, handle: Checkpointer) -> None:
    begun(sessions)
    other = LocusSessionRepository(handle)
    add(sessions, 0)
    add(other, 1)
    with pytest.raises(SessionException, match="exists already"):
        sessions.create_message("alice", "default", said("stale", 1))
    sessions.update_agent("alice", SessionAgent("default", {"city": "Bern"}, {}))
    add(other, 2)
    assert texts(sessions.list_messages("alice", "default")) == ["message 0", "message 1", "message 2"]
    agent = other.read_agent("alice", "default")
    assert agent is not None
    assert agent.state == {"city": "Bern"}


async def test_ids_in_any_order_are_kept_in_theirs(sessions: LocusSessionRepository, handle: Checkpointer) -> None:
    begun(sessions)
    add(sessions, 5, 1, 6, -2, 3, 2)
    for reader in (sessions, LocusSessionRepository(handle)):
        found = reader.list_messages("alice", "default")
        assert [message.message_id for message in found] == [-2, 1, 2, 3, 5, 6]
        assert texts(found) == [f"message {number}" for number in (-2, 1, 2, 3, 5, 6)]
        for number in (-2, 1, 2, 3, 5, 6):
            message = reader.read_message("alice", "default", number)
            assert message is not None
            assert message.message_id == number
        assert reader.read_message("alice", "default", 4) is None


async def test_what_goes_without_saying_is_not_stored(tmp_path: Path) -> None:
    """A message has a checkpoint, which would soon be longer than the message."""
    async with sqlite_checkpointer(tmp_path / "a.db") as store, SQLiteBackend(tmp_path / "a.db") as backend:

        async def kept() -> dict[str, Any]:
            found = await backend.load("alice", namespace="strands")
            assert found is not None
            return {name: value for name, value in found.items() if name != "who"}

        sessions = LocusSessionRepository(store)
        begun(sessions)
        add(sessions, 0, 1)
        assert [set(item) for item in (await kept())["said"]] == [{"message", "created_at", "updated_at"}] * 2
        assert (await kept()).keys() == {"said"}
        (newest,) = await store.store.history("alice", 1, None, "strands")
        assert newest.metadata == "{}"
        add(sessions, -3, 7)
        assert (await kept())["ids"] == {"default": [-3, 1, 0, 2, 7, 1]}
        assert [item.get("message_id") for item in (await kept())["said"]] == [-3, 0, 1, 7]
        sessions.update_message("alice", "default", replace(said("new", 7), redact_message=said("gone", 7).message))
        assert texts(sessions.list_messages("alice", "default")) == ["message -3", "message 0", "message 1", "gone"]
        points = sessions.history("alice", None)
        assert [(point.items, point.change) for point in points] == [
            (4, "redact"),
            *((count, "message") for count in (4, 3, 2, 1)),
            (0, "agent"),
            (0, "session"),
        ]
        sessions.create_agent("alice", SessionAgent("clerk", {}, {}))
        sessions.create_message("alice", "clerk", said("other", 0))
        assert (await kept())["said:clerk"][0].keys() == {"message", "created_at", "updated_at"}


async def test_points_can_be_listed_where_one_is_damaged(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path)
    async with store.open() as handle:
        sessions = LocusSessionRepository(handle)
        begun(sessions)
        add(sessions, 0)
    await store.corrupt("alice")
    async with store.open() as handle:
        points = LocusSessionRepository(handle).history("alice", None)
        assert [point.items for point in points] == [None, None, None]


def test_ranges_of_ids() -> None:
    ids: list[int] = []
    for number, at in ((0, 0), (1, 1), (4, 2), (2, 2), (-1, 0), (3, 4)):
        found, ids = with_id(ids, number)
        assert found == at
    assert ids == [-1, 6]
    assert [position_of(ids, number) for number in (-2, -1, 4, 5)] == [None, 0, 5, None]


@pytest.mark.parametrize("number", ["1", None, True, 1.0, 2**60])
async def test_ids_that_are_no_numbers_are_refused(sessions: LocusSessionRepository, number: Any) -> None:
    begun(sessions)
    with pytest.raises(ValueError, match="message_id must be an integer"):
        sessions.create_message("alice", "default", said("x", number))
    with pytest.raises(ValueError, match="message_id must be an integer"):
        sessions.read_message("alice", "default", number)


async def test_a_redaction_stays_and_the_history_has_what_was(sessions: LocusSessionRepository) -> None:
    begun(sessions)
    add(sessions, *range(5))
    for number in (4, 0, 2):
        message = said(f"message {number}", number)
        message.created_at = "later"
        message.redact_message = {"role": "user", "content": [{"text": f"redacted {number}"}]}
        sessions.update_message("alice", "default", message)
        assert message.created_at != "later"
    expected = ["redacted 0", "message 1", "redacted 2", "message 3", "redacted 4"]
    assert texts(sessions.list_messages("alice", "default")) == expected
    add(sessions, 5)
    assert texts(sessions.list_messages("alice", "default"))[-2:] == ["redacted 4", "message 5"]
    with pytest.raises(SessionException, match="message 9 of agent 'default' does not exist"):
        sessions.update_message("alice", "default", said("x", 9))
    points = sessions.history("alice", None)
    assert [point.change for point in points[:4]] == ["message", "redact", "redact", "redact"]
    before = sessions.list_messages("alice", "default", checkpoint_id=points[4].checkpoint_id)
    assert texts(before) == [f"message {number}" for number in range(5)]


async def test_very_many_redactions(sessions: LocusSessionRepository, handle: Checkpointer) -> None:
    """Each leaves a piece of a list behind; when there are too many the list is written anew."""
    begun(sessions)
    add(sessions, *range(40))
    for number in range(1, 40, 2):
        LocusSessionRepository(handle).update_message("alice", "default", said(f"redacted {number}", number))
    found = texts(sessions.list_messages("alice", "default"))
    assert found == [f"{'redacted' if number % 2 else 'message'} {number}" for number in range(40)]


class Orchestrator:
    """What a graph or a swarm of Strands is to a repository."""

    def __init__(self, name: str, state: dict[str, Any]) -> None:
        self.id = name
        self.state = state

    def serialize_state(self) -> dict[str, Any]:
        return self.state


async def test_orchestrators(sessions: LocusSessionRepository) -> None:
    begun(sessions)
    graph: Any = Orchestrator("graph", {"nodes": [{"id": 1}], "large": "x" * 3_000})
    with pytest.raises(SessionException, match="orchestrator 'graph' in session 'alice' does not exist"):
        sessions.update_multi_agent("alice", graph)
    sessions.create_multi_agent("alice", graph)
    assert sessions.read_multi_agent("alice", "graph") == graph.state
    graph.state = {"nodes": [{"id": 1}, {"id": 2}]}
    sessions.update_multi_agent("alice", graph)
    add(sessions, 0)
    assert sessions.read_multi_agent("alice", "graph") == graph.state
    assert sessions.read_multi_agent("alice", "swarm") is None


async def test_history_forks_and_going_back_take_everything_along(sessions: LocusSessionRepository) -> None:
    begun(sessions)
    add(sessions, 0, 1)
    sessions.update_agent("alice", SessionAgent("default", {"city": "Rome"}, {}))
    add(sessions, 2)
    points = sessions.history("alice", None)
    assert [(point.change, point.items) for point in points] == [
        ("message", 3),
        ("state", 2),
        ("message", 2),
        ("message", 1),
        ("agent", 0),
        ("session", 0),
    ]
    early = points[2].checkpoint_id
    agent = sessions.read_agent("alice", "default", checkpoint_id=early)
    assert agent is not None
    assert agent.state == {"city": "Oslo"}
    assert sessions.read_message("alice", "default", 2, checkpoint_id=early) is None

    sessions.fork("alice", "bob", early)
    session = sessions.read_session("bob")
    assert session is not None
    assert session.session_id == "bob"
    add(sessions, 2, session_id="bob")
    sessions.fork("alice", "carol")
    assert texts(sessions.list_messages("carol", "default")) == ["message 0", "message 1", "message 2"]

    sessions.rewind("alice", early)
    assert texts(sessions.list_messages("alice", "default")) == ["message 0", "message 1"]
    agent = sessions.read_agent("alice", "default")
    assert agent is not None
    assert agent.state == {"city": "Oslo"}
    sessions.create_message("alice", "default", said("another", 2))
    assert texts(sessions.list_messages("alice", "default")) == ["message 0", "message 1", "another"]
    assert [point.change for point in sessions.history("alice", 2)] == ["message", "rewind"]
    assert len(sessions.list_messages("alice", "default", checkpoint_id=points[0].checkpoint_id)) == 3
    assert texts(sessions.list_messages("bob", "default")) == ["message 0", "message 1", "message 2"]

    with pytest.raises(ConflictError, match="exists already"):
        sessions.fork("alice", "bob")
    for call in (sessions.rewind, lambda name, at: sessions.fork(name, "dave", at)):
        with pytest.raises(CheckpointNotFoundError, match="'nothing'"):
            call("alice", "nothing")
    sessions.delete_session("alice")
    assert sessions.read_session("alice") is None
    assert sessions.list_sessions() == ["bob", "carol"]
    begun(sessions)
    assert sessions.list_messages("alice", "default") == []


async def test_points_can_be_removed_while_a_repository_is_open(
    sessions: LocusSessionRepository, handle: Checkpointer
) -> None:
    begun(sessions)
    add(sessions, 0, 1)
    other = LocusSessionRepository(handle)
    add(other, 2)
    await handle.vacuum(keep_last=1)
    add(sessions, 3)
    add(other, 4)
    assert texts(sessions.list_messages("alice", "default")) == [f"message {number}" for number in range(5)]


async def test_hostile_ids(sessions: LocusSessionRepository) -> None:
    for name in ("../x", "a/b", "ä\n", "*", "messages:x"):
        sessions.create_session(Session(name, SessionType.AGENT))
        sessions.create_agent(name, SessionAgent(name, {}, {}))
        sessions.create_message(name, name, said(name, 0))
        assert texts(sessions.list_messages(name, name)) == [name]
    long_id = "a" * 300
    sessions.create_agent("a/b", SessionAgent(long_id, {}, {}))
    sessions.create_message("a/b", long_id, said("x", 0))
    assert texts(sessions.list_messages("a/b", long_id)) == ["x"]
    bad: Any
    for bad in ("", "x" * 300, "\ud800", 5):
        with pytest.raises(InvalidIdError):
            sessions.create_session(Session(bad, SessionType.AGENT))
        with pytest.raises(InvalidIdError):
            sessions.read_session(bad)
    with pytest.raises(SerializationError):
        sessions.create_agent("a/b", SessionAgent("\ud800", {}, {}))


async def test_what_json_cannot_hold_is_told(sessions: LocusSessionRepository) -> None:
    begun(sessions)
    state: Any = {"when": {1, 2}}
    with pytest.raises(SerializationError, match="set"):
        sessions.update_agent("alice", SessionAgent("default", state, {}))
    add(sessions, 0)
    assert len(sessions.list_messages("alice", "default")) == 1


async def test_a_thread_of_something_else_is_told(tmp_path: Path) -> None:
    other = SQLiteBackend(tmp_path / "a.db")
    await other.save("alice", {"messages": []}, namespace="strands")
    sessions = LocusSessionRepository(other)
    with pytest.raises(CorruptCheckpointError, match="something else uses it"):
        sessions.read_session("alice")
    await other.close()


async def test_a_store_that_keeps_every_checkpoint_whole() -> None:
    kept = AsyncStore()
    sessions = LocusSessionRepository(kept, namespace="default")
    begun(sessions)
    add(sessions, 0, 1, 2)
    sessions.update_message("alice", "default", said("redacted", 1))
    add(LocusSessionRepository(kept, namespace="default"), 3)
    assert texts(sessions.list_messages("alice", "default")) == ["message 0", "redacted", "message 2", "message 3"]


async def test_what_was_opened_by_name_is_closed_and_nothing_else(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'a.db'}"
    with LocusSessionRepository(url) as own:
        begun(own)
    with pytest.raises(SessionException, match="closed: make a new"):
        own.read_session("alice")
    async with sqlite_checkpointer(tmp_path / "a.db") as store:
        with LocusSessionRepository(store) as sessions:
            assert sessions.list_sessions() == ["alice"]
        assert await store.list_threads() == ["alice"]
    with pytest.raises(ConfigurationError, match="namespace"):
        LocusSessionRepository(url, namespaces="x")
    assert repr(own) == "LocusSessionRepository(SQLiteEngine)"


async def test_many_os_threads_add_to_one_session(sessions: LocusSessionRepository) -> None:
    begun(sessions)
    numbers = range(12)
    await asyncio.gather(*(asyncio.to_thread(add, sessions, number) for number in numbers))
    assert texts(sessions.list_messages("alice", "default")) == [f"message {number}" for number in numbers]


async def test_an_append_reads_no_message_and_writes_only_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocusSessionRepository(f"sqlite:{tmp_path / 'a.db'}") as sessions:
        begun(sessions)
        add(sessions, *range(30))
        committed: list[Any] = []
        parts: list[Any] = []
        commit, read_part = CheckpointStore.commit, CheckpointStore.read_part

        async def counted(self: CheckpointStore, one: Any) -> Any:
            committed.append(one)
            return await commit(self, one)

        async def read(self: CheckpointStore, *place: Any) -> Any:
            parts.append(place)
            return await read_part(self, *place)

        monkeypatch.setattr(CheckpointStore, "commit", counted)
        monkeypatch.setattr(CheckpointStore, "read_part", read)
        add(sessions, 30)
        (one,) = committed
        assert [(run.start, run.length) for run in one.runs] == [(30, 1)]
        assert parts == []


async def test_logs_tell_nothing_of_a_session(
    sessions: LocusSessionRepository, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "locus")
    begun(sessions, "secret-session")
    assert "secret" not in repr(sessions)
    assert not [record for record in caplog.records if "secret" in record.getMessage() and "locus" in record.name]
