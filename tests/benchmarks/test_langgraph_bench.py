"""The comparison of savers runs on what both sides kept, and can say no."""

from __future__ import annotations

import pytest

from benchmarks.langgraph_bench import Comparison, Costs, compare, langgraph_figures, langgraph_table


@pytest.mark.postgresql
async def test_both_savers_keep_the_same_and_are_timed() -> None:
    found = await compare((2, 4), 2, 2)
    for costs in (found.ours, found.theirs):
        assert set(costs.put) == set(costs.writes) == {2, 4}
        assert min(*costs.put.values(), costs.list_ten, costs.load, costs.graph_turn) > 0
        assert costs.stored > found.content > 10_000
    assert set(found.floor) == {2, 4}
    assert "| `AsyncPostgresSaver` |" in langgraph_table(found)


def test_a_target_that_was_missed_is_told() -> None:
    ours = Costs("LocusSaver", put={10: 1.0, 1_000: 1.6}, list_ten=10.0, stored=100)
    theirs = Costs("AsyncPostgresSaver", put={10: 2.0, 1_000: 160.0}, list_ten=90.0, stored=10_000)
    assert [figure.ok for figure in langgraph_figures(Comparison(ours, theirs))] == [True, True, False, False]
