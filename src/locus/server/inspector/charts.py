"""Charts as shapes that a template draws: places and sizes, computed here. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

WIDTH: Final = 720
BAR: Final = 20
GAP: Final = 6
NAMES: Final = 220
"""How much of the width is for the names of bars."""
FIGURES: Final = 90
COLUMNS_HEIGHT: Final = 120


@dataclass(frozen=True, slots=True)
class Bar:
    """A horizontal bar. Of its length, a part may be told apart."""

    name: str
    figure: str
    y: int
    width: int
    part: int


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars, one below the other."""

    bars: list[Bar]
    width: int
    height: int
    left: int = NAMES


def bars(values: Sequence[tuple[str, str, float, float]]) -> Bars:
    """Bars for names, figures, values, and the parts of these that are told apart."""
    most = max((value for _, _, value, _ in values), default=0.0)
    room = WIDTH - NAMES - FIGURES

    def length(value: float) -> int:
        return 0 if most <= 0 or value <= 0 else max(1, round(room * value / most))

    found = [
        Bar(name, figure, (BAR + GAP) * at, length(value), min(length(part), length(value)))
        for at, (name, figure, value, part) in enumerate(values)
    ]
    return Bars(found, WIDTH, max((BAR + GAP) * len(found), 1))


@dataclass(frozen=True, slots=True)
class Column:
    x: float
    y: int
    width: float
    height: int
    label: str


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns side by side, with the lines that say how high they are."""

    columns: list[Column]
    lines: list[tuple[int, str]]
    width: int = WIDTH
    height: int = COLUMNS_HEIGHT


def columns(values: Sequence[tuple[float, str]]) -> Columns:
    """Columns for seconds, on a scale on which ten times as long is a step higher: pauses of people are among them."""
    most = max((seconds for seconds, _ in values), default=0.0)
    top = math.log10(1 + 1_000 * max(most, 0.001))

    def height(seconds: float) -> int:
        return max(1, round((COLUMNS_HEIGHT - 14) * math.log10(1 + 1_000 * max(seconds, 0.0)) / top))

    step = WIDTH / max(len(values), 12)
    found = []
    for at, (seconds, label) in enumerate(values):
        high = height(seconds)
        found.append(Column(round(step * at, 2), COLUMNS_HEIGHT - high, round(max(step - 1, 0.5), 2), high, label))
    marks = [(seconds, text) for seconds, text in _MARKS if most / 200 < seconds <= most]
    return Columns(found, [(COLUMNS_HEIGHT - height(seconds), text) for seconds, text in marks])


_MARKS: Final = (
    (0.01, "10 ms"),
    (0.1, "0.1 s"),
    (1, "1 s"),
    (10, "10 s"),
    (60, "1 min"),
    (3_600, "1 h"),
    (86_400, "1 d"),
)
