"""Graphs of histories, as git draws them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from locus.looking import graph
from locus.looking.graph import MOST_LANES, Node, drawn, lanes_of


def lines(*nodes: tuple[str, str | None]) -> list[str]:
    rows = drawn([Node(*node) for node in nodes])
    return [f"{row.lanes} {row.node.name if row.node else ''}".rstrip() for row in rows]


def test_a_line() -> None:
    assert lines(("3", "2"), ("2", "1"), ("1", None)) == ["* 3", "* 2", "* 1"]


def test_a_fork() -> None:
    assert lines(("5", "3"), ("4", "2"), ("3", "2"), ("2", "1"), ("1", None)) == [
        "* 5",
        "| * 4",
        "* | 3",
        "|/",
        "* 2",
        "* 1",
    ]


def test_many_forks_of_one_checkpoint() -> None:
    assert lines(("4", "1"), ("3", "1"), ("2", "1"), ("1", None)) == ["* 4", "| * 3", "|/", "| * 2", "|/", "* 1"]


def test_a_fork_across_other_lanes() -> None:
    assert lines(("7", "1"), ("6", "2"), ("5", "3"), ("4", "1"), ("3", "2"), ("2", "1"), ("1", None)) == [
        "* 7",
        "| * 6",
        "| | * 5",
        "| | | * 4",
        "|_|_|/",
        "| | * 3",
        "| |/",
        "| * 2",
        "|/",
        "* 1",
    ]


def test_lines_that_go_on_below_the_page() -> None:
    assert lines(("9", "8"), ("7", "2")) == ["* 9", "| * 7"]


@given(st.lists(st.integers(0, 5), max_size=60))
def test_every_checkpoint_has_a_row_of_its_own(parents: list[int]) -> None:
    nodes = [Node(str(at), None if at == 0 else str(max(0, at - 1 - back))) for at, back in enumerate(parents)][::-1]
    rows = drawn(nodes)
    assert [row.node for row in rows if row.node] == nodes
    for row in rows:
        assert len(row.lanes) <= 2 * MOST_LANES
        assert row.lanes.count("*") == (row.node is not None)
        assert row.node is None or row.lanes[2 * row.lane] == "*"


@given(st.lists(st.integers(0, 5), max_size=60))
def test_every_line_leads_from_a_checkpoint_to_its_parent(parents: list[int]) -> None:
    nodes = [Node(str(at), None if at == 0 else str(max(0, at - 1 - back))) for at, back in enumerate(parents)][::-1]
    places = {node.name: place for node, place in zip(nodes, enumerate(lanes_of(nodes)), strict=True)}
    lines = {line.child.name: line.points for line in graph.lines(nodes)}
    assert lines.keys() == {node.name for node in nodes if node.parent is not None}
    for node in nodes:
        if node.parent is not None:
            points = lines[node.name]
            assert points[0] == places[node.name]
            assert points[-1] == places[node.parent]
            for (row, lane), (next_row, next_lane) in pairwise(points):
                assert next_row > row or (next_row, next_lane) == (row, lane)
                # Between two lanes it takes one row, and inside of one it meets no other checkpoint.
                assert next_lane == lane or next_row == row + 1
                crossed = [name for name, (at, where) in places.items() if row < at < next_row and where == lane]
                assert next_lane != lane or not crossed


def test_a_line_whose_parent_is_below_the_page_leads_to_its_end() -> None:
    assert [line.points for line in graph.lines([Node("9", "8"), Node("7", "2")])] == [
        ((0, 0), (2, 0)),
        ((1, 1), (2, 1)),
    ]


def test_too_many_lanes_end_in_the_last_one() -> None:
    nodes = [Node(f"tip-{at}", f"root-{at}") for at in range(2 * MOST_LANES)]
    assert max(lanes_of(nodes)) == MOST_LANES - 1
    assert len(graph.lines(nodes)) == len(nodes)


def test_lines_lead_from_above_the_page() -> None:
    nodes = [Node("5", "4"), Node("f", "2"), Node("4", "3"), Node("3", "2"), Node("2", "1"), Node("1", None)]
    page = {line.child.name: line.points for line in graph.lines(nodes, 3)}
    assert page == {
        "f": ((-2, 1), (0, 1), (1, 0), (1, 0)),
        "4": ((-1, 0), (0, 0)),
        "3": ((0, 0), (1, 0)),
        "2": ((1, 0), (2, 0)),
    }
    assert graph.lines(nodes, 0) == graph.lines(nodes)
