"""The report as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.costs import Figure, PeerCost, Report
from benchmarks.figures import figures, many_figures, read_figures, save_figures, turn_figures
from benchmarks.frameworks.table import framework_figures, framework_notes, framework_table
from benchmarks.peers.running import WINDOW
from benchmarks.settings import FULL, QUICK
from benchmarks.tables import ms, table
from benchmarks.workloads import WORKLOADS

HOW = """\
## How the numbers are made
- A *turn* appends 4 messages, a tool execution, a tool's name and a confidence, {turn_kb:.1f} KB as compact JSON, and
  saves: every list of a state grows. Messages and states are made before the clock starts; the clock runs from the call
  of `save` to its return, in one event loop.
- Each length has a store of its own. All are grown first, turn by turn, which also warms everything up. Then one
  save of each length and one of its floor are timed in turn, in changing order, so that whatever disturbs the
  machine disturbs them all. Medians.
- The garbage collector is on, with its own thresholds. What the benchmark keeps itself (states of all lengths, which no
  program has together) is frozen out of its sight, and each sample of a load or a turn begins right after a collection.
  So a call and its floor pay for the collections that their own objects cause, and for no others. Without that a full
  collection of 50 to 400 ms falls into some samples, and decides the ratio of a load and its floor.
- The WAL of SQLite, ours and the floor's, has its final length from the start: while it grows, an fsync is dearer.
- Saves at a length are the last ones before it (the short threads: several threads, the last half of each). The
  workloads go on from the same turn, each on a line of its own; `edited` makes its own threads.
- The *floor* is the raw driver writing the same new content, encoded beforehand, in one commit at the same
  durability, from a worker thread, as an async program must call it. SQLite: WAL, one INSERT and one COMMIT; file:
  append and fsync; memory: a list append, with no thread.
- *Sent* are the texts of a save (head, manifest, metadata, runs) as they are handed to the engine, refused attempts
  included; *added* is the growth of what is stored over the window, divided by its saves.
- *Stored*: file: all files; SQLite: the file after the WAL was checkpointed, without the pages of the full-text
  index, which are given apart; memory: the stored texts.
- *Load* returns the latest `AgentState`; *validate* is `AgentState.model_validate_json` of the same state, in the same
  run; *raw read* is the floor's, of all texts of the thread, where that is compared.
- A *stateless turn* is `load(last=50)`, a turn appended, and `save`, by a new handle on the open pool or file. A *warm
  load* is that of a handle which has everything but one turn that another handle has saved; a *cold* load or save is
  that of a handle which has nothing.
- *First search* includes indexing everything that was saved, where the index is made on demand.
- *Peers* save the same turns in processes of their own, one after another: compare orders of magnitude. Saves are
  medians of the last {window} before a length; a *turn* loads the latest state, appends, and saves. Stored: all
  files, after a checkpoint of the WAL; tables with their indexes; in memory: what the process grew by. Who needs more
  than {seconds:.0f} s or {megabytes:,} MB is cut off.
