"""What clients have read is held against what had been acknowledged before."""

from __future__ import annotations

import pytest

from locus.testing.campaign.finding import Kind
from locus.testing.campaign.found import FoundCheckpoint, FoundThread
from tests.testing.campaign.stories import Story, there


@pytest.fixture
def story() -> Story:
    return Story()


def named(name: str) -> FoundThread:
    """A thread with this save under the id `x`."""
    return FoundThread("t", (FoundCheckpoint("x", None, 1, name, name),), name, ("x",))


@pytest.mark.parametrize("asked", ["x", None])
def test_what_was_replaced_is_not_loaded_any_more(story: Story, asked: str | None) -> None:
    story.save("a", id="x", answer="x")
    story.save("b", id="x", answer="x")
    story.load("b", id=asked)
    story.load("a", id=asked, begun=3.5)
    assert story.kinds(named("b")) == [], "the second load began before `b` was acknowledged"
    story.load("a", id=asked)
    assert story.kinds(named("b")) == [Kind.WRONG_LATEST]


def test_a_replacement_that_was_seen_is_not_unseen(story: Story) -> None:
    story.save("a", id="x", answer="x")
    story.save("b", "unknown", id="x")
    story.load("a", id="x")
    story.load("b", id="x")
    assert story.kinds(named("b")) == []
    assert story.kinds(named("a")) == [Kind.LOST]
    story.load("a", id="x")
    assert story.kinds(named("b")) == [Kind.WRONG_LATEST]


def test_a_replacement_leaves_no_moment_without_either(story: Story) -> None:
    story.save("a", id="x", answer="x")
    story.save("b", id="x", answer="x")
    story.load(None, id="x", begun=4.5)
    assert story.kinds(named("b")) == [Kind.WRONG_LATEST]
    story.delete("x")
    assert story.kinds(there()) == [Kind.WRONG_LATEST], "it was deleted later"
    story.load(None, id="x")
    assert story.kinds(there()) == [Kind.WRONG_LATEST], "that is right"


def test_a_mixture_of_what_was_replaced_and_what_replaced_it_is_reported(story: Story) -> None:
    story.save("a", id="x", answer="x")
    story.save("b", id="x", answer="x")
    mixed = FoundThread("t", (FoundCheckpoint("x", None, 1, "b", "a"),), "a", ("x",))
    assert story.kinds(mixed) == [Kind.TORN]


def test_a_save_that_was_repeated_may_take_its_place_again(story: Story) -> None:
    """Its first attempt was seen, replaced by another one, and then the second attempt replaced that."""
    story.save("a", "unknown", id="x")
    story.load("a", id="x")
    story.save("b", id="x", answer="x")
    story.save("c")
    story.save("a", id="x", answer="x")
    story.load("a", id="x")
    story.load("a")
    both = (FoundCheckpoint("c", None, 3, "c", "c"), FoundCheckpoint("x", "c", 4, "a", "a"))
    assert story.kinds(FoundThread("t", both, "a", ("x", "c"))) == []


def test_an_old_state_is_reported_although_the_new_one_was_deleted_later(story: Story) -> None:
    for name in "ab":
        story.save(name)
    story.load("a")
    story.delete("b")
    assert story.kinds(there("a")) == [Kind.WRONG_LATEST]
    story.load("a")
    assert story.kinds(there("a")) == [Kind.WRONG_LATEST], "by then it was the latest"


def test_an_old_state_is_reported_although_it_was_deleted_later(story: Story) -> None:
    for name in "ab":
        story.save(name)
    story.load("a")
    story.delete("a")
    assert story.kinds(there("b")) == [Kind.WRONG_LATEST]


def test_nobody_sees_less_than_was_seen_before(story: Story) -> None:
    story.save("a")
    story.save("b", "unknown")
    story.load("a")
    story.load("b")
    assert story.kinds(there("a", "b")) == []
    story.load("a")
    story.delete("b", "unknown")
    story.load("a")
    assert story.kinds(there("a")) == [Kind.WRONG_LATEST], "one of them ended before the deletion began"


def test_a_state_that_was_there_is_found(story: Story) -> None:
    story.save("a")
    story.load(None)
    story.load(None, id="a")
    story.exists("a", False)
    story.exists(None, False)
    story.delete(None)
    assert story.kinds() == [Kind.WRONG_LATEST] * 4
    story.exists("a", False)
    assert story.kinds() == [Kind.WRONG_LATEST] * 4, "that is right"
    story.exists("a", True)
    assert story.kinds() == [*[Kind.WRONG_LATEST] * 4, Kind.DELETED]


def test_the_end_of_a_state_is_that_of_the_latest(story: Story) -> None:
    story.save("a", tail="end of a")
    story.save("b", tail="end of b")
    story.add("tail", "t", "acknowledged", "end of b", None, id=None)
    assert story.kinds(there("a", "b")) == []
    story.add("tail", "t", "acknowledged", "end of a", None, id=None)
    assert story.kinds(there("a", "b")) == [Kind.WRONG_LATEST]
    story.add("tail", "t", "acknowledged", "end of z", None, id=None)
    assert story.kinds(there("a", "b")) == [Kind.WRONG_LATEST, Kind.NEVER_SENT]


