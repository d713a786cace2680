"""Real agents of the framework on our store: killed and continued, paused and answered."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from locus.integrations.pydantic_ai import NAMESPACE, LocusConversationStore
from locus.memory.backends import sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.memory.titles import titles_of
from tests.integrations.pydantic_ai.agents import agent_with, run
from tests.integrations.pydantic_ai.messages import kept

ROOT = Path(__file__).resolve().parents[3]


@pytest_asyncio.fixture
async def handle(tmp_path: Path) -> AsyncIterator[Checkpointer]:
    async with sqlite_checkpointer(tmp_path / "locus.db") as handle:
        yield handle


async def test_an_agent_that_was_killed_goes_on_where_it_had_saved(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'agents.db'}"
    child = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "tests.integrations.pydantic_ai.agents", url],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    first = ["First?", "found 1", "I was shown 3 messages."]
    async with LocusConversationStore(url) as store:
        assert await kept(store, "alice") == first
        assert await run(store, agent_with(), "Second?") == "I was shown 7 messages."
        assert await kept(store, "alice") == [*first, "Second?", "found 5", "I was shown 7 messages."]
        loaded = await store.load("alice")
        assert loaded is not None
        assert (loaded.usage.requests, loaded.usage.tool_calls) == (4, 2)
        assert [point.messages for point in await store.history("alice")] == [8, 4]


async def test_an_agent_goes_on_with_a_window(handle: Checkpointer) -> None:
    store = LocusConversationStore(handle)
    for text in ("First?", "Second?"):
        await run(store, agent_with(), text)
    window = await store.load("alice", limit=2)
    assert window is not None
    result = await agent_with().run("Third?", conversation=window)
    assert len(await store.save(result)) == 4
    texts = await kept(store, "alice") or []
    assert [text for text in texts if text.endswith("?")] == ["First?", "Second?", "Third?"]


async def test_a_paused_run_is_answered_by_another_handle(handle: Checkpointer) -> None:
    def books(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        if len(messages) > 1:
            return ModelResponse(parts=[TextPart(content="It is booked.")])
        return ModelResponse(parts=[ToolCallPart(tool_name="book", args={"city": "Oslo"}, tool_call_id="call_1")])

    agent = Agent(FunctionModel(books), output_type=[str, DeferredToolRequests])
    booked: list[str] = []

    @agent.tool_plain(requires_approval=True)
    def book(city: str) -> str:
        booked.append(city)
        return "done"

    paused = await agent.run("To Oslo, please.", conversation=Conversation(conversation_id="alice"))
    await LocusConversationStore(handle).save(paused)
    assert booked == []
    store = LocusConversationStore(handle)
    conversation = await store.load("alice")
    assert conversation is not None
    assert conversation.deferred_tool_requests is not None
    answers = conversation.deferred_tool_requests.build_results(approve_all=True)
    result = await agent.run(conversation=conversation, deferred_tool_results=answers)
    await store.save(result)
    assert (result.output, booked) == ("It is booked.", ["Oslo"])
    record = await store.read_record("alice")
    assert record is not None
    assert record.deferred_tool_requests is None


async def test_a_conversation_has_a_title_and_is_shown(handle: Checkpointer) -> None:
    store = LocusConversationStore(handle)
    await run(store, agent_with(), "First?")
    entry = await handle.store.entry("alice", None, NAMESPACE)
    assert entry is not None
    assert await titles_of(handle.store, [entry]) == ["First?"]