- After each run what is loaded is compared with what was saved.
- Ratios are the facts. Milliseconds depend on the machine and on what else runs there.
"""

FIGURES = ["figure", "backend", "target", "measured", "ok"]


def markdown(report: Report) -> str:
    """The report: for each topic the figures that are promised, and then everything that was measured."""
    found = all_figures(report)
    missed = sum(not figure.ok for figure in found)
    quick = any(length not in FULL.lengths for length in report.lengths)
    parts = [
        "# What Locus costs",
        "; ".join(f"{name}: {value}" for name, value in report.machine.items())
        + f". The run took {report.seconds:.0f} s.",
        *(["**A quick run: it shows that the benchmark works, and its figures mean nothing.**"] if quick else []),
        f"{missed} of {len(found)} are missed." if missed else f"All {len(found)} are reached.",
        *(f"**Not measured, because it failed:** {part}: {why}" for part, why in report.failed.items()),
    ]
    if report.frameworks:
        parts += ["## A turn through the framework", _figures(framework_figures(report.frameworks))]
        parts += [framework_table(report.frameworks), framework_notes(report.frameworks, report.versions)]
    if report.saves:
        workloads = "\n".join(f"- **{workload.name}**: {workload.title}" for workload in WORKLOADS)
        parts += ["## Saving", _figures(save_figures(report)), workloads, _saves(report)]
        parts += ["## Reading and space", _figures(read_figures(report)), _reads(report)]
        parts += ["## Turns and loads", _figures(turn_figures(report)), _turns(report)]
    if report.throughput:
        parts += ["## Many conversations at once", _figures(many_figures(report)), _throughput(report)]
    for section in report.sections.values():
        parts += [f"## {section.title}", _figures(section.figures), section.table]
    if report.peers:
        parts += ["## Peers", peer_table(report)]
    content = report.saves[0].content_bytes / 1e3 if report.saves else 0.0
    how = HOW.format(turn_kb=content, window=WINDOW, seconds=FULL.peer_seconds, megabytes=FULL.peer_megabytes)
    return "\n\n".join([*(part for part in parts if part), how])


def all_figures(report: Report) -> list[Figure]:
    sections = [figure for section in report.sections.values() for figure in section.figures]
    return [*framework_figures(report.frameworks), *figures(report), *sections]


def _figures(found: Sequence[Figure]) -> str:
    return table(FIGURES, [[*figure[:4], "yes" if figure.ok else "**no**"] for figure in found]) if found else ""


def _mb(value: int | None) -> str:
    return "–" if value is None else f"{value / 1e6:,.2f}" if value < 1e8 else f"{value / 1e6:,.0f}"


def _saves(report: Report) -> str:
    rows = [
        [
            cost.backend,
            cost.workload,
            f"{cost.length:,}",
            ms(cost.save_ms),
            ms(cost.floor_ms),
            f"{cost.save_ms / cost.floor_ms:.2f}" if cost.floor_ms > 0.02 else "–",
            f"{cost.content_bytes:,.0f}",
            f"{cost.sent_bytes:,.0f}",
            f"{cost.grown_bytes:,.0f}",
        ]
        for cost in report.saves
    ]
    head = ["backend", "workload", "turns", "save ms", "floor ms", "÷ floor", "new content B", "sent B", "added B"]
    return table(head, rows)


def _reads(report: Report) -> str:
    rows = [
        [
            cost.backend,
            f"{cost.length:,}",
            *map(ms, (cost.load_ms, cost.cold_load_ms, cost.validate_ms, cost.read_ms)),
            *map(ms, (cost.list_ms, cost.history_ms, cost.first_search_ms)),
            *map(_mb, (cost.content_bytes, cost.stored_bytes, cost.floor_bytes, cost.search_bytes)),
        ]
        for cost in report.reads
    ]
    head = [
        *("backend", "turns", "load ms", "new handle ms", "validate ms", "raw read ms"),
        *("list 10 ms", "history 10 ms", "first search ms", "content MB", "stored MB", "floor MB", "search index MB"),
    ]
    return table(head, rows)


def _turns(report: Report) -> str:
    rows = [
        [
            cost.backend,
            f"{cost.length:,}",
            *map(ms, (cost.turn_ms, cost.warm_load_ms, cost.warm_dict_load_ms, cost.parse_ms)),
            *map(ms, (cost.cold_load_ms, cost.validate_ms, cost.cold_save_ms, cost.encode_ms)),
        ]
        for cost in report.turns
    ]
    head = [
        *("backend", "turns", "stateless turn ms", "warm load ms", "warm dict load ms", "parse ms"),
        *("cold load ms", "validate ms", "cold save ms", "encode ms"),
    ]
    return table(head, rows)


def _throughput(report: Report) -> str:
    rows = [
        [rate.backend, f"{rate.ours:,.0f}", f"{rate.floor:,.0f}", f"{rate.floor / rate.ours:.2f}"]
        for rate in report.throughput
    ]
    return table(["backend", "saves per second", "floor", "floor ÷ ours"], rows)


def peer_table(report: Report) -> str:
    """Ours first, at the same lengths; then everybody else, as far as they got."""
    lengths = sorted({cost.length for cost in report.peers if cost.length in FULL.lengths + QUICK.lengths})
    rows = [_peer_row(f"**Locus, {backend}**", ours_as_peer(report, backend), lengths) for backend in report.backends]
    for peer in dict.fromkeys(cost.peer for cost in report.peers):
        rows.append(_peer_row(peer, [cost for cost in report.peers if cost.peer == peer], lengths))
    head = ["who", *(f"save at {length:,}, ms" for length in lengths)]
    return table([*head, "turn ms", "load ms", "list 10 ms", "stored MB", "at turn", "remarks"], rows)


def ours_as_peer(report: Report, backend: str) -> list[PeerCost]:
    """What was measured of a backend of ours, in the shape that others have."""
    found = []
    turns = {cost.length: cost for cost in report.turns if cost.backend == backend}
    for read in report.reads:
        if read.backend == backend:
            save = report.save(backend, "append", read.length)
            turn = turns.get(read.length)
            found.append(
                PeerCost(
                    f"Locus, {backend}",
                    read.length,
                    save.save_ms,
                    read.cold_load_ms,
                    read.list_ms,
                    read.stored_bytes,
                    turn_ms=None if turn is None else turn.turn_ms,
                )
            )
    return found


def _peer_row(name: str, found: Sequence[PeerCost], lengths: Sequence[int]) -> list[str]:
    costs = {cost.length: cost for cost in found}
    saves = [ms(costs[length].save_ms) if length in costs else "–" for length in lengths]
    last = costs[max(costs)]
    times = [ms(last.turn_ms), ms(last.load_ms), ms(last.list_ms)]
    return [name, *saves, *times, _mb(last.stored_bytes), f"{last.length:,}", last.note]
