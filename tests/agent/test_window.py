"""An agent with a window loads and shows the end of a thread, and the thread keeps everything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from locus.agent import Agent, Middleware, Summarization
from locus.agent.recovery import repaired
from locus.agent.window import SUMMARY, Summary, seen_by_model, step_start, summary_of, with_summary
from locus.core.messages import Message, Role, ToolResult
from locus.core.state import AgentState
from locus.errors import ConfigurationError
from locus.memory.backends import MemoryCheckpointer, sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.memory.conversation import InMemoryCheckpointer
from locus.models import Model
from locus.models.base import ModelResponse
from tests.agent.support import Effects, Following, a_call, asks, is_sound, loaded, spoken


async def _talked(store: Checkpointer, turns: int, thread_id: str = "t") -> AgentState:
    said = [
        message for n in range(turns) for message in (Message.user(f"question {n}"), Message.assistant(f"answer {n}"))
    ]
    state = AgentState().with_messages(said)
    await store.save(state, thread_id)
    return state


def _asked(model: Following, at: int = -1) -> list[tuple[str, str]]:
    return [(message.role.value, message.text) for message in model.asked[at]]


async def test_the_model_sees_the_window_and_the_thread_keeps_everything(store: Checkpointer) -> None:
    before = await _talked(store, 100)
    model = Following("fine")
    agent = Agent(model=model, checkpointer=store, window=4, system_prompt="Be brief.")
    result = await agent.invoke("and now?", "t")
    assert _asked(model) == [
        ("system", "Be brief."),
        ("user", "question 98"),
        ("assistant", "answer 98"),
        ("user", "question 99"),
        ("assistant", "answer 99"),
        ("user", "and now?"),
    ]
    assert result.state.omitted["messages"] > 0
    whole = await loaded(store, "t")
    assert whole.messages[:200] == before.messages
    assert spoken(whole)[200:] == [("user", "and now?"), ("assistant", "fine")]


async def test_a_window_begins_with_a_turn(store: Checkpointer, effects: Effects) -> None:
    """Also where that is far back: a call and its results are never torn apart."""
    turn = [Message.user("work")]
    for number in range(130):
        turn += [
            asks(a_call("pay", f"c{number}", amount=1)),
            Message.tool(ToolResult(tool_call_id=f"c{number}", name="pay", content="ok")),
        ]
    talk = [Message.user("hello"), Message.assistant("hi"), *turn, Message.assistant("done")]
    await store.save(AgentState().with_messages(talk), "t")
    model = Following("fine")
    result = await Agent(model=model, checkpointer=store, window=3).invoke("again", "t")
    assert model.asked[-1][0].text == "work"
    assert is_sound(model.asked[-1])
    assert (await loaded(store, "t")).messages[: len(talk)] == tuple(talk)
    assert is_sound(result.state.messages)


async def test_what_a_run_reads_does_not_grow(tmp_path: Path) -> None:
    """Counted in the items that are loaded."""
    sizes = []
    for turns in (200, 2_000):
        store = sqlite_checkpointer(tmp_path / f"{turns}.db")
        await _talked(store, turns)
        result = await Agent(model=Following("fine"), checkpointer=store, window=10).invoke("and now?", "t")
        sizes.append(len(result.state.messages))
        await store.close()
    assert sizes[0] == sizes[1] < 60


async def test_a_run_is_resumed_in_a_window(store: Checkpointer, effects: Effects) -> None:
    await _talked(store, 60)
    state = await loaded(store, "t")
    cut_off = state.with_messages([Message.user("pay"), asks(a_call("pay", "c1", amount=1))])
    await store.save(cut_off, "t")
    agent = Agent(model=Following("?", "paid"), tools=[effects.pay()], checkpointer=store, window=2)
    result = await agent.resume_invoke("t")
    assert result.message == "paid"
    whole = await loaded(store, "t")
    assert is_sound(whole.messages)
    assert whole.messages[:120] == state.messages


async def test_a_fork_carries_the_window_along(store: Checkpointer) -> None:
    before = await _talked(store, 60)

    class Meanwhile(Middleware):
        async def before_model(self, state: AgentState, model: Model) -> AgentState:
            if not model.asked:  # type: ignore[attr-defined]
                await store.save((await loaded(store, "t")).with_message(Message.user("theirs")), "t")
            return state

    agent = Agent(model=Following("mine"), checkpointer=store, window=4, on_conflict="fork", middleware=[Meanwhile()])
    result = await agent.invoke("and now?", "t")
    assert result.thread_id is not None
    assert result.thread_id != "t"
    forked = await loaded(store, result.thread_id)
    assert forked.messages[:120] == before.messages
    assert spoken(forked)[120:] == [("user", "and now?"), ("assistant", "mine")]


async def test_stores_without_windows_load_all_and_the_model_sees_the_window() -> None:
    memory = InMemoryCheckpointer()
    model = Following("fine")
    agent = Agent(model=model, memory=memory, window=2)
    for number in range(30):
        await agent.invoke(f"question {number}", "t")
    assert _asked(model)[0] == ("user", "question 28")
    assert len(await memory.load("t")) == 60


@pytest.mark.parametrize("wrong", [0, -1, 2.0, True, "5"])
def test_a_bad_window_is_refused(wrong: int) -> None:
    with pytest.raises(ConfigurationError, match="window is a number of messages"):
        Agent(model="mock", window=wrong)


def _joined(older: Sequence[Message]) -> str:
    """All that was said, in a form that tells it from the messages themselves: what was a summary stays as it is."""
    texts = (message.text.rpartition("\n")[2] for message in older)
    return " ".join(text.replace("question ", "q").replace("answer ", "a") for text in texts)


async def test_a_running_summary_covers_what_is_not_seen(store: Checkpointer) -> None:
    """Every message is in the summary or in front of the model, and none is dropped from the thread."""
    await _talked(store, 80)
    model = Following("fine")
    layer = Summarization(max_characters=400, summarize=_joined)
    agent = Agent(model=model, checkpointer=store, window=4, middleware=[layer])
    for number in range(100, 130):
        await agent.invoke(f"question {number}", "t")
        shown = " ".join(message.text for message in model.asked[-1])
        for earlier in [*range(80), *range(100, number + 1)]:
            assert f"question {earlier}" in shown or f"q{earlier}" in shown.split(), (number, earlier)
    whole = await loaded(store, "t")
    assert len(whole.messages) == 160 + 60
    summary = summary_of(whole)
    assert 160 < summary.covers < 220
    assert [message.role for message in whole.messages[:2]] == [Role.USER, Role.ASSISTANT]


async def test_a_summary_is_not_made_anew_at_every_turn(store: Checkpointer) -> None:
    made: list[int] = []

    def counted(older: Sequence[Message]) -> str:
        made.append(len(older))
        return "so far"

    agent = Agent(
        model=Following("fine"),
        checkpointer=store,
        window=4,
        middleware=[Summarization(max_characters=500, summarize=counted)],
    )
    for number in range(60):
        await agent.invoke(f"a question, which is number {number}", "t")
    assert 1 < len(made) < 10


async def test_a_summary_cuts_inside_of_one_long_turn(store: Checkpointer, effects: Effects) -> None:
    steps = iter([*(asks(a_call("pay", f"c{n}", amount=n)) for n in range(12)), Message.assistant("all paid")])
    model = Following(lambda _messages: next(steps))
    seen: list[int] = []
    agent = Agent(
        model=model,
        tools=[effects.pay()],
        checkpointer=store,
        window=4,
        middleware=[Summarization(max_characters=1, summarize=lambda older: "paid some")],
    )
    result = await agent.invoke("pay them all", "t")
    for messages in model.asked:
        assert is_sound(messages)
        seen.append(len(messages))
        assert [message.text for message in messages if message.role is Role.USER] == ["pay them all"]
    assert max(seen) <= 8
    assert len((await loaded(store, "t")).messages) == 1 + 24 + 1
    assert result.stop_reason == "complete"


async def test_the_tokens_of_a_summary_count(memory: MemoryCheckpointer) -> None:
    await _talked(memory, 5)
    model = Following("fine", usage={"prompt_tokens": 7, "completion_tokens": 2})
    for window in (None, 2):
        agent = Agent(
            model=model, checkpointer=memory, window=window, middleware=[Summarization(max_characters=20, keep_last=1)]
        )
        model.asked.clear()
        result = await agent.invoke("and now?", "t")
        assert len(model.asked) > 1
        assert result.metrics.prompt_tokens == 7 * len(model.asked)
        assert result.metrics.completion_tokens == 2 * len(model.asked)


def test_a_summary_that_makes_no_sense_counts_for_nothing() -> None:
    state = AgentState().with_messages([Message.user("a"), Message.assistant("b")])
    for wrong in ("text", {"text": 1, "covers": 1}, {"text": "a", "covers": 9}, {"text": "a", "covers": True}, [1], {}):
        assert summary_of(state.with_metadata(SUMMARY, wrong)).covers == 0
    assert summary_of(with_summary(state, Summary("so", 1))) == ("so", 1)
    assert [m.text for m in seen_by_model(with_summary(state, Summary("so", 2)), 1, back_to_summary=False)][1:] == [
        "a",
        "b",
    ]


def test_results_at_the_edge_of_a_window_are_no_orphans() -> None:
    result = Message.tool(ToolResult(tool_call_id="c", name="pay", content="ok"))
    talk = [result, Message.assistant("done")]
    assert repaired(talk) == talk[1:]
    assert repaired(talk, from_the_start=False) is None
    assert repaired([*talk, result], from_the_start=False) == talk
    assert step_start([Message.user("u"), asks(a_call("pay", "c", amount=1)), result, result], 3) == 1


async def test_a_model_that_gives_no_tokens_is_fine(memory: MemoryCheckpointer) -> None:
    class Plain:
        async def complete(
            self, messages: Sequence[Message], tools: object = None, **_options: object
        ) -> ModelResponse:
            return ModelResponse(message=Message.assistant("ok"))

    await _talked(memory, 5)
    agent = Agent(model=Plain(), checkpointer=memory, window=2, middleware=[Summarization(max_characters=20)])
    assert (await agent.invoke("x", "t")).metrics.prompt_tokens == 0
