"""What differs between two texts, word by word. Pure functions, bounded in time whatever the texts are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from difflib import Match, SequenceMatcher
from typing import Final, Literal, NamedTuple

MOST_WORDS: Final = 1_500
"""In longer texts only what is between their common beginning and end is marked, as a whole."""
MOST_STEPS: Final = 10_000_000
"""How often two words may be looked at for one page: about a second. Texts that repeat a few words can make
the search for what they share take the cube of their length."""
MOST_MARKS: Final = 2_000
"""How often something is marked in one text."""

_WORD = re.compile(r"\w+|\s+|[^\w\s]")


class Piece(NamedTuple):
    """A piece of a text, and what it is there."""

    kind: Literal["same", "added", "removed", "marked"]
    text: str


class Effort:
    """What may still be done to compare the texts of one page."""

    def __init__(self, steps: int = MOST_STEPS) -> None:
        self._left = steps

    def take(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise _TooMuchError


class _TooMuchError(Exception):
    """Two texts cannot be compared word by word with the effort that is left."""


class _Matcher(SequenceMatcher[str]):
    """Counts what the search for the longest common part will look at, before it looks."""

    def __init__(self, old: Sequence[str], new: Sequence[str], effort: Effort) -> None:
        self._old = old
        self._often = Counter(new)
        self._effort = effort
        super().__init__(None, old, new, autojunk=False)

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        self._effort.take(sum(1 + self._often[word] for word in self._old[alo:ahi]))
        return super().find_longest_match(alo, ahi, blo, bhi)


def compared(old: str, new: str, effort: Effort | None = None) -> tuple[list[Piece], list[Piece]]:
    """Both texts in pieces: the old one with what was removed, the new one with what was added.

    If it takes more than `effort`, what is between their common beginning and end is marked as a whole.
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


def _common(one: list[str], other: list[str]) -> int:
    """How many words both begin with."""
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


def marked(text: str, terms: Sequence[str], *, any_case: bool = True) -> list[Piece]:
    """A text in pieces, those that are looked for marked: the first ones, up to a bound.

    No regular expression: for a long term it may take the product of both lengths, and nobody else has a turn then.
    """
    folded = _same_length(text) if any_case else text
    wanted = sorted({_same_length(term) if any_case else term for term in terms if term}, key=len, reverse=True)
    places = {term: folded.find(term) for term in wanted}
    pieces: list[Piece] = []
    at = 0
    for _ in range(MOST_MARKS):
        found = [(start, -len(term)) for term, start in places.items() if start >= 0]
        if not found:
            break
        start, length = min(found)
        if start > at:
            pieces.append(Piece("same", text[at:start]))
        at = start - length
        pieces.append(Piece("marked", text[start:at]))
        for term, place in places.items():
            if 0 <= place < at:
                places[term] = folded.find(term, at)
    return [*pieces, Piece("same", text[at:])] if at < len(text) or not pieces else pieces


def _same_length(text: str) -> str:
    """A text in small letters, in which everything is where it was."""
    small = text.lower()
    if len(small) == len(text):
        return small
    return "".join(letter if len(letter.lower()) > 1 else letter.lower() for letter in text)
