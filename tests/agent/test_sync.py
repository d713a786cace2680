"""Agents in code that is not async, and in code that is."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from locus.agent import Agent, HumanInTheLoop
from locus.core.events import Event
from locus.memory.backends import MemoryCheckpointer, sqlite_checkpointer
from locus.models import MockModel
from locus.tools import tool
from tests.agent.support import Effects, Following, a_call, asks, kinds, loaded, results_told, spoken


def test_run_sync_returns_the_result(database: Path) -> None:
    agent = Agent(model=MockModel(), checkpointer=sqlite_checkpointer(database))
    agent.run_sync("My name is Alice.", thread_id="t")
    assert "Alice" in agent.run_sync("What's my name?", thread_id="t").message


def test_resume_sync_takes_a_decision(memory: MemoryCheckpointer, effects: Effects) -> None:
    agent = Agent(
        model=Following(asks(a_call("pay", amount=1)), results_told),
        tools=[effects.pay()],
        checkpointer=memory,
        middleware=[HumanInTheLoop(["pay"])],
    )
    assert agent.run_sync("go", "t").stop_reason == "interrupt"
    events: list[Event] = []
    assert agent.resume_sync("t", decision="approve", on_event=events.append).message == "pay=paid 1"
    assert kinds(events)[-1] == "Terminate"


async def test_run_sync_works_inside_a_running_loop(database: Path) -> None:
    """As the last part of the notebook does it, with the checkpointer awaited in the loop afterwards."""
    checkpointer = sqlite_checkpointer(database)
    agent = Agent(model=MockModel(), checkpointer=checkpointer, agent_id="inspector")
    agent.run_sync("Hello, my name is Charlie.", thread_id="t")
    agent.run_sync("I work as a data scientist.", thread_id="t")
    state = await loaded(checkpointer, "t")
    assert state.agent_id == "inspector"
    assert [message.role.value for message in state.messages] == ["user", "assistant", "user", "assistant"]
    await agent.invoke("What is my name?", "t")
    assert len((await loaded(checkpointer, "t")).messages) == 6
    await checkpointer.close()


def test_run_sync_from_many_threads(database: Path) -> None:
    agent = Agent(model=MockModel(), checkpointer=sqlite_checkpointer(database))
    answers: dict[int, str] = {}

    def talk(number: int) -> None:
        agent.run_sync(f"My lucky number is {number}.", thread_id=f"thread {number}")
        answers[number] = agent.run_sync("What is my lucky number?", thread_id=f"thread {number}").message

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(100, 108)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(answers) == list(range(100, 108))
    assert all(str(number) in answer for number, answer in answers.items())


def test_one_agent_in_several_event_loops(database: Path) -> None:
    agent = Agent(model=Following("ok"), checkpointer=sqlite_checkpointer(database))
    for number in range(3):
        asyncio.run(_talk(agent, str(number)))
    agent.run_sync("last", "t")
    state = asyncio.run(loaded(sqlite_checkpointer(database), "t"))
    assert [text for who, text in spoken(state) if who == "user"] == ["0", "1", "2", "last"]


async def _talk(agent: Agent, text: str) -> None:
    await agent.invoke(text, "t")


def test_errors_of_a_run_are_raised_to_the_caller(memory: MemoryCheckpointer) -> None:
    agent = Agent(model=MockModel(script=[ValueError("no key"), "later"]), checkpointer=memory)
    with pytest.raises(ValueError, match="no key"):
        agent.run_sync("hi", "t")
    assert agent.resume_sync("t").message == "later"


def test_an_async_tool_that_blocks_on_the_portal_is_told_so() -> None:
    """It would wait for itself; the model hears of it, and the run ends."""
    inner = Agent(model=Following("never"))

    @tool
    async def stuck() -> str:
        return inner.run_sync("x").message

    result = Agent(model=Following(asks(a_call("stuck")), results_told), tools=[stuck]).run_sync("go")
    assert "would wait for itself" in result.message
