"""The rules of the checker that need particular histories: copies, loads, refusals, lineage, effects."""

from __future__ import annotations

import pytest

from locus.agent.sessions import RESULT
from locus.testing.campaign.checker import check, left_as_it_was
from locus.testing.campaign.effects import Effect, check_effects
from locus.testing.campaign.finding import Kind
from locus.testing.campaign.found import FoundCheckpoint, FoundThread
from locus.testing.campaign.history import History, Operation, Told
from tests.testing.campaign.stories import Story, there


@pytest.fixture
def story() -> Story:
    return Story()


def effect(call: str, at: float, *, repeatable: bool = False, client: str = "c", begun: float = 0.0) -> Effect:
    return Effect("t", call, at, repeatable=repeatable, client=client, begun=begun)


def test_what_was_acknowledged_is_there(story: Story) -> None:
    story.save("a")
    story.save("b", "unknown")
    story.save("c", "refused")
    assert story.kinds(there("a")) == []
    assert story.kinds(there("a", "b")) == []
    assert story.kinds(there("b")) == [Kind.LOST]
    assert story.kinds(there("a", "c")) == [Kind.REFUSED]
    assert story.kinds(there("a", "z")) == [Kind.NEVER_SENT]
    assert story.kinds() == [Kind.LOST]


def test_order_is_that_of_what_followed_for_certain(story: Story) -> None:
    story.save("a")
    story.save("b")
    assert story.kinds(there("b", "a")) == [Kind.ORDER]
    story.save("c", begun=2.5)
    assert story.kinds(there("a", "c", "b")) == story.kinds(there("a", "b", "c")) == []


def test_a_removal_explains_what_is_missing_if_it_may_have_come_later(story: Story) -> None:
    story.save("a")
    story.delete("a")
    story.save("b")
    assert story.kinds(there("b")) == []
    assert story.kinds(there()) == [Kind.LOST]
    assert story.kinds(there("a", "b")) == [Kind.DELETED]
    story.delete(None, "unknown")
    assert story.kinds(there()) == []


def test_a_replacement_takes_the_place_of_what_was_there(story: Story) -> None:
    story.save("a", id="named")
    story.save("b", id="named")
    one, other = (
        FoundThread("t", (FoundCheckpoint("named", None, 1, name, name),), name, ("named",)) for name in ("a", "b")
    )
    assert [finding.kind for finding in check(_named(story), {"t": other})] == []
    assert [finding.kind for finding in check(_named(story), {"t": one})] == []


def _named(story: Story) -> History:
    """Acknowledged under the id that was asked for. `a` and `b` overlap, so either may be the last."""
    first, second = story.history.operations
    names = [
        Operation(
            client=one.client, number=one.number, kind=one.kind, thread=one.thread, begun=first.begun, facts=one.facts,
            told=one.told, ended=second.ended, answer="named",
        )
        for one in (first, second)
    ]  # fmt: skip
    return History(names)


def test_another_attempt_is_the_same_save(story: Story) -> None:
    story.save("a", "unknown", id="a")
    story.save("a", id="a")
    assert story.kinds(there("a")) == []
    assert story.kinds(there()) == [Kind.LOST]
    twice = (FoundCheckpoint("a", None, 1, "a", "a"), FoundCheckpoint("b", None, 2, "a", "a"))
    assert Kind.TWICE in story.kinds(FoundThread("t", twice, "a", ("b", "a")))


@pytest.mark.parametrize("told", ["acknowledged", "unknown"])
def test_whoever_was_next_stands_behind_what_it_expected(story: Story, told: Told) -> None:
    story.save("a", if_latest=None)
    story.save("b", told, if_latest="a")
    assert story.kinds(there("a", "b")) == []
    story.save("c", told, if_latest="a")
    assert story.kinds(there("a", "b", "c")) == [Kind.WRONG_LATEST]
    story.save("d", told, if_latest=None)
    assert story.kinds(there("a", "b", "d")).count(Kind.WRONG_LATEST) == 1


def test_a_deletion_may_make_a_condition_true_again(story: Story) -> None:
    story.save("a")
    story.save("b", if_latest="a")
    story.delete("b")
    story.save("c", if_latest="a")
    assert story.kinds(there("a", "c")) == []


