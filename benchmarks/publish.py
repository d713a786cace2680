"""Puts what was measured into the README and docs/benchmarks.md: `python -m benchmarks.publish [latest.json]`.

Between two comments, `<!-- figures -->` and `<!-- /figures -->`, everything is replaced. What was not measured in that
run is left out, so that no page mixes numbers of different runs.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from benchmarks.costs import Figure, FrameworkCost, Report, SideCost
from benchmarks.frameworks.table import GRAPHS, framework_notes, framework_table, signed, subjects_of
from benchmarks.report import all_figures, peer_table
from benchmarks.tables import ms, table

ROOT = Path(__file__).parents[1]
DATA = ROOT / "benchmarks" / "results" / "latest.json"
_MARKED = re.compile(r"(<!-- figures -->\n).*?(<!-- /figures -->)", re.DOTALL)
GRAPH_CALL = "`ainvoke`"
SHOWN_TURNS = (30, 400, 10_000)
"""The lengths whose turns through LangGraph the README shows."""
SMALL_TURN = 1_000


def main() -> None:
    publish(Path(sys.argv[1]) if len(sys.argv) > 1 else DATA)


def publish(data: Path) -> None:
    """Put the figures of a run into the pages."""
    report = Report.from_dict(json.loads(data.read_text(encoding="utf-8")))
    replace(ROOT / "README.md", "\n".join(readme_lines(report)))
    replace(ROOT / "docs" / "benchmarks.md", "\n\n".join(page_parts(report)))


def replace(page: Path, text: str) -> None:
    """Put a text between the two comments of a page."""
    before = page.read_text(encoding="utf-8")
    page.write_text(_MARKED.sub(lambda found: f"{found[1]}{text}\n{found[2]}", before), encoding="utf-8")


def made(report: Report) -> str:
    """Which version was measured, when and where."""
    known = report.machine
    return (
        f"version {known['Locus']}, {known['date']}, {known['system']}, Python {known['Python']}, "
        f"SQLite {known['SQLite']}, {known['file system']}"
    )


def readme_lines(report: Report) -> Iterator[str]:
    """Three figures: flat, small, fast; and the turns through LangGraph."""
    findings = (textwrap.fill(line, 118, subsequent_indent="  ", break_long_words=False) for line in _findings(report))
    return chain(findings, _graph_table(report))


def _findings(report: Report) -> Iterator[str]:
    saves = [cost for cost in report.saves if (cost.backend, cost.workload) == ("sqlite FULL", "append")]
    if saves:
        yield (
            "- **The cost stays flat.** Locus stores each message once."
            f" On SQLite, a save takes {ms(saves[0].save_ms)} ms at turn {saves[0].length:,} and"
            f" {ms(saves[-1].save_ms)} ms at turn {saves[-1].length:,}."
        )
    graphs = [cost for cost in _graphs(report) if cost.length == SMALL_TURN]
    if graphs and graphs[0].ours is not None and graphs[0].theirs is not None:
        yield (
            f"- **It is small.** At turn {SMALL_TURN:,}, a turn of 3 KB adds {_kb(graphs[0].ours)} KB to PostgreSQL;"
            f" with LangGraph's own saver {_kb(graphs[0].theirs)} KB."
        )
        yield f"- **It is fast.** What a saver adds to LangGraph's {GRAPH_CALL}, in ms: its own → Locus."


def _graphs(report: Report) -> list[FrameworkCost]:
    """Turns through LangGraph on PostgreSQL, from an event loop: with whole lists, and with deltas."""
    wanted = (GRAPH_CALL, "PostgreSQL")
    return [
        cost for cost in report.frameworks if cost.framework.startswith(GRAPHS) and (cost.call, cost.store) == wanted
    ]


def _graph_table(report: Report) -> Iterator[str]:
    subjects = list(subjects_of(_graphs(report)))
    if not subjects:
        return
    lengths = [length for length in SHOWN_TURNS if any(cost.length == length for cost in subjects[0])]
    yield ""
    yield "  | turns | " + " | ".join(f"{length:,}" for length in lengths) + " |"
    yield "  " + "|---" * (len(lengths) + 1) + "|"
    for costs in subjects:
        by_length = {cost.length: cost for cost in costs}
        added = (_added(by_length.get(length)) for length in lengths)
        yield f"  | {costs[0].framework.removeprefix(f'{GRAPHS}, ')} | " + " | ".join(added) + " |"
    known, versions = report.machine, report.versions
    yield ""
    yield (
        f"  (Version {known['Locus']}, {known['date']}, {known['system']}, Python {known['Python']}, SQLite"
        f" {known['SQLite']},"
    )
    yield (
        f"  PostgreSQL {versions['PostgreSQL']}, LangGraph {versions['langgraph']}, its saver"
        f" {versions['langgraph-checkpoint-postgres']}.)"
    )


def _added(cost: FrameworkCost | None) -> str:
    return "–" if cost is None else f"{signed(cost.adds(cost.theirs))} → {signed(cost.adds(cost.ours))}"


def _kb(side: SideCost) -> str:
    return ms((side.added_bytes or 0) / 1e3)


def _mb(value: float | None) -> str:
    return "–" if value is None else f"{value / 1e6:.1f}" if value < 1e8 else f"{value / 1e6:,.0f}"


def page_parts(report: Report) -> Iterator[str]:
    found = all_figures(report)
    missed = sum(not figure.ok for figure in found)
    yield f"Measured: {made(report)}. {len(found) - missed} of {len(found)} targets were reached, {missed} were missed."
    if report.frameworks:
        yield "### A turn through the framework"
        yield framework_table(report.frameworks)
        yield framework_notes(report.frameworks, report.versions)
    if report.backends:
        yield "### Saves, loads and turns of a worker"
        yield backend_table(report)
    yield "### Targets"
    yield target_table(found)
    for section in report.sections.values():
        yield f"### {section.title}"
        if "|" not in section.table:  # what it has measured stands in its figures alone
            yield table(
                ["figure", "backend", "measured"], [[one.what, one.backend, one.measured] for one in section.figures]
            )
        yield section.table
    if report.peers:
        yield "### Other libraries"
        yield peer_table(report)


def backend_table(report: Report) -> str:
    """One line for each backend."""
    rows = []
    rates = {rate.backend: rate for rate in report.throughput}
    for backend in report.backends:
        saves = [cost for cost in report.saves if (cost.backend, cost.workload) == (backend, "append")]
        turns = [cost for cost in report.turns if cost.backend == backend]
        reads = [cost for cost in report.reads if cost.backend == backend]
        rate = rates.get(backend)
        floor = saves[-1].floor_ms
        rows.append(
            [
                backend,
                f"{saves[-1].length:,}",
                f"{ms(saves[0].save_ms)} → {ms(saves[-1].save_ms)}",
                f"{saves[-1].save_ms / floor:.2f}" if floor > 0.02 else "–",
                f"{ms(turns[0].turn_ms)} → {ms(turns[-1].turn_ms)}",
                f"{ms(turns[0].warm_load_ms)} → {ms(turns[-1].warm_load_ms)}",
                f"{turns[-1].cold_load_ms / turns[-1].validate_ms:.2f}",
                f"{_mb(reads[-1].stored_bytes)} ({reads[-1].stored_bytes / reads[-1].floor_bytes:.2f}×)",
                "–" if rate is None or floor <= 0.02 else f"{rate.ours:,.0f} ({rate.ours / rate.floor:.2f}×)",
            ]
        )
    first = report.lengths[0]
    head = [
        *(
            "backend",
            "turns",
            f"save, ms, at turn {first} → there",
            "÷ raw driver",
            "stateless turn, ms",
            "warm load, ms",
        ),
        *("cold load ÷ parsing", "MB at 1,000 turns (÷ raw driver)", "saves/s at once (÷ raw driver)"),
    ]
    return table(head, rows)


def target_table(found: list[Figure]) -> str:
    """One line for each target: who reached it, and who missed it by how much."""
    rows = []
    for what in dict.fromkeys(figure.what for figure in found):
        those = [figure for figure in found if figure.what == what]
        reached = ", ".join(figure.backend or figure.measured for figure in those if figure.ok)
        missed = "; ".join(
            f"**{figure.backend}**: {figure.measured} (target {figure.target})" for figure in those if not figure.ok
        )
        rows.append([what, " / ".join(dict.fromkeys(figure.target for figure in those)), reached or "–", missed or "–"])
    return table(["figure", "target", "reached", "missed"], rows)


if __name__ == "__main__":
    main()
