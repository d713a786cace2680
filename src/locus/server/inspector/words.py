"""Marks the words in which two texts differ, or that somebody looks for. Pure functions, bounded in time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from difflib import Match, SequenceMatcher
from typing import Final, Literal, NamedTuple

MOST_WORDS: Final = 1_500
"""The most words that are compared one by one. Of longer texts, the part between common beginning and end is marked."""
MOST_STEPS: Final = 10_000_000
"""The most comparisons of two words for one page: about a second. Texts that repeat a few words can make the search
for their common parts take the cube of their length."""
MOST_MARKS: Final = 2_000
"""The most marks in one text."""

_WORD = re.compile(r"\w+|\s+|[^\w\s]")


class Piece(NamedTuple):
    """A piece of a text, and how it is marked."""

    kind: Literal["same", "added", "removed", "marked"]
    text: str


class Effort:
    """The effort that is left to compare the texts of one page, in comparisons of two words."""

    def __init__(self, steps: int = MOST_STEPS) -> None:
        self._left = steps

    def take(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise _TooMuchError


class _TooMuchError(Exception):
    """Two texts cannot be compared word by word with the effort that is left."""


class _Matcher(SequenceMatcher[str]):
    """Takes the effort of each search for the longest common part, before it begins."""

    def __init__(self, old: Sequence[str], new: Sequence[str], effort: Effort) -> None:
        self._old = old
        self._often = Counter(new)
        self._effort = effort
        super().__init__(None, old, new, autojunk=False)

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        self._effort.take(sum(1 + self._often[word] for word in self._old[alo:ahi]))
        return super().find_longest_match(alo, ahi, blo, bhi)


def compared(old: str, new: str, effort: Effort | None = None) -> tuple[list[Piece], list[Piece]]:
    """Both texts in pieces: removed words are marked in the old one, added words in the new one.

    If that takes more than `effort`, the part between their common beginning and end is marked as a whole.
    """
    before, after = _WORD.findall(old), _WORD.findall(new)
    start = _common(before, after)
    end = _common(before[start:][::-1], after[start:][::-1])
    middle = before[start : len(before) - end], after[start : len(after) - end]
    operations: Sequence[tuple[str, int, int, int, int]] = [("replace", 0, len(middle[0]), 0, len(middle[1]))]
    if max(map(len, middle)) <= MOST_WORDS:
        with suppress(_TooMuchError):
            operations = _Matcher(*middle, effort or Effort()).get_opcodes()
    first, last = "".join(before[:start]), "".join(before[len(before) - end :]) if end else ""
    sides: tuple[list[Piece], list[Piece]] = ([Piece("same", first)], [Piece("same", first)])
    for kind, low, high, new_low, new_high in operations:
        sides[0].append(Piece("same" if kind == "equal" else "removed", "".join(middle[0][low:high])))
        sides[1].append(Piece("same" if kind == "equal" else "added", "".join(middle[1][new_low:new_high])))
    for side in sides:
        side.append(Piece("same", last))
    return [piece for piece in sides[0] if piece.text], [piece for piece in sides[1] if piece.text]


def _common(first: list[str], second: list[str]) -> int:
    """The number of words that both begin with."""
    count = 0
    for left, right in zip(first, second, strict=False):
        if left != right:
            break
        count += 1
    return count


def marked(text: str, terms: Sequence[str], *, any_case: bool = True) -> list[Piece]:
    """A text in pieces, with the terms marked that somebody looks for. After `MOST_MARKS` no more are marked.

    A regular expression could take the product of the lengths of text and term, while all others wait.
    """
    folded = _same_length(text) if any_case else text
    wanted = sorted({_same_length(term) if any_case else term for term in terms if term}, key=len, reverse=True)
    places = {term: folded.find(term) for term in wanted}
    pieces: list[Piece] = []
    at = 0
    for _ in range(MOST_MARKS):
        ahead = [(start, -len(term)) for term, start in places.items() if start >= 0]
        if not ahead:
            break
        start, length = min(ahead)
        if start > at:
            pieces.append(Piece("same", text[at:start]))
        at = start - length
        pieces.append(Piece("marked", text[start:at]))
        for term, place in places.items():
            if 0 <= place < at:
                places[term] = folded.find(term, at)
    return [*pieces, Piece("same", text[at:])] if at < len(text) or not pieces else pieces


def _same_length(text: str) -> str:
    """A text in small letters, in which every letter has the place that it had."""
    small = text.lower()
    if len(small) == len(text):
        return small
    return "".join(letter if len(letter.lower()) > 1 else letter.lower() for letter in text)
