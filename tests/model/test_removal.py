"""What goes when checkpoints go, and what stays."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locus.memory.model.manifest import visible
from locus.memory.model.records import Entry, Extent, Run, RunInfo
from locus.memory.model.retention import ancestors, new_parents, outlived, plan_removal, unneeded_runs
from locus.testing.data import budget
from tests.model.branches import Branches, branches, extents_of

AT = datetime(2024, 5, 17, tzinfo=UTC)


def entry(seq: int, parent: int | str | None = None, *, namespace: str = "default", age: float = 0) -> Entry:
    parent_id = f"c{parent}" if isinstance(parent, int) else parent
    return Entry("t", namespace, f"c{seq}", parent_id, seq, f"r{seq}", AT - timedelta(days=age), "{}")


@st.composite
def histories(draw: st.DrawFn) -> list[Entry]:
    """Checkpoints of two namespaces, each with an older one of its own, or none, as its parent."""
    entries: list[Entry] = []
    for seq in range(1, draw(st.integers(1, 12)) + 1):
        namespace = draw(st.sampled_from(["default", "other"]))
        older: list[int | None] = [e.seq for e in entries if e.namespace == namespace]
        entries.append(entry(seq, draw(st.sampled_from([*older, None])), namespace=namespace, age=20 - seq))
    return entries


def shown(extents: list[Extent], model: Branches) -> set[tuple[str, int]]:
    """By brute force: every run that some extent reads something of."""
    return {(run.branch, run.number) for extent in extents for run, _, _ in visible(extent, model.runs[extent.branch])}


def infos(runs: list[Run]) -> list[RunInfo]:
    return [RunInfo(*run[:4]) for run in runs]


def named(extents: list[Extent]) -> set[tuple[str, int]]:
    """The runs that extents name: their numbers must not be given out again."""
    return {(extent.branch, extent.run) for extent in extents}


@given(branches(), st.data())
@budget(100)
def test_a_run_goes_exactly_if_no_extent_shows_it(model: Branches, data: st.DataObject) -> None:
    extents = data.draw(extents_of(model, at_most=6))
    runs = [run for members in model.runs.values() for run in members]
    unneeded = {(run.branch, run.number) for run in unneeded_runs(extents, infos(data.draw(st.permutations(runs))))}
    assert unneeded == {(run.branch, run.number) for run in runs} - shown(extents, model) - named(extents)


@given(branches(), st.data())
@budget(40)
def test_a_removal_after_a_removal_still_frees_exactly_what_nobody_shows(model: Branches, data: st.DataObject) -> None:
    """After the first one the numbers of the runs that are left have gaps."""
    extents = data.draw(extents_of(model, at_most=6))
    for left in (extents, extents[: len(extents) // 2]):
        before = {extent: model.read([extent]) for extent in left}
        runs = [run for members in model.runs.values() for run in members]
        unneeded = {(run.branch, run.number) for run in unneeded_runs(left, infos(runs))}
        assert unneeded == {(run.branch, run.number) for run in runs} - shown(left, model) - named(left)
        for branch, members in model.runs.items():
            model.runs[branch] = [run for run in members if (branch, run.number) not in unneeded]
        assert all(visible(extent, model.runs[extent.branch]) for extent in left)
        assert {extent: model.read([extent]) for extent in left} == before


def test_without_extents_every_run_goes() -> None:
    runs = [RunInfo("a", 0, 0, 3), RunInfo("a", 1, 3, 1), RunInfo("#value", 0, 0, 1)]
    assert sorted(unneeded_runs([], runs)) == sorted(runs)
    assert unneeded_runs([Extent("#value", 0, 0, 1)], runs[2:]) == []


@given(histories(), st.data())
@budget(60)
def test_children_of_what_goes_get_the_nearest_ancestor_that_stays(entries: list[Entry], data: st.DataObject) -> None:
    doomed = data.draw(st.sets(st.sampled_from([e.seq for e in entries])))
    changed = new_parents(entries, doomed)
    left = {(e.namespace, e.checkpoint_id) for e in entries if e.seq not in doomed}
    for e in entries:
        if e.seq in doomed:
            assert e.seq not in changed
            continue
        line = ancestors([other for other in entries if other.namespace == e.namespace], e.checkpoint_id)
        expected = next((o.checkpoint_id for o in line[1:] if (o.namespace, o.checkpoint_id) in left), None)
        assert changed.get(e.seq, e.parent_id) == expected
        assert (e.seq in changed) == (expected != e.parent_id)


def test_a_parent_of_the_same_name_in_another_namespace_is_another() -> None:
    entries = [entry(1), entry(2, "c1"), Entry("t", "other", "c1", None, 3, "r", AT, "{}")]
    assert new_parents(entries, {3}) == {}


def test_a_removal_frees_runs_and_moves_children() -> None:
    entries = [entry(1), entry(2, 1), entry(3, 2)]
    runs = [RunInfo("a", 0, 0, 2), RunInfo("a", 1, 1, 1), RunInfo("a", 2, 1, 1)]
    stay = {1: [Extent("a", 0, 0, 2)], 3: [Extent("a", 2, 0, 2)]}
    removal = plan_removal(stay, entries, {2}, runs)
    assert removal.runs == [runs[1]]
    assert removal.parents == {3: "c1"}


@given(histories(), st.data())
@budget(40)
def test_ancestors_are_followed_to_the_first(entries: list[Entry], data: st.DataObject) -> None:
    chosen = data.draw(st.sampled_from(entries))
    line = ancestors([e for e in entries if e.namespace == chosen.namespace], chosen.checkpoint_id)
    assert line[0] == chosen
    assert [older.checkpoint_id for older in line[1:]] == [e.parent_id for e in line[:-1]]
    assert line[-1].parent_id is None


def test_ancestors_of_what_is_not_there_are_none() -> None:
    assert ancestors([entry(1)], "c9") == []
    assert ancestors([entry(2, "gone")], "c2") == [entry(2, "gone")]


def test_a_ring_of_parents_ends() -> None:
    ring = [entry(1, 2), entry(2, 1)]
    assert ancestors(ring, "c2") == [ring[1], ring[0]]
    assert new_parents([*ring, entry(3, 1)], {1, 2}) == {3: None}
    assert new_parents([*ring, entry(3, 1)], {1}) == {2: None, 3: "c2"}


def test_what_is_older_than_the_cutoff_goes() -> None:
    entries = [entry(1, age=40), entry(2, 1, age=30), entry(3, 2, age=29)]
    assert outlived(entries, AT - timedelta(days=30), None) == {1}
    assert outlived(entries, AT, None) == {1, 2, 3}
    assert outlived(entries, AT - timedelta(days=50), None) == set()


def test_the_last_of_a_line_stay() -> None:
    line = [entry(1), entry(2, 1), entry(3, 2), entry(4, 3)]
    assert outlived(line, None, 1) == {1, 2, 3}
    assert outlived(line, None, 3) == {1}
    assert outlived(line, None, 9) == set()


def test_every_fork_is_a_line_of_its_own() -> None:
    #  1 ─ 2 ─ 3 ─ 6 ─ 7      and a fork at 2:  4 ─ 5
    entries = [entry(1), entry(2, 1), entry(3, 2), entry(4, 2), entry(5, 4), entry(6, 3), entry(7, 6)]
    assert outlived(entries, None, 1) == {1, 2, 3, 4, 6}
    assert outlived(entries, None, 2) == {1, 2, 3}
    assert outlived(entries, None, 3) == {1}


def test_the_newest_stays_although_an_older_one_names_it_as_its_parent() -> None:
    assert outlived([entry(1), entry(2, 3), entry(3)], None, 1) == set()
    assert outlived([entry(1, 2), entry(2, 1)], None, 1) == {1}


def test_namespaces_are_lines_of_their_own() -> None:
    entries = [entry(1), entry(2, 1), entry(3, namespace="other"), entry(4, 3, namespace="other")]
    assert outlived(entries, None, 1) == {1, 3}


def test_if_age_and_number_are_given_both_must_hold() -> None:
    line = [entry(1, age=50), entry(2, 1, age=40), entry(3, 2, age=5), entry(4, 3)]
    cutoff = AT - timedelta(days=30)
    assert outlived(line, cutoff, 1) == {1, 2}
    assert outlived(line, cutoff, 3) == {1}
    assert outlived(line, cutoff, 4) == set()


@given(histories(), st.integers(1, 4))
@budget(40)
def test_each_leaf_keeps_exactly_its_last(entries: list[Entry], keep: int) -> None:
    kept: set[int] = set()
    for leaf in entries:
        family = [e for e in entries if e.namespace == leaf.namespace]
        if all(e.parent_id != leaf.checkpoint_id for e in family):
            kept |= {e.seq for e in ancestors(family, leaf.checkpoint_id)[:keep]}
    assert outlived(entries, None, keep) == {e.seq for e in entries} - kept


@pytest.mark.parametrize("keep", [None, 1])
def test_nothing_there_nothing_removed(keep: int | None) -> None:
    assert outlived([], AT, keep) == set()
