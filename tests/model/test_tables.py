"""A thread in memory, at the few places that no law of the contract reaches."""

from __future__ import annotations

from datetime import UTC, datetime

from locus.memory.model.commit_rules import decide
from locus.memory.model.payloads import dict_from
from locus.memory.model.records import Commit, Run, Verdict
from locus.memory.model.table import ThreadTable


def commit(checkpoint_id: str, rev: str, run: Run, replaces: str | None = None) -> Commit:
    return Commit(
        thread_id="t",
        namespace="",
        checkpoint_id=checkpoint_id,
        rev=rev,
        created_at=datetime(2026, 1, 2, tzinfo=UTC),
        metadata="{}",
        head='{"m":[]}',
        manifest=f'[[["m"],[["{run.branch}",{run.number},0,{run.start + run.length}]]]]',
        runs=(run,),
        replaces=replaces,
    )


def add(table: ThreadTable, commit: Commit) -> None:
    outcome = decide(commit, table)
    assert outcome.is_written
    table.add(commit, outcome)


def test_a_commit_that_is_sent_again_after_it_was_removed_has_all_its_items() -> None:
    """The answer was lost. Meanwhile others went on from it, replaced it, and deleted what replaced it."""
    table = ThreadTable("t")
    first = commit("a", "one", Run("one", 0, 0, 1, '["first"]'))
    steps = [
        first,
        commit("b", "two", Run("one", 1, 0, 1, '["another"]')),
        commit("a", "three", Run("three", 0, 0, 1, '["instead"]'), replaces="one"),
    ]
    for step in steps:
        add(table, step)
    table.remove({3})
    assert decide(first, table).verdict is Verdict.BRANCH_TAKEN, "its run would stand among those of another"
    add(table, commit("a", "four", Run("four", 0, 0, 1, '["first"]')))
    for checkpoint_id, items in (("a", ["first"]), ("b", ["another"])):
        row = table.row("", checkpoint_id)
        assert row is not None
        assert dict_from(table.stored(row)) == {"m": items}
