"""A person decides on calls: later, and in another process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from locus.agent import Agent, AgentResult, HumanInTheLoop, Middleware
from locus.agent.recovery import NOT_APPROVED
from locus.core.messages import Message, ToolCall
from locus.core.state import AgentState
from locus.errors import ConfigurationError
from locus.memory.backends import MemoryCheckpointer, sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.memory.conversation import InMemoryCheckpointer
from locus.tools.calls import tool_call
from tests.agent.support import Effects, Following, a_call, asks, is_sound, loaded, results_told, spoken, steps_of

PAY = a_call("pay", "c1", amount=10)
LOOK = a_call("look", "c2", at="x")
MORE = a_call("pay", "c3", amount=20)


def gated(effects: Effects, place: Any, *calls: ToolCall, **settings: Any) -> Agent:
    return Agent(
        model=Following(asks(*calls), results_told),
        tools=[effects.pay(), effects.look()],
        **({"memory": place} if isinstance(place, InMemoryCheckpointer) else {"checkpointer": place}),
        **{"middleware": [HumanInTheLoop(["pay"])], **settings},
    )


async def asked(agent: Agent) -> AgentResult:
    result = await agent.invoke("go", "t")
    assert result.stop_reason == "interrupt"
    assert result.interrupt is not None
    return result


async def test_a_gated_call_stops_the_run_before_anything_is_done(store: Checkpointer, effects: Effects) -> None:
    result = await asked(gated(effects, store, PAY, LOOK))
    assert result.interrupt is not None
    assert (result.interrupt.kind, [call.id for call in result.interrupt.calls]) == ("approval", ["c1"])
    assert result.interrupt.calls[0].arguments == {"amount": 10}
    assert effects.done == []
    assert await steps_of(store, "t") == ["input", "interrupt"]
    assert (await store.get_metadata("t") or {})["status"] == "interrupted"
    assert (await loaded(store, "t")).messages[-1].tool_calls == (PAY, LOOK)


async def test_an_approved_call_is_made(store: Checkpointer, effects: Effects) -> None:
    await asked(gated(effects, store, PAY, LOOK))
    result = await gated(effects, store, PAY, LOOK).resume_invoke("t", "approve")
    assert result.message == "pay=paid 10; look=saw x"
    assert effects.counts == {"pay 10": 1, "look x": 1}
    assert "locus:interrupt" not in result.state.metadata
    assert "locus:decided" not in result.state.metadata


async def test_the_decision_may_come_in_another_process(database: Path, effects: Effects) -> None:
    await asked(gated(effects, sqlite_checkpointer(database), PAY))
    later = gated(effects, sqlite_checkpointer(database), PAY)
    still = await later.resume_invoke("t")
    assert still.interrupt is not None
    assert [call.id for call in still.interrupt.calls] == ["c1"]
    much_later = gated(effects, f"sqlite:{database}", PAY)
    assert (await much_later.resume_invoke("t", "approve")).message == "pay=paid 10"
    assert effects.done == ["pay 10"]


async def test_a_rejected_call_is_not_made_and_the_model_hears_why(
    memory: MemoryCheckpointer, effects: Effects
) -> None:
    await asked(gated(effects, memory, PAY, LOOK))
    decision = {"action": "reject", "reason": "too much"}
    result = await gated(effects, memory, PAY, LOOK).resume_invoke("t", decision)
    assert result.message == "pay=A person rejected this call; it was not made. Reason: too much; look=saw x"
    assert effects.done == ["look x"]
    assert is_sound(result.state.messages)


async def test_all_calls_may_be_rejected(memory: MemoryCheckpointer, effects: Effects) -> None:
    await asked(gated(effects, memory, PAY))
    result = await gated(effects, memory, PAY).resume_invoke("t", "reject")
    assert result.message == "pay=A person rejected this call; it was not made."
    assert effects.done == []


async def test_an_edited_call_is_made_with_other_arguments(memory: MemoryCheckpointer, effects: Effects) -> None:
    await asked(gated(effects, memory, PAY))
    result = await gated(effects, memory, PAY).resume_invoke("t", {"action": "edit", "arguments": {"amount": 3}})
    assert result.message == "pay=paid 3"
    assert effects.done == ["pay 3"]
    assert result.state.messages[1].tool_calls[0].arguments == {"amount": 3}
    assert result.state.tool_executions[0].arguments == {"amount": 3}


async def test_an_edit_mends_arguments_that_were_no_json(memory: MemoryCheckpointer, effects: Effects) -> None:
    broken = tool_call("pay", '{"amount": 1', "c1")
    await asked(gated(effects, memory, broken))
    result = await gated(effects, memory, broken).resume_invoke("t", {"action": "edit", "arguments": {"amount": 1}})
    assert result.message == "pay=paid 1"


async def test_a_person_may_give_the_result(memory: MemoryCheckpointer, effects: Effects) -> None:
    await asked(gated(effects, memory, PAY))
    result = await gated(effects, memory, PAY).resume_invoke("t", {"action": "result", "content": "paid in cash"})
    assert result.message == "pay=paid in cash"
    assert effects.done == []


async def test_each_call_may_have_a_decision_of_its_own(memory: MemoryCheckpointer, effects: Effects) -> None:
    last = a_call("pay", "c4", amount=30)
    await asked(gated(effects, memory, PAY, LOOK, MORE, last))
    decisions = {"c1": "reject", "c3": {"action": "edit", "arguments": {"amount": 2}}, "c4": "approve"}
    result = await gated(effects, memory, PAY, LOOK, MORE, last).resume_invoke("t", decisions)
    rejected = "A person rejected this call; it was not made."
    assert result.message == f"pay={rejected}; look=saw x; pay=paid 2; pay=paid 30"
    assert effects.counts == {"look x": 1, "pay 2": 1, "pay 30": 1}


@pytest.mark.parametrize(
    "wrong",
    [
        "perhaps",
        "edit",
        "",
        17,
        ["approve"],
        {"action": "no"},
        {"action": "edit"},
        {"action": "edit", "arguments": [1]},
        {"action": "result"},
        {"action": "result", "content": 5},
        {"c1": "approve"},
        {"c1": "approve", "c3": "maybe"},
        {"c1": "approve", "c3": "approve", "c9": "approve"},
        {},
    ],
)
async def test_a_wrong_decision_changes_nothing(wrong: Any, memory: MemoryCheckpointer, effects: Effects) -> None:
    await asked(gated(effects, memory, PAY, MORE))
    before = await memory.list_checkpoints("t"), await loaded(memory, "t")
    with pytest.raises(ConfigurationError):
        await gated(effects, memory, PAY, MORE).resume_invoke("t", wrong)
    assert (await memory.list_checkpoints("t"), await loaded(memory, "t")) == before
    assert effects.done == []
    assert (await gated(effects, memory, PAY, MORE).resume_invoke("t", "approve")).stop_reason == "complete"


async def test_a_decision_needs_a_question(memory: MemoryCheckpointer, effects: Effects) -> None:
    agent = gated(effects, memory, PAY, middleware=[])
    await agent.invoke("go", "t")
    count = memory.get_checkpoint_count("t")
    with pytest.raises(ConfigurationError, match="there is nothing to decide"):
        await agent.resume_invoke("t", "approve")
    assert memory.get_checkpoint_count("t") == count


async def test_a_decision_is_used_up(memory: MemoryCheckpointer, effects: Effects) -> None:
    model = Following(asks(PAY), asks(a_call("pay", "c9", amount=99)), results_told)
    agent = Agent(model=model, tools=[effects.pay()], checkpointer=memory, middleware=[HumanInTheLoop({"pay"})])
    await asked(agent)
    again = await agent.resume_invoke("t", "approve")
    assert again.interrupt is not None
    assert [call.id for call in again.interrupt.calls] == ["c9"]
    assert effects.done == ["pay 10"]


async def test_a_new_message_does_not_wait_for_the_decision(memory: MemoryCheckpointer, effects: Effects) -> None:
    await asked(gated(effects, memory, PAY, LOOK))
    agent = Agent(
        model=Following("Another topic, then."),
        tools=[effects.pay(), effects.look()],
        checkpointer=memory,
        middleware=[HumanInTheLoop(["pay"])],
    )
    result = await agent.invoke("Forget it", "t")
    assert result.message == "Another topic, then."
    assert effects.done == ["look x"]
    assert ("tool", "A person rejected this call; it was not made. Reason: the conversation went on") in spoken(
        result.state
    )
    assert is_sound(result.state.messages)
    with pytest.raises(ConfigurationError, match="nothing to decide"):
        await agent.resume_invoke("t", "approve")


class Killed(Exception):
    """Stands for the end of the process."""


async def test_calls_that_a_killed_process_left_are_gated_too(memory: MemoryCheckpointer, effects: Effects) -> None:
    """They were asked for in an earlier round, by an agent without the gate."""
    state = AgentState().with_messages([Message.user("go"), asks(PAY, LOOK)])
    await memory.save(state, "t", metadata={"step": "calls", "status": "running"})
    agent = gated(effects, memory, PAY, LOOK)
    result = await agent.resume_invoke("t")
    assert result.interrupt is not None
    assert [call.id for call in result.interrupt.calls] == ["c1"]
    assert effects.done == []
    assert (await agent.resume_invoke("t", "approve")).message == "pay=paid 10; look=saw x"


async def test_a_new_message_rejects_gated_calls_that_were_left(memory: MemoryCheckpointer, effects: Effects) -> None:
    state = AgentState().with_messages([Message.user("go"), asks(PAY, LOOK)])
    await memory.save(state, "t", metadata={"step": "calls", "status": "running"})
    agent = Agent(
        model=Following("ok"),
        tools=[effects.pay(), effects.look()],
        checkpointer=memory,
        middleware=[HumanInTheLoop(["pay"])],
    )
    result = await agent.invoke("next", "t")
    assert ("tool", NOT_APPROVED) in spoken(result.state)
    assert effects.done == ["look x"]


async def test_an_approval_outlives_a_kill(store: Checkpointer, effects: Effects) -> None:
    """Approved, and killed before the call began: it is made without asking again."""
    await asked(gated(effects, store, PAY))

    def die(_event: object) -> None:
        raise Killed

    with pytest.raises(Killed):
        await gated(effects, store, PAY).resume_invoke("t", "approve", on_event=die)
    assert await steps_of(store, "t") == ["input", "interrupt", "decision"]
    result = await gated(effects, store, PAY).resume_invoke("t")
    assert result.message == "pay=paid 10"
    assert effects.done == ["pay 10"]


async def test_a_second_question_does_not_forget_the_first_answer(memory: MemoryCheckpointer, effects: Effects) -> None:
    """Two calls are approved, one was begun when the process died: only that one is asked about."""
    await asked(gated(effects, memory, PAY, MORE))

    def die(_event: object) -> None:
        raise Killed

    with pytest.raises(Killed):
        await gated(effects, memory, PAY, MORE).resume_invoke("t", "approve", on_event=die)
    (latest,) = await memory.list_checkpoints("t", limit=1)
    await memory.put_writes("t", latest, "c1", [("locus:started", True)])
    agent = gated(effects, memory, PAY, MORE, unknown_outcome="ask")
    result = await agent.resume_invoke("t")
    assert result.interrupt is not None
    assert (result.interrupt.kind, [call.id for call in result.interrupt.calls]) == ("unknown_outcome", ["c1"])
    assert (await agent.resume_invoke("t", "skip")).stop_reason == "complete"
    assert effects.done == ["pay 20"]


async def test_a_function_may_say_what_is_gated(memory: MemoryCheckpointer, effects: Effects) -> None:
    gate = HumanInTheLoop(lambda call: call.arguments.get("amount", 0) > 15)
    result = await asked(gated(effects, memory, PAY, MORE, middleware=[gate]))
    assert result.interrupt is not None
    assert [call.id for call in result.interrupt.calls] == ["c3"]


async def test_middleware_may_go_by_the_state(memory: MemoryCheckpointer, effects: Effects) -> None:
    class AfterHours(Middleware):
        def needs_approval(self, call: ToolCall, state: AgentState) -> bool:
            return "night" in state.messages[0].text

    agent = gated(effects, memory, LOOK, middleware=[AfterHours()])
    assert (await agent.invoke("it is day", "day")).stop_reason == "complete"
    assert (await agent.invoke("it is night", "night")).stop_reason == "interrupt"


async def test_a_conversation_memory_can_be_asked_too(effects: Effects) -> None:
    """It keeps messages only, so the question is found anew when the decision comes."""
    memory = InMemoryCheckpointer()
    await asked(gated(effects, memory, PAY, LOOK))
    again = await gated(effects, memory, PAY, LOOK).resume_invoke("t")
    assert again.stop_reason == "interrupt"
    result = await gated(effects, memory, PAY, LOOK).resume_invoke("t", "approve")
    assert result.message == "pay=paid 10; look=saw x"
    assert effects.counts == {"pay 10": 1, "look x": 1}
