"""An agent with a window loads and shows the end of a thread, and the thread keeps everything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from locus.agent import Agent, Middleware, Summarization, middleware
from locus.agent.recovery import repaired
from locus.agent.window import SUMMARY, Summary, mark_of, seen_by_model, step_start, summary_of, with_summary
from locus.core.messages import Message, Role, ToolResult
from locus.core.state import AgentState, ToolExecution
from locus.errors import ConfigurationError, CorruptCheckpointError
from locus.memory.backends import MemoryCheckpointer, sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.memory.conversation import InMemoryCheckpointer
from locus.memory.storage import StorageBackend
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


@pytest.mark.parametrize("wrong", [0, -1, 2.0, True, "5", 10**9 + 1])
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
    for summary in (Summary("so", 1, mark_of(state.messages[:1])), Summary("so", 2, mark_of(state.messages))):
        summarised = with_summary(state, summary)
        assert summary_of(summarised) == summary
        assert [m.text for m in seen_by_model(summarised, 1, back_to_summary=False)][1:] == ["a", "b"]
        assert summary_of(state.with_metadata(SUMMARY, {"text": "so", "covers": summary.covers})).covers == 0
        assert summary_of(with_summary(state, summary._replace(last="0"))).covers == 0


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


class _Counting(MemoryCheckpointer):
    """Counts the messages that each load gives."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[int] = []

    async def load(self, *args: Any, **options: Any) -> AgentState | None:
        state = await super().load(*args, **options)
        self.loaded.append(0 if state is None else len(state.messages))
        return state


