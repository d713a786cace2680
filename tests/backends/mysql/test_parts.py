"""The parts of the MySQL backend that think without a server."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locus.memory.backends.mysql.client import Expression, literal, rendered
from locus.memory.backends.mysql.commit import in_new_thread, in_seen_thread, metadata_keys
from locus.memory.backends.mysql.schema import MySQLFlavour
from locus.memory.backends.sql.commit import MOST_BRANCHES, MOST_SEEN_THREADS, LastSeenThreads, can_be_first
from locus.memory.backends.sql.search import LONGEST_PLAIN, indexed, metadata_key, spelt
from locus.memory.model.codec import decode
from locus.memory.model.ids import words
from locus.memory.model.records import Base, Commit, Run

SQL = MySQLFlavour()
AT = datetime(2026, 5, 17, 12, 30, 1, 234_567, tzinfo=UTC)
FIRST = Commit(
    thread_id="t",
    namespace="default",
    checkpoint_id="c1",
    rev="c1",
    created_at=AT,
    metadata="{}",
    head="{}",
    manifest="[]",
    runs=(Run("b", 0, 0, 1, "[1]"),),
    fresh_id=True,
)
SECOND = replace(FIRST, checkpoint_id="c2", rev="c2", base=Base("c1", "c1"), runs=(Run("b", 1, 1, 1, "[2]"),))


def test_values_are_escaped_where_the_marks_are_and_nowhere_else() -> None:
    text = rendered("a ? b ? c", ("x?y", Expression("NOW()")))
    assert text == "a 'x?y' b NOW() c"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NULL"),
        (7, "7"),
        (True, "1"),
        ("", "''"),
        ("it's", "'it''s'"),
        ("back\\slash", "'back\\\\slash'"),
        ("\\'; DROP TABLE x; --", "'\\\\''; DROP TABLE x; --'"),
        ('"quoted"\0\n\x1a é 😀', "'\"quoted\"\0\n\x1a é 😀'"),
        (b"\x00'\\", "FROM_BASE64('ACdc')"),
    ],
)
def test_literals(value: object, text: str) -> None:
    assert literal(value) == text


@pytest.mark.parametrize("value", [1.5, bytearray(b"x"), AT, ["x"], object()])
def test_what_no_column_has_is_no_literal(value: object) -> None:
    with pytest.raises(TypeError):
        literal(value)


@given(st.text())
def test_a_literal_ends_where_it_should(text: str) -> None:
    """Read as MySQL reads it: a doubled quote is one, and a backslash takes what follows with it."""
    inner, read = literal(text)[1:-1], ""
    at = 0
    while at < len(inner):
        assert inner[at] != "'" or inner[at + 1] == "'", "the literal ends here"
        at += inner[at] in "'\\"
        read += inner[at]
        at += 1
    assert read == text


@pytest.mark.parametrize("values", [(), (1, 2)])
def test_marks_and_values_have_to_be_as_many(values: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="1 marks"):
        rendered("a ?", values)


def test_times_are_kept_in_utc() -> None:
    local = AT.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert SQL.time(local) == "2026-05-17 12:30:01.234567"
    assert SQL.read_time(AT.replace(tzinfo=None)) == AT
    with pytest.raises(TypeError):
        SQL.read_time("2026-05-17")


@given(st.text())
def test_words_are_spelt_in_a_way_that_no_parser_splits_or_leaves_out(text: str) -> None:
    for word in words(text):
        spelling = spelt(word)
        assert spelling.isascii()
        assert spelling.isalnum()
        assert 3 <= len(spelling) <= LONGEST_PLAIN + 2


@given(st.lists(st.text(min_size=1), max_size=5))
def test_different_words_are_spelt_differently(texts: list[str]) -> None:
    found = {word for text in texts for word in words(text)}
    assert len({spelt(word) for word in found}) == len(found)


def test_the_words_of_a_very_long_text_are_kept_once() -> None:
    assert indexed('["a b a"]') == "xxa xxb xxa"
    assert indexed(f'["{"long " * 1_000_000}"]') == "xxlong"


def test_each_pair_of_the_metadata_has_a_digest() -> None:
    assert metadata_keys("{}") is None
    found = metadata_keys('{"user":"eve","n":{"b":1,"a":2}}')
    assert found is not None
    assert decode(found) == [metadata_key("user", '"eve"'), metadata_key("n", '{"a":2,"b":1}')]
    assert metadata_key('a":1,"b', "2") != metadata_key("a", '1,"b":2')


def chains_after(*commits: Commit) -> LastSeenThreads:
    chains = LastSeenThreads()
    for seq, commit in enumerate(commits, 1):
        chains.note(commit, 5, seq, 0, chains.get("t"))
    return chains


def test_a_chain_is_continued_by_what_builds_on_its_end() -> None:
    chain = chains_after(FIRST).get("t")
    assert chain is not None
    assert chain.continued_by(SECOND)
    assert chain.continued_by(replace(SECOND, parent_id="c1", if_latest="c1"))
    assert chain.continued_by(replace(SECOND, fresh_id=False), any_id=True)
    for other in (
        replace(SECOND, fresh_id=False),
        replace(SECOND, namespace="other"),
        replace(SECOND, base=None),
        replace(SECOND, base=Base("c1", "another rev")),
        replace(SECOND, parent_id="c0"),
        replace(SECOND, parent_id=None),
        replace(SECOND, if_latest="c0"),
        replace(SECOND, if_latest=None),
        replace(SECOND, runs=(Run("b", 2, 1, 1, "[2]"),)),
        replace(SECOND, runs=(Run("somebody else's", 1, 1, 1, "[2]"),)),
    ):
        assert not chain.continued_by(other), other


def test_a_chain_remembers_the_branches_it_has_written_and_not_too_many() -> None:
    other = replace(SECOND, checkpoint_id="c3", rev="c3", runs=(Run("x", 0, 0, 1, "[3]"),))
    chain = chains_after(FIRST, SECOND, other).get("t")
    assert chain is not None
    assert chain.newest_runs == {"b": 1, "x": 0}
    many = replace(SECOND, runs=tuple(Run(f"b{n}", 0, 0, 1, "[]") for n in range(MOST_BRANCHES + 50)))
    chain = chains_after(many).get("t")
    assert chain is not None
    assert len(chain.newest_runs) == MOST_BRANCHES


def test_chains_are_forgotten_before_they_are_too_many() -> None:
    chains = LastSeenThreads()
    for number in range(MOST_SEEN_THREADS + 10):
        chains.note(replace(FIRST, thread_id=str(number)), number, 1, 0)
    assert chains.get("0") is None
    assert chains.get(str(MOST_SEEN_THREADS + 9)) is not None


def test_a_save_in_a_chain_depends_on_the_row_of_its_thread() -> None:
    chain = chains_after(FIRST).get("t")
    assert chain is not None
    begin, moved, run, checkpoint, commit = in_seen_thread(SQL, SECOND, chain)
    assert (begin[0], commit[0]) == ("BEGIN", "COMMIT")
    assert moved[1][:6] == (2, None, 5, "t", 1, 0)
    assert run[1][0] == Expression("IF(ROW_COUNT() = 1, 5, NULL)")
    assert checkpoint[1][0] == 5
    without_runs = in_seen_thread(SQL, replace(SECOND, runs=()), chain)
    assert without_runs[2][1][0] == Expression("IF(ROW_COUNT() = 1, 5, NULL)")


def test_only_what_needs_nothing_else_can_begin_a_thread() -> None:
    assert can_be_first(FIRST)
    assert can_be_first(replace(FIRST, if_latest=None, parent_id=None))
    assert can_be_first(replace(FIRST, parent_id="lost"))
    assert not can_be_first(SECOND)
    assert not can_be_first(replace(FIRST, if_latest="c0"))
    assert not can_be_first(replace(FIRST, parent_id="c0", parent_required=True))
    statements = in_new_thread(SQL, replace(FIRST, expires_at=AT))
    assert statements[1][1] == ("t", SQL.time(AT))
    assert [statement[1][0] for statement in statements[2:-1]] == [Expression("LAST_INSERT_ID()")] * 2
