"""Deep agents: a plan, files and sub-agents, kept like the conversation."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from locus.agent import Agent, HumanInTheLoop, create_deep_agent
from locus.agent.factories import DEEP_PROMPT, sub_thread
from locus.agent.workspace import NAMESPACE
from locus.core.events import Event, ToolCompleteEvent
from locus.core.state import AgentState
from locus.errors import ConfigurationError
from locus.memory.backends import MemoryCheckpointer
from locus.memory.checkpointer import Checkpointer
from locus.memory.storage import StorageBackend
from locus.tools import tool
from tests.agent.support import Effects, Following, Step, a_call, asks, is_sound, loaded, results_told, spoken

TODOS = [{"content": "look", "status": "completed"}, {"content": "write"}]


def deep(place: Any, *steps: Step, **settings: Any) -> Agent:
    return create_deep_agent(Following(*steps), memory=place, **settings)


async def workspace_of(store: Checkpointer, thread_id: str) -> dict[str, Any] | None:
    return await StorageBackend(store.store).load(thread_id, namespace=NAMESPACE)


def test_it_has_the_tools_that_its_prompt_speaks_of() -> None:
    agent = create_deep_agent(Following("x"), system_prompt="You are a clerk.")
    assert agent.tools.names == ["write_todos", "read_todos", "write_file", "read_file", "list_files"]
    assert agent.config.system_prompt == f"You are a clerk.\n\n{DEEP_PROMPT}"
    assert all(word in DEEP_PROMPT for word in ("write_todos", "write_file", "read_file", "list_files"))
    schema = next(found for found in agent.tools if found.name == "write_todos").parameters
    assert schema["required"] == ["todos"]


async def test_the_plan_is_kept_in_the_thread(store: Checkpointer) -> None:
    result = await deep(
        store, asks(a_call("write_todos", todos=TODOS)), asks(a_call("read_todos")), results_told
    ).invoke("plan", "t")
    assert "The plan has 2 steps, 1 of them completed." in result.message
    assert result.message.endswith("read_todos=[completed] look\n[pending] write")
    assert (await workspace_of(store, "t") or {})["todos"] == [TODOS[0], {"content": "write", "status": "pending"}]
    # Another process, another turn.
    later = await deep(store, asks(a_call("read_todos")), results_told).invoke("and?", "t")
    assert later.message == "read_todos=[completed] look\n[pending] write"
    assert await workspace_of(store, "other") is None


async def test_files_are_kept_and_every_version_stays(store: Checkpointer) -> None:
    result = await deep(
        store,
        asks(a_call("write_file", path="notes.md", content="one")),
        asks(a_call("write_file", path="notes.md", content="two")),
        asks(a_call("read_file", path="notes.md"), a_call("list_files"), a_call("read_file", path="nowhere")),
        results_told,
    ).invoke("write", "t")
    assert "read_file=two; list_files=notes.md" in result.message
    assert "there is no file 'nowhere'; there are: notes.md" in result.message
    backend = StorageBackend(store.store)
    ids = await backend.list_checkpoints("t", namespace=NAMESPACE)
    versions = [await backend.load("t", checkpoint_id, namespace=NAMESPACE) for checkpoint_id in ids]
    assert versions == [{"files": {"notes.md": "two"}}, {"files": {"notes.md": "one"}}]
    # The conversation has a history of its own.
    assert len(await store.history("t", limit=None)) == 8


async def test_files_that_are_written_at_once_are_all_there(store: Checkpointer) -> None:
    calls = [a_call("write_file", path=f"{number}.txt", content=str(number)) for number in range(6)]
    result = await deep(store, asks(*calls), asks(a_call("list_files")), results_told).invoke("go", "t")
    assert result.message.endswith("list_files=" + "\n".join(f"{number}.txt" for number in range(6)))


async def test_wrong_arguments_are_told(memory: MemoryCheckpointer) -> None:
    wrong = a_call("write_todos", todos=[{"content": "x", "status": "perhaps"}])
    result = await deep(memory, asks(wrong), results_told).invoke("go", "t")
    assert "todos.0.status" in result.message
    assert await workspace_of(memory, "t") is None


async def test_without_a_thread_the_workspace_lives_as_long_as_the_run() -> None:
    agent = deep(None, asks(a_call("list_files"), a_call("write_file", path="a", content="x")), results_told)
    for _ in range(2):
        assert "list_files=There are no files yet." in (await agent.invoke("go")).message


async def test_a_sub_agent_has_a_thread_of_its_own(store: Checkpointer) -> None:
    clerk = Agent(model=Following("The archive says 42."), agent_id="clerk")
    agent = deep(
        store, asks(a_call("task", "c1", agent="clerk", prompt="Look it up")), results_told, subagents={"clerk": clerk}
    )
    result = await agent.invoke("What is it?", "t")
    assert result.message == "task=The archive says 42."
    assert sub_thread("t", "c1") == "t/c1"
    state = await loaded(store, "t/c1")
    assert spoken(state) == [("user", "Look it up"), ("assistant", "The archive says 42.")]
    assert state.agent_id == "clerk"
    assert clerk.checkpointer is None, "the agent that was given stays as it is"


async def test_sub_agents_run_side_by_side_and_may_use_the_same_id_again(memory: MemoryCheckpointer) -> None:
    both = asyncio.Barrier(2)

    class Meeting(Following):
        async def complete(self, messages: Any, tools: Any = None, **options: Any) -> Any:
            await both.wait()
            return await super().complete(messages, tools, **options)

    clerk = Agent(model=Meeting(lambda messages: f"done: {messages[-1].text}"))
    twice = [a_call("task", f"c{n}", agent="clerk", prompt=str(n)) for n in (1, 2)]
    other = [a_call("task", f"c{n}", agent="clerk", prompt=f"again {n}") for n in (1, 2)]
    agent = deep(memory, asks(*twice), asks(*other), results_told, subagents={"clerk": clerk})
    result = await asyncio.wait_for(agent.invoke("go", "t"), 30)
    assert result.message == "task=done: 1; task=done: 2; task=done: again 1; task=done: again 2"
    assert len(memory.get_thread_ids()) == 5


async def test_an_unknown_sub_agent_is_told(memory: MemoryCheckpointer) -> None:
    calls = asks(a_call("task", agent="nobody", prompt="x"))
    agent = deep(memory, calls, results_told, subagents={"clerk": Agent(model=Following("x"))})
    assert "there is no agent 'nobody'; there are: clerk" in (await agent.invoke("go", "t")).message


async def test_a_sub_agent_is_not_bound_by_the_timeout_of_tools(memory: MemoryCheckpointer) -> None:
    class Slow(Following):
        async def complete(self, messages: Any, tools: Any = None, **options: Any) -> Any:
            await asyncio.sleep(0.08)
            return await super().complete(messages, tools, **options)

    calls = asks(a_call("task", agent="clerk", prompt="x"))
    clerk = Agent(model=Slow("took its time"))
    agent = deep(memory, calls, results_told, subagents={"clerk": clerk}, tool_timeout=0.02)
    assert (await agent.invoke("go", "t")).message == "task=took its time"


class Doomed(Checkpointer):
    """A handle of a process that ends when the sub-agent has saved so many times."""

    def __init__(self, store: Checkpointer, saves: int) -> None:
        super().__init__(store.store)
        self._saves = saves
        self.over = asyncio.Event()
        self.gone = asyncio.Event()

    async def save(self, state: AgentState, thread_id: str, *args: Any, **options: Any) -> str:
        saved = await super().save(state, thread_id, *args, **options)
        self._saves -= thread_id == "t/c1"
        if self._saves == 0:
            self.over.set()
            await self.gone.wait()
        return saved


async def test_killed_in_mid_sub_agent_nothing_is_done_twice(store: Checkpointer, effects: Effects) -> None:
    """Killed after a save of the sub-agent; then the process that went on; and so forth."""
    paying: list[Step] = [asks(a_call("pay", "p1", amount=1)), asks(a_call("pay", "p2", amount=2)), results_told]

    def agent(place: Checkpointer) -> Agent:
        clerk = Agent(model=Following(*paying), tools=[effects.pay()])
        steps = asks(a_call("task", "c1", agent="clerk", prompt="Pay both")), results_told
        return deep(place, *steps, subagents={"clerk": clerk})

    deaths = 0
    for saves in (1, 1, 1, 2, 1, 3, 2, 2, 2):
        handle = Doomed(store, saves)
        resumes = await store.exists("t")
        run = asyncio.create_task(agent(handle).resume_invoke("t") if resumes else agent(handle).invoke("go", "t"))
        ended = asyncio.create_task(handle.over.wait())
        await asyncio.wait([run, ended], return_when=asyncio.FIRST_COMPLETED)
        deaths += handle.over.is_set()
        for task in (run, ended):
            task.cancel()
        handle.gone.set()
        await asyncio.gather(run, ended, return_exceptions=True)
    result = await agent(store).resume_invoke("t")
    assert deaths >= 4
    assert result.message == "task=pay=paid 1; pay=paid 2"
    assert effects.counts == {"pay 1": 1, "pay 2": 1}
    state = await loaded(store, "t/c1")
    assert is_sound(state.messages)
    assert [text for who, text in spoken(state) if who == "user"] == ["Pay both"]


async def test_a_finished_sub_agent_whose_answer_was_not_recorded_is_not_asked_again(
    memory: MemoryCheckpointer, effects: Effects
) -> None:
    clerk_model = Following(asks(a_call("pay", "p1", amount=1)), "Paid one.")
    clerk = Agent(model=clerk_model, tools=[effects.pay()])
    steps = asks(a_call("task", "c1", agent="clerk", prompt="Pay")), results_told
    agent = deep(memory, *steps, subagents={"clerk": clerk})
    await agent.invoke("go", "t")
    entries = await memory.history("t", limit=None)
    calls = next(entry for entry in entries if entry.metadata["step"] == "calls")
    for entry in entries:
        if entry.seq > calls.seq:
            await memory.delete("t", entry.checkpoint_id)
    await memory.put_writes("t", calls.checkpoint_id, "c1", [])
    asked = len(clerk_model.asked)
    result = await agent.resume_invoke("t")
    assert result.message == "task=Paid one."
    assert (len(clerk_model.asked), effects.done) == (asked, ["pay 1"])


async def test_a_sub_agent_that_waits_for_a_person_is_told(memory: MemoryCheckpointer, effects: Effects) -> None:
    clerk = Agent(
        model=Following(asks(a_call("pay", "p1", amount=1)), "Paid."),
        tools=[effects.pay()],
        middleware=[HumanInTheLoop(["pay"])],
        checkpointer=memory,
    )
    steps = asks(a_call("task", "c1", agent="clerk", prompt="Pay")), results_told
    result = await deep(memory, *steps, subagents={"clerk": clerk}).invoke("go", "t")
    assert "it waits for a person's decision on pay, in the thread 't/c1'" in result.message
    assert (await clerk.resume_invoke("t/c1", "approve")).message == "Paid."


async def test_a_sub_agent_without_an_answer_says_why(memory: MemoryCheckpointer, effects: Effects) -> None:
    clerk = Agent(model=Following(asks(a_call("pay", amount=1))), tools=[effects.pay()], max_iterations=2)
    steps = asks(a_call("task", agent="clerk", prompt="Pay")), results_told
    result = await deep(memory, *steps, subagents={"clerk": clerk}).invoke("go", "t")
    assert result.message == "task=The sub-agent stopped without an answer: max_iterations."


def test_a_task_may_be_repeated_only_if_sub_agents_are_kept(memory: MemoryCheckpointer) -> None:
    clerk = Agent(model=Following("x"))
    for place, repeatable in ((memory, True), (None, False)):
        task = deep(place, "x", subagents={"clerk": clerk}).tools.find("task")
        assert task is not None
        assert task.idempotent is repeatable


async def test_tools_and_settings_of_the_callers_own(memory: MemoryCheckpointer) -> None:
    @tool
    def ping() -> str:
        """Say pong."""
        return "pong"

    agent = create_deep_agent(
        Following(asks(a_call("ping"), a_call("list_files")), results_told),
        tools=[ping],
        checkpointer=memory,
        agent_id="deep",
    )
    assert agent.checkpointer is memory
    result = await agent.invoke("go", "t")
    assert result.message == "ping=pong; list_files=There are no files yet."
    assert result.state.agent_id == "deep"
    with pytest.raises(ConfigurationError, match="give either checkpointer or memory"):
        create_deep_agent(Following("x"), memory=memory, checkpointer=memory)


def test_a_long_thread_gives_its_sub_agents_threads_that_fit() -> None:
    names = {sub_thread("t" * 255, f"call_{number}") for number in range(3)}
    assert len(names) == 3
    assert all(len(name) <= 255 for name in names)


async def test_events_of_a_deep_agent_are_those_of_its_own_calls(memory: MemoryCheckpointer) -> None:
    events: list[Event] = []
    clerk = Agent(model=Following(asks(a_call("read_todos")), "x"))
    steps = asks(a_call("task", "c1", agent="clerk", prompt="x")), "done"
    await deep(memory, *steps, subagents={"clerk": clerk}).invoke("go", "t", on_event=events.append)
    assert [event.call.id for event in events if isinstance(event, ToolCompleteEvent)] == ["c1"]
    assert {event.thread_id for event in events} == {"t"}
