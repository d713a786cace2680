"""Real agents and workflows of the framework, with a model that is a function: they are killed, and go on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from agent_framework import AgentSession, CompactionProvider, InMemoryHistoryProvider, SlidingWindowStrategy

from locus.errors import BackendUnavailableError, ConfigurationError
from locus.integrations.agent_framework import (
    LocusAgentSessionStore,
    LocusCheckpointStorage,
    LocusHistoryProvider,
)
from locus.memory.checkpointer import Checkpointer
from tests.integrations.agent_framework.deaths import add, workflow
from tests.integrations.agent_framework.models import agent, calls, counts, texts

ROOT = Path(__file__).resolve().parents[3]


async def test_a_conversation_goes_on_with_another_agent(store: Checkpointer) -> None:
    clerk, _ = agent(calls("add", a=2, b=3), LocusHistoryProvider(store), tools=[add])
    answer = await clerk.run("2 + 3?", session=clerk.create_session(session_id="alice"))
    assert answer.text == "It is 5."
    history = LocusHistoryProvider(store)
    other, model = agent(counts, history)
    await other.run("Sure?", session=AgentSession(session_id="alice"))
    first = ["2 + 3?", "call add", "result 5", "It is 5."]
    assert model.shown == [[*first, "Sure?"]]
    assert texts(await history.get_messages("alice")) == [*first, "Sure?", "I see 5."]
    assert [point.items for point in await history.history("alice")] == [6, 4], "a run is one step"


async def test_a_stream_is_kept(store: Checkpointer) -> None:
    history = LocusHistoryProvider(store)
    clerk, _ = agent(counts, history)
    session = clerk.create_session(session_id="alice")
    async for _update in clerk.run("Hello", session=session, stream=True):
        pass
    assert texts(await history.get_messages("alice")) == ["Hello", "I see 1."]


async def test_a_run_shows_the_model_as_much_as_the_provider_is_told(store: Checkpointer) -> None:
    clerk, model = agent(counts, LocusHistoryProvider(store, limit=2))
    session = clerk.create_session(session_id="alice")
    for number in range(3):
        await clerk.run(f"{number}", session=session)
    assert model.shown[-1] == ["1", "I see 3.", "2"]
    assert len(await LocusHistoryProvider(store).get_messages("alice")) == 6


async def test_compaction_before_a_run_shows_the_model_less_and_keeps_everything(store: Checkpointer) -> None:
    history = LocusHistoryProvider(store)
    compaction = CompactionProvider(
        before_strategy=SlidingWindowStrategy(keep_last_groups=2), history_source_id=history.source_id
    )
    clerk, model = agent(counts, history, compaction)
    session = clerk.create_session(session_id="alice")
    for number in range(4):
        await clerk.run(f"{number}", session=session)
    assert len(model.shown[-1]) < 7
    assert len(await history.get_messages("alice")) == 8


async def test_compaction_after_a_run_is_refused_and_does_not_silently_nothing(store: Checkpointer) -> None:
    history = LocusHistoryProvider(store)
    after = SlidingWindowStrategy(keep_last_groups=2)
    clerk, model = agent(counts, history, CompactionProvider(after_strategy=after, history_source_id=history.source_id))
    with pytest.raises(ConfigurationError, match="use before_strategy"):
        await clerk.run("Hello", session=clerk.create_session(session_id="alice"))
    assert (model.shown, await history.get_messages("alice")) == ([], [])
    theirs = InMemoryHistoryProvider()
    clerk, _ = agent(counts, history, theirs, CompactionProvider(after_strategy=after))
    await clerk.run("Hello", session=clerk.create_session(session_id="alice"))
    assert len(await history.get_messages("alice")) == 2


async def test_a_session_is_kept_with_the_messages_that_the_framework_has_in_it(store: Checkpointer) -> None:
    sessions = LocusAgentSessionStore(store)
    clerk, _ = agent(counts)  # the framework adds its InMemoryHistoryProvider
    session = clerk.create_session(session_id="alice")
    await clerk.run("Hello", session=session)
    await sessions.set("alice", session)
    again = await sessions.get("alice")
    assert again is not None
    assert (await clerk.run("Still there?", session=again)).text == "I see 3."
    await sessions.set("alice", again)
    assert [item["role"] for item in await sessions.newest("alice", 2)] == ["user", "assistant"]


async def test_a_run_without_its_store_fails_and_does_not_begin_anew() -> None:
    provider = LocusHistoryProvider("postgresql://127.0.0.1:1/agents?retry_seconds=0.1")
    clerk, model = agent(counts, provider)
    with pytest.raises(BackendUnavailableError):
        await clerk.run("Hello", session=clerk.create_session(session_id="alice"))
    assert model.shown == []
    await provider.close()


async def test_a_workflow_is_gone_back_in(store: Checkpointer) -> None:
    storage = LocusCheckpointStorage(store)
    result = await workflow(storage).run("x")
    assert result.get_outputs() == ["x1x2x3"]
    ids = await storage.list_checkpoint_ids(workflow_name="steps")
    assert len(ids) > 2
    for checkpoint_id in ids[1:3]:
        again = await workflow(storage).run(checkpoint_id=checkpoint_id)
        assert again.get_outputs() == ["x1x2x3"]
    points = {point.checkpoint_id: point.previous_checkpoint_id for point in await storage.history(None)}
    assert list(points.values()).count(ids[1]) == 2, "two lines go on from there"


@pytest.mark.crash
async def test_an_agent_that_is_killed_goes_on(store: Checkpointer, tmp_path: Path) -> None:
    _die("agent", tmp_path / "agents.db")
    history = LocusHistoryProvider(store)
    kept = texts(await history.get_messages("alice"))
    assert kept == ["1 + 1?", "call add", "result 2", "It is 2."], "of the run that was killed there is nothing"
    clerk, model = agent(counts, history)
    await clerk.run("And now?", session=clerk.create_session(session_id="alice"))
    assert model.shown == [[*kept, "And now?"]]


@pytest.mark.crash
async def test_a_workflow_that_is_killed_goes_on(store: Checkpointer, tmp_path: Path) -> None:
    _die("workflow", tmp_path / "agents.db")
    storage = LocusCheckpointStorage(store)
    latest = await storage.get_latest(workflow_name="steps")
    assert latest is not None
    result = await workflow(storage).run(checkpoint_id=latest.checkpoint_id)
    assert result.get_outputs() == ["x1x2x3"]


def _die(what: str, path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.integrations.agent_framework.deaths", what, f"sqlite:{path}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == -9, done.stderr
