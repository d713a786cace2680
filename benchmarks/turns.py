"""The conversation that everybody saves, ours and peers alike. Needs the standard library only.

A *turn* is four messages, about 3.1 KB as JSON: a question, a tool call, the tool's result and an answer.
Its words follow roughly the distribution of natural text, so that a search index has the usual work to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from random import Random

_SYLLABLES = [first + second for first in "bcdfgklmnprstvz" for second in ("a", "er", "i", "on", "u")]


@dataclass(frozen=True)
class Turn:
    """The texts of one turn."""

    question: str
    thought: str
    call_id: str
    place: str
    result: str
    answer: str


@cache
def _vocabulary() -> tuple[list[str], list[float]]:
    random = Random(7)
    words = ["".join(random.choices(_SYLLABLES, k=random.randint(1, 4))) for _ in range(5_000)]
    return words, list(accumulate(1 / (rank + 3) for rank in range(len(words))))


def _text(random: Random, size: int) -> str:
    words, weights = _vocabulary()
    text = " ".join(random.choices(words, cum_weights=weights, k=size // 4))
    return text[:size].strip().capitalize() + "."


@cache
def turn(number: int, conversation: int = 0) -> Turn:
    """Turn `number` of a conversation: always the same texts for the same numbers."""
    random = Random(conversation * 1_000_003 + number)
    return Turn(
        question=_text(random, 360),
        thought=_text(random, 160),
        call_id=f"call_{random.getrandbits(48):012x}",
        place=_text(random, 24),
        result=_text(random, 1_280),
        answer=_text(random, 1_000),
    )