def _turn(number: int, length: int) -> list[Message]:
    """A user's turn of 3 or of 6 messages."""
    said = [Message.user(f"question {number}")]
    for step in range(length // 3 if length > 3 else 0):
        said += [
            asks(a_call("pay", f"{number}-{step}", amount=1)),
            Message.tool(ToolResult(tool_call_id=f"{number}-{step}", name="pay", content="ok")),
        ]
    return [*said, *(Message.assistant(f"answer {number}") for _ in range(length - len(said)))]


@pytest.mark.parametrize("length", [3, 6])
async def test_turns_of_any_length_are_loaded_from_the_end(length: int) -> None:
    loads = []
    for turns in (200, 2_000):
        store = _Counting()
        talk = [message for number in range(turns) for message in _turn(number, length)]
        await store.save(AgentState().with_messages(talk), "t")
        model = Following("fine")
        await Agent(model=model, checkpointer=store, window=10).invoke("and now?", "t")
        assert model.asked[-1][0].role is Role.USER
        assert is_sound(model.asked[-1])
        loads.append(store.loaded)
    assert loads[0] == loads[1] == [50]


async def test_a_summary_of_messages_that_have_gone_hides_nothing(store: Checkpointer) -> None:
    """Where all answers are the same, too."""
    model = Following("ok")
    layer = Summarization(max_characters=200, summarize=_joined)
    agent = Agent(model=model, checkpointer=store, window=4, middleware=[layer])
    for number in range(20):
        await agent.invoke(f"question {number}", "t")
    state = await loaded(store, "t")
    assert summary_of(state).covers > 6
    await store.save(state.with_messages_replaced(state.messages[6:]), "t")
    await agent.invoke("question 20", "t")
    shown = " ".join(message.text for message in model.asked[-1])
    for number in range(3, 21):
        assert f"question {number}" in shown or f"q{number}" in shown.split(), number
    assert "q0" not in shown.split()


async def test_replacing_messages_lets_go_of_the_summary_beside_them(store: Checkpointer) -> None:
    options: dict[str, Any] = {"model": Following("fine"), "checkpointer": store}
    layer = Summarization(max_characters=50, keep_last=2, summarize=lambda older: "so far")
    for number in range(10):
        await Agent(**options, window=4, middleware=[layer]).invoke(f"question {number}", "t")
    assert SUMMARY in (await loaded(store, "t")).metadata
    await Agent(**options, middleware=[layer]).invoke("and now?", "t")
    assert SUMMARY not in (await loaded(store, "t")).metadata


@pytest.mark.parametrize("fits", [True, False])
async def test_a_summary_that_ends_far_back_is_continued_if_it_fits(memory: MemoryCheckpointer, fits: bool) -> None:
    state = await _talked(memory, 600)
    of = state.messages[6:10] if fits else state.messages[8:12]
    await memory.save(with_summary(state, Summary("earlier", 10, mark_of(of))), "t")
    portions: list[list[str]] = []

    def noted(older: Sequence[Message]) -> str:
        portions.append([message.text for message in older])
        return "so far"

    agent = Agent(model=Following("fine"), checkpointer=memory, window=4, middleware=[Summarization(summarize=noted)])
    await agent.invoke("and now?", "t")
    opening = ["Summary of the conversation so far:\nearlier", "question 5"] if fits else ["question 0", "answer 0"]
    assert portions[0][:2] == opening
    assert sum(text.startswith("question") for portion in portions for text in portion) == (593 if fits else 598)


async def test_a_summary_far_back_does_not_make_another_at_every_turn(memory: MemoryCheckpointer) -> None:
    made: list[int] = []
    layer = Summarization(summarize=lambda older: made.append(len(older)) or "so far")  # type: ignore[func-returns-value]
    agent = Agent(model=Following("fine"), checkpointer=memory, window=4, middleware=[layer])
    for number in range(150):
        result = await agent.invoke(f"question {number}: {'because ' * 60}", "t")
    assert 1 <= len(made) <= 3
    assert summary_of(result.state).covers > result.state.omitted["messages"]


async def test_without_a_layer_only_a_verified_summary_is_shown(memory: MemoryCheckpointer) -> None:
    state = await _talked(memory, 100)
    for covers, shown in ((190, True), (20, False)):
        summary = Summary("so far", covers, mark_of(state.messages[covers - 4 : covers]))
        await memory.save(with_summary(state, summary), "t")
        model = Following("fine")
        await Agent(model=model, checkpointer=memory, window=4).invoke("and now?", "t")
        assert (model.asked[-1][0].role is Role.SYSTEM) is shown


def test_what_the_model_sees_never_begins_with_a_result() -> None:
    talk = [*_turn(0, 6), *_turn(1, 6)]
    state = AgentState().with_messages(talk)
    for covers in range(1, len(talk)):
        summary = Summary("so far", covers, mark_of(talk[max(0, covers - 4) : covers]))
        seen = seen_by_model(with_summary(state, summary), 1, back_to_summary=True)[1:]
        assert seen[0].role is Role.USER
        assert is_sound(seen)
        assert talk[covers] in seen


async def test_the_portions_of_a_long_thread_are_counted_once(
    memory: MemoryCheckpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    characters = middleware._characters

    def counting(messages: Sequence[Message]) -> int:
        counted.append(len(messages))
        return characters(messages)

    monkeypatch.setattr(middleware, "_characters", counting)
    await _talked(memory, 1_000)
    agent = Agent(
        model=Following("fine"), checkpointer=memory, window=4, middleware=[Summarization(summarize=lambda _: "so far")]
    )
    await agent.invoke("and now?", "t")
    assert sum(counted) < 4 * 2_000


async def test_a_long_summary_that_fails_goes_on_where_it_was(store: Checkpointer) -> None:
    await _talked(store, 100)
    made: list[str] = []

    def failing(older: Sequence[Message]) -> str:
        made.append(older[-1].text)
        if len(made) == 5:
            raise RuntimeError("too many requests")
        return "so far"

    layer = Summarization(max_characters=200, summarize=failing)
    agent = Agent(model=Following("fine"), checkpointer=store, window=4, middleware=[layer])
    with pytest.raises(RuntimeError, match="too many requests"):
        await agent.invoke("and now?", "t")
    assert summary_of(await loaded(store, "t")).covers > 20
    assert (await agent.resume_invoke("t")).message == "fine"
    assert made[5] == made[4]
    assert len(set(made)) == len(made) - 1
    assert len((await loaded(store, "t")).messages) == 202


async def test_a_long_summary_ends_with_the_time(memory: MemoryCheckpointer, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("locus.agent.run.time", SimpleNamespace(perf_counter=lambda: now[0]))

    def slow(older: Sequence[Message]) -> str:
        now[0] += 1
        return "so far"

    await _talked(memory, 100)
    model = Following("fine")
    agent = Agent(
        model=model,
        checkpointer=memory,
        window=4,
        max_seconds=2.5,
        middleware=[Summarization(max_characters=200, summarize=slow)],
    )
    covers = 0
    result = await agent.invoke("and now?", "t")
    while result.stop_reason == "time_limit":
        assert not model.asked
        assert now[0] % 3 == 0
        assert summary_of(result.state).covers > covers
        covers = summary_of(result.state).covers
        result = await agent.resume_invoke("t")
    assert covers
    assert result.message == "fine"


async def test_a_memory_of_messages_keeps_the_summary_among_them() -> None:
    memory, made = InMemoryCheckpointer(), list[int]()
    for number in range(40):
        layer = Summarization(
            max_characters=400,
            keep_last=4,
            summarize=lambda older: made.append(len(older)) or "so far",  # type: ignore[func-returns-value]
        )
        agent = Agent(model=Following("fine"), memory=memory, window=4, middleware=[layer])
        await agent.invoke(f"question {number}, long enough to count", "t")
    assert 1 < len(made) < 12
    assert max(made) < 20


async def test_a_window_above_the_budget_is_not_summarised_at_every_call(memory: MemoryCheckpointer) -> None:
    made: list[int] = []
    layer = Summarization(
        max_characters=400,
        summarize=lambda older: made.append(len(older)) or "so far",  # type: ignore[func-returns-value]
    )
    agent = Agent(model=Following("fine"), checkpointer=memory, window=30, middleware=[layer])
    for number in range(60):
        await agent.invoke(f"question {number}, long enough to count", "t")
    assert 1 < len(made) < 12


async def test_a_short_turn_before_a_long_one_does_not_keep_it_whole(store: Checkpointer, effects: Effects) -> None:
    await _talked(store, 1)
    steps = iter([*(asks(a_call("pay", f"c{n}", amount=n)) for n in range(30)), Message.assistant("all paid")])
    model = Following(lambda _messages: next(steps))
    agent = Agent(
        model=model,
        tools=[effects.pay()],
        checkpointer=store,
        window=4,
        max_iterations=40,
        middleware=[Summarization(max_characters=60, summarize=lambda older: "paid some")],
    )
    await agent.invoke("pay them all", "t")
    assert max(len(messages) for messages in model.asked) < 40
    assert all(is_sound(messages) for messages in model.asked)


async def test_a_damaged_message_that_is_read_for_a_summary_is_damage(memory: MemoryCheckpointer) -> None:
    data = (await _talked(memory, 100)).to_checkpoint()
    data["messages"][3] = {"role": "user", "content": {"secret": "4711"}}
    await StorageBackend(memory.store).save("bad", data)
    agent = Agent(model=Following("fine"), checkpointer=memory, window=4, middleware=[Summarization()])
    with pytest.raises(CorruptCheckpointError, match="message 3 of thread #") as caught:
        await agent.invoke("and now?", "bad")
    assert "4711" not in str(caught.value)
    assert caught.value.__cause__ is None


async def test_a_subclass_with_a_hook_of_its_own_is_asked_in_a_window(memory: MemoryCheckpointer) -> None:
    asked: list[int] = []

    class Own(Summarization):
        async def before_model(self, state: AgentState, model: Model) -> AgentState:
            asked.append(len(state.messages))
            return await super().before_model(state, model)

    await _talked(memory, 100)
    await Agent(model=Following("fine"), checkpointer=memory, window=4, middleware=[Own()]).invoke("and now?", "t")
    assert asked == [51]


async def test_only_messages_that_were_left_out_excuse_a_result_without_a_call(memory: MemoryCheckpointer) -> None:
    orphan = Message.tool(ToolResult(tool_call_id="c", name="pay", content="ok"))
    state = AgentState().with_messages([orphan, Message.user("hello"), Message.assistant("hi")])
    for number in range(100):
        state = state.with_tool_execution(ToolExecution(tool_name="pay", tool_call_id=f"c{number}"))
    await memory.save(state, "t")
    model = Following("fine")
    await Agent(model=model, checkpointer=memory, window=10).invoke("and now?", "t")
    assert is_sound(model.asked[-1])
    assert model.asked[-1][0].text == "hello"


async def test_a_summary_fits_the_messages_that_a_store_gives_back(store: Checkpointer) -> None:
    class Own(Message):
        extra: int = 5

    given = [
        Own(role=Role.USER, content="mine"),
        Message(role=Role.ASSISTANT, content="with facts", metadata={"pair": (1, 2.0), "none": None}),
        *_turn(1, 6),
    ]
    await store.save(AgentState().with_messages(given), "t")
    assert mark_of(given) == mark_of((await loaded(store, "t")).messages) != mark_of(given[1:])
    assert mark_of([Message(role=Role.USER, content="a", metadata={"any": object()})]) == mark_of([Message.user("a")])
