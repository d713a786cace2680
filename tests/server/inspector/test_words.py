"""What differs between two texts, word by word."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from locus.server.inspector.words import MOST_MARKS, MOST_STEPS, MOST_WORDS, Effort, Piece, compared, marked

TEXTS = st.lists(st.sampled_from(["a", "b", "word", " ", "\n", ".", "é"]), max_size=40).map("".join)


@given(TEXTS, TEXTS)
def test_both_texts_are_there_in_full(old: str, new: str) -> None:
    before, after = compared(old, new)
    assert "".join(piece.text for piece in before) == old
    assert "".join(piece.text for piece in after) == new
    assert {piece.kind for piece in before} <= {"same", "removed"}
    assert {piece.kind for piece in after} <= {"same", "added"}
    same = ["".join(piece.text for piece in side if piece.kind == "same") for side in (before, after)]
    assert same[0] == same[1]


def test_very_long_texts_are_marked_as_a_whole() -> None:
    old, new = "x " * 2 * MOST_WORDS, "y " * 2 * MOST_WORDS
    before, after = compared(f"begin {old}end", f"begin {new}end")
    assert before == [Piece("same", "begin "), Piece("removed", old[:-1]), Piece("same", " end")]
    assert after == [Piece("same", "begin "), Piece("added", new[:-1]), Piece("same", " end")]


def test_texts_that_repeat_a_few_signs_are_marked_as_a_whole() -> None:
    """The longest common part is one sign, again and again: to find them all takes the cube of the length."""
    old, new = ".," * (MOST_WORDS // 2), ".;" * (MOST_WORDS // 2)
    effort = CountedEffort()
    before, after = compared(f"begin {old}end", f"begin {new}end", effort)
    assert effort.taken <= MOST_STEPS + MOST_WORDS**2
    assert before == [Piece("same", "begin ."), Piece("removed", old[1:]), Piece("same", "end")]
    assert after == [Piece("same", "begin ."), Piece("added", new[1:]), Piece("same", "end")]


def test_what_is_left_to_do_is_for_all_texts_of_a_page() -> None:
    effort = Effort(1_000)
    words = " ".join(map(str, range(100)))
    for _ in range(10):
        before, _ = compared(f"a {words} b", f"c {words} d", effort)
    assert before == [Piece("removed", f"a {words} b")]
    before, _ = compared(f"a {words} b", f"c {words} d")
    assert [piece.kind for piece in before] == ["removed", "same", "removed"]


@given(TEXTS, st.lists(st.sampled_from(["a", "A", "wor", "word", "rd.", "é", "É", " "]), max_size=3))
def test_what_is_looked_for_is_marked_as_a_pattern_would_find_it(text: str, terms: list[str]) -> None:
    pieces = marked(text, terms)
    assert "".join(piece.text for piece in pieces) == text
    pattern = "|".join(re.escape(term) for term in sorted(terms, key=len, reverse=True))
    found = [match[0] for match in re.finditer(pattern, text, re.IGNORECASE)] if terms else []
    assert [piece.text for piece in pieces if piece.kind == "marked"] == found


def test_a_term_that_nearly_stands_everywhere_is_looked_for_once() -> None:
    """A regular expression would take the product of both lengths: 200 billion steps."""
    text = "a" * 100_000_000
    assert marked(text, ["a" * 1_999 + "b"]) == [Piece("same", text)]


def test_marks_are_bounded() -> None:
    pieces = marked("ab" * 10 * MOST_MARKS, ["A"])
    assert sum(piece.kind == "marked" for piece in pieces) == MOST_MARKS
    assert marked("", ["a"]) == [Piece("same", "")]


def test_letters_whose_small_ones_are_longer_stay_in_their_places() -> None:
    assert marked("İİ Word", ["wORD"]) == [Piece("same", "İİ "), Piece("marked", "Word")]


class CountedEffort(Effort):
    taken = 0

    def take(self, steps: int) -> None:
        self.taken += steps
        super().take(steps)
