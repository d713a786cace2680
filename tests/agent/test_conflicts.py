"""Several workers on one thread: nothing is lost, and nothing that must not be repeated is."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from locus.agent import Agent, HumanInTheLoop
from locus.agent.recovery import TAKEN_OVER, UNKNOWN
from locus.agent.sessions import STARTED
from locus.core.events import CheckpointSavedEvent, Event, ToolStartEvent
from locus.core.state import AgentState
from locus.errors import ConflictError
from locus.memory.backends import MemoryCheckpointer
from locus.memory.checkpointer import Checkpointer, HistoryEntry
from tests.agent.support import Effects, Following, Step, a_call, asks, is_sound, loaded, results_told, spoken, steps_of

Hook = Callable[[], Awaitable[None]]


class Paused(Checkpointer):
    """A worker's own handle on a store, which waits at one point until others have done something."""

    def __init__(self, store: Checkpointer) -> None:
        super().__init__(store.store)
        self.before_save: dict[str, Hook] = {}
        self.before_start: Hook | None = None

    async def save(self, state: AgentState, *args: Any, **options: Any) -> str:
        hook = self.before_save.pop((options["metadata"] or {})["step"], None)
        if hook is not None:
            await hook()
        return await super().save(state, *args, **options)

    async def put_writes(
        self, thread_id: str, checkpoint_id: str, task_id: str, writes: Sequence[tuple[str, Any]], **options: Any
    ) -> None:
        if self.before_start is not None and writes[0][0] == STARTED:
            hook, self.before_start = self.before_start, None
            await hook()
        await super().put_writes(thread_id, checkpoint_id, task_id, writes, **options)


def at_once(store: Checkpointer, count: int, step: str, **settings: Any) -> list[Agent]:
    """Workers that have all loaded the thread before the first of them saves this step."""
    all_are_here = asyncio.Barrier(count)

    async def meet() -> None:
        await all_are_here.wait()

    agents = []
    for _ in range(count):
        handle = Paused(store)
        handle.before_save[step] = meet
        agents.append(Agent(checkpointer=handle, **settings))
    return agents


class Killed(Exception):
    """Stands for the end of the process."""


def die_at(kind: type[Event]) -> Callable[[Event], None]:
    def listen(event: Event) -> None:
        if isinstance(event, kind):
            raise Killed

    return listen


async def killed_before_its_calls(agent: Agent) -> None:
    """A thread whose worker died after it had saved its calls, and before it began the first."""
    saves = 0

    def die(event: Event) -> None:
        nonlocal saves
        saves += isinstance(event, CheckpointSavedEvent)
        if saves == 2:
            raise Killed

    with pytest.raises(Killed):
        await agent.invoke("Pay", "t", on_event=die)


PAYING = Following(asks(a_call("pay", "c1", amount=1)), results_told)


