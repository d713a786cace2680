"""The lines of a thread's history, drawn as git draws them. Pure functions.

    * 9  latest
    * 8
    | * 7
    |/
    * 6

Each line of checkpoints has a lane. Where two lanes lead to the same parent, they become one. A drawing shows a page of
the history: lanes whose checkpoints lie below the page go on to its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from locus.memory.model.records import Entry

MOST_LANES: Final = 24
"""The number of lanes side by side. The lines beyond it are drawn in the last lane: more would help nobody."""


@dataclass(frozen=True, slots=True)
class Node:
    """A checkpoint in the graph: its name, and that of its parent."""

    name: str
    parent: str | None

    @classmethod
    def of(cls, entry: Entry) -> Node:
        """The node of a checkpoint. Other namespaces may have the same ids."""
        parent = None if entry.parent_id is None else f"{entry.namespace}\0{entry.parent_id}"
        return cls(f"{entry.namespace}\0{entry.checkpoint_id}", parent)


@dataclass(frozen=True, slots=True)
class GraphRow:
    """One line of the drawing; `node` is the checkpoint on it, and None on a line that only joins lanes."""

    lanes: str
    node: Node | None
    lane: int = 0


@dataclass(frozen=True, slots=True)
class GraphLine:
    """A line from a checkpoint down to its parent, by the points that it leads through."""

    child: Node
    points: tuple[tuple[int, int], ...]
    """Row and lane of each point. The row of the last one is the number of rows if the parent lies below the page."""


@dataclass(frozen=True, slots=True)
class _Step:
    """The lanes at one checkpoint and below it."""

    node: Node
    lane: int
    before: tuple[str | None, ...]
    """The checkpoint that each lane leads to, on the row."""
    after: tuple[str | None, ...]
    """The checkpoint that each lane leads to below the row, before two lanes become one."""
    joined: int | None
    """The lane that ends below the row, because `into` leads to the same checkpoint."""
    into: int


def drawn(nodes: Sequence[Node]) -> list[GraphRow]:
    """The rows for checkpoints, newest first."""
    rows: list[GraphRow] = []
    for step in _steps(nodes):
        rows.append(GraphRow(_cells(step.before, step.lane), step.node, step.lane))
        if step.joined is not None:
            rows.append(_joining(step.after, step.joined, step.into))
    return rows


def lanes_of(nodes: Sequence[Node]) -> list[int]:
    """The lane of each checkpoint, newest first, in a drawing that has one row for each."""
    return [step.lane for step in _steps(nodes)]


def lines(nodes: Sequence[Node], above: int = 0) -> list[GraphLine]:
    """The lines of a drawing that has one row for each checkpoint, where lanes become one between two rows.

    `above` are checkpoints that lie above the page. Their rows have negative numbers, and of their lines only those are
    given that lead to the page or through it.
    """
    return [
        GraphLine(line.child, tuple((row - above, lane) for row, lane in line.points))
        for line in _all_lines(nodes)
        if line.points[-1][0] >= above
    ]


def _all_lines(nodes: Sequence[Node]) -> list[GraphLine]:
    finished: list[GraphLine] = []
    open_lines: dict[int, list[tuple[Node, list[tuple[int, int]]]]] = {}
    for row, step in enumerate(_steps(nodes)):
        # The open lines of this lane lead here; with too many lanes, this checkpoint may stand for their parent.
        for child, points in open_lines.pop(step.lane, ()):
            finished.append(GraphLine(child, (*points, (row, step.lane))))
        if step.node.parent is not None:
            open_lines[step.lane] = [(step.node, [(row, step.lane)])]
        if step.joined is not None:
            for child, points in open_lines.pop(step.joined, ()):
                if points[-1][0] < row:
                    points.append((row, step.joined))
                points.append((row + 1, step.into))
                open_lines.setdefault(step.into, []).append((child, points))
    for lane, left in open_lines.items():
        finished += [GraphLine(child, (*points, (len(nodes), lane))) for child, points in left]
    return finished


def _steps(nodes: Sequence[Node]) -> Iterator[_Step]:
    waiting: list[str | None] = []
    """The checkpoint that each lane leads to, each name once; None for a lane that is free."""
    for node in nodes:
        lane = waiting.index(node.name) if node.name in waiting else _free(waiting)
        before = tuple(waiting)
        other = waiting.index(node.parent) if node.parent is not None and node.parent in waiting else lane
        waiting[lane] = node.parent
        joined, into = (max(lane, other), min(lane, other)) if other != lane else (None, lane)
        yield _Step(node, lane, before, tuple(waiting), joined, into)
        if joined is not None:
            waiting[joined] = None
        while waiting and waiting[-1] is None:
            waiting.pop()


def _free(waiting: list[str | None]) -> int:
    if None in waiting:
        return waiting.index(None)
    if len(waiting) >= MOST_LANES:
        return MOST_LANES - 1
    waiting.append(None)
    return len(waiting) - 1


def _cells(waiting: Sequence[str | None], lane: int) -> str:
    return " ".join("*" if at == lane else " " if name is None else "|" for at, name in enumerate(waiting))


def _joining(waiting: Sequence[str | None], joined: int, into: int) -> GraphRow:
    """The row on which a lane goes over into another one on its left: `|_|/`."""
    text = ""
    for at, name in enumerate(waiting):
        if at:
            text += "/" if at == joined else "_" if into < at < joined else " "
        text += " " if at == joined else "|" if name is not None else "_" if into < at < joined else " "
    return GraphRow(text.rstrip(), None)
