"""Models that say nothing, never stop or fail: each ends in a clear result or error, and the thread goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from locus.agent import Agent
from locus.core.messages import ContentBlock, Message, Role
from locus.memory.backends import MemoryCheckpointer
from locus.models import MockModel, ModelError, ModelUnavailableError
from locus.models.base import ModelResponse
from locus.tools import tool
from tests.agent.support import Effects, Following, a_call, asks, is_sound, loaded, spoken


@tool(idempotent=True)
def count(number: int) -> str:
    return str(number)


def for_ever(*, same: bool) -> Following:
    """A model that asks for a tool as its answer to everything: always the same call, or another each time."""
    return Following(lambda messages: asks(a_call("count", number=7 if same else len(messages))))


async def test_a_model_that_never_stops_is_stopped(memory: MemoryCheckpointer) -> None:
    agent = Agent(model=for_ever(same=False), tools=[count], max_iterations=5, checkpointer=memory)
    result = await agent.invoke("go", "t")
    assert (result.stop_reason, result.metrics.iterations, result.metrics.tool_calls) == ("max_iterations", 5, 5)
    assert result.message == ""
    assert is_sound(result.state.messages)
    assert (await memory.get_metadata("t") or {})["status"] == "done"


async def test_a_run_that_was_stopped_goes_on_with_resume_or_run(memory: MemoryCheckpointer) -> None:
    calls = [asks(a_call("count", number=n)) for n in range(4)]
    agent = Agent(model=Following(*calls, "finished"), tools=[count], max_iterations=3, checkpointer=memory)
    assert (await agent.invoke("go", "t")).stop_reason == "max_iterations"
    result = await agent.resume_invoke("t")
    assert (result.message, result.stop_reason, result.metrics.iterations) == ("finished", "complete", 2)
    assert spoken(result.state)[-1] == ("assistant", "finished")
    assert is_sound((await agent.invoke("once more", "t")).state.messages)


async def test_identical_calls_are_noticed_and_stopped(memory: MemoryCheckpointer) -> None:
    agent = Agent(model=for_ever(same=True), tools=[count], max_iterations=100, checkpointer=memory)
    result = await agent.invoke("go", "t")
    assert (result.stop_reason, result.metrics.tool_calls) == ("tool_loop", 6)
    assert "the same call of 'count' was made 3 times" in result.state.errors[0]
    assert is_sound(result.state.messages)
    # Going on is allowed, and counted anew.
    assert (await agent.resume_invoke("t")).metrics.tool_calls == 6


async def test_the_same_question_in_several_runs_is_no_loop(memory: MemoryCheckpointer) -> None:
    agent = Agent(model=Following(asks(a_call("count", number=1)), "done"), tools=[count], checkpointer=memory)
    for _ in range(8):
        result = await agent.invoke("how many?", "t")
        assert result.stop_reason == "complete"
    assert result.state.errors == ()


async def test_tokens_are_limited_and_counted(memory: MemoryCheckpointer) -> None:
    model = for_ever(same=False)
    model.usage = {"prompt_tokens": 30, "completion_tokens": 12}
    agent = Agent(model=model, tools=[count], max_tokens=100, checkpointer=memory)
    result = await agent.invoke("go", "t")
    assert result.stop_reason == "token_budget"
    assert (result.metrics.total_tokens, result.metrics.prompt_tokens, result.metrics.model_calls) == (126, 90, 3)
    assert (result.state.total_tokens, result.state.prompt_tokens_used) == (126, 90)
    again = await agent.invoke("go on", "t")
    assert again.metrics.total_tokens == 126
    assert again.state.total_tokens == 252


async def test_time_is_limited_between_steps(memory: MemoryCheckpointer) -> None:
    @tool
    async def nap() -> str:
        await asyncio.sleep(1.1)
        return "slept"

    agent = Agent(model=Following(asks(a_call("nap"))), tools=[nap], max_seconds=1.0, checkpointer=memory)
    result = await agent.invoke("go", "t")
    assert (result.stop_reason, result.metrics.tool_calls) == ("time_limit", 1)
    assert is_sound(result.state.messages)


async def test_a_model_that_hangs_is_given_up_when_the_time_is_over(memory: MemoryCheckpointer) -> None:
    class Hangs:
        async def complete(self, messages: Any, tools: Any = None, **_options: Any) -> ModelResponse:
            await asyncio.sleep(60)
            raise AssertionError("nobody waits that long")

    agent = Agent(model=Hangs(), max_seconds=0.05, checkpointer=memory)
    result = await asyncio.wait_for(agent.invoke("hello?", "t"), 30)
    assert result.stop_reason == "time_limit"
    patient = Agent(model=Following("Here I am."), checkpointer=memory)
    assert (await patient.resume_invoke("t")).message == "Here I am."


async def test_a_timeout_of_the_models_own_is_not_ours() -> None:
    agent = Agent(model=MockModel(script=[TimeoutError("the provider did not answer")]), max_seconds=30)
    with pytest.raises(TimeoutError, match="the provider did not answer"):
        await agent.invoke("hello?")


@pytest.mark.parametrize(
    "nothing", [Message.assistant(), Message.assistant(""), Message.assistant(" \n"), Message.assistant([])]
)
async def test_a_model_that_answers_with_nothing(nothing: Message, memory: MemoryCheckpointer) -> None:
    agent = Agent(model=MockModel(script=[nothing, "Sorry, here."]), checkpointer=memory)
    result = await agent.invoke("hello?", "t")
    assert (result.stop_reason, result.message) == ("no_answer", "")
    assert spoken(await loaded(memory, "t")) == [("user", "hello?")]
    assert (await agent.resume_invoke("t")).message == "Sorry, here."


async def test_nothing_after_an_earlier_answer_is_not_that_answer(memory: MemoryCheckpointer) -> None:
    agent = Agent(model=MockModel(script=[Message.assistant("")]), checkpointer=memory)
    result = await agent.invoke([Message.user("a"), Message.assistant("b")], "t")
    assert result.stop_reason == "no_answer"


async def test_a_picture_is_an_answer() -> None:
    picture = Message.assistant([ContentBlock.image_url("https://example.org/cat.png")])
    result = await Agent(model=MockModel(script=[picture])).invoke("Draw a cat")
    assert result.stop_reason == "complete"
    assert result.state.messages[-1] == picture


@pytest.mark.parametrize("wrong", [None, "just text", ModelResponse(message=Message.user("I am you"))])
async def test_a_model_that_breaks_the_protocol_is_an_error(wrong: Any, memory: MemoryCheckpointer) -> None:
    class Wrong:
        async def complete(self, messages: Any, tools: Any = None, **_options: Any) -> Any:
            return wrong

    with pytest.raises(ModelError, match="Wrong gave no message of an assistant"):
        await Agent(model=Wrong(), checkpointer=memory).invoke("hello?", "t")
    assert spoken(await loaded(memory, "t")) == [("user", "hello?")]


async def test_a_model_that_fails_in_mid_run_leaves_a_thread_that_goes_on(
    memory: MemoryCheckpointer, effects: Effects
) -> None:
    script: list[Any] = [asks(a_call("pay", amount=5)), ModelUnavailableError("overloaded"), "Paid."]
    agent = Agent(model=MockModel(script=script), tools=[effects.pay()], checkpointer=memory)
    with pytest.raises(ModelUnavailableError, match="overloaded"):
        await agent.invoke("Pay 5", "t")
    state = await loaded(memory, "t")
    assert [message.role for message in state.messages] == [Role.USER, Role.ASSISTANT, Role.TOOL]
    result = await agent.resume_invoke("t")
    assert result.message == "Paid."
    assert effects.done == ["pay 5"]


async def test_a_message_that_cannot_be_kept_leaves_a_thread_that_goes_on(memory: MemoryCheckpointer) -> None:
    agent = Agent(model=MockModel(script=["half a pair: \ud83d", "whole"]), checkpointer=memory)
    with pytest.raises(ValueError, match="surrogate"):
        await agent.invoke("hello?", "t")
    assert (await agent.resume_invoke("t")).message == "whole"
    with pytest.raises(ValueError, match="surrogate"):
        await agent.invoke("what about \ud83d", "t")
    assert spoken(await loaded(memory, "t")) == [("user", "hello?"), ("assistant", "whole")]
