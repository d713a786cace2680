"""Real agents of Strands with a model that is a function: they are killed, and go on."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from strands import Agent
from strands.multiagent import GraphBuilder
from strands.session import RepositorySessionManager, SnapshotSessionManager
from strands.types.exceptions import SessionException

from locus.integrations.strands import LocusSessionRepository, LocusStorage, snapshot_key
from locus.looking.reading import conversation
from locus.memory.backends import sqlite_checkpointer
from locus.memory.conversations import utterance_of
from tests.integrations.strands.jobs import KINDS
from tests.integrations.strands.jobs import agent as ticket_agent
from tests.integrations.strands.models import FakeModel, counting, texts

ROOT = Path(__file__).resolve().parents[3]


def clerk(manager: Any, **options: Any) -> Agent:
    return Agent(
        model=FakeModel(counting),
        session_manager=manager,
        callback_handler=None,
        load_tools_from_directory=False,
        **options,
    )


def test_agents_that_were_killed_go_on(tmp_path: Path) -> None:
    urls = [f"sqlite:{tmp_path / kind}.db" for kind in KINDS]
    command = [sys.executable, "-m", "tests.integrations.strands.jobs", *urls]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=100)
    assert done.returncode == -signal.SIGKILL, done.stderr
    for kind, url in zip(KINDS, urls, strict=True):
        again = ticket_agent(kind, url)
        assert texts(again.messages) == ["Hello", "I see 1 messages.", "A ticket to Oslo, please."]
        assert "toolUse" in again.messages[-1]["content"][-1]
        assert str(again("A ticket to Oslo, again.")).strip() == "That is 90 euros."
        assert texts(ticket_agent(kind, url).messages)[-2:] == ["A ticket to Oslo, again.", "That is 90 euros."]


def test_state_and_messages_come_back(tmp_path: Path) -> None:
    with LocusSessionRepository(f"sqlite:{tmp_path / 'a.db'}") as sessions:
        first = clerk(RepositorySessionManager("alice", sessions), state={"city": "Oslo"})
        first("Hello")
        first.state.set("city", "Rome")
        first("And again")
        second = clerk(RepositorySessionManager("alice", sessions))
        assert second.state.get() == {"city": "Rome"}
        assert second.messages == first.messages
        points = sessions.history("alice", None)
        early = next(point for point in points if point.items == 2)
        sessions.fork("alice", "bob", early.checkpoint_id)
        forked = clerk(RepositorySessionManager("bob", sessions))
        assert texts(forked.messages) == ["Hello", "I see 1 messages."]
        assert str(forked("Something else")).strip() == "I see 3 messages."


def test_two_agents_of_one_session_do_not_overwrite_each_other(tmp_path: Path) -> None:
    with LocusSessionRepository(f"sqlite:{tmp_path / 'a.db'}") as sessions:
        one = clerk(RepositorySessionManager("alice", sessions))
        two = clerk(RepositorySessionManager("alice", sessions))
        one("Hello from one")
        with pytest.raises(SessionException, match="exists already"):
            two("Hello from two")
        kept = clerk(RepositorySessionManager("alice", sessions))
        assert texts(kept.messages) == ["Hello from one", "I see 1 messages."]


async def test_snapshots_of_a_turn_and_of_the_history(tmp_path: Path) -> None:
    storage = LocusStorage(f"sqlite:{tmp_path / 'a.db'}")
    manager = SnapshotSessionManager("alice", storage=storage, snapshot_trigger=lambda **_agent: True)
    agent = clerk(manager, system_prompt="Be kind.")
    for text in ("one", "two", "three"):
        await agent.invoke_async(text)
    names = await manager.list_snapshot_ids(agent)
    assert len(names) == 3
    again = clerk(SnapshotSessionManager("alice", storage=storage))
    assert again.messages == agent.messages
    assert await manager.restore_snapshot(again, snapshot_id=names[0])
    assert texts(again.messages) == ["one", "I see 1 messages."]
    assert (await storage.history(snapshot_key("alice"), 1))[0].items == 6
    await manager.delete_session()
    assert await storage.list("") == []
    await storage.close()


async def test_a_graph_goes_on(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'a.db'}"

    def graph(sessions: LocusSessionRepository) -> Any:
        builder = GraphBuilder()
        for name in ("first", "second"):
            builder.add_node(Agent(model=FakeModel(counting), callback_handler=None, name=name), name)
        builder.add_edge("first", "second")
        builder.set_entry_point("first")
        builder.set_graph_id("graph")
        builder.set_max_node_executions(10)
        builder.set_session_manager(RepositorySessionManager("alice", sessions))
        return builder.build()

    with LocusSessionRepository(url) as sessions:
        result = await graph(sessions).invoke_async("Hello")
        assert result.status.value == "completed"
        kept = sessions.read_multi_agent("alice", "graph")
        assert kept is not None
        assert kept["status"] == "completed"
        assert graph(sessions).id == "graph"


async def test_sessions_and_snapshots_have_titles_and_are_shown(tmp_path: Path) -> None:
    async with sqlite_checkpointer(tmp_path / "a.db") as store:
        await clerk(RepositorySessionManager("alice", LocusSessionRepository(store))).invoke_async("Where is it?")
        await clerk(SnapshotSessionManager("bob", storage=LocusStorage(store))).invoke_async("And where now?")
        page = await store.recent_threads(titles=True)
        assert {one.thread_id.removesuffix("snapshot_latest.json"): one.title for one in page.threads} == {
            "alice": "Where is it?",
            snapshot_key("bob").removesuffix("snapshot_latest.json"): "And where now?",
        }
        for thread in page.threads:
            (newest,) = await store.store.history(thread.thread_id, 1, None, None)
            found = await conversation(store.store, newest, 0, 10)
            assert found is not None
            assert [utterance_of(item).role for item in found[1].items] == ["user", "assistant"]
