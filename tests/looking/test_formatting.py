"""Stored text, shown: nothing in it drives a terminal, and no line is wider than it is told to be."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locus.looking.formatting import cut, one_line, visible, visible_id, width


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ("plain text", "plain text"),
        ("Größe 日本語 😀", "Größe 日本語 😀"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x9b2J", "\\x9b2J"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("\u2066x\u2069", "\\u2066x\\u2069"),
        ("a\u200bb", "a\\u200bb"),
        ("a\u200db", "a\\u200db"),
        ("\U0001f468\u200d\U0001f469", "\U0001f468\u200d\U0001f469"),
        ("\U000e0041", "\\U000e0041"),
        ("\ud800", "\\ud800"),
        ("\u3164", "\\u3164"),
        ("\u2028", "\\u2028"),
    ],
)
def test_what_has_no_shape_is_an_escape(stored: str, shown: str) -> None:
    assert visible(stored) == shown


@given(st.text(st.characters(exclude_categories=[])))
def test_nothing_that_drives_a_terminal_is_left(stored: str) -> None:
    left = {character for character in visible(stored) if unicodedata.category(character)[0] == "C"}
    assert left <= {"\u200d"}, "which stands between two pictures only"
    assert "\n" not in visible(stored)


@given(st.text(), st.integers(0, 40))
def test_a_text_is_cut_to_columns(stored: str, columns: int) -> None:
    shown = visible(stored)
    short = cut(shown, columns)
    assert width(short) <= columns
    assert short == shown if width(shown) <= columns else columns == 0 or short.endswith("…")


def test_wide_letters_take_two_columns_and_marks_none() -> None:
    assert width("日本") == 4
    assert width("e\u0301") == 1
    assert cut("日本語", 4) == "日…"


def test_no_two_ids_look_alike() -> None:
    ids = ["a b", "a  b", " a b", "a b ", "a\nb", "a\tb", "a\u00a0b", "a\u3000b", "a\u200bb", "ab", "a\rb"]
    shown = [visible_id(one) for one in ids]
    assert len({" ".join(one.split()) for one in shown}) == len(ids)  # as a browser shows them
    assert shown[:3] == ["a b", "a\\x20\\x20b", "\\x20a b"]


def test_a_text_of_many_lines_on_one() -> None:
    assert one_line("a\n\n  b\tc") == "a b c"
    assert one_line("x" * 1_000_000, 20) == "x" * 19 + "…"