def test_nobody_is_refused_without_a_cause(story: Story) -> None:
    story.save("a")
    story.save("b", "refused", if_latest="a")
    assert story.kinds(there("a")) == [Kind.WRONG_LATEST]
    story.save("c", "unknown", begun=3.5)
    assert story.kinds(there("a")) == []


def test_a_parent_is_there_and_the_one_that_was_named(story: Story) -> None:
    story.save("a")
    story.save("b")
    story.save("c", parent="a")
    assert story.kinds(there("a", "b", "c", parents={"c": "a"})) == []
    assert story.kinds(there("a", "b", "c", parents={"c": "b"})) == [Kind.LINEAGE]
    assert story.kinds(there("a", "b", "c", parents={"b": "gone", "c": "a"})) == [Kind.LINEAGE]
    story.save("d", "unknown", id="a")
    assert story.kinds(there("a", "b", "c", parents={"c": "b"})) == [], "it may have been replaced"


def test_a_copy_is_whole_or_not_there(story: Story) -> None:
    story.save("a")
    story.save("b")
    story.copy("unknown")
    story.save("c")
    source = there("a", "b", "c")
    assert story.kinds(source) == []
    assert story.kinds(source, there("a", "b", thread="copy")) == []
    assert story.kinds(source, there("b", thread="copy")) == [Kind.TORN]


def test_a_copy_that_was_acknowledged_is_there_and_no_older_than_it_says(story: Story) -> None:
    story.save("a")
    story.copy()
    story.save("b")
    source = there("a", "b")
    assert story.kinds(source, there("a", thread="copy")) == []
    assert story.kinds(source) == [Kind.LOST]
    assert story.kinds(source, there("a", "b", thread="copy")) == [Kind.NEVER_SENT]


def test_a_load_gives_the_latest_of_what_was_acknowledged(story: Story) -> None:
    story.save("a")
    story.save("b")
    story.load("b")
    assert story.kinds(there("a", "b")) == []
    story.load("a")
    assert story.kinds(there("a", "b")) == [Kind.WRONG_LATEST]
    story.load("a", id="a")
    story.load(None)
    assert story.kinds(there("a", "b")) == [Kind.WRONG_LATEST] * 2
    story.load("z")
    assert story.kinds(there("a", "b")) == [Kind.WRONG_LATEST] * 2 + [Kind.NEVER_SENT]


def test_a_load_that_overlaps_a_save_may_give_either(story: Story) -> None:
    story.save("a")
    story.save("b")
    story.load("a", begun=4.5)
    story.load(None, begun=1.0)
    assert story.kinds(there("a", "b")) == []


def test_pending_writes_are_those_of_the_last_operation(story: Story) -> None:
    story.save("a")
    story.writes("first")
    story.writes("second")
    assert story.kinds(there("a", writes={("a", "1"): "second"})) == []
    assert story.kinds(there("a", writes={("a", "1"): "first"})) == [Kind.ORDER]
    assert story.kinds(there("a", writes={("a", "1"): "half"})) == [Kind.TORN]
    assert story.kinds(there("a")) == [Kind.LOST]


def test_what_a_store_says_of_itself_agrees(story: Story) -> None:
    story.save("a")
    story.save("b")
    whole = there("a", "b")
    assert story.kinds(FoundThread("t", whole.checkpoints, "a", ("b", "a"))) == [Kind.WRONG_LATEST]
    assert story.kinds(FoundThread("t", whole.checkpoints, "b", ("b",))) == [Kind.WRONG_LATEST]
    assert story.kinds(there("a", "b", orphaned_runs=1)) == [Kind.ORPHANED]
    assert story.kinds(FoundThread("t", damage="cut short")) == [Kind.TORN]


def test_only_refusals_and_outages_are_told(story: Story) -> None:
    story.add("load", "t", "unknown", "text", None, "locus.errors.CorruptCheckpointError", id=None)
    story.add("load", "t", "unknown", "text", None, "sqlite3.OperationalError", id=None)
    story.add("load", "t", "unknown", None, None, "BackendUnavailableError", id=None)
    assert story.kinds() == [Kind.TORN, Kind.WRONG_ERROR]


