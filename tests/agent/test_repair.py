"""Histories with orphans, which providers refuse for ever, are mended."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locus.agent import Agent, Middleware
from locus.agent.recovery import NO_RESULT, in_order, is_answered, pending_calls, repaired
from locus.core.messages import Message, ToolResult
from locus.core.state import AgentState
from locus.memory.backends import MemoryCheckpointer
from locus.models.base import Model
from locus.testing.data import budget
from tests.agent.support import Effects, Following, a_call, asks, is_sound, shape, spoken


def result_of(call_id: str, content: str = "ok") -> Message:
    return Message.tool(ToolResult(tool_call_id=call_id, name="pay", content=content))


USER, ANSWER = Message.user("hi"), Message.assistant("hello")
CALLS = asks(a_call("pay", "a", amount=1), a_call("pay", "b", amount=2))


@pytest.mark.parametrize(
    "sound", [[], [USER], [USER, ANSWER], [USER, CALLS, result_of("b"), result_of("a"), ANSWER, USER]]
)
def test_a_sound_history_is_left_alone(sound: list[Message]) -> None:
    assert repaired(sound) is None


def test_calls_in_the_middle_get_a_result_that_says_so() -> None:
    mended = repaired([USER, CALLS, result_of("b"), USER, ANSWER])
    assert mended is not None
    assert spoken(mended)[2:4] == [("tool", "ok"), ("tool", NO_RESULT)]
    assert mended[3].tool_call_id == "a"
    assert mended[3].metadata["error"] == NO_RESULT
    assert is_sound(mended)


def test_results_without_calls_are_dropped() -> None:
    messages = [result_of("z"), USER, CALLS, result_of("a"), result_of("a"), result_of("b"), ANSWER, result_of("b")]
    assert repaired(messages) == [USER, CALLS, result_of("a"), result_of("b"), ANSWER]


def test_calls_at_the_end_are_left_open_or_closed() -> None:
    messages = [USER, CALLS, result_of("a")]
    assert repaired(messages) is None
    assert [call.id for call in pending_calls(messages)] == ["b"]
    closed = repaired(messages, to_the_end=True)
    assert closed is not None
    assert is_sound(closed)


MESSAGES = st.lists(
    st.one_of(
        st.just(USER),
        st.just(ANSWER),
        st.sets(st.sampled_from("abc"), min_size=1).map(
            lambda ids: asks(*(a_call("pay", call_id, amount=1) for call_id in sorted(ids)))
        ),
        st.sampled_from("abcd").map(result_of),
    ),
    max_size=14,
)


@budget(300)
@given(MESSAGES)
def test_any_history_is_sound_once_it_is_mended(messages: list[Message]) -> None:
    mended = repaired(messages, to_the_end=True)
    assert is_sound(messages if mended is None else mended)
    assert (mended is None) == is_sound(messages)
    kept = messages if mended is None else mended
    assert repaired(kept, to_the_end=True) is None
    for message in messages:
        if message.tool_call_id is None:
            assert kept.count(message) == messages.count(message)


@budget(200)
@given(MESSAGES)
def test_an_open_end_is_left_to_whoever_makes_the_calls(messages: list[Message]) -> None:
    mended = repaired(messages)
    kept = messages if mended is None else mended
    closed: Sequence[Message] = [*kept, *(result_of(call.id) for call in pending_calls(kept))]
    assert is_sound(closed)
    assert is_answered(kept) == (kept[-1:] == [ANSWER])


def test_results_are_put_in_the_order_of_the_calls_once_all_are_there() -> None:
    head = (USER, CALLS)
    assert in_order((*head, result_of("b"), result_of("a"))) == (*head, result_of("a"), result_of("b"))
    for complete_or_not in ((*head, result_of("b")), (*head, result_of("a"), result_of("b")), (USER,), ()):
        assert in_order(complete_or_not) is complete_or_not


async def test_an_old_thread_with_orphans_goes_on(memory: MemoryCheckpointer, effects: Effects) -> None:
    broken = [USER, CALLS, result_of("b"), USER, ANSWER, result_of("x"), Message.user("so?"), ANSWER]
    await memory.save(AgentState().with_messages(broken), "t")
    model = Following("fine")
    result = await Agent(model=model, tools=[effects.pay()], checkpointer=memory).invoke("go on", "t")
    assert is_sound(model.asked[0])
    assert is_sound(result.state.messages)
    assert effects.done == []
    assert [text for _, text in spoken(result.state)].count(NO_RESULT) == 1


async def test_what_middleware_tears_apart_is_mended(memory: MemoryCheckpointer, effects: Effects) -> None:
    class LastTwo(Middleware):
        async def before_model(self, state: AgentState, model: Model) -> AgentState:
            return state.with_messages_replaced(state.messages[-2:])

    model = Following(asks(a_call("pay", amount=1), a_call("pay", amount=2)), "done")
    agent = Agent(model=model, tools=[effects.pay()], checkpointer=memory, middleware=[LastTwo()])
    for _ in range(2):
        result = await agent.invoke("go", "t")
    assert all(is_sound(asked) for asked in model.asked)
    assert is_sound(result.state.messages)


async def test_a_history_that_the_caller_keeps_is_mended_too(effects: Effects) -> None:
    model = Following("fine")
    await Agent(model=model, tools=[effects.pay()]).invoke([USER, CALLS, Message.user("well?")])
    await Agent(model=model, tools=[effects.pay()]).invoke([USER, CALLS])
    assert [is_sound(asked) for asked in model.asked] == [True, True]
    assert shape(model.asked[1])[:2] == shape([USER, CALLS])
    assert effects.done == []
