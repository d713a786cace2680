"""Confidence that moves with what tools achieve."""

from __future__ import annotations

from itertools import pairwise

from locus.agent import Agent
from locus.agent.reflexion import FAILURE, SUCCESS, repeats
from locus.core.state import ToolExecution
from locus.memory.backends import MemoryCheckpointer
from locus.tools import tool
from tests.agent.support import Effects, Following, a_call, asks, loaded


@tool
def fail() -> str:
    raise ValueError("no")


async def test_confidence_grows_with_successes_and_is_kept(memory: MemoryCheckpointer, effects: Effects) -> None:
    model = Following(asks(a_call("pay", amount=1)), asks(a_call("pay", amount=2)), "done")
    agent = Agent(model=model, tools=[effects.pay()], checkpointer=memory, reflexion=True)
    await agent.invoke("go", "t")
    state = await loaded(memory, "t")
    assert state.confidence_history == (SUCCESS, round(SUCCESS + (1 - SUCCESS) * SUCCESS, 6))
    assert state.confidence == state.confidence_history[-1]
    await agent.invoke("again", "t")
    later = await loaded(memory, "t")
    assert len(later.confidence_history) == 4
    assert all(before < after for before, after in pairwise(later.confidence_history))
    assert later.confidence < 1


async def test_confidence_falls_with_failures_and_never_below_nothing(effects: Effects) -> None:
    model = Following(asks(a_call("pay", amount=1)), asks(a_call("fail")), asks(a_call("fail")), "done")
    result = await Agent(model=model, tools=[effects.pay(), fail], reflexion=True).invoke("go")
    assert result.state.confidence_history == (SUCCESS, round(SUCCESS - FAILURE, 6), 0.0)


async def test_a_loop_lowers_the_confidence_too(effects: Effects) -> None:
    same = asks(a_call("look", at="x"))
    result = await Agent(model=Following(same, same, same, "done"), tools=[effects.look()], reflexion=True).invoke("go")
    first, second, third = result.state.confidence_history
    assert first < second
    assert third == round(second + (1 - second) * SUCCESS - FAILURE, 6)
    assert len(result.state.errors) == 1


async def test_the_same_call_in_several_runs_is_no_loop(memory: MemoryCheckpointer, effects: Effects) -> None:
    agent = Agent(
        model=Following(asks(a_call("look", at="x")), "done"),
        tools=[effects.look()],
        checkpointer=memory,
        reflexion=True,
    )
    for _ in range(5):
        result = await agent.invoke("look", "t")
    history = result.state.confidence_history
    assert all(before < after for before, after in pairwise(history))
    assert result.state.errors == ()


async def test_without_reflexion_and_without_tools_confidence_stays(effects: Effects) -> None:
    model = Following(asks(a_call("pay", amount=1)), "done")
    plain = await Agent(model=model, tools=[effects.pay()]).invoke("go")
    idle = await Agent(model=Following("hi"), reflexion=True).invoke("go")
    assert [(r.state.confidence, r.state.confidence_history) for r in (plain, idle)] == [(0.0, ()), (0.0, ())]


def execution(name: str = "look", at: object = "x", result: str | None = "y") -> ToolExecution:
    return ToolExecution(tool_name=name, tool_call_id="c", arguments={"at": at}, result=result)


def test_repeats_are_counted_from_the_end() -> None:
    assert repeats([]) == 0
    assert repeats([execution()]) == 1
    assert repeats([execution("other"), execution(), execution()]) == 2
    assert repeats([execution(), execution(at="z"), execution()]) == 1
    assert repeats([execution(result="new"), execution()]) == 1
    assert repeats([execution(at=1), execution(at=True)]) == 1, "1 and True are different arguments"