def test_a_list_lacks_nothing_that_was_there(story: Story) -> None:
    for name in "abc":
        story.save(name)
    story.listed("c", "b", limit=2)
    story.listed("c", "b", "a", limit=10)
    assert story.kinds(there("a", "b", "c")) == []
    story.listed("c", "a", limit=2)
    assert story.kinds(there("a", "b", "c")) == [Kind.WRONG_LATEST], "`b` is newer than `a`"
    story.listed("c", "b", limit=10)
    story.delete("a")
    assert story.kinds(there("b", "c")) == [Kind.WRONG_LATEST] * 2, "`a` was deleted later"


def test_a_list_is_in_order_although_its_checkpoints_were_replaced_or_deleted_later(story: Story) -> None:
    story.save("a", id="x", answer="x")
    story.save("b", id="y", answer="y")
    story.listed("y", "x")
    story.listed("x", "y")
    story.delete(None)
    assert story.kinds() == [Kind.ORDER]


def test_what_was_replaced_is_the_newest_in_a_list(story: Story) -> None:
    story.save("a", id="x", answer="x")
    story.save("b", id="y", answer="y")
    story.save("c", id="x", answer="x")
    story.listed("x", "y")
    story.listed("y", "x")
    story.delete(None)
    assert story.kinds() == [Kind.ORDER]


def test_a_history_says_which_save_each_checkpoint_is(story: Story) -> None:
    story.save("a", id="x", answer="x")
    story.save("b")
    story.history_of(("b", "b"), ("x", "a"))
    story.save("c", id="x", answer="x")
    stored = (FoundCheckpoint("b", None, 2, "b", "b"), FoundCheckpoint("x", None, 3, "c", "c"))
    whole = FoundThread("t", stored, "c", ("x", "b"))
    assert story.kinds(whole) == []
    story.history_of(("x", "c"), ("b", "b"))
    assert story.kinds(whole) == []
    story.history_of(("b", "b"), ("x", "a"))
    assert story.kinds(whole) == [Kind.WRONG_LATEST], "it had been replaced"
    story.history_of(("b", "b"), ("x", "c"))
    assert story.kinds(whole) == [Kind.WRONG_LATEST, Kind.ORDER], "a replacement is the newest"
    story.history_of(("x", "c"))
    story.history_of(("x", "c"), limit=1)
    story.history_of(before="x")
    assert story.kinds(whole) == [Kind.WRONG_LATEST, Kind.ORDER, Kind.WRONG_LATEST], "one lacks `b`"
    story.history_of(("x", "z"), ("b", "b"))
    assert story.kinds(whole)[3:] == [Kind.NEVER_SENT]


def test_what_a_history_has_shown_stays(story: Story) -> None:
    story.save("a")
    story.save("b", "unknown")
    story.history_of(("b", "b"), ("a", "a"))
    assert story.kinds(there("a", "b")) == []
    assert story.kinds(there("a")) == [Kind.LOST]


def test_pending_writes_are_read_as_they_were_written_last(story: Story) -> None:
    story.save("a")
    story.get({})
    story.writes("first")
    story.get({"1": "first"})
    story.writes("second")
    last = there("a", writes={("a", "1"): "second"})
    story.get({"1": "second"})
    assert story.kinds(last) == []
    story.get({"1": "first"})
    assert story.kinds(last) == [Kind.ORDER]
    story.get({"1": "half"})
    story.get({})
    assert story.kinds(last) == [Kind.ORDER, Kind.TORN, Kind.LOST]
    story.get({"2": "of nobody"})
    assert Kind.TORN in story.kinds(last)[3:]


def test_pending_writes_that_were_seen_are_not_unseen(story: Story) -> None:
    story.save("a")
    story.writes("first")
    story.writes("second", "unknown")
    first, second = (there("a", writes={("a", "1"): name}) for name in ("first", "second"))
    assert story.kinds(first) == story.kinds(second) == []
    story.get({"1": "second"})
    assert story.kinds(first) == [Kind.ORDER]
    story.get({"1": "first"})
    assert story.kinds(second) == [Kind.ORDER]


def test_what_was_replaced_may_be_a_save_whose_id_nobody_was_told(story: Story) -> None:
    """Its client was killed; others found its id in a list, and saved under it."""
    story.save("a", "unknown")
    story.save("b")
    story.save("c", "unknown", id="x")
    story.listed("b", "x", limit=None)
    story.save("d", id="x", answer="x")
    found = (FoundCheckpoint("b", None, 2, "b", "b"), FoundCheckpoint("x", None, 3, "d", "d"))
    assert story.kinds(FoundThread("t", found, "d", ("x", "b"))) == []


def test_what_was_replaced_is_not_listed_where_it_never_was(story: Story) -> None:
    story.save("a", id="x", answer="x")
    story.save("b")
    story.save("c", id="x", answer="x")
    story.listed("b", "x", limit=None)
    found = (FoundCheckpoint("b", None, 2, "b", "b"), FoundCheckpoint("x", None, 3, "c", "c"))
    assert Kind.WRONG_LATEST in story.kinds(FoundThread("t", found, "c", ("x", "b")))