def test_a_side_effect_happens_once(story: Story) -> None:
    pay, look = effect("pay", 3.0), effect("look", 3.0, repeatable=True)
    assert list(check_effects(story.history, [pay, look, look])) == []
    assert [one.kind for one in check_effects(story.history, [pay, pay])] == [Kind.TWICE]


def test_a_call_is_not_made_again_by_a_run_that_can_know_its_result(story: Story) -> None:
    record = story.add(
        "writes", "t", "acknowledged", None, 1.0, id="a", task="look", namespace="default", channels=[RESULT]
    )
    mine, later = record.client, record.ended + 1
    first = effect("look", record.begun, repeatable=True, client=mine)
    sent_again = effect("look", later, repeatable=True, client=mine)
    assert [one.kind for one in check_effects(story.history, [first, sent_again])] == [Kind.TWICE]
    taken_over = effect("look", later, repeatable=True, client="another")
    assert list(check_effects(story.history, [first, taken_over])) == []
    newcomer = effect("look", later + 1, repeatable=True, client="another", begun=later)
    assert [one.kind for one in check_effects(story.history, [first, newcomer])] == [Kind.TWICE]


def named(*names: str) -> FoundThread:
    """A thread with these saves under the id `x`."""
    checkpoints = tuple(FoundCheckpoint("x", None, seq, name, name) for seq, name in enumerate(names, 1))
    return FoundThread("t", checkpoints, names[-1] if names else None, ("x",) * len(names))


def test_a_replacement_that_is_not_there_explains_nothing(story: Story) -> None:
    story.save("a", id="x", answer="x")
    story.save("b", "unknown", id="x")
    assert story.kinds(named("a")) == story.kinds(named("b")) == []
    assert story.kinds() == [Kind.LOST]
    story.delete("x", "unknown")
    assert story.kinds() == []


def test_of_two_replacements_at_the_same_time_one_is_there(story: Story) -> None:
    story.save("a", id="x", answer="x", begun=1.0)
    story.save("b", id="x", answer="x", begun=1.0)
    assert story.kinds(named("a")) == story.kinds(named("b")) == []
    assert story.kinds() == [Kind.LOST] * 2


def test_a_vacuum_by_number_excuses_only_what_had_enough_behind_it(story: Story) -> None:
    story.save("a")
    story.save("b")
    story.vacuum(keep_last=2)
    story.save("c")
    assert story.kinds(there("b", "c")) == [Kind.LOST], "only one save can have been behind it"
    story.vacuum(keep_last=2)
    assert story.kinds(there("b", "c")) == []


def test_what_is_stored_before_an_older_save_makes_nothing_old(story: Story) -> None:
    story.save("u", "unknown")
    story.save("a")
    story.save("b")
    story.vacuum(keep_last=1)
    assert story.kinds(there("u", "a")) == [Kind.LOST], "what is stored before `a` is not behind `b`"
    assert story.kinds(there("a")) == [], "nobody knows when `u` happened"


def test_a_vacuum_by_age_excuses_only_what_was_old_by_its_own_clock(story: Story) -> None:
    story.save("a", clock=5_000.0)
    story.save("b", clock=10.0)
    story.vacuum(before=1_000.0)
    assert story.kinds(there("a")) == []
    assert story.kinds(there("b")) == [Kind.LOST]


@pytest.mark.parametrize("witness", ["load", "list", "if_latest", "parent"])
def test_what_somebody_has_seen_stays(story: Story, witness: str) -> None:
    story.save("a")
    story.save("b", "unknown", id="b")
    assert story.kinds(there("a")) == []
    if witness == "load":
        story.load("b")
    elif witness == "list":
        story.listed("b", "a")
    elif witness == "if_latest":
        story.save("c", if_latest="b")
    else:
        story.save("c", parent="b", needs_parent=True)
    saved = ["a", "c"] if witness in ("if_latest", "parent") else ["a"]
    assert Kind.LOST in story.kinds(there(*saved))


def test_an_error_that_came_out_of_a_step_is_reported(story: Story) -> None:
    story.history.notes.append({"note": True, "error": "locus.errors.CapabilityError", "text": "cannot"})
    assert story.kinds() == [Kind.WRONG_ERROR]
    story.history.notes.append({"note": True, "error": "locus.errors.CorruptCheckpointError", "text": "cut"})
    assert story.kinds() == [Kind.WRONG_ERROR, Kind.TORN]


