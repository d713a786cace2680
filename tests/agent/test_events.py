"""What an agent tells while it works, and what happens if nobody listens any more."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from locus.agent import Agent, HumanInTheLoop
from locus.core.events import (
    CheckpointSavedEvent,
    Event,
    InterruptEvent,
    ModelChunkEvent,
    ModelCompleteEvent,
    TerminateEvent,
    ThinkingEvent,
    ToolCompleteEvent,
    ToolStartEvent,
)
from locus.memory.backends import MemoryCheckpointer
from locus.memory.checkpointer import Checkpointer
from locus.models import MockModel
from locus.models.base import ModelChunk, ModelResponse
from locus.tools import tool
from tests.agent.support import Effects, Following, a_call, asks, is_sound, kinds, loaded, results_told


async def heard(agent: Agent, prompt: str, thread_id: str | None = None) -> list[Event]:
    return [event async for event in agent.run(prompt, thread_id)]


async def test_events_come_in_order(memory: MemoryCheckpointer, effects: Effects) -> None:
    model = MockModel(script=[asks(a_call("pay", "c1", amount=2)), "All paid now."])
    events = await heard(Agent(model=model, tools=[effects.pay()], checkpointer=memory), "Pay 2", "t")
    assert kinds(events) == [
        *("CheckpointSaved", "Thinking", "ModelComplete"),
        *("CheckpointSaved", "ToolStart", "ToolComplete", "CheckpointSaved"),
        *("Thinking", "ModelChunk", "ModelChunk", "ModelChunk", "ModelComplete"),
        *("CheckpointSaved", "Terminate"),
    ]
    assert {event.thread_id for event in events} == {"t"}
    assert len({event.run_id for event in events}) == 1
    saved = [event for event in events if isinstance(event, CheckpointSavedEvent)]
    history = await memory.history("t")
    assert [event.checkpoint_id for event in saved] == [entry.checkpoint_id for entry in reversed(history)]
    assert [event.messages for event in saved] == [1, 2, 3, 4]


async def test_events_say_what_happened(effects: Effects) -> None:
    model = Following(asks(a_call("pay", "c1", amount=2)), "Done.", usage={"prompt_tokens": 7, "completion_tokens": 1})
    events = await heard(Agent(model=model, tools=[effects.pay()]), "Pay 2")
    by_kind: dict[type[Event], list[Any]] = {}
    for event in events:
        by_kind.setdefault(type(event), []).append(event)
    assert CheckpointSavedEvent not in by_kind
    assert [event.iteration for event in by_kind[ThinkingEvent]] == [1, 2]
    assert by_kind[ModelCompleteEvent][0].usage == {"prompt_tokens": 7, "completion_tokens": 1}
    assert by_kind[ModelCompleteEvent][1].message.text == "Done."
    assert by_kind[ToolStartEvent][0].call.arguments == {"amount": 2}
    (complete,) = by_kind[ToolCompleteEvent]
    assert (complete.call.id, complete.result.content, complete.recovered) == ("c1", "paid 2", False)
    assert events[-1] == TerminateEvent(events[0].run_id, None, "complete", "Done.")


async def test_chunks_of_a_model_that_streams_make_up_its_answer() -> None:
    events = await heard(Agent(model=MockModel(script=["one two  three "])), "count")
    assert "".join(event.text for event in events if isinstance(event, ModelChunkEvent)) == "one two  three "


async def test_a_stream_without_a_response_is_asked_again_without_streaming() -> None:
    class Half(Following):
        async def stream(self, messages: Any, tools: Any = None, **_options: Any) -> Any:
            yield ModelChunk(text="Hel")

    assert (await Agent(model=Half("Hello")).invoke("hi")).message == "Hello"


async def test_the_last_event_of_an_interrupted_run_is_the_interrupt(
    memory: MemoryCheckpointer, effects: Effects
) -> None:
    model = Following(asks(a_call("pay", amount=2)), "Done.")
    agent = Agent(model=model, tools=[effects.pay()], checkpointer=memory, middleware=[HumanInTheLoop(["pay"])])
    events = await heard(agent, "Pay 2", "t")
    assert kinds(events) == ["CheckpointSaved", "Thinking", "ModelComplete", "CheckpointSaved", "Interrupt"]
    (event,) = (event for event in events if isinstance(event, InterruptEvent))
    assert [call.name for call in event.interrupt.calls] == ["pay"]
    resumed = [event async for event in agent.resume("t", decision="approve")]
    assert kinds(resumed)[-1] == "Terminate"
    assert "ToolComplete" in kinds(resumed)
    assert resumed[0].run_id == events[0].run_id


@pytest.mark.parametrize("is_async", [False, True])
async def test_on_event_may_be_a_function_or_a_coroutine(is_async: bool, memory: MemoryCheckpointer) -> None:
    events: list[Event] = []

    async def listen(event: Event) -> None:
        await asyncio.sleep(0)
        events.append(event)

    agent = Agent(model=Following("Hi."), checkpointer=memory)
    result = await agent.invoke("Hello", "t", on_event=listen if is_async else events.append)
    assert kinds(events) == ["CheckpointSaved", "Thinking", "ModelComplete", "CheckpointSaved", "Terminate"]
    assert result.message == "Hi."


async def test_a_listener_that_raises_ends_the_run_and_the_thread_goes_on(
    memory: MemoryCheckpointer, effects: Effects
) -> None:
    def listen(event: Event) -> None:
        if isinstance(event, ToolCompleteEvent):
            raise RuntimeError("the browser is gone")

    agent = Agent(model=Following(asks(a_call("pay", amount=2)), "Done."), tools=[effects.pay()], checkpointer=memory)
    with pytest.raises(RuntimeError, match="the browser is gone"):
        await agent.invoke("Pay 2", "t", on_event=listen)
    assert (await agent.resume_invoke("t")).message == "Done."
    assert effects.done == ["pay 2"]


async def test_an_error_reaches_whoever_reads_the_stream() -> None:
    events: list[Event] = []
    with pytest.raises(ValueError, match="no key"):
        async for event in Agent(model=MockModel(script=[ValueError("no key")])).run("hi"):
            events.append(event)
    assert kinds(events) == ["Thinking"]


class Slow:
    """A tool that can be watched while it runs."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.release = asyncio.Event()
        self.log: list[str] = []

    def tool(self, *, idempotent: bool) -> Any:
        @tool(idempotent=idempotent)
        async def slow() -> str:
            self.log.append("begun")
            self.begun.set()
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.log.append("cancelled")
                raise
            self.log.append("done")
            return "slow result"

        return slow


