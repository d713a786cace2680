"""The comparison of frameworks' sessions runs on what both sides kept, and can say no."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.frameworks.openai_agents import OpenAISubject
from benchmarks.frameworks.running import (
    Costs,
    FrameworkCost,
    framework_figures,
    framework_table,
    measure_subject,
    subjects,
)
from benchmarks.settings import QUICK

SETTINGS = replace(QUICK, session_lengths=(2, 5), session_rounds=2, loads=1)


async def test_both_sides_keep_the_same_and_are_timed(tmp_path: Path) -> None:
    short, long = await measure_subject(OpenAISubject(), SETTINGS, tmp_path)
    assert (short.length, long.length) == (2, 5)
    for cost in (short, long):
        assert cost.theirs is not None
        for side in (cost.ours, cost.theirs):
            assert side.save_ms > 0
            assert side.newest_ms > 0
            assert side.stored_bytes > cost.content_bytes > 2_700 * cost.length


class OnlyOurs(OpenAISubject):
    own = None


async def test_a_framework_without_a_store_of_its_own_is_measured_alone(tmp_path: Path) -> None:
    costs = await measure_subject(OnlyOurs(), SETTINGS, tmp_path)
    assert [cost.theirs for cost in costs] == [None, None]
    assert not list(tmp_path.rglob("theirs"))
    assert [figure.what for figure in framework_figures(costs)] == [
        "a save, at 5 ÷ at 2 turns",
        "stored bytes ÷ content, at 5 turns",
        "the newest 20 messages, at 5 ÷ at 2 turns",
    ]


def costs(ours: Costs, theirs: Costs | None) -> list[FrameworkCost]:
    short = FrameworkCost("A framework", "`Own`", 10, 30_000, Costs(1.0, 1.0, 60_000), Costs(1.0, 1.0, 60_000))
    return [short, FrameworkCost("A framework", "`Own`", 1_000, 3_000_000, ours, theirs)]


@pytest.mark.parametrize(
    ("ours", "reached"),
    [
        (Costs(0.9, 1.0, 4_000_000), [True, True, True, True]),
        (Costs(1.0, 1.0, 4_000_000), [True, False, True, True]),
        (Costs(0.9, 1.0, 4_600_000), [True, True, False, True]),
        (Costs(0.9, 1.3, 4_000_000), [True, True, True, False]),
    ],
)
def test_what_costs_too_much_is_told(ours: Costs, reached: list[bool]) -> None:
    found = costs(ours, Costs(1.0, 30.0, 4_000_000))
    assert [figure.ok for figure in framework_figures(found)] == reached
    assert f"| A framework | `Own` | 1,000 | {ours.save_ms:.3g} | 1 | {ours.newest_ms:.3g} | 30.0 |" in framework_table(
        found
    )


def test_subjects_are_found_by_being_there() -> None:
    assert [subject.name for subject in subjects("openai_agents")] == ["OpenAI Agents"]
    with pytest.raises(SystemExit, match="openai_agents"):
        subjects("nothing")
