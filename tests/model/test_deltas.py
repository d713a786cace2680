"""A save writes what is new, and nothing else; and it encodes nothing twice."""

from __future__ import annotations

from typing import Any

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import SerializationError
from locus.memory.model import states
from locus.memory.model.codec import decode
from locus.memory.model.manifest import decode_manifest
from locus.memory.model.payloads import dict_payload
from locus.memory.model.plan import LARGE_VALUE, MANY, MAX_EXTENTS, Planner
from locus.memory.model.records import Extent, Run
from locus.memory.model.states import anchor, plain_item, state_payload
from locus.testing.data import conversation, rich_state
from tests.model.planned import Plans


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every item that the planner encodes."""
    seen: list[Any] = []

    def counting(item: object) -> object:
        seen.append(item)
        return plain_item(item)

    monkeypatch.setattr(states, "plain_item", counting)
    return seen


def saved(state: AgentState) -> Plans:
    plans = Plans()
    plans.save(state_payload(state))
    for items in (state.messages, state.errors, state.tool_history):
        anchor(items)
    return plans


def written(runs: tuple[Run, ...]) -> list[Any]:
    return [item for run in runs for item in decode(run.items)]


def contents(runs: tuple[Run, ...]) -> list[str]:
    return [item["content"] for item in written(runs)]


def extents(plans: Plans, *path: str) -> list[Extent]:
    cut = decode_manifest(plans.versions[-1].manifest)[path]
    assert not isinstance(cut, str)
    return list(cut)


@pytest.fixture
def state() -> AgentState:
    return AgentState().with_messages(conversation(20)).with_error("e" * 100).with_metadata("k", ["v" * 70])


def test_an_append_writes_and_encodes_only_what_is_new(state: AgentState, encoded: list[Any]) -> None:
    plans = saved(state)
    encoded.clear()
    new = conversation(3, start=20)
    plan = plans.save(state_payload(state.with_messages(new)), 0)
    assert encoded == new
    (run,) = plan.runs
    assert (run.number, run.start, run.length) == (1, 20, 3)
    assert extents(plans, "messages") == [Extent(run.branch, 1, 0, 23)]


def test_a_state_that_only_counts_writes_no_run_and_encodes_no_item(state: AgentState, encoded: list[Any]) -> None:
    plans = saved(state)
    encoded.clear()
    plan = plans.save(state_payload(state.next_iteration()), 0)
    assert plan.runs == plan.values == ()
    assert encoded == []


def test_a_handle_that_knows_nothing_yet_compares_contents() -> None:
    state, plans = rich_state(), Plans()
    plans.save(state_payload(state))
    again = AgentState.from_checkpoint(state.to_checkpoint())
    plan = plans.save(state_payload(again.next_iteration()), 0, cold=True)
    assert written(plan.runs) == []
    assert plan.values == ()


def test_a_trim_at_the_front_writes_nothing(state: AgentState, encoded: list[Any]) -> None:
    plans = saved(state)
    encoded.clear()
    plan = plans.save(state_payload(state.with_messages_replaced(state.messages[7:])), 0)
    assert plan.runs == ()
    assert encoded == []
    assert [(extent.skip, extent.length) for extent in extents(plans, "messages")] == [(7, 13)]


def test_an_edit_of_the_last_message_writes_that_one(state: AgentState, encoded: list[Any]) -> None:
    plans = saved(state)
    encoded.clear()
    edited = state.messages[:-1] + (Message.assistant("edited"),)
    plan = plans.save(state_payload(state.with_messages_replaced(edited)), 0)
    assert contents(plan.runs) == ["edited"]
    assert len(encoded) == 1
    assert [(extent.run, extent.length) for extent in extents(plans, "messages")] == [(1, 20)]


def test_an_edit_in_the_middle_writes_that_one(state: AgentState) -> None:
    plans = saved(state)
    messages = [*state.messages]
    messages[8] = Message.user("edited")
    plan = plans.save(state_payload(state.with_messages_replaced(messages)), 0)
    assert contents(plan.runs) == ["edited"]
    assert [extent.length for extent in extents(plans, "messages")] == [8, 1, 11]


def test_a_summary_writes_the_summary(state: AgentState) -> None:
    plans = saved(state)
    messages = [state.messages[0], Message.system("summary"), *state.messages[15:]]
    plan = plans.save(state_payload(state.with_messages_replaced(messages)), 0)
    assert contents(plan.runs) == ["summary"]


def test_messages_built_anew_with_the_same_content_are_found_by_content() -> None:
    state = AgentState().with_messages(conversation(MANY + 6))
    plans = saved(state)
    again = state.with_messages_replaced([*conversation(MANY + 6), Message.user("new")])
    plan = plans.save(state_payload(again), 0)
    assert contents(plan.runs) == ["new"]


def test_a_loaded_list_of_many_changes_is_written_anew() -> None:
    messages = conversation(60)
    state = AgentState().with_messages(messages)
    plans = saved(state)
    plan = plans.save(state_payload(state.with_messages_replaced(messages[::2])), 0)
    assert len(extents(plans, "messages")) == 1
    assert contents(plan.runs) == [message.content for message in messages[::2]]


def test_many_small_edits_never_scatter_a_list() -> None:
    state = AgentState().with_messages(conversation(60))
    plans = saved(state)
    total = 0
    for number in range(1, 50):
        messages = [*state.messages]
        messages[number] = Message.user(f"edit {number}")
        state = state.with_messages_replaced(messages)
        total += sum(run.length for run in plans.save(state_payload(state), number - 1).runs)
        anchor(state.messages)
        assert len(extents(plans, "messages")) <= MAX_EXTENTS
    assert total < 49 * 60 / 3


def test_own_branches_never_continue_one(state: AgentState) -> None:
    plans = saved(state)
    longer = state.with_messages(conversation(2, start=20)).with_error("f" * 100)
    plan = Planner("mine-", plans.traces[0], own_branches=True).plan(state_payload(longer))
    assert len(plan.runs) == 2
    assert all(run.number == 0 and run.start == 0 and run.branch.startswith("mine-") for run in plan.runs)
    assert len({run.branch for run in plan.runs}) == 2


def test_an_edit_of_a_list_in_two_pieces_continues_the_last(state: AgentState) -> None:
    plans = saved(state)
    forked = Planner("fork-", plans.traces[0], own_branches=True)
    plan = forked.plan(state_payload(state.with_messages(conversation(2, start=20))))
    cut = decode_manifest(plan.manifest)["messages",]
    assert [(extent.length, extent.branch.startswith("fork-")) for extent in cut if not isinstance(extent, str)] == [
        (20, False),
        (2, True),
    ]


def test_an_old_version_of_a_branch_is_not_continued() -> None:
    """After a fork the first line has gone on, so the second has to open a branch of its own."""
    plans = Plans()
    start = [{"n": number} for number in range(30)]
    plans.save(dict_payload({"list": start}))
    plans.save(dict_payload({"list": [*start, {"n": "first line"}]}), 0)
    plan = plans.save(dict_payload({"list": [*start, {"n": "second line"}]}), 0)
    assert written(plan.runs) == [{"n": "second line"}]
    assert plan.runs[0].number == 0
    assert plans.collisions == 1
    assert plans.read(1)["list"][-1] == {"n": "first line"}


def test_a_piece_of_an_older_version_of_the_branch_is_not_continued() -> None:
    """The list is in two pieces of one branch, and only the second has gone on."""
    items: list[Any] = [{"n": number} for number in range(30)]
    plans = Plans()
    plans.save(dict_payload({"list": items}))
    items = [*items[:20], "edited", *items[21:]]
    plans.save(dict_payload({"list": items}), 0)
    plans.save(dict_payload({"list": [*items, "more"]}), 1)
    plan = plans.save(dict_payload({"list": [*items[:20], "another end"]}), 2)
    assert written(plan.runs) == ["another end"]
    assert plans.collisions == 0
    assert plans.read(2)["list"] == [*items, "more"]


def test_short_lists_of_plain_values_stay_in_the_head() -> None:
    plans = Plans()
    plan = plans.save(dict_payload({"tags": ["a", "b", 1], "none": [], "deep": {"none": [], "one": [None]}}))
    assert plan.runs == ()
    assert plan.manifest == "[]"


def test_a_large_value_is_stored_once_wherever_it_stands() -> None:
    plans = Plans()
    text = "x" * LARGE_VALUE
    plan = plans.save(dict_payload({"a": text, "b": {"c": text}, "small": "x" * (LARGE_VALUE - 3)}))
    assert [decode(run.items) for run in plan.values] == [[text]]
    assert len(plan.head) < LARGE_VALUE + 100
    again = plans.save(dict_payload({"moved": text}), 0)
    assert again.values == ()
    assert plans.read(1) == {"moved": text}


def test_the_longest_value_that_stays_in_the_head() -> None:
    plans = Plans()
    assert plans.save(dict_payload({"a": "x" * (LARGE_VALUE - 3)})).values == ()
    assert len(plans.save(dict_payload({"a": "x" * (LARGE_VALUE - 2)})).values) == 1


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        ({"a": {"b": [1, {"c": float("nan")}]}}, "a.b[1].c"),
        ({"a": [{"n": 1}] * 70 + [{"n": {2}}]}, "a[70].n"),
        ({"a": {"b": {3: 4}}}, "a.b"),
        ({"a": "\ud800"}, "a"),
        ({"a": {"big": "x" * LARGE_VALUE, "bad": object()}}, "a.bad"),
    ],
)
def test_a_bad_value_is_refused_with_its_path(payload: dict[str, Any], path: str) -> None:
    with pytest.raises(SerializationError) as caught:
        Plans().save(dict_payload(payload))
    assert caught.value.path == path


def test_a_bad_value_in_a_message_is_refused_with_its_path() -> None:
    state = AgentState().with_messages([Message.user("a"), Message(role="user", metadata={"x": [float("inf")]})])  # type: ignore[arg-type]
    with pytest.raises(SerializationError) as caught:
        Plans().save(state_payload(state))
    assert caught.value.path == "messages[1].metadata.x[0]"
