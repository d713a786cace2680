"""The benchmark of the loop measures what it says, and can say no. Nothing here depends on how fast anything is."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.agent_loop import loop_figures, loop_table, measure_loop
from benchmarks.costs import LoopCost


async def test_it_measures_both_lengths() -> None:
    costs = await measure_loop(lengths=(2, 12), rounds=6)
    assert [cost.length for cost in costs] == [2, 12]
    for cost in costs:
        assert 0 < cost.iteration_ms <= cost.slow_ms
        assert cost.store_ms > 0
    assert loop_table(costs).count("\n") == 3


def test_the_figure_is_reached_or_missed() -> None:
    costs = [LoopCost(10, 0.4, 0.5, 1.0), LoopCost(1_000, 0.9, 1.2, 14.0)]
    (reached,) = loop_figures(costs)
    (missed,) = loop_figures([costs[0], replace(costs[1], iteration_ms=1.01)])
    assert (reached.ok, missed.ok) == (True, False)
    assert "1,000 turns 1.01 ms" in missed.measured
