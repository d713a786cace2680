"""Cost against thread length, as a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from benchmarks.costs import Report

SHOW_FLOOR_FROM_MS = 0.02
"""A list append in memory would only stretch the axis."""


def draw(report: Report, path: Path) -> None:
    """Two panels: the time of a save, and what the thread then occupies. Both axes are logarithmic."""
    figure = Figure(figsize=(13, 5.6), layout="constrained")
    times, sizes = figure.subplots(1, 2)
    colours = {backend: f"C{index}" for index, backend in enumerate(report.backends)}
    for backend, colour in colours.items():
        saves = [cost for cost in report.saves if (cost.backend, cost.workload) == (backend, "append")]
        reads = [cost for cost in report.reads if cost.backend == backend]
        _curve(times, f"Locus, {backend}", saves, lambda cost: cost.save_ms, color=colour, marker="o")
        _curve(sizes, f"Locus, {backend}", reads, lambda cost: cost.stored_bytes / 1e6, color=colour, marker="o")
        if min(cost.floor_ms for cost in saves) > SHOW_FLOOR_FROM_MS:
            label = f"floor, {backend}"
            _curve(times, label, saves, lambda cost: cost.floor_ms, color=colour, linestyle="--", linewidth=1)
            _curve(sizes, label, reads, lambda cost: cost.floor_bytes / 1e6, color=colour, linestyle="--", linewidth=1)
    for index, peer in enumerate(dict.fromkeys(cost.peer for cost in report.peers if cost.save_ms is not None)):
        style = {"color": f"C{(len(colours) + index) % 10}", "marker": "x", "linestyle": ":"}
        costs = [cost for cost in report.peers if cost.peer == peer]
        _curve(times, peer.replace("`", ""), costs, lambda cost: cost.save_ms, **style)
        _curve(sizes, peer, costs, lambda cost: cost.stored_bytes / 1e6, **style)
    _finish(times, report.lengths, "one save, ms")
    _finish(sizes, report.lengths, "stored after that many turns, MB")
    handles, labels = times.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize="small")
    figure.suptitle("A turn (4 messages, 3.1 KB) is appended and saved: the cost against the thread's length")
    figure.savefig(path, dpi=120)


def _curve(axes: Any, label: str, costs: Iterable[Any], value: Callable[[Any], float], **style: Any) -> None:
    points = [(cost.length, value(cost)) for cost in costs]
    if points:
        axes.plot(*zip(*points, strict=True), label=label, **style)


def _finish(axes: Any, lengths: Sequence[int], label: str) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(lengths, [f"{length:,}" for length in lengths])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("turns in the thread")
    axes.set_ylabel(label)
    axes.grid(True, which="major", alpha=0.3)
