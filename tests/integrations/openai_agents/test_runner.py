"""The SDK's real runner, with a session of ours and a local server that speaks the Responses API."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from agents import Agent, OpenAIResponsesModel, RunConfig, Runner, SessionSettings, function_tool
from agents.extensions.memory import EncryptedSession
from agents.memory import OpenAIResponsesCompactionSession
from openai import AsyncOpenAI

from locus.integrations.openai_agents import LocusSession
from locus.memory.backends import sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer
from tests.integrations.openai_agents.responses import calls, compacts, function_call, no_orphans, says, streams, texts
from tests.models.server import ModelServer

CONFIG = RunConfig(tracing_disabled=True)


@function_tool
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    server = ModelServer()
    server.check = no_orphans
    yield server
    server.close()


@pytest_asyncio.fixture
async def client(server: ModelServer) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def agent(client: AsyncOpenAI) -> Agent[Any]:
    return Agent(name="adder", tools=[add], model=OpenAIResponsesModel("gpt-test", client))


@pytest_asyncio.fixture
async def handle(tmp_path: Path) -> AsyncIterator[Checkpointer]:
    async with sqlite_checkpointer(tmp_path / "locus.db") as handle:
        yield handle


async def run(agent: Agent[Any], text: str, session: Any, config: RunConfig = CONFIG) -> str:
    result = await Runner.run(agent, text, session=session, run_config=config)
    return str(result.final_output)


def asked(server: ModelServer) -> list[str]:
    """What the model was sent last."""
    return texts(server.requests[-1].json["input"])


async def test_a_conversation_goes_on_where_another_handle_left_it(
    server: ModelServer, agent: Agent[Any], tmp_path: Path
) -> None:
    url = f"sqlite:{tmp_path / 'agents.db'}"
    server.replies = [says("Hello Alice."), says("Your name is Alice.")]
    async with LocusSession("alice", url) as session:
        assert await run(agent, "I am Alice.", session) == "Hello Alice."
    async with LocusSession("alice", url) as session:
        assert await run(agent, "Who am I?", session) == "Your name is Alice."
        assert texts(await session.get_items()) == ["I am Alice.", "Hello Alice.", "Who am I?", "Your name is Alice."]
    assert asked(server) == ["I am Alice.", "Hello Alice.", "Who am I?"]


async def test_tools_and_streams_are_kept(server: ModelServer, agent: Agent[Any], handle: Checkpointer) -> None:
    session = LocusSession("alice", handle)
    server.replies = [calls("add", "call_1", a=2, b=3), says("It is 5."), streams("It still is 5.")]
    assert await run(agent, "2 + 3?", session) == "It is 5."
    streamed = Runner.run_streamed(agent, "Sure?", session=session, run_config=CONFIG)
    async for _event in streamed.stream_events():
        pass
    assert streamed.final_output == "It still is 5."
    kept = ["2 + 3?", "call add", "output 5", "It is 5.", "Sure?", "It still is 5."]
    assert texts(await session.get_items()) == kept
    assert asked(server) == kept[:-1]


async def test_a_call_that_was_never_answered_does_not_block_the_session(
    server: ModelServer, agent: Agent[Any], handle: Checkpointer
) -> None:
    """The process died between the call and its output."""
    session = LocusSession("alice", handle)
    orphan = function_call("add", "call_lost", a=1, b=1)
    await session.add_items([{"role": "user", "content": "1 + 1?"}, orphan])  # type: ignore[list-item]
    server.replies = [says("2, I think.")]
    assert await run(agent, "Well?", session) == "2, I think."
    assert asked(server) == ["1 + 1?", "Well?"]
    assert texts(await session.get_items()) == ["1 + 1?", "call add", "Well?", "2, I think."]


async def test_a_limit_that_cuts_a_call_off_its_output_does_not_either(
    server: ModelServer, agent: Agent[Any], handle: Checkpointer
) -> None:
    session = LocusSession("alice", handle, session_settings=SessionSettings(limit=2))
    server.replies = [calls("add", "call_1", a=2, b=3), says("It is 5."), says("Yes."), says("Again: yes.")]
    await run(agent, "2 + 3?", session)
    assert await run(agent, "Sure?", session) == "Yes."
    assert asked(server) == ["It is 5.", "Sure?"]
    config = RunConfig(tracing_disabled=True, session_settings=SessionSettings(limit=4))
    assert await run(agent, "Really?", session, config) == "Again: yes."
    assert asked(server) == ["It is 5.", "Sure?", "Yes.", "Really?"]


async def test_a_fork_and_a_return_are_seen_by_the_model(
    server: ModelServer, agent: Agent[Any], handle: Checkpointer
) -> None:
    session = LocusSession("alice", handle)
    server.replies = [says("Red."), says("Blue."), says("Green.")]
    await run(agent, "A colour?", session)
    start = (await session.history(1))[0].checkpoint_id
    await run(agent, "Another?", session)
    forked = await session.fork("alice-2", start)
    assert await run(agent, "A third?", forked) == "Green."
    assert asked(server) == ["A colour?", "Red.", "A third?"]
    await session.rewind(start)
    assert texts(await session.get_items()) == ["A colour?", "Red."]


async def test_runs_at_once_lose_nothing(server: ModelServer, agent: Agent[Any], handle: Checkpointer) -> None:
    server.replies = [says(f"Answer {number}.") for number in range(4)]
    await asyncio.gather(*(run(agent, f"Question {number}?", LocusSession("alice", handle)) for number in range(4)))
    kept = texts(await LocusSession("alice", handle).get_items())
    assert sorted(kept) == sorted([f"Answer {n}." for n in range(4)] + [f"Question {n}?" for n in range(4)])


async def test_compaction_replaces_items_and_keeps_the_history(
    server: ModelServer, client: AsyncOpenAI, agent: Agent[Any], handle: Checkpointer
) -> None:
    kept = LocusSession("alice", handle)
    session = OpenAIResponsesCompactionSession(
        "alice",
        kept,
        client=client,
        compaction_mode="input",
        should_trigger_compaction=lambda context: len(context["session_items"]) >= 4,
    )
    server.replies = [says("Hello."), says("Fine."), compacts("They greeted each other."), says("Bye.")]
    await run(agent, "Hello!", session)
    await run(agent, "How are you?", session)
    assert texts(await kept.get_items()) == ["They greeted each other."]
    newest, before, *_ = await kept.history(None)
    assert (newest.change, newest.items) == ("replace", 1)
    assert texts(await kept.at(before.checkpoint_id).get_items()) == ["Hello!", "Hello.", "How are you?", "Fine."]
    await run(agent, "Bye!", session)
    assert asked(server) == ["They greeted each other.", "Bye!"]


async def test_compaction_gives_way_to_what_was_added_meanwhile(handle: Checkpointer) -> None:
    session = LocusSession("alice", handle)
    assert await session._get_compaction_snapshot(5) is None
    await session.add_items([{"role": "user", "content": f"{number}"} for number in range(5)])
    snapshot = await session._get_compaction_snapshot(3)
    assert snapshot is not None
    assert (texts(snapshot.items), snapshot.complete) == (["2", "3", "4"], False)
    assert not await snapshot.replace_suffix(3, [])
    assert await snapshot.replace_suffix(1, [{"role": "user", "content": "summary"}])
    assert texts(await session.get_items()) == ["0", "1", "2", "summary"]
    assert not await snapshot.replace_suffix(0, [])


@pytest.mark.parametrize("plain", [False, True])
async def test_compaction_of_an_encrypted_session_keeps_the_history(
    server: ModelServer, client: AsyncOpenAI, agent: Agent[Any], handle: Checkpointer, plain: bool
) -> None:
    """Of the items before the summarised ones, only those that have expired at the beginning are left out."""
    kept = LocusSession("alice", handle)
    compacting = OpenAIResponsesCompactionSession(
        "alice",
        kept,
        client=client,
        compaction_mode="input",
        should_trigger_compaction=lambda context: len(context["session_items"]) >= 4,
    )
    session = EncryptedSession("alice", compacting, "a key of at least some length", ttl=600)
    expired = [_expired(session, f"old {number}") for number in range(30)]
    note: Any = {"role": "user", "content": "not encrypted"}
    await kept.add_items([*expired, *([note] if plain else [])])
    server.replies = [says("Hello."), says("Fine."), compacts("They greeted each other."), says("Bye.")]
    await run(agent, "Hello!", session)
    await run(agent, "How are you?", session)
    assert texts(await session.get_items()) == ["They greeted each other."]
    assert (await kept.get_items())[:-1] == ([note] if plain else [])
    newest, before, *_, first = await kept.history(None)
    assert newest.change == "replace"
    assert first.items == len(expired) + plain
    originals = EncryptedSession("alice", kept.at(before.checkpoint_id), "a key of at least some length")  # type: ignore[arg-type]
    originals.underlying_session.session_settings = None
    assert texts(await originals.get_items()) == ["Hello!", "Hello.", "How are you?", "Fine."]
    await run(agent, "Bye!", session)
    assert asked(server) == ["They greeted each other.", "Bye!"]


def _expired(session: EncryptedSession, text: str) -> Any:
    """An item that was encrypted a day ago."""
    data = json.dumps({"role": "user", "content": text}).encode()
    token = session.cipher.encrypt_at_time(data, int(time.time()) - 86_400).decode()
    return {"__enc__": 1, "v": 1, "kid": "hkdf-v1", "payload": token}


async def test_a_session_that_something_else_has_written_is_compacted_in_one_step(handle: Checkpointer) -> None:
    session = LocusSession("alice", handle)
    items: list[Any] = [{"role": "user", "content": f"{number}"} for number in range(5)]
    await session._store.document("alice", session._log.namespace, lists=("items",)).save({}, lists={"items": items})
    snapshot = await session._get_compaction_snapshot(5)
    assert snapshot is not None
    assert snapshot.complete
    assert await snapshot.replace_suffix(0, items[:1])
    assert await session.get_items() == items[:1]
    assert len(await session.history(None)) == 2
