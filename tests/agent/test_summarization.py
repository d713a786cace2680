"""Older turns are replaced by a summary, and stay loadable where they were."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locus.agent import Agent, Summarization
from locus.agent.window import turn_start
from locus.core.messages import Message, Role, ToolResult
from locus.core.state import AgentState
from locus.errors import ConfigurationError
from locus.memory.backends import MemoryCheckpointer
from locus.memory.checkpointer import Checkpointer
from locus.memory.conversation import InMemoryCheckpointer
from locus.models import MockModel
from locus.testing.data import budget
from tests.agent.support import Effects, Following, a_call, asks, is_sound, loaded, spoken

HEADING = "Summary of the conversation so far:\n"


def count_them(older: Sequence[Message]) -> str:
    return f"{len(older)} messages"


async def test_nothing_happens_within_the_budget() -> None:
    layer = Summarization(max_characters=10, keep_last=1, summarize=count_them)
    state = AgentState().with_messages([Message.user("12345"), Message.assistant("1234"), Message.user("5")])
    assert await layer.before_model(state, Following("x")) is state
    longer = state.with_message(Message.assistant("6"))
    assert await layer.before_model(longer, Following("x")) is not longer


async def test_older_turns_become_a_summary_and_the_last_ones_stay() -> None:
    layer = Summarization(max_characters=10, keep_last=2, summarize=count_them)
    turns = [message for n in range(5) for message in (Message.user(f"question {n}"), Message.assistant(f"answer {n}"))]
    state = AgentState().with_messages(turns)
    assert spoken(await layer.before_model(state, Following("x"))) == [
        ("system", f"{HEADING}8 messages"),
        ("user", "question 4"),
        ("assistant", "answer 4"),
    ]


async def test_the_model_writes_the_summary() -> None:
    model = Following("They like tea.")
    layer = Summarization(max_characters=10, keep_last=1)
    talk = [Message.user("I like tea"), Message.assistant("Noted"), Message.user("So?")]
    state = await layer.before_model(AgentState().with_messages(talk), model)
    assert spoken(state)[0] == ("system", f"{HEADING}They like tea.")
    ((request,),) = model.asked
    assert request.text.endswith("user: I like tea\nassistant: Noted")


async def test_a_single_turn_is_never_cut() -> None:
    layer = Summarization(max_characters=1, keep_last=1, summarize=count_them)
    calls = [asks(a_call("pay", "a", amount=1)), Message.tool(ToolResult(tool_call_id="a", name="pay", content="ok"))]
    state = AgentState().with_messages([Message.user("go"), *calls, *calls])
    assert await layer.before_model(state, Following("x")) is state


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """Sound conversations with calls, of which some have several results."""
    messages: list[Message] = []
    number = 0
    for _ in range(draw(st.integers(1, 6))):
        messages.append(Message.user("u" * draw(st.integers(0, 5))))
        for _ in range(draw(st.integers(0, 3))):
            ids = [f"c{number + offset}" for offset in range(draw(st.integers(1, 3)))]
            number += len(ids)
            messages.append(asks(*(a_call("pay", call_id, amount=1) for call_id in ids)))
            messages += [Message.tool(ToolResult(tool_call_id=i, name="pay", content="r" * 3)) for i in ids]
        messages.append(Message.assistant("a" * draw(st.integers(1, 5))))
    return messages if draw(st.booleans()) else [*messages, Message.user("so?")]


@budget(150)
@given(conversations(), st.integers(1, 40), st.integers(1, 12))
async def test_calls_are_never_torn_from_their_results(talk: list[Message], budgeted: int, keep_last: int) -> None:
    layer = Summarization(max_characters=budgeted, keep_last=keep_last, summarize=count_them)
    before = AgentState().with_messages(talk)
    after = await layer.before_model(before, Following("x"))
    assert is_sound(talk)
    assert is_sound(after.messages)
    if after is before:
        return
    assert sum(len(message.text) for message in talk) > budgeted
    summary, *kept = after.messages
    assert summary.role is Role.SYSTEM
    assert kept == talk[-len(kept) :]
    assert len(kept) >= min(keep_last, len(talk))
    assert kept[0].role is Role.USER
    assert summary.text == f"{HEADING}{len(talk) - len(kept)} messages"


@pytest.mark.parametrize(("at", "start"), [(0, 0), (1, 0), (2, 2), (3, 2), (4, 2), (9, 5)])
def test_a_cut_is_where_a_turn_begins(at: int, start: int) -> None:
    user, answer = Message.user("u"), Message.assistant("a")
    assert turn_start([user, answer, user, answer, answer, user], at) == start


async def test_earlier_checkpoints_keep_everything(store: Checkpointer) -> None:
    agent = Agent(
        model=Following(lambda messages: f"{len(messages)} seen"),
        checkpointer=store,
        middleware=[Summarization(max_characters=60, keep_last=2, summarize=count_them)],
    )
    texts = [f"this is message number {number}" for number in range(6)]
    for text in texts:
        await agent.invoke(text, "t")
    newest = await loaded(store, "t")
    assert newest.messages[0].text.startswith(HEADING)
    assert len(newest.messages) < 12
    said: list[str] = []
    for entry in await store.history("t", limit=None):
        said += [message.text for message in (await loaded(store, "t", entry.checkpoint_id)).messages]
    assert set(texts) <= set(said)


async def test_what_was_summarised_is_still_known(memory: MemoryCheckpointer) -> None:
    def in_the_third_person(older: Sequence[Message]) -> str:
        return "\n".join(message.text.replace("My", "The user's") for message in older if "lice" in message.text)

    layer = Summarization(max_characters=80, keep_last=2, summarize=in_the_third_person)
    agent = Agent(model=MockModel(), checkpointer=memory, middleware=[layer])
    await agent.invoke("My name is Alice.", "t")
    for number in range(4):
        await agent.invoke(f"Here is something else that one may want to hear, number {number}.", "t")
    state = await loaded(memory, "t")
    assert [message.role for message in state.messages if "Alice" in message.text] == [Role.SYSTEM]
    assert "Alice" in (await agent.invoke("What's my name?", "t")).message


async def test_a_conversation_memory_gets_the_summary() -> None:
    memory = InMemoryCheckpointer()
    layer = Summarization(max_characters=20, keep_last=1, summarize=count_them)
    agent = Agent(model=Following("an answer"), memory=memory, middleware=[layer])
    for number in range(3):
        await agent.invoke(f"question number {number}", "t")
    kept = await memory.load("t")
    assert spoken(kept)[0] == ("system", f"{HEADING}3 messages")
    assert len(kept) == 3


async def test_calls_are_made_after_a_summary(memory: MemoryCheckpointer, effects: Effects) -> None:
    layer = Summarization(max_characters=20, keep_last=1, summarize=count_them)
    agent = Agent(
        model=Following(asks(a_call("pay", amount=1)), asks(a_call("pay", amount=2)), "paid everything"),
        tools=[effects.pay()],
        checkpointer=memory,
        middleware=[layer],
    )
    for _ in range(3):
        result = await agent.invoke("pay one and two", "t")
        assert is_sound(result.state.messages)
    assert effects.counts == {"pay 1": 3, "pay 2": 3}
    assert len(result.state.tool_executions) == 6


@pytest.mark.parametrize("wrong", [{"max_characters": 0}, {"keep_last": 0}])
def test_a_budget_of_nothing_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match="at least 1"):
        Summarization(**wrong)  # type: ignore[arg-type]
