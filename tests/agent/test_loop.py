"""The loop: a model, the calls that it asks for, and their results."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from locus.agent import Agent
from locus.core.messages import Message, Role, ToolCall
from locus.memory.backends import MemoryCheckpointer
from locus.models import MockModel
from locus.tools import tool
from locus.tools.calls import tool_call
from tests.agent.support import Effects, Following, a_call, asks, is_sound, results_told, shape, spoken


async def test_an_answer_ends_the_run() -> None:
    agent = Agent(model=Following("Hello!"), system_prompt="Be kind.")
    result = await agent.invoke("Hi")
    assert (result.message, result.stop_reason, result.interrupt) == ("Hello!", "complete", None)
    assert spoken(result.state) == [("user", "Hi"), ("assistant", "Hello!")]
    assert (result.metrics.iterations, result.metrics.model_calls, result.metrics.tool_calls) == (1, 1, 0)
    assert str(result) == "Hello!"


async def test_the_system_prompt_is_told_to_the_model_and_not_kept() -> None:
    model = Following("Hello!")
    result = await Agent(model=model, system_prompt="Be kind.").invoke("Hi")
    assert spoken(model.asked[0]) == [("system", "Be kind."), ("user", "Hi")]
    assert all(message.role is not Role.SYSTEM for message in result.state.messages)


async def test_a_prompt_may_be_one_message_or_several() -> None:
    model = Following("Fine.")
    await Agent(model=model).invoke(Message.user("one"))
    await Agent(model=model).invoke([Message.system("context"), Message.user("two")])
    assert [spoken(asked) for asked in model.asked] == [[("user", "one")], [("system", "context"), ("user", "two")]]


async def test_tools_are_called_and_their_results_are_told(effects: Effects) -> None:
    model = Following(asks(a_call("pay", "c1", amount=3), text="I pay."), results_told)
    result = await Agent(model=model, tools=[effects.pay()]).invoke("Pay 3")
    assert result.message == "pay=paid 3"
    assert effects.done == ["pay 3"]
    assert shape(result.state.messages)[1:3] == [("assistant", "I pay.", None, ("c1",)), ("tool", "paid 3", "c1", ())]
    assert result.state.tool_history == ("pay",)
    (execution,) = result.state.tool_executions
    assert (execution.arguments, execution.result, execution.error) == ({"amount": 3}, "paid 3", None)
    assert execution.duration_ms is not None
    assert result.metrics.tool_calls == 1


async def test_the_model_is_told_of_the_tools() -> None:
    seen: list[Any] = []

    class Nosy(Following):
        async def complete(self, messages: Any, tools: Any = None, **options: Any) -> Any:
            seen.append(tools)
            return await super().complete(messages, tools, **options)

    @tool
    def ping() -> str:
        """Say pong."""
        return "pong"

    await Agent(model=Nosy("ok"), tools=[ping]).invoke("x")
    await Agent(model=Nosy("ok")).invoke("x")
    assert [[spec.name for spec in tools] if tools else tools for tools in seen] == [["ping"], None]


async def test_calls_run_side_by_side_and_results_keep_their_order() -> None:
    finished: list[str] = []
    waits_for = {"a": asyncio.Event(), "b": asyncio.Event(), "c": asyncio.Event()}
    ends = {"a": None, "b": waits_for["a"], "c": waits_for["b"]}
    waits_for["c"].set()

    @tool
    async def wait(name: str) -> str:
        await waits_for[name].wait()
        finished.append(name)
        if (following := ends[name]) is not None:
            following.set()
        return name

    model = Following(asks(*(a_call("wait", name, name=name) for name in "abc")), results_told)
    result = await asyncio.wait_for(Agent(model=model, tools=[wait]).invoke("go"), 30)
    assert finished == ["c", "b", "a"]
    assert result.message == "wait=a; wait=b; wait=c"
    assert [execution.tool_call_id for execution in result.state.tool_executions] == ["a", "b", "c"]


async def test_sync_tools_run_in_threads_at_once() -> None:
    together = threading.Barrier(2, timeout=5)
    threads: set[int] = set()

    @tool
    def meet(name: str) -> str:
        together.wait()
        threads.add(threading.get_ident())
        return name

    model = Following(asks(a_call("meet", name="a"), a_call("meet", name="b")), results_told)
    result = await Agent(model=model, tools=[meet]).invoke("go")
    assert result.message == "meet=a; meet=b"
    assert len(threads) == 2
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("ids", [["", ""], ["x", "x"], ["x" * 300, "y"]])
async def test_ids_that_tell_nothing_apart_are_replaced(ids: list[str], effects: Effects) -> None:
    calls = [ToolCall(id=call_id, name="pay", arguments={"amount": n}) for n, call_id in enumerate(ids, 1)]
    agent = Agent(model=Following(asks(*calls), results_told), tools=[effects.pay()], checkpointer=MemoryCheckpointer())
    result = await agent.invoke("go", "t")
    assert result.message == "pay=paid 1; pay=paid 2"
    assert len({call.id for call in result.state.messages[1].tool_calls}) == 2
    assert is_sound(result.state.messages)


async def test_an_id_that_the_model_uses_again_is_replaced(effects: Effects) -> None:
    model = Following(asks(a_call("pay", "call_0", amount=1)), asks(a_call("pay", "call_0", amount=2)), results_told)
    result = await Agent(model=model, tools=[effects.pay()]).invoke("go")
    assert effects.done == ["pay 1", "pay 2"]
    first, second = (execution.tool_call_id for execution in result.state.tool_executions)
    assert first == "call_0" != second
    assert is_sound(result.state.messages)


async def test_an_unknown_tool_is_told_to_the_model(effects: Effects) -> None:
    model = Following(asks(a_call("fly")), results_told)
    result = await Agent(model=model, tools=[effects.pay()]).invoke("go")
    assert "there is no tool 'fly'; there are: pay" in result.message
    assert result.stop_reason == "complete"
    assert result.state.tool_executions[0].success is False


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (a_call("pay", amount="much"), "amount: Input should be a valid integer"),
        (a_call("pay"), "amount: Field required"),
        (tool_call("pay", "{not json"), "no JSON object: {not json"),
        (tool_call("pay", "[1, 2]"), "no JSON object: [1, 2]"),
    ],
)
async def test_malformed_arguments_are_told_to_the_model(call: ToolCall, says: str, effects: Effects) -> None:
    agent = Agent(model=Following(asks(call), results_told), tools=[effects.pay()], checkpointer=MemoryCheckpointer())
    result = await agent.invoke("go", "t")
    assert says in result.message
    assert effects.done == []
    again = await agent.invoke("still there?", "t")
    assert again.stop_reason == "complete"


async def test_what_tools_do_wrong_is_told_and_the_others_go_on(effects: Effects) -> None:
    @tool
    def explode() -> str:
        raise ValueError("boom")

    @tool
    async def leave() -> str:
        raise SystemExit(3)

    @tool
    async def give_up() -> str:
        raise asyncio.CancelledError("enough")

    @tool
    def mumble() -> Any:
        return object()

    @tool
    def not_a_number() -> Any:
        return {"value": float("nan")}

    names = ["explode", "leave", "give_up", "mumble", "not_a_number"]
    calls = [*(a_call(name, name) for name in names), a_call("pay", amount=1)]
    agent = Agent(
        model=Following(asks(*calls), "done"),
        tools=[explode, leave, give_up, mumble, not_a_number, effects.pay()],
        checkpointer=MemoryCheckpointer(),
    )
    result = await agent.invoke("go", "t")
    assert result.message == "done"
    told = {message.name: message.text for message in result.state.messages if message.role is Role.TOOL}
    assert told["explode"] == "Error: ValueError: boom"
    assert told["leave"] == "Error: SystemExit: 3"
    assert "was cancelled from within" in told["give_up"]
    assert "object, which JSON does not have" in told["mumble"]
    assert "result.value" in told["not_a_number"]
    assert told["pay"] == "paid 1"


async def test_a_tool_that_hangs_is_given_up() -> None:
    release = threading.Event()

    @tool
    async def sleep() -> str:
        await asyncio.sleep(60)
        return "slept"

    @tool
    def block() -> str:
        release.wait(60)
        return "done"

    @tool(timeout=5)
    async def patient() -> str:
        await asyncio.sleep(0.1)
        return "worth it"

    model = Following(asks(a_call("sleep"), a_call("block"), a_call("patient")), results_told)
    agent = Agent(model=model, tools=[sleep, block, patient], tool_timeout=0.02, checkpointer=MemoryCheckpointer())
    try:
        result = await asyncio.wait_for(agent.invoke("go", "t"), 30)
    finally:
        release.set()
    assert "sleep did not finish within 0.02 seconds" in result.message
    assert "block did not finish within 0.02 seconds" in result.message
    assert result.message.endswith("patient=worth it")
    assert (await agent.invoke("again", "t")).stop_reason == "complete"


async def test_a_tool_may_use_agents_itself() -> None:
    inner = Agent(model=Following("from inside"))

    @tool
    def blocking() -> str:
        return inner.run_sync("x").message

    @tool
    async def waiting() -> str:
        return (await inner.invoke("x")).message

    model = Following(asks(a_call("blocking"), a_call("waiting")), results_told)
    result = await Agent(model=model, tools=[blocking, waiting]).invoke("go")
    assert result.message == "blocking=from inside; waiting=from inside"


async def test_the_mock_follows_a_conversation_over_several_runs() -> None:
    agent = Agent(model=MockModel(), checkpointer=MemoryCheckpointer())
    await agent.invoke("My name is Alice.", "t")
    result = await agent.invoke("What's my name?", "t")
    assert "Alice" in result.message
    assert "Alice" not in (await agent.invoke("What's my name?", "another thread")).message
