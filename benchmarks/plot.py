"""Cost against thread length, as a picture: `python -m benchmarks.plot [latest.json [cost.png]]`.

A colour is a database, and a line a library. The background is light and opaque, so that it can be read on any page.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter

from benchmarks.costs import Report, SideCost

RESULTS = Path(__file__).parent / "results"
COLOURS = {"memory": "#888888", "file": "#8c564b", "sqlite": "#0072b2", "postgres": "#d55e00", "redis": "#009e73"}
"""By what the name of a store contains; they can be told apart by people who see few colours."""
OTHER = "#cc79a7"
LIBRARIES: dict[str, dict[str, Any]] = {
    "Locus": {"linestyle": "-", "marker": "o", "linewidth": 2.2},
    "LangGraph": {"linestyle": "--", "marker": "^", "linewidth": 1.2},
    "locus-sdk": {"linestyle": ":", "marker": "s", "linewidth": 1.2},
}
SHOWN = ("sqlite FULL", "postgresql", "redis always", "file")
"""What is shown of ours beside other libraries: what is durable, and they have too."""
GRAPH, GRAPH_CALL = "LangGraph, `add_messages`", "`ainvoke`"
"""The turns through a framework that are drawn."""
IN_MEMORY = "LangGraph, memory"

Curves = dict[str, list[tuple[int, float]]]
"""By the name of the library and its store."""


def draw(report: Report, path: Path) -> None:
    """A panel for each kind of cost. All axes are logarithmic."""
    panels = {title: curves for title, curves in _panels(report) if curves}
    figure = Figure(figsize=(4.4 * max(1, len(panels)), 5.2), layout="constrained", facecolor="white")
    places = figure.subplots(1, max(1, len(panels)), squeeze=False)[0]
    for axes, (title, curves) in zip(places, panels.items(), strict=False):
        for name, points in curves.items():
            axes.plot(*zip(*points, strict=True), color=_colour(name), markersize=5, **LIBRARIES[_library(name)])
        _finish(axes, sorted({length for points in curves.values() for length, _ in points}), title)
    handles = _legend(list(dict.fromkeys(name for curves in panels.values() for name in curves)))
    figure.legend(handles=handles, loc="outside lower center", ncols=max(1, min(len(handles), 9)), frameon=False)
    figure.suptitle("Cost of a turn (4 messages, a tool call, 3 KB) against the length of the thread")
    figure.savefig(path, dpi=110)


def _panels(report: Report) -> Iterator[tuple[str, Curves]]:
    yield "a turn through LangGraph, ms", _of_graphs(report, lambda side: side.turn_ms)
    yield "a turn through LangGraph adds, KB", _of_graphs(report, lambda side: (side.added_bytes or 0) / 1e3)
    ours = [backend for backend in report.backends if not report.peers or backend in SHOWN]
    saves: Curves = {}
    turns: Curves = {}
    for save in report.saves:
        if save.backend in ours and save.workload == "append":
            saves.setdefault(f"Locus, {save.backend}", []).append((save.length, save.save_ms))
    for turn in report.turns:
        if turn.backend in ours:
            turns.setdefault(f"Locus, {turn.backend}", []).append((turn.length, turn.turn_ms))
    for peer in report.peers:
        if "memory" not in peer.peer.lower():  # what is lost with the process is no peer of a database
            for curves, value in ((saves, peer.save_ms), (turns, peer.turn_ms)):
                if value:
                    curves.setdefault(peer.peer, []).append((peer.length, value))
    yield "a save by itself, ms", saves
    yield "a turn of a new worker: load, append, save; ms", turns


def _of_graphs(report: Report, value: Callable[[SideCost], float]) -> Curves:
    curves: Curves = {}
    for cost in report.frameworks:
        if (cost.framework, cost.call) == (GRAPH, GRAPH_CALL):
            sides = {f"Locus, {cost.store}": cost.ours, f"{cost.own}, {cost.store}": cost.theirs, IN_MEMORY: cost.floor}
            for name, side in sides.items():
                if side is not None and value(side) > 0:
                    curves.setdefault(name, []).append((cost.length, value(side)))
    return {name: sorted(dict(points).items()) for name, points in curves.items()}


def _library(name: str) -> str:
    return next((library for library in LIBRARIES if name.startswith(library)), "LangGraph")


def _colour(name: str) -> str:
    store = name.removeprefix("locus-sdk").lower()
    return next((colour for part, colour in COLOURS.items() if part in store), OTHER)


def _legend(names: Sequence[str]) -> list[Line2D]:
    """One entry for each library, and one for each database."""
    stores = {_colour(name): _store(name) for name in names}
    lines = [
        Line2D([], [], color="#333333", label=name, **LIBRARIES[name]) for name in dict.fromkeys(map(_library, names))
    ]
    return lines + [Line2D([], [], color=colour, linewidth=5, label=name) for colour, name in stores.items()]


def _store(name: str) -> str:
    shown = {"memory": "memory", "sqlite": "SQLite", "postgres": "PostgreSQL", "redis": "Redis", "file": "files"}
    return next((label for part, label in shown.items() if part in name.lower()), "others")


def _finish(axes: Any, lengths: Sequence[int], title: str) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(lengths, [f"{length:,}" for length in lengths])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("turns in the thread")
    axes.set_title(title, fontsize="medium")
    axes.grid(True, which="major", alpha=0.3)


def main() -> None:
    data = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS / "latest.json"
    path = Path(sys.argv[2]) if len(sys.argv) > 2 else RESULTS / "cost.png"
    draw(Report.from_dict(json.loads(data.read_text(encoding="utf-8"))), path)


if __name__ == "__main__":
    main()
