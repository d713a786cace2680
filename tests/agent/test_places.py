"""Agents on stores of other people, which keep less than ours."""

from __future__ import annotations

from typing import Any

import pytest

from locus.agent import Agent, HumanInTheLoop, create_deep_agent
from locus.agent.recovery import UNKNOWN
from locus.core.events import Event, ToolCompleteEvent, ToolStartEvent
from locus.core.state import AgentState
from locus.memory.checkpointer import BaseCheckpointer
from tests.agent.support import Effects, Following, a_call, asks, is_sound, results_told, spoken
from tests.backends.strangers import AsyncStore, Failing, SyncStore


class Theirs(BaseCheckpointer):
    """Somebody's checkpointer with the three methods that it must have, and nothing else."""

    def __init__(self) -> None:
        self.states: dict[str, list[tuple[AgentState, dict[str, Any]]]] = {}

    async def save(
        self,
        state: AgentState,
        thread_id: str,
        checkpoint_id: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> str:
        line = self.states.setdefault(thread_id, [])
        line.append((state, metadata or {}))
        return str(len(line))

    async def load(self, thread_id: str, checkpoint_id: str | None = None) -> AgentState | None:
        line = self.states.get(thread_id)
        if not line:
            return None
        # As from a database: nothing of the object that was saved.
        return AgentState.from_checkpoint(line[int(checkpoint_id or 0) - 1][0].to_checkpoint())

    async def list_checkpoints(self, thread_id: str, limit: int = 10) -> list[str]:
        return [str(number) for number in range(len(self.states.get(thread_id, ())), 0, -1)][:limit]


PLACES = [Theirs, SyncStore, AsyncStore]
CALLS = asks(a_call("pay", "c1", amount=1), a_call("look", "c2", at="x"))


class Killed(Exception):
    """Stands for the end of the process."""


def agent_on(place: Any, effects: Effects, **settings: Any) -> Agent:
    model = Following(CALLS, results_told)
    return Agent(model=model, tools=[effects.pay(), effects.look()], checkpointer=place, **settings)


@pytest.mark.parametrize("kind", PLACES)
async def test_a_conversation_is_kept(kind: Any, effects: Effects) -> None:
    place = kind()
    result = await agent_on(place, effects).invoke("go", "t")
    assert result.message == "pay=paid 1; look=saw x"
    assert result.metrics.checkpoints == 4
    again = await Agent(model=Following(lambda m: str(len(m))), checkpointer=place).invoke("more", "t")
    assert again.message == "6"
    assert spoken(again.state)[:2] == [("user", "go"), ("assistant", "")]


@pytest.mark.parametrize("kind", PLACES)
@pytest.mark.parametrize(
    ("policy", "paid", "told"), [("skip", 1, UNKNOWN), ("retry", 2, "paid 1"), ("ask", 1, UNKNOWN)]
)
async def test_without_records_every_call_that_was_left_is_in_doubt(
    kind: Any, policy: str, paid: int, told: str, effects: Effects
) -> None:
    """Even one that was done: this place cannot know. Those that may be repeated are."""
    place = kind()

    def die_after_paying(event: Event) -> None:
        if isinstance(event, ToolCompleteEvent) and event.call.name == "pay":
            raise Killed

    with pytest.raises(Killed):
        await agent_on(place, effects).invoke("go", "t", on_event=die_after_paying)
    agent = agent_on(place, effects, unknown_outcome=policy)
    result = await agent.resume_invoke("t")
    if policy == "ask":
        assert result.interrupt is not None
        assert [call.id for call in result.interrupt.calls] == ["c1"]
        result = await agent.resume_invoke("t", "skip")
    assert result.message == f"pay={told}; look=saw x"
    assert effects.counts["pay 1"] == paid
    assert is_sound(result.state.messages)


@pytest.mark.parametrize("kind", PLACES)
async def test_a_person_can_be_asked(kind: Any, effects: Effects) -> None:
    """What was approved a moment ago is made, although there are no records."""
    place = kind()
    gate = [HumanInTheLoop(["pay"])]
    assert (await agent_on(place, effects, middleware=gate).invoke("go", "t")).stop_reason == "interrupt"
    result = await agent_on(place, effects, middleware=gate).resume_invoke("t", "approve")
    assert result.message == "pay=paid 1; look=saw x"
    assert effects.counts == {"pay 1": 1, "look x": 1}


@pytest.mark.parametrize("kind", PLACES)
async def test_a_new_message_makes_what_was_not_asked_about(kind: Any, effects: Effects) -> None:
    """The run stopped before anything was begun, so the other call is not in doubt."""
    place = kind()
    calls = asks(a_call("pay", "c1", amount=1), a_call("pay", "c2", amount=2))
    gate = [HumanInTheLoop(lambda call: call.id == "c1")]
    first = Agent(model=Following(calls), tools=[effects.pay()], checkpointer=place, middleware=gate)
    assert (await first.invoke("go", "t")).stop_reason == "interrupt"
    second = Agent(model=Following("next"), tools=[effects.pay()], checkpointer=place, middleware=gate)
    result = await second.invoke("go on", "t")
    assert effects.done == ["pay 2"]
    assert UNKNOWN not in [text for _, text in spoken(result.state)]


async def test_an_approved_call_that_was_under_way_is_in_doubt(effects: Effects) -> None:
    place = Theirs()
    gate = [HumanInTheLoop(["pay"])]

    def die(event: Event) -> None:
        if isinstance(event, ToolStartEvent):
            raise Killed

    await agent_on(place, effects, middleware=gate).invoke("go", "t")
    with pytest.raises(Killed):
        await agent_on(place, effects, middleware=gate).resume_invoke("t", "approve", on_event=die)
    effects.done.clear()
    result = await agent_on(place, effects, middleware=gate).resume_invoke("t")
    assert result.message == f"pay={UNKNOWN}; look=saw x"
    assert "pay 1" not in effects.done


@pytest.mark.parametrize("kind", PLACES)
async def test_a_deep_agent_works_there_with_a_workspace_of_its_own(kind: Any) -> None:
    steps = asks(a_call("write_file", path="a.txt", content="hello")), asks(a_call("read_file", path="a.txt"))
    agent = create_deep_agent(Following(*steps, results_told), memory=None, checkpointer=kind())
    result = await agent.invoke("go", "t")
    assert result.message == "write_file=Wrote 5 characters to a.txt.; read_file=hello"
    other = Following(asks(a_call("list_files")), results_told)
    files = await create_deep_agent(other, checkpointer=kind()).invoke("go", "another thread")
    assert files.message == "list_files=There are no files yet."


async def test_a_store_that_fails_fails_the_run_and_the_thread_goes_on(effects: Effects) -> None:
    place = Failing("save")
    agent = agent_on(place, effects)

    def break_it(event: Event) -> None:
        place.broken = isinstance(event, ToolCompleteEvent)

    with pytest.raises(Exception, match="failed: ConnectionError"):
        await agent.invoke("go", "t", on_event=break_it)
    place.broken = False
    assert (await agent.resume_invoke("t")).stop_reason == "complete"
