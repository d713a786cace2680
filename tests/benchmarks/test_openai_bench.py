"""The comparison of sessions runs on what both sides kept, and can say no."""

from __future__ import annotations

from pathlib import Path

from benchmarks.openai_bench import SessionCost, pairs, session_figures, session_table


async def test_both_sides_keep_the_same_and_are_timed(tmp_path: Path) -> None:
    pair = next(pairs(tmp_path))
    cost = await pair.measure(length=6, rounds=4)
    assert (cost.engine, cost.length) == ("SQLite FULL", 6)
    assert cost.ours_ms > 0
    assert cost.theirs_ms > 0
    assert {path.name for path in tmp_path.glob("*.db")} == {"ours.db", "theirs.db"}


def test_a_slower_session_is_told() -> None:
    costs = [SessionCost("SQLite FULL", 10, 0.5, 1.0), SessionCost("Redis always", 1_000, 1.1, 1.0)]
    assert [figure.ok for figure in session_figures(costs)] == [True, False]
    assert "| Redis always | 1,000 | 1.100 | 1.000 | 1.10× |" in session_table(costs)
