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
"""The part of the width that the names of bars take."""
FIGURES: Final = 90
COLUMNS_HEIGHT: Final = 120


@dataclass(frozen=True, slots=True)
class Bar:
    """A horizontal bar. `part` is the length of the piece that has another colour."""

    name: str
    figure: str
    y: int
    width: int
    part: int


@dataclass(frozen=True, slots=True)
class BarChart:
    """A chart of bars, one below the other."""

    bars: list[Bar]
    width: int
    height: int
    left: int = NAMES


def bars(values: Sequence[tuple[str, str, float, float]]) -> BarChart:
    """A chart of bars, made of the name, the figure, the value and the part of the value for each."""
    most = max((value for _, _, value, _ in values), default=0.0)
    room = WIDTH - NAMES - FIGURES

    def length(value: float) -> int:
        return 0 if most <= 0 or value <= 0 else max(1, round(room * value / most))

    made = [
        Bar(name, figure, (BAR + GAP) * at, length(value), min(length(part), length(value)))
        for at, (name, figure, value, part) in enumerate(values)
    ]
    return BarChart(made, WIDTH, max((BAR + GAP) * len(made), 1))


@dataclass(frozen=True, slots=True)
class Column:
    x: float
    y: int
    width: float
    height: int
    label: str


@dataclass(frozen=True, slots=True)
class ColumnChart:
    """A chart of columns side by side, with lines that mark heights."""

    columns: list[Column]
    lines: list[tuple[int, str]]
    width: int = WIDTH
    height: int = COLUMNS_HEIGHT


def columns(values: Sequence[tuple[float, str]]) -> ColumnChart:
    """A chart of durations. The scale is logarithmic, because pauses of people are among them."""
    most = max((seconds for seconds, _ in values), default=0.0)
    top = math.log10(1 + 1_000 * max(most, 0.001))

    def height(seconds: float) -> int:
        return max(1, round((COLUMNS_HEIGHT - 14) * math.log10(1 + 1_000 * max(seconds, 0.0)) / top))

    step = WIDTH / max(len(values), 12)
    made = []
    for at, (seconds, label) in enumerate(values):
        high = height(seconds)
        made.append(Column(round(step * at, 2), COLUMNS_HEIGHT - high, round(max(step - 1, 0.5), 2), high, label))
    marks = [(seconds, text) for seconds, text in _MARKS if most / 200 < seconds <= most]
    return ColumnChart(made, [(COLUMNS_HEIGHT - height(seconds), text) for seconds, text in marks])


_MARKS: Final = (
    (0.01, "10 ms"),
    (0.1, "0.1 s"),
    (1, "1 s"),
    (10, "10 s"),
    (60, "1 min"),
    (3_600, "1 h"),
    (86_400, "1 d"),
)