async def test_leaving_the_stream_cancels_the_tools_and_the_thread_goes_on(memory: MemoryCheckpointer) -> None:
    slow = Slow()
    agent = Agent(
        model=Following(asks(a_call("slow")), results_told), tools=[slow.tool(idempotent=True)], checkpointer=memory
    )
    async with aclosing(agent.run("go", "t")) as events:
        async for event in events:
            if isinstance(event, ToolStartEvent):
                await slow.begun.wait()
                break
    assert slow.log == ["begun", "cancelled"]
    slow.release.set()
    result = await agent.resume_invoke("t")
    assert result.message == "slow=slow result"
    assert slow.log == ["begun", "cancelled", "begun", "done"]
    assert is_sound((await loaded(memory, "t")).messages)


async def test_a_cancelled_run_leaves_a_thread_that_goes_on(memory: MemoryCheckpointer, effects: Effects) -> None:
    slow = Slow()
    calls = asks(a_call("slow", "c1"), a_call("pay", "c2", amount=1))
    paid = asyncio.Event()

    def listen(event: Event) -> None:
        if isinstance(event, ToolCompleteEvent) and event.call.name == "pay":
            paid.set()

    tools = [slow.tool(idempotent=False), effects.pay()]
    agent = Agent(model=Following(calls, results_told), tools=tools, checkpointer=memory)
    task = asyncio.create_task(agent.invoke("go", "t", on_event=listen))
    await asyncio.gather(slow.begun.wait(), paid.wait())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert slow.log == ["begun", "cancelled"]
    # The next run goes on, too: what was done stays done, and the outcome of the other call is not known.
    result = await Agent(model=Following("fine"), tools=tools, checkpointer=memory).invoke("and now?", "t")
    told = [message.text for message in result.state.messages if message.tool_call_id is not None]
    assert "The outcome of this call is unknown" in told[0]
    assert told[1] == "paid 1"
    assert effects.done == ["pay 1"]
    assert slow.log == ["begun", "cancelled"]
    assert is_sound(result.state.messages)


async def test_a_save_under_way_is_carried_through_before_a_cancelled_run_ends(memory: MemoryCheckpointer) -> None:
    """Else it might be committed later, and pass whoever resumes the thread meanwhile."""
    saving, go_on = asyncio.Event(), asyncio.Event()

    class Slow(Checkpointer):
        async def save(self, *args: Any, **options: Any) -> str:
            saving.set()
            await go_on.wait()
            return await super().save(*args, **options)

    agent = Agent(model=Following("Yes."), checkpointer=Slow(memory.store))
    run = asyncio.create_task(agent.invoke("hm?", "t"))
    await saving.wait()
    run.cancel()
    await asyncio.sleep(0.01)
    assert not run.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert memory.get_checkpoint_count("t") == 1
    assert (await agent.resume_invoke("t")).message == "Yes."


async def test_a_run_cancelled_while_the_model_thinks_goes_on(memory: MemoryCheckpointer) -> None:
    thinking = asyncio.Event()

    class Thinks:
        async def complete(self, messages: Any, tools: Any = None, **_options: Any) -> ModelResponse:
            thinking.set()
            await asyncio.sleep(60)
            raise AssertionError("nobody waits that long")

    task = asyncio.create_task(Agent(model=Thinks(), checkpointer=memory).invoke("hm?", "t"))
    await thinking.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await Agent(model=Following("Yes."), checkpointer=memory).resume_invoke("t")).message == "Yes."
