"""The report as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.agent_loop import loop_figures, loop_table
from benchmarks.costs import Report
from benchmarks.figures import figures
from benchmarks.peers.running import WINDOW
from benchmarks.settings import FULL
from benchmarks.workloads import WORKLOADS

HOW = """\
## How the numbers are made
- A *turn* appends 4 messages, {turn_kb:.1f} KB as compact JSON, and saves. Messages and states are made before the
  clock starts; the clock runs from the call of `save` to its return, in one event loop.
- Each length has a store of its own. All are grown first, turn by turn, which also warms everything up. Then one
  save of each length and one of its floor are timed in turn, in changing order, so that whatever disturbs the
  machine disturbs them all. Medians. The garbage collector is on.
- The WAL of SQLite, ours and the floor's, has its final length from the start: while it grows, an fsync is dearer.
- Saves at a length are the last ones before it (the short threads: several threads, the last half of each).
- The *floor* is the raw driver writing the same new content, encoded beforehand, in one commit at the same
  durability, from a worker thread, as an async program must call it. SQLite: WAL, one INSERT and one COMMIT; file:
  append and fsync; memory: a list append, with no thread.
- *Sent* are the texts of a save (head, manifest, metadata, runs) as they are handed to the engine, refused attempts
  included; *added* is the growth of what is stored over the window, divided by its saves.
- *Stored*: file: all files; SQLite: the file after the WAL was checkpointed, without the pages of the full-text
  index, which are given apart; memory: the stored texts.
- *Load* returns the latest `AgentState`; *validate* is `AgentState.model_validate_json` of the same state, in the same
  run; *raw read* is the floor's, of all texts of the thread, where that is compared. Here the other threads' states,
  which a program would not hold, are frozen out of the garbage collector.
- *Turns and loads* are of threads in which every list of a state grows, by four messages, a tool execution and a
  confidence a turn. A *stateless turn* is `load(last=50)`, a turn appended, and `save`, by a new handle on the open
  pool or file. A *warm load* is that of a handle which has everything but one turn that another handle has saved; a
  *cold* load or save is that of a handle which has nothing. Medians, all lengths and kinds of calls in ever another
  order.
- *First search* includes indexing everything that was saved, where the index is made on demand.
- *Peers* save the same turns in processes of their own, one after another: compare orders of magnitude. Saves are
  medians of the last {window} before a length. Stored: all files, after a checkpoint of the WAL; in memory: what the
  process grew by. Who needs more than {seconds:.0f} s or {megabytes:,} MB is cut off.
- After each run what is loaded is compared with what was saved.
- Ratios are the facts. Milliseconds depend on the machine and on what else runs there.
"""


def markdown(report: Report) -> str:
    quick = report.lengths != FULL.lengths
    parts = [
        "# What a save costs",
        "; ".join(f"{name}: {value}" for name, value in report.machine.items())
        + f". The run took {report.seconds:.0f} s.",
        "## Figures",
        *(["**A quick run: it shows that the benchmark works, and its figures mean nothing.**"] if quick else []),
        _figures(report),
        "## Saving",
        "\n".join(f"- **{workload.name}**: {workload.title}" for workload in WORKLOADS),
        _saves(report),
        "## Reading and space",
        _reads(report),
        "## Turns and loads",
        _turns(report),
        "## Many conversations at once",
        _throughput(report),
    ]
    if report.loop:
        meant = "Processor time of one iteration beyond the model, the tools and the store, on the memory store."
        parts += ["## The agent's loop", meant, loop_table(report.loop)]
    if report.peers:
        parts += ["## Peers", _peers(report)]
    content = report.saves[0].content_bytes / 1e3 if report.saves else 0.0
    how = HOW.format(turn_kb=content, window=WINDOW, seconds=FULL.peer_seconds, megabytes=FULL.peer_megabytes)
    return "\n\n".join([*parts, how])


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines)


def _ms(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def _mb(value: int | None) -> str:
    return "–" if value is None else f"{value / 1e6:,.2f}" if value < 1e8 else f"{value / 1e6:,.0f}"


def _figures(report: Report) -> str:
    found = [*figures(report), *loop_figures(report.loop)]
    missed = sum(not figure.ok for figure in found)
    rows = [[*figure[:4], "yes" if figure.ok else "**no**"] for figure in found]
    verdict = f"{missed} of {len(found)} are missed." if missed else f"All {len(found)} are reached."
    return f"{table(['figure', 'backend', 'target', 'measured', 'ok'], rows)}\n\n{verdict}"


def _saves(report: Report) -> str:
    rows = [
        [
            cost.backend,
            cost.workload,
            f"{cost.length:,}",
            _ms(cost.save_ms),
            _ms(cost.floor_ms),
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
            *map(_ms, (cost.load_ms, cost.cold_load_ms, cost.validate_ms, cost.read_ms)),
            *map(_ms, (cost.list_ms, cost.history_ms, cost.first_search_ms)),
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
            *map(_ms, (cost.turn_ms, cost.warm_load_ms, cost.warm_dict_load_ms, cost.parse_ms)),
            *map(_ms, (cost.cold_load_ms, cost.validate_ms, cost.cold_save_ms, cost.encode_ms)),
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


def _peers(report: Report) -> str:
    rows = []
    for peer in dict.fromkeys(cost.peer for cost in report.peers):
        costs = {cost.length: cost for cost in report.peers if cost.peer == peer}
        saves = [_ms(costs[length].save_ms) if length in costs else "–" for length in report.lengths]
        last = costs[max(costs)]
        end = [_ms(last.load_ms), _ms(last.list_ms), _mb(last.stored_bytes), f"{last.length:,}", last.note]
        rows.append([peer, *saves, *end])
    head = ["peer", *(f"save at {length:,}, ms" for length in report.lengths)]
    return table([*head, "load ms", "list 10 ms", "stored MB", "at turn", "remarks"], rows)
