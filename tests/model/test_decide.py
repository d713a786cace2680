"""What an engine decides inside its atomic step."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from locus.memory.model.commit_rules import decide
from locus.memory.model.records import ANY, Base, Commit, Known, Outcome, Run, Verdict

AT = datetime(2024, 5, 17, tzinfo=UTC)


@dataclass
class Thread:
    """A thread as `decide` sees it; `asked` says what it looked at."""

    known: list[Known] = field(default_factory=list)
    last_seq: int = 0
    branches: dict[str, int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def find(self, namespace: str, checkpoint_id: str) -> Known | None:
        self.asked.append(f"find {checkpoint_id}")
        assert namespace == "default"
        return next((known for known in self.known if known.checkpoint_id == checkpoint_id), None)

    def latest(self, namespace: str) -> Known | None:
        self.asked.append("latest")
        assert namespace == "default"
        return max(self.known, key=lambda known: known.seq, default=None)

    def has_run(self, branch: str, number: int) -> bool:
        return self.branches.get(branch, -1) >= number


@pytest.fixture
def thread() -> Thread:
    known = [Known("a", 1, "rev-a", None), Known("b", 2, "rev-b", "a"), Known("c", 5, "rev-c", "a")]
    return Thread(known, last_seq=9, branches={"trunk": 3})


def commit(checkpoint_id: str = "new", **changes: Any) -> Commit:
    plain = Commit("t", "default", checkpoint_id, f"rev-{checkpoint_id}-2", AT, "{}", "{}", "[]")
    return replace(plain, **changes)


def test_a_first_save_has_no_parent() -> None:
    assert decide(commit(), Thread()) == Outcome(Verdict.COMMITTED, 1, None)


def test_the_number_comes_from_the_counter_and_the_parent_is_the_latest(thread: Thread) -> None:
    assert decide(commit(), thread) == Outcome(Verdict.COMMITTED, 10, "c")


def test_the_parent_that_is_named_is_taken(thread: Thread) -> None:
    assert decide(commit(parent_id="a", parent_required=True), thread).parent_id == "a"
    assert decide(commit(parent_id=None), thread) == Outcome(Verdict.COMMITTED, 10, None)


def test_a_parent_that_has_to_be_there_and_is_not_is_refused(thread: Thread) -> None:
    assert decide(commit(parent_id="gone", parent_required=True), thread) == Outcome(Verdict.NO_PARENT)


def test_a_parent_that_is_only_supposed_gives_way_to_the_latest(thread: Thread) -> None:
    assert decide(commit(parent_id="gone"), thread) == Outcome(Verdict.COMMITTED, 10, "c")
    assert decide(commit(parent_id="gone"), Thread()) == Outcome(Verdict.COMMITTED, 1, None)


@pytest.mark.parametrize("required", [True, False])
def test_a_parent_may_be_kept_as_it_is_named(thread: Thread, required: bool) -> None:
    def parent(checkpoint_id: str, parent_id: str, **changes: Any) -> str | None:
        wish = commit(checkpoint_id, parent_id=parent_id, parent_as_named=True, parent_required=required, **changes)
        outcome = decide(wish, thread)
        assert outcome.verdict is Verdict.COMMITTED
        return outcome.parent_id

    assert parent("new", "a") == "a"
    assert parent("new", "not yet") == "not yet"
    assert parent("b", "not yet", replaces="rev-b") == "not yet"
    assert parent("new", "new") is None
    assert parent("b", "b", replaces="rev-b") == "a"


@pytest.mark.parametrize("expected", ["a", "gone", None])
def test_another_latest_than_expected_is_a_conflict(thread: Thread, expected: str | None) -> None:
    assert decide(commit(if_latest=expected), thread) == Outcome(Verdict.CONFLICT, latest="c")


def test_the_expected_latest_is_no_conflict(thread: Thread) -> None:
    assert decide(commit(if_latest="c"), thread).verdict is Verdict.COMMITTED
    assert decide(commit(if_latest=None), Thread()).verdict is Verdict.COMMITTED
    assert decide(commit(if_latest="c"), Thread()) == Outcome(Verdict.CONFLICT, latest=None)


def test_an_id_in_use_is_told(thread: Thread) -> None:
    assert decide(commit("b"), thread) == Outcome(Verdict.EXISTS)
    assert decide(commit("b", replaces="an older rev"), thread) == Outcome(Verdict.EXISTS)


def test_the_same_commit_again_is_done_already(thread: Thread) -> None:
    again = commit("b", rev="rev-b", if_latest=None, base=Base("gone", "rev"))
    assert decide(again, thread) == Outcome(Verdict.COMMITTED, 2, "a", repeated=True)


def test_a_replacement_is_the_newest_and_keeps_its_place_in_the_line(thread: Thread) -> None:
    outcome = decide(commit("c", replaces="rev-c"), thread)
    assert outcome == Outcome(Verdict.COMMITTED, 10, "a", replaced=thread.known[2])
    outcome = decide(commit("c", replaces="rev-c", parent_id="c"), thread)
    assert outcome.parent_id == "a", "nothing is its own parent"


def test_a_replacement_of_an_older_one_comes_after_the_latest(thread: Thread) -> None:
    outcome = decide(commit("b", replaces="rev-b"), thread)
    assert outcome == Outcome(Verdict.COMMITTED, 10, "c", replaced=thread.known[1])


def test_a_replacement_of_what_is_gone_is_an_ordinary_save(thread: Thread) -> None:
    assert decide(commit("gone", replaces="rev-gone"), thread) == Outcome(Verdict.COMMITTED, 10, "c")


@pytest.mark.parametrize("base", [Base("gone", "rev-gone"), Base("c", "rev of another c")])
def test_a_base_that_is_gone_or_another_is_stale(thread: Thread, base: Base) -> None:
    assert decide(commit(base=base), thread) == Outcome(Verdict.STALE_BASE)


def test_a_conflict_is_told_before_a_stale_base(thread: Thread) -> None:
    assert decide(commit(if_latest="a", base=Base("gone", "")), thread).verdict is Verdict.CONFLICT


@pytest.mark.parametrize(
    ("branch", "number", "verdict"),
    [
        ("trunk", 4, Verdict.COMMITTED),
        ("trunk", 3, Verdict.BRANCH_TAKEN),
        ("trunk", 1, Verdict.BRANCH_TAKEN),
        ("own", 0, Verdict.COMMITTED),
        ("trunk", 0, Verdict.BRANCH_TAKEN),
    ],
)
def test_a_branch_is_continued_only_at_its_end(thread: Thread, branch: str, number: int, verdict: Verdict) -> None:
    runs = (Run("own", 0, 0, 1, "[0]"), Run(branch, number, 5, 1, "[1]"))
    assert decide(commit(runs=runs, base=Base("c", "rev-c")), thread).verdict is verdict


def test_a_rev_that_was_made_for_a_save_opens_branches_that_nobody_has(thread: Thread) -> None:
    opened = commit(runs=(Run("trunk", 0, 0, 1, "[1]"),), fresh_id=True)
    assert decide(opened, thread).verdict is Verdict.COMMITTED


def test_a_fresh_id_is_not_looked_for(thread: Thread) -> None:
    decide(commit(fresh_id=True, parent_id="c", base=Base("c", "rev-c")), thread)
    assert thread.asked == ["find c"]


def test_any_stands_for_nothing_said() -> None:
    assert commit().if_latest is ANY
    assert commit().parent_id is ANY