async def test_the_slower_of_two_first_messages_is_refused(store: Checkpointer) -> None:
    agents = at_once(store, 2, "input", model=Following("ok"))
    runs = [agent.invoke(text, "t") for agent, text in zip(agents, "ab", strict=True)]
    outcomes = await asyncio.gather(*runs, return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["AgentResult", "ThreadBusyError"]
    said = {text for who, text in spoken(await loaded(store, "t")) if who == "user"}
    accepted = {text for text, outcome in zip("ab", outcomes, strict=True) if not isinstance(outcome, Exception)}
    assert said == accepted


async def test_eight_messages_at_once_are_all_accepted_or_refused(store: Checkpointer) -> None:
    await Agent(model=Following("ok"), checkpointer=store).invoke("before", "t")
    texts = [f"message {number}" for number in range(8)]
    agents = at_once(store, 8, "input", model=Following("ok"))
    runs = [agent.invoke(text, "t") for agent, text in zip(agents, texts, strict=True)]
    outcomes = await asyncio.gather(*runs, return_exceptions=True)
    refused = [text for text, outcome in zip(texts, outcomes, strict=True) if isinstance(outcome, ConflictError)]
    said = [text for who, text in spoken(await loaded(store, "t")) if who == "user"]
    assert len(refused) == 7
    assert sorted([*refused, *said]) == sorted(["before", *texts])


async def test_eight_messages_at_once_wait_for_each_other(store: Checkpointer) -> None:
    model = Following(asks(a_call("look", at="x")), lambda messages: f"answer to {messages[-3].text}")
    agents = at_once(store, 8, "input", model=model, tools=[Effects().look()], on_conflict="wait")
    texts = [f"message {number}" for number in range(8)]
    results = await asyncio.gather(*(agent.invoke(text, "t") for agent, text in zip(agents, texts, strict=True)))
    assert [result.message for result in results] == [f"answer to {text}" for text in texts]
    assert {result.thread_id for result in results} == {"t"}
    state = await loaded(store, "t")
    assert sorted(text for who, text in spoken(state) if who == "user") == texts
    assert is_sound(state.messages)
    turns = [spoken(state)[at : at + 4] for at in range(0, 32, 4)]
    assert all(turn[3][1] == f"answer to {turn[0][1]}" for turn in turns), "two runs were mixed"


async def test_eight_messages_at_once_go_on_in_forks(store: Checkpointer) -> None:
    await Agent(model=Following("ok"), checkpointer=store).invoke("before", "t")
    texts = [f"message {number}" for number in range(8)]
    agents = at_once(store, 8, "input", model=Following("ok"), on_conflict="fork")
    results = await asyncio.gather(*(agent.invoke(text, "t") for agent, text in zip(agents, texts, strict=True)))
    threads = Counter(result.thread_id for result in results)
    assert len(threads) == 8
    assert threads["t"] == 1
    assert all(str(thread_id).startswith("t") for thread_id in threads)
    for text, result in zip(texts, results, strict=True):
        assert result.thread_id is not None
        expected = [("user", "before"), ("assistant", "ok"), ("user", text), ("assistant", "ok")]
        assert spoken(await loaded(store, result.thread_id)) == expected
    assert sorted(await store.list_threads()) == sorted(str(thread_id) for thread_id in threads)


async def test_a_fork_of_a_new_thread_and_of_a_very_long_name(memory: MemoryCheckpointer) -> None:
    agents = at_once(memory, 2, "input", model=Following("ok"), on_conflict="fork")
    name = "x" * 255
    results = await asyncio.gather(*(agent.invoke(text, name) for agent, text in zip(agents, "ab", strict=True)))
    forks = [str(result.thread_id) for result in results if result.thread_id != name]
    assert len(forks) == 1
    assert len(forks[0]) <= 255
    assert len(spoken(await loaded(memory, forks[0]))) == 2


async def test_two_workers_that_resume_at_once(store: Checkpointer, effects: Effects) -> None:
    await killed_before_its_calls(Agent(model=PAYING, tools=[effects.pay()], checkpointer=store))
    agents = at_once(store, 2, "resumed", model=PAYING, tools=[effects.pay()])
    outcomes = await asyncio.gather(*(agent.resume_invoke("t") for agent in agents), return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["AgentResult", "ThreadBusyError"]
    assert effects.done == ["pay 1"]
    assert is_sound((await loaded(store, "t")).messages)


async def test_of_two_decisions_at_once_one_counts(store: Checkpointer, effects: Effects) -> None:
    gate = [HumanInTheLoop(["pay"])]
    await Agent(model=PAYING, tools=[effects.pay()], checkpointer=store, middleware=gate).invoke("Pay", "t")
    agents = at_once(store, 2, "decision", model=PAYING, tools=[effects.pay()], middleware=gate)
    runs = [agent.resume_invoke("t", answer) for agent, answer in zip(agents, ("approve", "reject"), strict=True)]
    outcomes = await asyncio.gather(*runs, return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["AgentResult", "ThreadBusyError"]
    approved = isinstance(outcomes[1], ConflictError)
    assert effects.done == (["pay 1"] if approved else [])


async def test_the_slower_of_two_that_resume_may_wait(memory: MemoryCheckpointer, effects: Effects) -> None:
    await killed_before_its_calls(Agent(model=PAYING, tools=[effects.pay()], checkpointer=memory))
    agents = at_once(memory, 2, "resumed", model=PAYING, tools=[effects.pay()], on_conflict="wait")
    results = await asyncio.gather(*(agent.resume_invoke("t") for agent in agents))
    assert [result.message for result in results] == ["pay=paid 1", "pay=paid 1"]
    assert effects.done == ["pay 1"]


async def test_a_fork_does_not_repeat_the_calls_of_the_thread_that_it_left(
    memory: MemoryCheckpointer, effects: Effects
) -> None:
    calls = asks(a_call("pay", "c1", amount=1), a_call("look", "c2", at="x"))
    model = Following(calls, results_told)
    tools = [effects.pay(), effects.look()]
    await killed_before_its_calls(Agent(model=model, tools=tools, checkpointer=memory))
    agents = at_once(memory, 2, "resumed", model=model, tools=tools, on_conflict="fork")
    results = await asyncio.gather(*(agent.resume_invoke("t") for agent in agents))
    assert effects.counts == {"pay 1": 1, "look x": 2}
    (fork,) = (result for result in results if result.thread_id != "t")
    assert fork.message == f"pay={UNKNOWN}; look=saw x"
    assert fork.thread_id is not None
    assert await memory.load(fork.thread_id) == fork.state


async def test_a_worker_that_was_passed_before_it_began_makes_no_call(store: Checkpointer, effects: Effects) -> None:
    """A live worker is taken for dead: another one takes over just before the first one begins its call."""
    tools = [effects.pay()]
    handle = Paused(store)

    async def taken_over() -> None:
        other = Agent(model=PAYING, tools=tools, checkpointer=store, on_conflict="take_over")
        assert (await other.resume_invoke("t")).message == "pay=paid 1"

    handle.before_start = taken_over
    with pytest.raises(ConflictError):
        await Agent(model=PAYING, tools=tools, checkpointer=handle).invoke("Pay", "t")
    assert effects.done == ["pay 1"]


async def test_a_call_that_began_just_before_the_takeover_is_in_doubt(store: Checkpointer, effects: Effects) -> None:
    """The second worker saw no record when it looked first; the first one began before the second one's save."""
    await killed_before_its_calls(Agent(model=PAYING, tools=[effects.pay()], checkpointer=store))
    (latest,) = await store.list_checkpoints("t", limit=1)
    handle = Paused(store)

    async def the_other_begins() -> None:
        await store.put_writes("t", latest, "c1", [(STARTED, True)])

    handle.before_save["resumed"] = the_other_begins
    result = await Agent(model=PAYING, tools=[effects.pay()], checkpointer=handle).resume_invoke("t")
    assert result.message == f"pay={UNKNOWN}"
    assert effects.done == []


async def test_a_takeover_that_is_killed_hides_no_record(store: Checkpointer, effects: Effects) -> None:
    """The same, but the second worker dies right after its save, and a third one has to find the record."""
    await killed_before_its_calls(Agent(model=PAYING, tools=[effects.pay()], checkpointer=store))
    (latest,) = await store.list_checkpoints("t", limit=1)
    handle = Paused(store)

    async def the_other_begins() -> None:
        await store.put_writes("t", latest, "c1", [(STARTED, True)])

    handle.before_save["resumed"] = the_other_begins
    second = Agent(model=PAYING, tools=[effects.pay()], checkpointer=handle)
    with pytest.raises(Killed):
        await second.resume_invoke("t", on_event=die_at(CheckpointSavedEvent))
    assert await steps_of(store, "t") == ["input", "calls", "resumed"]
    result = await Agent(model=PAYING, tools=[effects.pay()], checkpointer=store).resume_invoke("t")
    assert result.message == f"pay={UNKNOWN}"
    assert effects.done == []


async def test_a_passed_worker_may_go_on_in_a_fork(memory: MemoryCheckpointer, effects: Effects) -> None:
    tools = [effects.pay()]
    handle = Paused(memory)

    async def taken_over() -> None:
        await Agent(model=PAYING, tools=tools, checkpointer=memory, on_conflict="take_over").resume_invoke("t")

    handle.before_start = taken_over
    result = await Agent(model=PAYING, tools=tools, checkpointer=handle, on_conflict="fork").invoke("Pay", "t")
    assert effects.done == ["pay 1"]
    assert result.message == f"pay={TAKEN_OVER}"
    assert result.thread_id != "t"


async def test_a_live_worker_whose_thread_was_taken_learns_of_it(memory: MemoryCheckpointer, effects: Effects) -> None:
    """While its tool runs, another worker accepts a message: the tool is not repeated, and no message is lost."""
    others: list[Any] = []
    newcomer = Agent(model=Following("fine"), tools=[effects.pay()], checkpointer=memory, on_conflict="take_over")

    async def listen(event: Event) -> None:
        if isinstance(event, ToolStartEvent):
            others.append(await newcomer.invoke("Hello?", "t"))

    with pytest.raises(ConflictError, match=r"expected .* to be the latest"):
        await Agent(model=PAYING, tools=[effects.pay()], checkpointer=memory).invoke("Pay", "t", on_event=listen)
    state = await loaded(memory, "t")
    assert [text for who, text in spoken(state) if who == "user"] == ["Pay", "Hello?"]
    assert effects.counts["pay 1"] == 1
    assert is_sound(state.messages)


class Slow(Following):
    """A model that answers when the gate is opened."""

    def __init__(self, *steps: Step) -> None:
        super().__init__(*steps)
        self.begun = asyncio.Event()
        self.gate = asyncio.Event()

    async def complete(self, *args: Any, **options: Any) -> Any:
        self.begun.set()
        await self.gate.wait()
        return await super().complete(*args, **options)


async def test_a_message_waits_until_the_run_before_it_is_over(memory: MemoryCheckpointer) -> None:
    slow = Slow("first answer")
    first = asyncio.create_task(Agent(model=slow, checkpointer=memory).invoke("first", "t"))
    await slow.begun.wait()
    patient = Agent(model=Following("second answer"), checkpointer=memory, on_conflict="wait")
    second = asyncio.create_task(patient.invoke("second", "t"))
    await asyncio.sleep(0.05)
    assert not second.done()
    assert [text for _, text in spoken(await loaded(memory, "t"))] == ["first"]
    slow.gate.set()
    await asyncio.gather(first, second)
    expected = ["first", "first answer", "second", "second answer"]
    assert [text for _, text in spoken(await loaded(memory, "t"))] == expected


async def test_a_run_that_begins_while_a_message_stops_waiting_is_waited_for_too(store: Checkpointer) -> None:
    slow = Slow("first answer")
    others: list[asyncio.Task[Any]] = []

    class Overtaken(Checkpointer):
        """Its first look finds no run; then another worker begins one."""

        async def history(self, *args: Any, **options: Any) -> list[HistoryEntry]:
            found = await super().history(*args, **options)
            if not others:
                others.append(asyncio.create_task(Agent(model=slow, checkpointer=store).invoke("first", "t")))
                await slow.begun.wait()
                asyncio.get_running_loop().call_later(0.05, slow.gate.set)
            return found

    agent = Agent(model=Following("second answer"), checkpointer=Overtaken(store.store), on_conflict="wait")
    await agent.invoke("second", "t")
    await asyncio.gather(*others)
    expected = ["first", "first answer", "second", "second answer"]
    assert [text for _, text in spoken(await loaded(store, "t"))] == expected


async def test_a_worker_that_does_nothing_for_long_is_taken_for_dead(
    memory: MemoryCheckpointer, effects: Effects
) -> None:
    await killed_before_its_calls(Agent(model=PAYING, tools=[effects.pay()], checkpointer=memory))
    model = Following("next")
    agent = Agent(model=model, tools=[effects.pay()], checkpointer=memory, on_conflict="wait", wait_seconds=0.05)
    result = await asyncio.wait_for(agent.invoke("Hello?", "t"), 30)
    assert result.message == "next"
    assert effects.done == ["pay 1"]
    assert is_sound(result.state.messages)


@pytest.mark.parametrize("interrupted", [False, True])
async def test_a_thread_that_rests_is_not_waited_for(
    interrupted: bool, memory: MemoryCheckpointer, effects: Effects
) -> None:
    tools = [effects.pay()]
    gate = [HumanInTheLoop(["pay"])] if interrupted else []
    await Agent(model=PAYING, tools=tools, checkpointer=memory, middleware=gate).invoke("Pay", "t")
    assert (await memory.get_metadata("t") or {})["status"] == ("interrupted" if interrupted else "done")
    agent = Agent(model=Following("ok"), tools=tools, checkpointer=memory, on_conflict="wait", wait_seconds=60)
    assert (await asyncio.wait_for(agent.invoke("next", "t"), 30)).message == "ok"


async def test_an_error_while_waiting_is_raised(memory: MemoryCheckpointer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unreachable(*_args: Any, **_options: Any) -> None:
        raise ConnectionError("no route to the store")

    agent = Agent(model=Following("ok"), checkpointer=memory, on_conflict="wait")
    monkeypatch.setattr(memory, "history", unreachable)
    with pytest.raises(ConnectionError):
        await agent.invoke("hello", "t")
    assert memory.get_thread_ids() == []
