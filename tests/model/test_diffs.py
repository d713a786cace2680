"""What changed between two states."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory import diff
from locus.testing.data import at, budget, conversation, rich_state

A, B, C, D = conversation(4)
START = AgentState(run_id="r", started_at=at(0), updated_at=at(0))


def of(*messages: Message) -> AgentState:
    return START.model_copy(update={"messages": START.with_messages(messages).messages})


def test_equal_states_have_no_difference() -> None:
    state = rich_state()
    found = diff(state, AgentState.from_checkpoint(state.to_checkpoint()))
    assert not found
    assert (found.added, found.removed, found.changed, found.fields) == ((), (), (), {})


def test_messages_that_came_and_went() -> None:
    assert diff(of(A), of(A, B, C)).added == (B, C)
    assert diff(of(A, B, C), of(C)).removed == (A, B)
    both = diff(of(A, B, C), of(A, Message.system("summary")))
    assert (both.removed, both.added) == ((B, C), (Message.system("summary"),))


def test_a_message_of_the_same_role_in_the_same_place_was_changed() -> None:
    edited = B.model_copy(update={"content": "edited"})
    found = diff(of(A, B, C), of(A, edited, C))
    assert found.changed == ((B, edited),)
    assert (found.added, found.removed) == ((), ())
    other = diff(of(A, B, C), of(A, D.model_copy(update={"role": "system"}), C))
    assert (other.changed, len(other.added), len(other.removed)) == ((), 1, 1)


def test_fields_with_their_values_before_and_after() -> None:
    a = START.model_copy(update={"iteration": 1, "metadata": {"x": 1}})
    b = AgentState.model_validate({**a.to_checkpoint(), "iteration": 2, "metadata": {"x": True}, "mood": "new"})
    found = diff(a, b)
    assert found.fields == {"iteration": (1, 2), "metadata": ({"x": 1}, {"x": True}), "mood": (None, "new")}
    assert bool(found)


def test_equal_means_the_same_bytes_whatever_the_order_of_keys() -> None:
    a = START.model_copy(update={"metadata": {"x": 0.0, "y": 1}})
    assert not diff(a, a.model_copy(update={"metadata": {"y": 1, "x": 0.0}}))
    assert diff(a, a.model_copy(update={"metadata": {"x": -0.0, "y": 1}}))
    assert diff(a, a.model_copy(update={"metadata": {"x": 0, "y": 1}}))


@given(st.lists(st.sampled_from([A, B, C, D]), max_size=8), st.lists(st.sampled_from([A, B, C, D]), max_size=8))
@budget(30)
def test_what_is_said_to_have_come_and_gone_adds_up(old: list[Message], new: list[Message]) -> None:
    found = diff(of(*old), of(*new))
    stayed = len(old) - len(found.removed) - len(found.changed)
    assert stayed == len(new) - len(found.added) - len(found.changed)
    assert stayed >= 0
    assert all(a.role == b.role and a != b for a, b in found.changed)
    assert bool(found) == (old != new)
