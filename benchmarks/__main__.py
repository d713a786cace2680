"""`python -m benchmarks`: measures, prints a report in Markdown, and writes it with its data and a plot."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.agent_loop import measure_loop
from benchmarks.costs import Report
from benchmarks.machine import describe, load
from benchmarks.measure import measure_throughput, measure_workload
from benchmarks.peers.environments import measure_peers
from benchmarks.plot import draw
from benchmarks.report import markdown
from benchmarks.settings import FULL, QUICK, Settings
from benchmarks.subjects import SUBJECTS
from benchmarks.subjects.base import Subject
from benchmarks.turn_costs import measure_turns
from benchmarks.workloads import WORKLOADS

RESULTS = Path(__file__).parent / "results"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short threads: to see that it works, not to measure")
    parser.add_argument(
        "--backends", default="", help=f"comma-separated beginnings of names; there are: {', '.join(SUBJECTS)}"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="where latest.md, latest.json and cost.png go")
    parser.add_argument("--dir", type=Path, default=None, help="where the stores are made; else the temporary folder")
    parser.add_argument(
        "--peers", action="store_true", default=os.environ.get("PEERS", "") not in ("", "0"),
        help="measure other libraries too, in environments of their own (also: PEERS=1)",
    )  # fmt: skip
    return parser.parse_args()


def chosen(names: str) -> list[type[Subject]]:
    """The backends whose names begin with one of these."""
    beginnings = [name.strip().lower() for name in names.split(",") if name.strip()] or [""]
    for beginning in beginnings:
        if not any(name.lower().startswith(beginning) for name in SUBJECTS):
            raise SystemExit(f"there is no backend {beginning!r}; there are: {', '.join(SUBJECTS)}")
    return [kind for name, kind in SUBJECTS.items() if name.lower().startswith(tuple(beginnings))]


def progress(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


async def measure(report: Report, kinds: list[type[Subject]], settings: Settings, folder: Path) -> None:
    for kind in kinds:
        for workload in WORKLOADS:
            started = time.perf_counter()
            saves, reads = await measure_workload(kind, workload, settings, folder / kind.name / workload.name)
            report.saves += saves
            report.reads += reads
            progress(f"{kind.name}, {workload.name}: {time.perf_counter() - started:.1f} s")
        started = time.perf_counter()
        report.turns += await measure_turns(kind, settings, folder / kind.name / "turns")
        progress(f"{kind.name}, turns and loads: {time.perf_counter() - started:.1f} s")
        report.throughput.append(await measure_throughput(kind, settings, folder / kind.name / "many"))


def main() -> None:
    options = arguments()
    settings = QUICK if options.quick else FULL
    kinds = chosen(options.backends)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="locus-bench-", dir=options.dir) as folder:
        report = Report(machine=describe(Path(folder)), lengths=settings.lengths)
        asyncio.run(measure(report, kinds, settings, Path(folder)))
        lengths = (settings.lengths[0], settings.lengths[-1])
        report.loop = asyncio.run(measure_loop(lengths, settings.rounds))
        if options.peers:
            report.peers = measure_peers(settings, Path(folder), progress)
    report.machine["at the end"] = load()
    report.seconds = time.perf_counter() - started
    options.out.mkdir(parents=True, exist_ok=True)
    text = markdown(report)
    (options.out / "latest.md").write_text(text, encoding="utf-8")
    (options.out / "latest.json").write_text(json.dumps(report.as_dict(), indent=1), encoding="utf-8")
    draw(report, options.out / "cost.png")
    print(text)
    progress(f"written to {options.out}: latest.md, latest.json, cost.png")


if __name__ == "__main__":
    main()