def test_a_load_gives_what_it_was_asked_for_and_nothing_that_was_deleted(story: Story) -> None:
    story.save("a")
    story.save("b")
    story.load("a", id="b")
    assert story.kinds(there("a", "b")) == [Kind.TORN]
    story.delete("b")
    story.load("b", begun=4.5)
    assert story.kinds(there("a")) == [Kind.TORN]
    story.load("b")
    assert story.kinds(there("a")) == [Kind.TORN, Kind.DELETED]


def test_a_list_begins_with_the_latest_and_is_in_order(story: Story) -> None:
    story.save("a")
    story.save("b")
    story.listed("b", "a")
    assert story.kinds(there("a", "b")) == []
    story.listed("a")
    assert story.kinds(there("a", "b")) == [Kind.WRONG_LATEST]
    story.listed()
    assert story.kinds(there("a", "b")) == [Kind.WRONG_LATEST] * 2
    story.listed("a", "b")
    assert story.kinds(there("a", "b")) == [*[Kind.WRONG_LATEST] * 3, Kind.ORDER]


def test_a_window_shows_the_end(story: Story) -> None:
    story.save("a")
    story.add("window", "t", "acknowledged", "a", None, id="a", digest="a")
    assert story.kinds(there("a")) == []
    story.add("window", "t", "acknowledged", "z", None, id="a", digest="a")
    assert story.kinds(there("a")) == [Kind.TORN]


def test_a_deletion_that_found_nothing_removes_nothing(story: Story) -> None:
    story.save("a")
    story.delete("a", answer=False)
    assert sorted(story.kinds()) == [Kind.LOST, Kind.WRONG_ERROR]
    story.delete("a", "unknown")
    assert story.kinds() == [Kind.WRONG_ERROR], "that began later"


def test_a_deletion_in_a_copy_deletes(story: Story) -> None:
    story.save("a")
    story.copy()
    story.add("delete", "copy", "acknowledged", True, None, id="a")
    assert story.kinds(there("a")) == []
    assert story.kinds(there("a"), there("a", thread="copy")) == [Kind.DELETED]


def test_a_copy_of_one_checkpoint_has_its_line_and_no_more(story: Story) -> None:
    for name in "abc":
        story.save(name)
    story.add("copy", "copy", "acknowledged", True, None, source="t", of="c")
    source = there("a", "b", "c", parents={"c": "a"})
    assert story.kinds(source, there("a", "c", thread="copy", parents={"c": "a"})) == []
    assert story.kinds(source, there("c", thread="copy")) == [Kind.TORN]
    assert story.kinds(source, there("a", "b", "c", thread="copy", parents={"c": "a"})) == [Kind.NEVER_SENT]


def test_a_copy_of_a_copy_is_whole(story: Story) -> None:
    story.save("a")
    story.save("b")
    story.copy()
    story.add("copy", "again", "acknowledged", True, None, source="copy", of=None)
    both = there("a", "b"), there("a", "b", thread="copy")
    assert story.kinds(*both, there("a", "b", thread="again")) == []
    assert story.kinds(*both, there("b", thread="again")) == [Kind.TORN]


def test_nobody_is_told_that_a_parent_is_missing_which_is_there(story: Story) -> None:
    story.save("a")
    story.add(
        "save", "t", "refused", None, None, "CheckpointNotFoundError",
        op="b", digest="b", id=None, clock=0.0, parent="a", needs_parent=True,
    )  # fmt: skip
    assert story.kinds(there("a")) == [Kind.WRONG_ERROR]
    story.delete("a", "unknown")
    assert story.kinds(there("a")) == [Kind.WRONG_ERROR], "that began later"


def test_results_without_any_effect_are_reported(story: Story) -> None:
    for number in range(20):
        story.add(
            "writes", "t", "acknowledged", None, None, id="a", task=str(number), namespace="default", channels=[RESULT]
        )
    assert [one.kind for one in check_effects(story.history, [])] == [Kind.LOST]
    assert list(check_effects(story.history, [effect("pay", 1.0)])) == []


