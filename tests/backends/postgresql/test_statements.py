"""A statement is written once for commits that differ in their values only."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product

import pytest

from locus.memory.backends.postgresql.commit import Statement, in_new_thread, in_thread
from locus.memory.backends.postgresql.schema import PostgreSQLFlavour
from locus.memory.model.records import ANY, Base, Commit, Run

SQL = PostgreSQLFlavour()
COMMIT = Commit("thread", "default", "new", "rev", datetime.now(UTC), "{}", "{}", "[]", fresh_id=True)
FOLLOWING = replace(COMMIT, base=Base("old", "r"), parent_id="old", runs=(Run("branch", 3, 10, 2, "[1,2]"),))


def check(statement: Statement, commit: Commit) -> None:
    """Every value has one place, and there is none without a value."""
    places = {int(number) for number in re.findall(r"\$(\d+)", statement.text)}
    assert places == set(range(1, len(statement.values(commit)) + 1))


def test_other_values_use_the_same_text_and_their_own_values() -> None:
    other = replace(FOLLOWING, thread_id="other", base=Base("x", "y"), parent_id="x", runs=(Run("b", 9, 8, 7, "[]"),))
    one, two = in_thread(SQL, FOLLOWING), in_thread(SQL, other)
    assert one.text is two.text
    assert {"thread", "old", "r", "branch", 3, 10, 2, "[1,2]"} <= set(one.values(FOLLOWING))
    assert {"other", "x", "y", "b", 9, 8, 7, "[]"} <= set(two.values(other))


def test_other_tables_have_statements_of_their_own() -> None:
    assert in_thread(SQL, COMMIT).text != in_thread(PostgreSQLFlavour("other"), COMMIT).text


@pytest.mark.parametrize(
    "change",
    [
        {"fresh_id": False},
        {"base": None},
        {"if_latest": None},
        {"if_latest": "old"},
        {"parent_id": ANY},
        {"parent_id": None},
        {"parent_id": "another"},
        {"parent_id": "new"},
        {"runs": (Run("branch", 0, 0, 2, "[1,2]"),)},
        {"runs": ()},
        {"values": (Run("#large", 0, 0, 1, "[1]"),)},
    ],
)
def test_what_a_commit_asks_for_is_part_of_its_text(change: dict[str, object]) -> None:
    changed = replace(FOLLOWING, **change)  # type: ignore[arg-type]
    assert in_thread(SQL, changed).text != in_thread(SQL, FOLLOWING).text
    check(in_thread(SQL, changed), changed)


def test_a_parent_that_is_kept_as_named_is_not_looked_up() -> None:
    named = replace(FOLLOWING, parent_id="another")
    assert "another" in in_thread(SQL, named).values(named)
    assert in_thread(SQL, named).values(named).count("another") == 2
    kept = replace(named, parent_as_named=True)
    assert in_thread(SQL, kept).values(kept).count("another") == 1


def test_every_shape_has_a_value_for_each_place() -> None:
    for base, fresh, latest, parent, named in product(
        (None, Base("old", "r")), (True, False), (ANY, None, "old"), (ANY, None, "old", "new", "another"), (True, False)
    ):
        commit = replace(
            FOLLOWING, base=base, fresh_id=fresh, if_latest=latest, parent_id=parent, parent_as_named=named
        )
        check(in_thread(SQL, commit), commit)
        first = in_new_thread(SQL, commit)
        # A parent that is kept as named would be lost: a new thread has nothing to look it up in.
        keeps_parent = named and isinstance(parent, str)
        assert (first is None) == (base is not None or latest == "old" or keeps_parent)
        if first is not None:
            check(first, commit)
