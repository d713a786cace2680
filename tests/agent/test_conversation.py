"""Conversation memory: messages by thread, with two methods."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from locus.agent import Agent, create_agent, create_deep_agent
from locus.agent.agent import Agent as AgentClass
from locus.core.events import Event
from locus.core.messages import Message
from locus.errors import ConfigurationError
from locus.memory.backends import FileCheckpointer, MemoryCheckpointer, SQLiteBackend, sqlite_checkpointer
from locus.memory.conversation import AgentCheckpointer, ConversationMemory, InMemoryCheckpointer
from locus.models import MockModel
from tests.agent.support import Effects, Following, a_call, asks, kinds, results_told, spoken


class Notebook:
    """Somebody's memory. It happens to have an attribute that our backends have, too."""

    def __init__(self) -> None:
        self.threads: dict[str, list[Message]] = {}
        self.log: list[str] = []

    async def load(self, thread_id: str) -> list[Message]:
        self.log.append(f"load {thread_id}")
        return list(self.threads.get(thread_id, ()))

    async def save(self, thread_id: str, messages: Sequence[Message]) -> None:
        self.log.append(f"save {thread_id}: {len(messages)}")
        self.threads[thread_id] = list(messages)


async def test_a_thread_that_is_not_known_is_empty() -> None:
    memory = InMemoryCheckpointer()
    assert await memory.load("t") == []
    await memory.clear("t")


async def test_messages_come_back_as_they_were_and_can_be_cleared() -> None:
    memory = InMemoryCheckpointer()
    messages = [Message.user("hi"), asks(a_call("pay", "c", amount=1)), Message.assistant("hello")]
    await memory.save("t", messages)
    messages.append(Message.user("not saved"))
    found = await memory.load("t")
    assert spoken(found) == [("user", "hi"), ("assistant", ""), ("assistant", "hello")]
    found.clear()
    assert len(await memory.load("t")) == 3
    await memory.save("u", [Message.user("other")])
    await memory.clear("t")
    assert (await memory.load("t"), len(await memory.load("u"))) == ([], 1)


@pytest.mark.parametrize("kind", [InMemoryCheckpointer, Notebook])
def test_anything_with_the_two_methods_is_one(kind: Any) -> None:
    assert isinstance(kind(), AgentCheckpointer)


async def test_it_is_loaded_before_a_run_and_saved_after_it() -> None:
    memory = Notebook()
    agent = create_agent(model=Following("first", "x"), memory=memory, system_prompt="Be kind.")
    assert agent.checkpointer is memory
    events: list[Event] = []
    await agent.invoke([Message.user("one")], thread_id="t", on_event=events.append)
    await agent.invoke([Message.user("two")], thread_id="t")
    assert memory.log == ["load t", "save t: 2", "load t", "save t: 4"]
    assert spoken(memory.threads["t"])[2:] == [("user", "two"), ("assistant", "first")]
    assert kinds(events) == ["Thinking", "ModelComplete", "Terminate"]


async def test_it_remembers() -> None:
    for memory in (InMemoryCheckpointer(), Notebook()):
        agent = create_agent(model=MockModel(), memory=memory)
        await agent.invoke("My name is Alice.", thread_id="t")
        assert "Alice" in (await agent.invoke("What's my name?", thread_id="t")).message
        assert "Alice" not in (await agent.invoke("What's my name?", thread_id="u")).message


async def test_without_a_thread_it_is_bypassed() -> None:
    memory = Notebook()
    await create_agent(model=Following("ok"), memory=memory).invoke("hi")
    assert memory.log == []


async def test_calls_and_results_are_remembered(effects: Effects) -> None:
    memory = InMemoryCheckpointer()
    model = Following(asks(a_call("pay", "c1", amount=1)), results_told)
    await create_agent(model=model, tools=[effects.pay()], memory=memory).invoke("go", "t")
    kept = await memory.load("t")
    assert [message.tool_call_id for message in kept] == [None, None, "c1", None]
    assert kept[1].tool_calls[0].arguments == {"amount": 1}


async def test_ours_are_preferred_and_keep_more(tmp_path: Path) -> None:
    for memory in (
        MemoryCheckpointer(),
        FileCheckpointer(tmp_path / "files"),
        sqlite_checkpointer(tmp_path / "a.db"),
        SQLiteBackend(tmp_path / "b.db"),
        f"sqlite:{tmp_path / 'c.db'}",
    ):
        agent = create_agent(model=Following("ok"), memory=memory)
        result = await agent.invoke("hi", "t")
        assert result.checkpoint_id is not None, memory
        assert result.metrics.checkpoints == 2
        assert isinstance(agent, AgentClass)


async def test_a_conversation_memory_over_any_backend_of_ours(tmp_path: Path) -> None:
    for place in (
        MemoryCheckpointer(),
        FileCheckpointer(tmp_path / "files"),
        sqlite_checkpointer(tmp_path / "a.db"),
        SQLiteBackend(tmp_path / "b.db"),
        f"sqlite:{tmp_path / 'c.db'}",
    ):
        memory = ConversationMemory(place)
        assert isinstance(memory, AgentCheckpointer)
        assert await memory.load("t") == []
        agent = create_agent(model=MockModel(), memory=memory)
        await agent.invoke("The secret code is 42.", "t")
        assert "42" in (await agent.invoke("What is the secret code?", "t")).message
        assert len(await memory.load("t")) == 4
        await memory.clear("t")
        assert await memory.load("t") == []


async def test_it_lives_on_in_another_process(database: Path) -> None:
    await create_agent(Following("ok"), memory=ConversationMemory(sqlite_checkpointer(database))).invoke("hi", "t")
    later = ConversationMemory(sqlite_checkpointer(database))
    assert spoken(await later.load("t")) == [("user", "hi"), ("assistant", "ok")]


async def test_saving_messages_keeps_the_rest_of_a_state(memory: MemoryCheckpointer) -> None:
    """The thread of an agent, opened as a conversation."""
    await Agent(model=Following("ok"), checkpointer=memory, agent_id="clerk").invoke("hi", "t")
    conversation = ConversationMemory(memory)
    await conversation.save("t", [*await conversation.load("t"), Message.user("by hand")])
    state = await memory.load("t")
    assert state is not None
    assert state.agent_id == "clerk"
    assert spoken(state)[-1] == ("user", "by hand")
    assert (await memory.history("t"))[0].parent_id == (await memory.history("t"))[1].checkpoint_id


async def test_deep_agents_take_a_conversation_memory() -> None:
    memory = Notebook()
    model = Following(
        asks(a_call("write_todos", todos=[{"content": "rest"}])), asks(a_call("read_todos")), results_told
    )
    agent = create_deep_agent(model=model, memory=memory, system_prompt="You are a helpful assistant.")
    result = await agent.invoke([Message.user("plan")], thread_id="t")
    assert result.message.endswith("read_todos=[pending] rest")
    assert len(memory.threads["t"]) == 6


def test_a_memory_without_the_methods_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="memory needs the methods load and save"):
        create_agent(model=Following("x"), memory=object())  # type: ignore[arg-type]


async def test_a_sub_agent_that_nobody_keeps_runs_without_a_thread() -> None:
    clerk = Agent(model=Following("done by the clerk"))
    steps = asks(a_call("task", agent="clerk", prompt="do it")), results_told
    agent = create_deep_agent(Following(*steps), memory=Notebook(), subagents={"clerk": clerk})
    assert (await agent.invoke("go", "t")).message == "task=done by the clerk"