def test_what_an_earlier_round_left_stays_but_for_what_a_vacuum_may_remove(story: Story) -> None:
    before = there("a", "b", "c", parents={"b": "a", "c": "b"})
    assert list(left_as_it_was(before, before, [])) == []
    assert [one.kind for one in left_as_it_was(before, there("b", "c", parents={"c": "b"}), [])] == [Kind.LOST]
    by_number = [story.vacuum(keep_last=2)]
    assert list(left_as_it_was(before, found("b", "c", first=2), by_number)) == []
    assert [one.kind for one in left_as_it_was(before, found("c", first=3), by_number)] == [Kind.LOST]


def test_a_vacuum_by_number_excuses_nothing_that_ends_a_line(story: Story) -> None:
    """The line that goes on from `a` leaves `b` alone, however long it gets."""
    story.save("a")
    story.save("b", parent="a")
    for name, parent in zip("cdef", "acde", strict=True):
        story.save(name, parent=parent)
    story.vacuum(keep_last=2)
    parents = {"d": "c", "e": "d", "f": "e"}
    assert story.kinds(there("b", "e", "f", parents={"f": "e"})) == []
    assert story.kinds(there("e", "f", parents={"f": "e"})) == [Kind.LOST]
    assert story.kinds(there("b", "c", "d", "e", "f", parents=parents)) == []


def test_a_vacuum_leaves_what_a_line_of_an_earlier_round_ends_with(story: Story) -> None:
    """Two lines of two that come from `a`: three come after it, and none of its lines is longer than three."""
    before = there("a", "b", "c", "d", "e", parents={"b": "a", "c": "b", "d": "a", "e": "d"})
    without = FoundThread("t", before.checkpoints[1:], "e", ("e", "d", "c", "b"))
    assert [one.kind for one in left_as_it_was(before, without, [story.vacuum(keep_last=3)])] == [Kind.LOST]


def test_a_vacuum_removes_what_has_outlived_in_an_earlier_round(story: Story) -> None:
    before = there("a", "b", "c", parents={"b": "a", "c": "b"})
    vacuum = story.vacuum(keep_last=2)
    assert [one.kind for one in left_as_it_was(before, before, [vacuum])] == [Kind.DELETED]
    assert list(left_as_it_was(before, before, [story.vacuum(before=-1_000.0)])) == [], "nothing was old"


def test_what_a_vacuum_leaves_has_the_nearest_parent_that_stays(story: Story) -> None:
    before = there("a", "b", "c", "d", parents={"b": "a", "c": "a", "d": "c"})
    vacuum = [story.vacuum(keep_last=1)]
    left = (FoundCheckpoint("b", None, 2, "b", "b"), FoundCheckpoint("d", None, 4, "d", "d"))
    assert list(left_as_it_was(before, FoundThread("t", left, "d", ("d", "b")), vacuum)) == []
    wrong = (left[0], FoundCheckpoint("d", "b", 4, "d", "d"))
    assert [one.kind for one in left_as_it_was(before, FoundThread("t", wrong, "d", ("d", "b")), vacuum)] == [Kind.TORN]


def test_a_deletion_before_a_save_does_not_excuse_that_its_writes_are_lost(story: Story) -> None:
    story.delete("a")
    story.save("a", id="a")
    story.writes("first")
    assert story.kinds(there("a")) == [Kind.LOST]


def found(*names: str, first: int) -> FoundThread:
    """What is left of a line, whose numbers begin with this one."""
    parents = dict(zip(names[1:], names, strict=False))
    checkpoints = tuple(
        FoundCheckpoint(name, parents.get(name), seq, name, name) for seq, name in enumerate(names, first)
    )
    return FoundThread("t", checkpoints, names[-1], tuple(reversed(names)))


def test_a_checkpoint_that_took_the_place_of_its_parent_ends_a_line(story: Story) -> None:
    story.save("a")
    story.save("b", id="x", answer="x", parent="x")
    story.vacuum(keep_last=1)
    found = FoundThread("t", (FoundCheckpoint("x", None, 2, "b", "b"),), "b", ("x",))
    assert story.kinds(found) == [], "`a` may be older than `b`"
