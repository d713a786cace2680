"""A fork leads back to where it came from, in the terminal and in the browser."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import BackendUnavailableError
from locus.integrations.agent_framework import LocusAgentSessionStore
from locus.integrations.openai_agents import LocusSession
from locus.looking.forking import fork
from locus.memory.backends import MemoryCheckpointer, sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.memory.origins import PLACE, Origin, origin_of
from locus.server.auth import Grant
from tests.backends.every_store import embedded_store, store_on_server
from tests.cli.terminals import commands
from tests.server.inspector.asked import Asked

STORES = [
    "memory",
    "sqlite",
    "file",
    pytest.param("postgresql", marks=pytest.mark.server("postgresql")),
    pytest.param("http", marks=pytest.mark.http),
]


async def told(checkpointer: Checkpointer, thread_id: str = "first") -> None:
    state = AgentState()
    for number in range(3):
        state = state.with_message(Message.user(f"Question {number}"))
        await checkpointer.save(state, thread_id, f"c{number}")


@pytest.mark.parametrize("kind", STORES)
async def test_a_fork_knows_its_origin(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    is_embedded = kind in ("memory", "sqlite", "file")
    opened = nullcontext(embedded_store(kind, tmp_path)) if is_embedded else store_on_server(kind, request, tmp_path)
    with opened as place:
        async with place.open() as checkpointer:
            store = checkpointer.store
            await told(checkpointer)
            entry = await store.entry("first", "c1", "default")
            assert entry is not None
            await fork(store, entry, "second")
            await fork(store, entry, "short", 0)
            origin = Origin("first", "default", "c1")
            assert [await origin_of(store, name) for name in ("first", "second", "short")] == [None, origin, origin]
            assert await store.namespaces("second") == ["default"]
            assert await checkpointer.list_checkpoints("short") == ["c1"]
            assert await checkpointer.get_writes("short", "c1") == []
            # A copy of a fork came from the fork; deleted, it takes the note along.
            later = await store.entry("second", None, "default")
            assert later is not None
            await fork(store, later, "third", latest=True)
            assert await origin_of(store, "third") == Origin("second", "default", "c1")
            assert await checkpointer.delete("second")
            assert await checkpointer.save(AgentState(), "second")
            assert await origin_of(store, "second") is None


async def test_sessions_of_frameworks_know_it() -> None:
    async with MemoryCheckpointer() as store:
        session = LocusSession("songs", store)
        await session.add_items([{"role": "user", "content": "Sing"}])
        await session.fork("songs-2")
        found = await origin_of(store.store, "songs-2")
        assert (found and found.thread_id, found and found.namespace) == ("songs", "openai-agents")
        sessions = LocusAgentSessionStore(store)
        from agent_framework import AgentSession

        await sessions.set("talk", AgentSession(session_id="talk"))
        await sessions.fork("talk", "talk-2")
        found = await origin_of(store.store, "talk-2")
        assert (found and found.thread_id, found and found.namespace) == ("talk", sessions.namespace)


async def test_the_timeline_links_to_the_origin() -> None:
    checkpointer = MemoryCheckpointer()
    await told(checkpointer, "acme/first")
    entry = await checkpointer.store.entry("acme/first", "c1", "default")
    assert entry is not None
    await fork(checkpointer.store, entry, "acme/second")
    await fork(checkpointer.store, entry, "other/second")
    asked = Asked(checkpointer)
    (told_of,) = (await asked.page("t", "acme/second")).elements("p", class_="origin")
    assert "Forked from acme/first #2" in told_of.text
    (link,) = [one for one in told_of.all() if one.name == "a"]
    assert link.attributes["href"] == asked.rendering.url("t", "acme/first", "c", "c1", ns="default")
    assert not (await asked.page("t", "acme/first")).elements("p", class_="origin")
    other = Asked(checkpointer, Grant(prefix="other/"))
    assert not (await other.page("t", "other/second")).elements("p", class_="origin")
    await checkpointer.delete("acme/first")
    assert not (await asked.page("t", "acme/second")).elements("p", class_="origin")


async def test_the_log_says_it(tmp_path: Path) -> None:
    async with sqlite_checkpointer(tmp_path / "agents.db") as checkpointer:
        await told(checkpointer)
    with commands() as locus:
        assert locus.piped("fork", "first@#2", "second", cwd=tmp_path).code == 0
        assert locus.piped("log", "second", cwd=tmp_path).err == "forked from first@c1\n"
        assert locus.piped("log", "second", "--json", cwd=tmp_path).err == ""
        assert locus.piped("log", "first", cwd=tmp_path).err == ""


async def test_an_outage_after_the_copy_leaves_the_fork(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    checkpointer = MemoryCheckpointer()
    await told(checkpointer)
    entry = await checkpointer.store.entry("first", None, "default")
    assert entry is not None

    async def away(*_args: Any, **_options: Any) -> None:
        raise BackendUnavailableError("it does not answer")

    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
        patched.setattr(checkpointer.store, "put_writes", away)
        await fork(checkpointer.store, entry, "second")
    assert "not noted where it came from" in caplog.text
    assert await checkpointer.list_checkpoints("second") == ["c2", "c1", "c0"]
    assert await origin_of(checkpointer.store, "second") is None


@pytest.mark.parametrize("value", [None, [], {}, {"thread_id": 1, "namespace": "", "checkpoint_id": ""}, "first"])
async def test_another_note_is_none(value: Any) -> None:
    checkpointer = MemoryCheckpointer()
    await told(checkpointer)
    await checkpointer.put_writes("first", PLACE, PLACE, [(PLACE, value)], namespace=PLACE)
    assert await origin_of(checkpointer.store, "first") is None
