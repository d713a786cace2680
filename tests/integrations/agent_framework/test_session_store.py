"""What the framework asks of a session store, and what ours adds: no writer overwrites another one's session unseen."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from agent_framework import AgentSession, FileSessionStore, Message, SessionStore, register_state_type

from locus.errors import (
    CheckpointNotFoundError,
    ConflictError,
    CorruptCheckpointError,
    InvalidIdError,
    SerializationError,
)
from locus.integrations.agent_framework import ClosedError, LocusAgentSessionStore, LocusHistoryProvider
from locus.memory.backends import sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer


class Ticket:
    def __init__(self, number: int) -> None:
        self.number = number

    def to_dict(self) -> dict[str, Any]:
        return {"number": self.number}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Ticket:
        return cls(data["number"])


register_state_type(Ticket, type_id="tests.locus.ticket")


def made(name: str = "alice", **state: Any) -> AgentSession:
    session = AgentSession(session_id=name)
    session.state.update(state)
    return session


async def test_a_session_comes_back_as_the_file_store_gives_it(store: Checkpointer, tmp_path: Path) -> None:
    session = made(n=1, deep={"a": [1, 2.5, None, True, "ä\x00"]}, pair=(1, 2), ticket=Ticket(7))
    session.state["in_memory"] = {"messages": [Message("user", ["Hello"])]}
    session.service_session_id = "service-1"
    stores: list[SessionStore] = [LocusAgentSessionStore(store), FileSessionStore(tmp_path / "sessions")]
    found = []
    for one in stores:
        assert await one.get("key") is None
        await one.set("key", session)
        got = await one.get("key")
        assert got is not None
        found.append(got)
        assert got.state["ticket"].number == 7
        assert got.state["in_memory"]["messages"][0].text == "Hello"
        got.state["n"] = 2
        again = await one.get("key")
        assert again is not None
        assert again.state["n"] == 1, "each is a copy of its own"
        await one.delete("key")
        await one.delete("key")
        assert await one.get("key") is None
    assert found[0].to_dict() == found[1].to_dict()
    assert found[0].session_id == "alice"


@pytest.mark.parametrize("bad", ["", None, 5])
async def test_an_empty_id_is_the_frameworks_error(store: Checkpointer, bad: Any) -> None:
    sessions = LocusAgentSessionStore(store)
    for call in (sessions.get(bad), sessions.set(bad, made()), sessions.delete(bad)):
        with pytest.raises(ValueError, match="non-empty string"):
            await call
    with pytest.raises(InvalidIdError):
        await sessions.get("x" * 256)


async def test_of_two_writers_one_is_refused(store: Checkpointer) -> None:
    sessions, others = LocusAgentSessionStore(store), LocusAgentSessionStore(store)
    await sessions.set("alice", made(n=0))
    one, two = await sessions.get("alice"), await others.get("alice")
    assert one is not None
    assert two is not None
    one.state["n"], two.state["n"] = 1, 2
    await sessions.set("alice", one)
    for stale in (two, copy.deepcopy(two), copy.copy(two)):
        with pytest.raises(ConflictError, match="Load the latest"):
            await others.set("alice", stale)
    one.state["n"] = 3
    await sessions.set("alice", one)
    await sessions.set("alice", copy.deepcopy(one))
    with pytest.raises(ConflictError):
        await sessions.set("alice", one)  # its copy was saved since
    kept = await others.get("alice")
    assert kept is not None
    assert kept.state["n"] == 3


async def test_a_session_that_was_not_loaded_takes_no_place(store: Checkpointer) -> None:
    sessions = LocusAgentSessionStore(store)
    await sessions.set("alice", made(n=1))
    with pytest.raises(ConflictError, match="expected no checkpoint"):
        await sessions.set("alice", made(n=2))
    await sessions.set("alice", made(n=3), replace=True)
    found = await sessions.get("alice")
    assert found is not None
    assert found.state["n"] == 3
    await sessions.set("another id", found)
    await sessions.set("another id", found)
    await sessions.set("alice", found)
    first = (await sessions.history("alice"))[-1]
    before = await sessions.get("alice", checkpoint_id=first.checkpoint_id)
    assert before is not None
    assert before.state["n"] == 1, "what was replaced stays in the history"


async def test_a_session_of_another_store_is_new_here(store: Checkpointer, tmp_path: Path) -> None:
    sessions = LocusAgentSessionStore(store)
    session = made()
    await sessions.set("alice", session)
    async with LocusAgentSessionStore(f"sqlite:{tmp_path / 'other.db'}") as elsewhere:
        await elsewhere.set("alice", session)
    await sessions.set("alice", session)
    with pytest.raises(ClosedError):
        await elsewhere.get("alice")


async def test_what_cannot_be_restored_is_refused(store: Checkpointer) -> None:
    sessions = LocusAgentSessionStore(store)

    class Mine(AgentSession):
        pass

    with pytest.raises(TypeError, match="got Mine"):
        await sessions.set("alice", Mine())
    with pytest.warns(RuntimeWarning, match="unsupported type"), pytest.raises(SerializationError, match=r"state\.odd"):
        await sessions.set("alice", made(odd=object()))
    with pytest.raises(SerializationError):
        await sessions.set("alice", made(odd=float("inf")))
    assert await sessions.get("alice") is None


async def test_history_fork_and_going_back(store: Checkpointer) -> None:
    sessions = LocusAgentSessionStore(store)
    session = made(n=0)
    for number in range(3):
        session.state["n"] = number
        await sessions.set("alice", session)
    points = await sessions.history("alice")
    assert len(points) == 3
    forked = await sessions.fork("alice", "bob", points[1].checkpoint_id)
    assert (forked.session_id, forked.state["n"]) == ("bob", 1), "its messages are its own, too"
    forked.state["n"] = 10
    await sessions.set("bob", forked)
    back = await sessions.rewind("alice", points[2].checkpoint_id)
    assert back.state["n"] == 0
    with pytest.raises(ConflictError):
        await sessions.set("alice", session)
    back.state["n"] = 20
    await sessions.set("alice", back)
    assert len(await sessions.history("alice")) == 5
    assert await sessions.list_sessions() == ["alice", "bob"]
    with pytest.raises(ConflictError):
        await sessions.fork("alice", "bob")
    with pytest.raises(CheckpointNotFoundError):
        await sessions.fork("nobody", "new")
    for call in (sessions.rewind("alice", "none"), sessions.get("alice", checkpoint_id="none")):
        with pytest.raises(CheckpointNotFoundError):
            await call
    await sessions.delete("alice")
    left = await sessions.get("bob")
    assert left is not None
    assert left.state["n"] == 10


async def test_messages_in_the_state_are_stored_once(store: Checkpointer) -> None:
    sessions = LocusAgentSessionStore(store)
    session = made()
    messages = session.state.setdefault("in_memory", {}).setdefault("messages", [])
    for number in range(40):
        messages.append(Message("user", [f"{number} " + "x" * 1_000]))
        await sessions.set("alice", session)
    assert [item["contents"][0]["text"][:2] for item in await sessions.newest("alice", 2)] == ["38", "39"]
    assert await sessions.newest("alice", 2, "no", "list") == []
    assert await sessions.newest("nobody", 2) == []
    sizes = await store.sizes("alice")
    assert sizes is not None
    assert sizes.bytes < 3 * 40 * 1_000, "the framework's file store has written 820,000"


async def test_something_else_in_the_thread_is_told_without_its_content(store: Checkpointer) -> None:
    sessions = LocusAgentSessionStore(store)
    backend: Any = store
    for odd in ({"secret": 1}, {"session_id": "secret", "state": []}, {"session_id": "", "state": {}}):
        await backend.backend.save("alice", odd, namespace="agent-framework-session")
        with pytest.raises(CorruptCheckpointError, match="no session of the Agent Framework") as told:
            await sessions.get("alice")
        assert "secret" not in str(told.value)
        assert "alice" not in str(told.value)
    ticket = {"type": "tests.locus.ticket", "secret": 1}
    await backend.backend.save("alice", {"session_id": "alice", "state": {"t": ticket}}, namespace=sessions.namespace)
    with pytest.raises(CorruptCheckpointError, match="register_state_type") as told:
        await sessions.get("alice")
    assert "secret" not in str(told.value)


async def test_a_thread_has_the_title_of_its_messages(store: Checkpointer) -> None:
    await LocusHistoryProvider(store).save_messages("alice", [Message("user", ["Where is it?"])])
    sessions = LocusAgentSessionStore(store)
    await sessions.set("alice", made(n=1))
    await sessions.set("bob", made(in_memory={"messages": [Message("user", ["And mine?"])]}))
    page = await store.recent_threads(titles=True)
    assert {one.thread_id: one.title for one in page.threads} == {"alice": "Where is it?", "bob": "And mine?"}


async def test_the_store_outlives_the_process_that_made_it(tmp_path: Path) -> None:
    async with LocusAgentSessionStore(f"sqlite:{tmp_path / 'a.db'}") as sessions:
        await sessions.set("alice", made(n=1))
    async with sqlite_checkpointer(tmp_path / "a.db") as store:
        session = await LocusAgentSessionStore(store).get("alice")
    assert session is not None
    assert session.state == {"n": 1}
