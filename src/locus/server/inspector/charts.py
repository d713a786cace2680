"""Charts as shapes that a template draws: places and sizes, computed here. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

WIDTH: Final = 720
COLUMNS_HEIGHT: Final = 120


@dataclass(frozen=True, slots=True)
class Bar:
    """A horizontal bar. Its width is in percent of the longest; `part` is that of the piece with another colour."""

    name: str
    figure: str
    width: float
    part: float


def bars(values: Sequence[tuple[str, str, float, float]]) -> list[Bar]:
    """Bars, one below the other, made of the name, the figure, the value and the part of the value for each."""
    most = max((value for _, _, value, _ in values), default=0.0)

    def percent(value: float) -> float:
        return 0.0 if most <= 0 or value <= 0 else max(0.5, round(100 * value / most, 1))

    return [Bar(name, figure, percent(value), percent(min(part, value))) for name, figure, value, part in values]


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
