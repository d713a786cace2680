"""Blocking saves are measured on what was kept, and the table can say no."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks.blocking_saves import BlockingCost, blocking_figures, blocking_section
from benchmarks.settings import QUICK


def test_both_sides_are_timed(tmp_path: Path) -> None:
    section = blocking_section(replace(QUICK, loop_lengths=(4,), loop_rounds=3), tmp_path)
    assert [figure.backend for figure in section.figures] == ["file", "sqlite FULL"]
    assert "| sqlite FULL | 4 |" in section.table


def test_a_save_that_takes_too_long_is_told() -> None:
    costs = [BlockingCost("sqlite FULL", 10, 0.35, 0.2), BlockingCost("file", 10, 0.35, 0.2)]
    assert [figure.ok for figure in blocking_figures(costs)] == [False, True]
