"""Ids and patterns: every character counts, and only two mean something."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locus.errors import ConfigurationError, InvalidIdError
from locus.memory.model.ids import (
    Pattern,
    check_id,
    check_pattern,
    checked_terms,
    digest,
    new_id,
    prefix_end,
    query_terms,
    words,
)
from locus.testing.data import BAD_IDS, HOSTILE_IDS, budget

few = st.text("ab*?[.\n", max_size=6)


@pytest.mark.parametrize("value", HOSTILE_IDS, ids=ascii)
def test_any_text_is_an_id(value: str) -> None:
    assert check_id(value) == value


@pytest.mark.parametrize("value", BAD_IDS, ids=ascii)
def test_what_is_no_id_is_refused_and_named(value: Any) -> None:
    with pytest.raises(InvalidIdError, match=r"^parent "):
        check_id(value, "parent")


def test_some_ids_may_be_empty() -> None:
    assert check_id("", "namespace", empty=True) == ""


def test_a_long_id_is_not_repeated_whole() -> None:
    with pytest.raises(InvalidIdError) as caught:
        check_id("x" * 100_000)
    assert len(str(caught.value)) < 300


def test_a_relative_of_text_becomes_text() -> None:
    class Name(str):
        pass

    assert type(check_id(Name("a"))) is str


def matches_slowly(pattern: str, value: str) -> bool:
    if not pattern:
        return not value
    if pattern[0] == "*":
        return any(matches_slowly(pattern[1:], value[start:]) for start in range(len(value) + 1))
    return value[:1] != "" and pattern[0] in ("?", value[0]) and matches_slowly(pattern[1:], value[1:])


@given(few, st.text("ab*?[.\n", max_size=6))
@budget(80)
def test_a_pattern_matches_like_a_shell_without_brackets(pattern: str, value: str) -> None:
    expected = matches_slowly(pattern, value)
    found = Pattern(pattern)
    assert found.matches(value) == expected
    if expected:
        assert value.startswith(found.prefix)


def test_a_new_line_is_a_character_like_any_other() -> None:
    assert Pattern("a*").matches("a\nb")
    assert Pattern("a?b").matches("a\nb")
    assert not Pattern("a").matches("a\n")


def test_the_prefix_ends_where_the_pattern_begins() -> None:
    assert Pattern("user-*").prefix == "user-"
    assert Pattern("?x").prefix == ""
    assert Pattern("plain").prefix == "plain"
    assert Pattern().matches_all
    assert not Pattern("**").matches_all


@pytest.mark.parametrize("value", [None, 5, b"*", ["*"]])
def test_what_is_no_pattern_is_refused(value: Any) -> None:
    with pytest.raises(InvalidIdError, match="pattern"):
        check_pattern(value)


def test_new_ids_are_new_and_of_one_length() -> None:
    made = {new_id() for _ in range(1_000)}
    assert len(made) == 1_000
    assert {len(name) for name in made} == {20}
    assert all(set(name) <= set("0123456789abcdef") for name in made)


def test_digests_are_the_same_for_the_same_text_only() -> None:
    assert digest("a") == digest("a") != digest("b")
    assert len(digest("")) == 32


def test_the_words_of_a_text() -> None:
    assert words("Hello, wörld_2! — it's") == ["hello", "wörld", "2", "it", "s"]
    assert words("jose\u0301") == words("JOSÉ") == ["josé"]
    assert words("\0 *!") == []


@pytest.mark.parametrize("pattern", ["*a" * 32 + "b", "a*" * 32 + "?b", "*" * 512, "?*" * 32 + "b", "[" * 500 + "*"])
def test_no_pattern_takes_long(pattern: str) -> None:
    """A star that goes back over what the others have taken would need centuries for the first of these."""
    found = check_pattern(pattern)
    assert found.matches("a" * 255) == (pattern == "*" * 512)


def test_brackets_are_no_syntax() -> None:
    for text in ("[ab]", "[!a]", "[", "]", "[]", "[[]", "a[b*", "\\*", "[a-z]?"):
        assert Pattern(text.replace("*", "?")).matches(text.replace("*", "x").replace("?", "y"))
    assert not Pattern("[ab]").matches("a")
    assert not Pattern("[[]").matches("[")


@given(few, st.text("ab*?", max_size=3), st.text("ab*?", max_size=6))
@budget(80)
def test_a_pattern_within_a_prefix_matches_less(pattern: str, within: str, value: str) -> None:
    limited = Pattern(pattern, within)
    assert limited.matches(value) == (Pattern(pattern).matches(value) and value.startswith(within))
    if limited.matches(value):
        assert value.startswith(limited.prefix)


@given(st.text("aé\ud7ff\ue000\U0010ffff", max_size=3), st.text("aéb\ud7ff\ue000\U0010ffff", max_size=4))
@budget(80)
def test_a_prefix_is_a_range(prefix: str, value: str) -> None:
    end = prefix_end(prefix)
    assert value.startswith(prefix) == (prefix <= value and (end is None or value < end))
    if end is not None:
        end.encode()  # no surrogates


def test_texts_of_plain_characters_have_the_words_that_others_have() -> None:
    every = "".join(f"a{chr(code)}B{chr(code)}" for code in range(128))
    assert words(every) == words(f"{every} é")[:-1]
    assert words(every)[:3] == ["a", "b", "a"]


def test_all_words_may_be_looked_for_and_nothing_else() -> None:
    capitals = [char for char in map(chr, range(0x110000)) if char.lower() != char]
    assert len(capitals) > 1_000
    for char in capitals:
        assert checked_terms(words(f"x{char}y"))
    for term in ("", "a b", "A", "a*", "_", '"', "i\u0301", "\u0307"):
        with pytest.raises(ConfigurationError):
            checked_terms([term])
    assert checked_terms(["a", "b", "a"]) == query_terms("a B. A!") == ["a", "b"]


def test_rows_of_combining_marks_take_no_time() -> None:
    """Sorting a row of so many at once would take minutes."""
    assert words("x" + "\u0301\u0323" * 100_000) == ["x"]


@given(st.text("ae \u0301\u0323\u3099か\u1100\u1161é", max_size=40), st.integers(1, 80))
@budget(40)
def test_long_texts_have_the_words_of_short_ones(text: str, times: int) -> None:
    assert words(f"{text} " * times) == words(text) * times
