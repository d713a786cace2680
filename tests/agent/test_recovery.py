"""A process that was killed at any instant: every state that it can leave behind is made, and gone on from.

A run is done once to the end. Then, for each of its checkpoints and for each thing that may be recorded after
it, a copy of the thread is made that ends there, as if the process had been killed at that point.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

import pytest

from locus.agent import Agent, HumanInTheLoop
from locus.agent.recovery import UNKNOWN
from locus.agent.sessions import RESULT, STARTED
from locus.core.events import CheckpointSavedEvent, Event, TerminateEvent, ToolCompleteEvent, ToolStartEvent
from locus.core.messages import Message, ToolCall
from locus.core.state import AgentState
from locus.errors import ConfigurationError, CorruptCheckpointError
from locus.memory.backends import MemoryCheckpointer, sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer
from tests.agent.support import (
    Effects,
    Following,
    a_call,
    asks,
    is_sound,
    loaded,
    results_told,
    shape,
    spoken,
    steps_of,
)

FIRST = asks(a_call("pay", "c1", amount=1), a_call("look", "c2", at="x"), a_call("pay", "c3", amount=3))
SECOND = asks(a_call("pay", "c4", amount=4))
EFFECT = {"c1": "pay 1", "c2": "look x", "c3": "pay 3", "c4": "pay 4"}
STEPS = ["input", "calls", "results", "calls", "results", "answer"]
FINISHED_BY = [0, 0, 3, 3, 4, 4]
"""How many of the calls each checkpoint has the results of."""

Mark = Literal["nothing", "started", "done"]


@dataclass(frozen=True)
class Cut:
    """A point where the process may have been killed: after a checkpoint, and with these records."""

    number: int
    checkpoint_id: str
    marks: dict[str, Mark]

    @property
    def doubtful(self) -> list[str]:
        """What may have been done."""
        return [EFFECT[call_id] for call_id, mark in self.marks.items() if mark == "started"]

    @property
    def left(self) -> list[str]:
        """What was certainly not done."""
        ids = list(EFFECT)[FINISHED_BY[self.number] :]
        return [EFFECT[call_id] for call_id in ids if self.marks.get(call_id, "nothing") == "nothing"]


class Story:
    """The run, done to its end on one store, and its cut points."""

    def __init__(self, store: Checkpointer) -> None:
        self.store = store
        self.effects = Effects()
        self.copies = 0

    def agent(self, **settings: Any) -> Agent:
        """An agent as a fresh process would make it."""
        tools = [self.effects.pay(), self.effects.look()]
        model = Following(FIRST, SECOND, results_told)
        return Agent(model=model, tools=tools, checkpointer=self.store, **settings)

    async def tell(self) -> None:
        result = await self.agent().invoke("go", "story")
        self.answer = result.message
        self.conversation = shape(result.state.messages)
        assert await steps_of(self.store, "story") == STEPS

    async def cuts(self) -> AsyncIterator[Cut]:
        for number, entry in enumerate(reversed(await self.store.history("story", limit=None))):
            calls = (await loaded(self.store, "story", entry.checkpoint_id)).messages[-1].tool_calls
            for marks in product(*(_marks(call) for call in calls)):
                yield Cut(number, entry.checkpoint_id, dict(zip((call.id for call in calls), marks, strict=True)))

    async def cut_with(self, *marks: Mark) -> Cut:
        (found,) = [cut async for cut in self.cuts() if tuple(cut.marks.values()) == marks]
        return found

    async def killed_at(self, cut: Cut) -> str:
        """A thread that ends there."""
        self.copies += 1
        thread_id = f"copy {self.copies}"
        assert await self.store.copy_thread("story", thread_id, cut.checkpoint_id)
        for call_id, mark in cut.marks.items():
            if mark != "done":
                writes = [(STARTED, True)] if mark == "started" else []
                await self.store.put_writes(thread_id, cut.checkpoint_id, call_id, writes)
        self.effects.done.clear()
        return thread_id


def _marks(call: ToolCall) -> Sequence[Mark]:
    return ("nothing", "done") if call.name == "look" else ("nothing", "started", "done")


@pytest.fixture(params=["memory", "sqlite"])
async def story(request: pytest.FixtureRequest, tmp_path: Path) -> Story:
    on_disk = request.param == "sqlite"
    store = sqlite_checkpointer(tmp_path / "a.db", durability="normal") if on_disk else MemoryCheckpointer()
    found = Story(store)
    await found.tell()
    return found


async def test_there_are_cut_points_of_every_kind(story: Story) -> None:
    cuts = [cut async for cut in story.cuts()]
    assert len(cuts) == 1 + 18 + 1 + 3 + 1 + 1
    assert sum(bool(cut.doubtful) for cut in cuts) == 10 + 1


async def test_without_doubt_every_resume_ends_as_the_run_that_nobody_killed(story: Story) -> None:
    async for cut in story.cuts():
        if cut.doubtful:
            continue
        thread_id = await story.killed_at(cut)
        result = await story.agent().resume_invoke(thread_id)
        assert (result.message, result.stop_reason) == (story.answer, "complete"), cut
        assert shape(result.state.messages) == story.conversation, cut
        assert sorted(story.effects.done) == sorted(cut.left), cut
        assert await story.store.load(thread_id) == result.state


async def test_what_is_in_doubt_is_told_and_never_repeated(story: Story) -> None:
    async for cut in story.cuts():
        if cut.doubtful:
            thread_id = await story.killed_at(cut)
            result = await story.agent(unknown_outcome="skip").resume_invoke(thread_id)
            assert sorted(story.effects.done) == sorted(cut.left), cut
            assert [text for _, text in spoken(result.state)].count(UNKNOWN) == len(cut.doubtful), cut
            assert [who for who, _, _, _ in shape(result.state.messages)] == [who for who, *_ in story.conversation]
            assert [ids for *_, ids, _ in shape(result.state.messages)] == [ids for *_, ids, _ in story.conversation]


async def test_what_is_in_doubt_may_be_repeated(story: Story) -> None:
    async for cut in story.cuts():
        if cut.doubtful:
            thread_id = await story.killed_at(cut)
            result = await story.agent(unknown_outcome="retry").resume_invoke(thread_id)
            assert sorted(story.effects.done) == sorted(cut.left + cut.doubtful), cut
            assert shape(result.state.messages) == story.conversation, cut


@pytest.mark.parametrize(
    ("decision", "repeats", "told"),
    [
        ("retry", True, None),
        ("skip", False, UNKNOWN),
        ({"action": "result", "content": "it was paid, says the bank"}, False, "it was paid, says the bank"),
        ({"action": "reject", "reason": "the bank is closed"}, False, f"{UNKNOWN} Reason: the bank is closed"),
    ],
)
async def test_a_person_may_be_asked_about_it(story: Story, decision: Any, repeats: bool, told: str | None) -> None:
    async for cut in story.cuts():
        if not cut.doubtful:
            continue
        thread_id = await story.killed_at(cut)
        asked = await story.agent(unknown_outcome="ask").resume_invoke(thread_id)
        assert asked.interrupt is not None, cut
        assert asked.interrupt.kind == "unknown_outcome"
        assert [EFFECT[call.id] for call in asked.interrupt.calls] == cut.doubtful
        assert story.effects.done == [], "nothing is done before the answer"
        result = await story.agent(unknown_outcome="ask").resume_invoke(thread_id, decision)
        assert result.stop_reason == "complete"
        assert sorted(story.effects.done) == sorted(cut.left + (cut.doubtful if repeats else [])), cut
        assert [text for _, text in spoken(result.state)].count(told or "") == (len(cut.doubtful) if told else 2), cut
        assert is_sound(result.state.messages)


async def test_the_next_message_goes_on_as_well(story: Story) -> None:
    """It comes after what was open, which is settled without asking anybody."""
    async for cut in story.cuts():
        for policy in ("skip", "ask"):
            thread_id = await story.killed_at(cut)
            result = await story.agent(unknown_outcome=policy).invoke("and then?", thread_id)
            assert result.stop_reason == "complete"
            assert is_sound(result.state.messages), cut
            assert spoken(result.state).count(("user", "and then?")) == 1
            before = result.state.messages[: spoken(result.state).index(("user", "and then?"))]
            assert shape(before)[: len(before)] == [
                (who, UNKNOWN if EFFECT.get(call_id or "") in cut.doubtful else text, call_id, ids)
                for who, text, call_id, ids in story.conversation[: len(before)]
            ], cut


async def test_finished_calls_are_told_again_as_recovered(story: Story) -> None:
    cut = await story.cut_with("done", "nothing", "done")
    events: list[Event] = []
    await story.agent().resume_invoke(await story.killed_at(cut), on_event=events.append)
    told = [(event.call.id, event.recovered) for event in events if isinstance(event, ToolCompleteEvent)]
    assert told == [("c1", True), ("c3", True), ("c2", False), ("c4", False)]


async def test_a_second_kill_right_after_the_takeover_loses_nothing(story: Story) -> None:
    """The save that takes a thread over becomes the latest; the records of the one before must still be found."""
    async for cut in story.cuts():
        if not cut.marks or "nothing" not in cut.marks.values():
            continue
        thread_id = await story.killed_at(cut)

        async def kill_then(event: Event) -> None:
            if isinstance(event, CheckpointSavedEvent):
                raise Killed

        for policy in ("skip", "retry"):
            with pytest.raises(Killed):
                await story.agent(unknown_outcome=policy).resume_invoke(thread_id, on_event=kill_then)
        assert (await steps_of(story.store, thread_id))[-2:] == ["resumed", "resumed"]
        result = await story.agent(unknown_outcome="skip").resume_invoke(thread_id)
        assert sorted(story.effects.done) == sorted(cut.left), cut
        assert is_sound(result.state.messages)


class Killed(Exception):
    """Stands for the end of the process."""


async def test_resuming_a_finished_thread_returns_its_answer_and_saves_nothing(story: Story) -> None:
    before = await story.store.list_checkpoints("story", limit=100)
    result = await story.agent().resume_invoke("story")
    assert (result.message, result.stop_reason, result.metrics.model_calls) == (story.answer, "complete", 0)
    assert result.nothing_to_resume
    assert await story.store.list_checkpoints("story", limit=100) == before


async def test_a_stream_tells_too_that_there_was_nothing_to_resume(story: Story) -> None:
    (end,) = [event async for event in story.agent().resume("story")]
    assert isinstance(end, TerminateEvent)
    assert (end.stop_reason, end.message, end.nothing_to_resume) == ("complete", story.answer, True)
    *_, end = [event async for event in story.agent().run("And now?", "story")]
    assert isinstance(end, TerminateEvent)
    assert not end.nothing_to_resume


async def test_what_was_resumed_is_told_apart_from_what_had_its_answer(story: Story) -> None:
    async for cut in story.cuts():
        result = await story.agent(unknown_outcome="skip").resume_invoke(await story.killed_at(cut))
        assert result.nothing_to_resume == (result.metrics.model_calls + result.metrics.checkpoints == 0), cut


async def test_there_must_be_something_to_resume(story: Story) -> None:
    with pytest.raises(ConfigurationError, match="there is no thread 'nowhere' to resume"):
        await story.agent().resume_invoke("nowhere")
    with pytest.raises(ConfigurationError, match=r"no checkpointer, so there is no thread.*Agent.*checkpointer="):
        await Agent(model=Following("x")).resume_invoke("story")
    await story.store.save(AgentState(), "elsewhere", namespace="")
    with pytest.raises(ConfigurationError, match=r"no agent has begun thread 'elsewhere'.*other namespaces: ''"):
        await story.agent().resume_invoke("elsewhere")


async def test_a_message_that_came_while_calls_were_open_survives_a_kill(story: Story) -> None:
    """It is kept before the open calls are made, although it comes after their results."""
    cut = await story.cut_with("nothing", "nothing", "nothing")
    thread_id = await story.killed_at(cut)

    async def kill_at_the_first_call(event: Event) -> None:
        if isinstance(event, ToolStartEvent):
            raise Killed

    for text in ("one more thing", "and another"):
        with pytest.raises(Killed):
            await story.agent(unknown_outcome="retry").invoke(text, thread_id, on_event=kill_at_the_first_call)
    result = await story.agent(unknown_outcome="retry").resume_invoke(thread_id)
    said = [text for who, text in spoken(result.state) if who == "user"]
    assert said == ["go", "one more thing", "and another"]
    assert is_sound(result.state.messages)
    assert "locus:waiting" not in result.state.metadata


async def test_calls_that_were_done_are_not_asked_about(story: Story) -> None:
    """An agent that gates a tool picks up a thread of one that did not."""
    async for cut in story.cuts():
        if not cut.marks:
            continue
        thread_id = await story.killed_at(cut)
        gate = [HumanInTheLoop(["pay"])]
        result = await story.agent(middleware=gate).resume_invoke(thread_id)
        for _ in range(3):
            if result.interrupt is None:
                break
            asked = [EFFECT[call.id] for call in result.interrupt.calls]
            assert set(asked) <= set(cut.left), cut
            result = await story.agent(middleware=gate).resume_invoke(thread_id, "approve")
        assert result.stop_reason == "complete"
        assert sorted(story.effects.done) == sorted(cut.left), cut


async def test_a_tool_that_is_gone_is_told_to_the_model(story: Story) -> None:
    cut = await story.cut_with("nothing", "nothing", "nothing")
    thread_id = await story.killed_at(cut)
    agent = Agent(model=Following("x", results_told), tools=[story.effects.look()], checkpointer=story.store)
    result = await agent.resume_invoke(thread_id)
    assert "there is no tool 'pay'; there are: look" in result.message
    assert story.effects.done == ["look x"]


async def test_a_record_is_a_result_in_full(story: Story) -> None:
    entry = (await story.store.history("story", limit=None))[-2]
    writes = {write.task_id: write for write in await story.store.get_writes("story", entry.checkpoint_id)}
    assert {call_id: write.channel for call_id, write in writes.items()} == dict.fromkeys(("c1", "c2", "c3"), RESULT)
    assert writes["c1"].value["content"] == "paid 1"
    assert writes["c1"].value["tool_call_id"] == "c1"


async def test_a_damaged_record_of_a_result_is_damage(memory: MemoryCheckpointer, effects: Effects) -> None:
    state = AgentState().with_messages([Message.user("pay"), asks(a_call("pay", "c1", amount=1))])
    saved = await memory.save(state, "t")
    await memory.put_writes("t", saved, "c1", [(RESULT, {"secret": "4711"})])
    with pytest.raises(CorruptCheckpointError, match="a result of thread #") as caught:
        await Agent(model=Following("?"), tools=[effects.pay()], checkpointer=memory).resume_invoke("t")
    assert "4711" not in str(caught.value)
    assert not effects.done
