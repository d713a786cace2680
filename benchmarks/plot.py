"""Cost against thread length, as a picture: `python -m benchmarks.plot [latest.json [cost.png]]`.

A colour is a database, and a line a library. The background is light and opaque, so that it can be read on any page.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter

from benchmarks.costs import PeerCost, Report
from benchmarks.report import ours_as_peer

RESULTS = Path(__file__).parent / "results"
COLOURS = {"memory": "#888888", "file": "#8c564b", "sqlite": "#0072b2", "postgres": "#d55e00", "redis": "#009e73"}
"""By what the name of a store contains; they can be told apart by people who see few colours."""
OTHER = "#cc79a7"
LIBRARIES: dict[str, dict[str, Any]] = {
    "Locus": {"linestyle": "-", "marker": "o", "linewidth": 2.2},
    "LangGraph": {"linestyle": "--", "marker": "^", "linewidth": 1.2},
    "locus-sdk": {"linestyle": ":", "marker": "s", "linewidth": 1.2},
    "openai-agents": {"linestyle": "-.", "marker": "x", "linewidth": 1.2},
}
SHOWN = ("sqlite FULL", "postgresql", "redis always", "file")
"""What is shown of ours beside other libraries: what is durable, and they have too."""

Points = Iterable[tuple[int, float | None]]


def draw(report: Report, path: Path) -> None:
    """Three panels: a save, a whole turn, and what the thread then occupies. All axes are logarithmic."""
    figure = Figure(figsize=(13, 5.2), layout="constrained", facecolor="white")
    panels = figure.subplots(1, 3)
    ours = [backend for backend in report.backends if not report.peers or backend in SHOWN]
    lengths: set[int] = set()
    for backend in ours:
        saves = [(cost.length, cost.save_ms) for cost in report.saves if _is(cost, backend, "append")]
        turns = [(cost.length, cost.turn_ms) for cost in report.turns if cost.backend == backend]
        sizes = [(cost.length, _megabytes(cost)) for cost in ours_as_peer(report, backend)]
        _curves(panels, f"Locus, {backend}", saves, turns, sizes)
        lengths.update(length for length, _ in saves)
    for peer in dict.fromkeys(cost.peer for cost in report.peers):
        costs = [cost for cost in report.peers if cost.peer == peer and cost.length]
        if "memory" in peer.lower():  # what is lost with the process is no peer of a database
            continue
        _curves(
            panels, peer,
            [(cost.length, cost.save_ms) for cost in costs],
            [(cost.length, cost.turn_ms) for cost in costs],
            [(cost.length, _megabytes(cost)) for cost in costs],
        )  # fmt: skip
    titles = ("a save, ms", "a turn: load, append, save; ms", "stored, MB")
    for axes, title in zip(panels, titles, strict=True):
        _finish(axes, sorted(lengths), title)
    handles = _legend(ours, [cost.peer for cost in report.peers])
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 9), frameon=False)
    figure.suptitle("Cost of a turn (4 messages, a tool call, 3.5 KB) against the length of the thread")
    figure.savefig(path, dpi=110)


def _is(cost: Any, backend: str, workload: str) -> bool:
    return (cost.backend, cost.workload) == (backend, workload)


def _megabytes(cost: PeerCost) -> float | None:
    return None if cost.stored_bytes is None else cost.stored_bytes / 1e6


def _library(name: str) -> str:
    return next((library for library in LIBRARIES if name.startswith(library)), "Locus")


def _colour(name: str) -> str:
    store = name.removeprefix("locus-sdk").lower()
    return next((colour for part, colour in COLOURS.items() if part in store), OTHER)


def _curves(panels: Sequence[Any], name: str, *curves: Points) -> None:
    style = {"color": _colour(name), "markersize": 5, **LIBRARIES[_library(name)]}
    for axes, points in zip(panels, curves, strict=True):
        known = [(length, value) for length, value in points if value]
        if known:
            axes.plot(*zip(*known, strict=True), **style)


def _legend(ours: Sequence[str], peers: Sequence[str]) -> list[Line2D]:
    """One entry for each library, and one for each database."""
    libraries = dict.fromkeys(["Locus", *map(_library, peers)])
    names = {_colour(name): _store(name) for name in (*ours, *peers)}
    lines = [Line2D([], [], color="#333333", label=library, **LIBRARIES[library]) for library in libraries]
    return lines + [Line2D([], [], color=colour, linewidth=5, label=name) for colour, name in names.items()]


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
