"""What is kept, and when: before anything depends on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from locus.agent import Agent, AgentConfig
from locus.core.events import Event, ToolCompleteEvent
from locus.core.messages import Message, Role
from locus.memory.backends import MemoryCheckpointer
from locus.memory.checkpointer import Checkpointer
from locus.models.base import ModelResponse
from locus.tools import tool
from tests.agent.support import Effects, Following, a_call, asks, loaded, results_told, spoken, steps_of


async def test_the_users_message_is_kept_before_the_model_is_asked(store: Checkpointer) -> None:
    found: list[list[tuple[str, str]]] = []

    class Checks:
        async def complete(self, messages: Sequence[Message], tools: Any = None, **_options: Any) -> ModelResponse:
            found.append(spoken(await loaded(store, "t")))
            return ModelResponse(message=Message.assistant("Noted."))

    agent = Agent(model=Checks(), checkpointer=store)
    await agent.invoke("first", "t")
    await agent.invoke("second", "t")
    assert [conversation[-1] for conversation in found] == [("user", "first"), ("user", "second")]


async def test_the_calls_are_kept_before_they_are_made(store: Checkpointer) -> None:
    found: list[Message] = []

    @tool
    async def check() -> str:
        found.append((await loaded(store, "t")).messages[-1])
        return "checked"

    agent = Agent(model=Following(asks(a_call("check", "c1")), "done"), tools=[check], checkpointer=store)
    await agent.invoke("go", "t")
    assert [(message.role, [call.id for call in message.tool_calls]) for message in found] == [(Role.ASSISTANT, ["c1"])]


async def test_each_result_is_kept_before_it_is_told(store: Checkpointer, effects: Effects) -> None:
    """Also while another call of the same message is still under way."""
    found: list[list[tuple[str, str]]] = []

    async def listen(event: Event) -> None:
        if isinstance(event, ToolCompleteEvent):
            latest = (await store.list_checkpoints("t", limit=1))[0]
            writes = await store.get_writes("t", latest, event.call.id)
            found.append([(write.channel, write.value["content"]) for write in writes])

    calls = asks(a_call("pay", amount=1), a_call("look", at="x"))
    agent = Agent(model=Following(calls, "done"), tools=[effects.pay(), effects.look()], checkpointer=store)
    await agent.invoke("go", "t", on_event=listen)
    assert sorted(found) == [[("locus:result", "paid 1")], [("locus:result", "saw x")]]


async def test_the_results_are_kept_before_the_next_step(store: Checkpointer, effects: Effects) -> None:
    model = Following(asks(a_call("pay", amount=1)), asks(a_call("pay", amount=2)), results_told)
    agent = Agent(model=model, tools=[effects.pay()], checkpointer=store)
    result = await agent.invoke("go", "t")
    assert await steps_of(store, "t") == ["input", "calls", "results", "calls", "results", "answer"]
    states = [await loaded(store, "t", entry.checkpoint_id) for entry in reversed(await store.history("t"))]
    assert [len(state.messages) for state in states] == [1, 2, 3, 4, 5, 6]
    assert states[-1] == result.state
    assert result.metrics.checkpoints == 6
    assert result.checkpoint_id == (await store.list_checkpoints("t"))[0]


async def test_every_checkpoint_stays_and_has_the_one_before_as_its_parent(store: Checkpointer) -> None:
    agent = Agent(model=Following("ok"), checkpointer=store)
    for number in range(4):
        await agent.invoke(f"message {number}", "t")
    entries = await store.history("t", limit=None)
    assert len(entries) == 8
    assert [entry.parent_id for entry in entries] == [*(entry.checkpoint_id for entry in entries[1:]), None]
    fourth = await loaded(store, "t", entries[-4].checkpoint_id)
    assert spoken(fourth) == [("user", "message 0"), ("assistant", "ok"), ("user", "message 1"), ("assistant", "ok")]


async def test_metadata_says_who_saved_and_why(memory: MemoryCheckpointer) -> None:
    agent = Agent(config=AgentConfig(model=Following("ok"), agent_id="clerk"), checkpointer=memory)
    result = await agent.invoke("hi", "t")
    facts = [entry.metadata for entry in reversed(await memory.history("t"))]
    run = {"agent_id": "clerk", "run_id": result.state.run_id}
    lease = facts[0]["lease"]
    assert lease == {"id": lease["id"], "seconds": 30.0}
    assert facts == [
        {**run, "step": "input", "status": "running", "lease": lease},
        {**run, "step": "answer", "status": "done"},
    ]
    assert len(await memory.query_by_metadata("agent_id", "clerk")) == 2
    assert (await loaded(memory, "t")).agent_id == "clerk"


async def test_each_run_has_its_own_id_and_counts_its_own_iterations(memory: MemoryCheckpointer) -> None:
    agent = Agent(model=Following("ok"), checkpointer=memory, max_iterations=7)
    first, second = [await agent.invoke(text, "t") for text in ("one", "two")]
    assert first.state.run_id != second.state.run_id
    assert (second.state.iteration, second.state.max_iterations) == (1, 7)
    assert first.state.started_at == second.state.started_at


async def test_an_agent_without_an_id_keeps_the_threads(memory: MemoryCheckpointer) -> None:
    await Agent(model=Following("ok"), checkpointer=memory, agent_id="first").invoke("a", "t")
    assert (await Agent(model=Following("ok"), checkpointer=memory).invoke("b", "t")).state.agent_id == "first"
    second = Agent(model=Following("ok"), checkpointer=memory, agent_id="second")
    assert (await second.invoke("c", "t")).state.agent_id == "second"


async def test_results_may_be_saved_less_often(store: Checkpointer, effects: Effects) -> None:
    calls = [asks(a_call("pay", amount=n)) for n in range(1, 5)]
    agent = Agent(
        model=Following(*calls, results_told),
        tools=[effects.pay()],
        checkpointer=store,
        checkpoint_every_n_iterations=3,
    )
    result = await agent.invoke("go", "t")
    assert result.message == "pay=paid 1; pay=paid 2; pay=paid 3; pay=paid 4"
    # What is asked for is saved before it is done, whatever the setting.
    assert await steps_of(store, "t") == ["input", "calls", "calls", "calls", "results", "calls", "answer"]


async def test_results_that_were_not_saved_yet_are_recorded(store: Checkpointer, effects: Effects) -> None:
    class Fails(Following):
        async def complete(self, messages: Sequence[Message], tools: Any = None, **options: Any) -> ModelResponse:
            if messages[-1].role is Role.TOOL and self.fails:
                raise ConnectionError("gone")
            return await super().complete(messages, tools, **options)

        fails = True

    model = Fails(asks(a_call("pay", amount=1)), results_told)
    agent = Agent(model=model, tools=[effects.pay()], checkpointer=store, checkpoint_every_n_iterations=10)
    with pytest.raises(ConnectionError):
        await agent.invoke("go", "t")
    assert (await loaded(store, "t")).messages[-1].role is Role.ASSISTANT
    model.fails = False
    assert (await agent.resume_invoke("t")).message == "pay=paid 1"
    assert effects.done == ["pay 1"]


async def test_without_a_thread_nothing_is_kept(memory: MemoryCheckpointer, effects: Effects) -> None:
    model = Following(asks(a_call("pay", amount=1)), "done")
    agent = Agent(model=model, tools=[effects.pay()], checkpointer=memory)
    for _ in range(2):
        result = await agent.invoke("go")
        assert (result.thread_id, result.checkpoint_id, result.metrics.checkpoints) == (None, None, 0)
        assert len(result.state.messages) == 4
    assert memory.get_thread_ids() == []


async def test_without_a_checkpointer_a_thread_id_means_nothing() -> None:
    agent = Agent(model=Following(lambda messages: f"{len(messages)} messages"))
    assert agent.checkpointer is None
    with pytest.warns(UserWarning, match=r"thread_id has no effect.*checkpointer=") as warned:
        results = [await agent.invoke("go", "t") for _ in range(2)]
    assert [(result.message, result.thread_id) for result in results] == [("1 messages", None)] * 2
    assert [warning.filename for warning in warned] == [__file__], "once, and where the caller is"


@pytest.mark.parametrize("method", ["run", "run_sync"])
def test_a_thread_id_without_a_checkpointer_is_warned_of_where_the_caller_is(method: str) -> None:
    agent = Agent(model=Following("x"))
    with pytest.warns(UserWarning, match="thread_id has no effect") as warned:
        getattr(agent, method)("go", "t")
    assert [warning.filename for warning in warned] == [__file__]


async def test_threads_are_kept_apart(store: Checkpointer) -> None:
    agent = Agent(model=Following("ok"), checkpointer=store)
    for thread_id in ("a/b", "a_b", "a:b", "A/b", "a/b "):
        await agent.invoke(f"I am {thread_id}", thread_id)
    for thread_id in ("a/b", "a_b", "a:b", "A/b", "a/b "):
        assert spoken(await loaded(store, thread_id)) == [("user", f"I am {thread_id}"), ("assistant", "ok")]
