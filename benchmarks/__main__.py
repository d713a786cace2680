"""`python -m benchmarks`: measures, and writes a report in Markdown with its data and a plot.

What has been measured is written after each part, so that a run which is interrupted keeps it; `--resume` goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from benchmarks.costs import Report, Section
from benchmarks.frameworks.running import measure_framework, modules
from benchmarks.machine import describe, load
from benchmarks.measure import measure_backend, measure_throughput
from benchmarks.peers.environments import measure_peers
from benchmarks.report import markdown
from benchmarks.settings import FULL, QUICK, Settings
from benchmarks.subjects import SUBJECTS
from benchmarks.subjects.base import Subject

RESULTS = Path(__file__).parent / "results"


class Topic(NamedTuple):
    """What is measured once, and which backends that needs."""

    needs: tuple[str, ...]
    measure: Callable[[Settings, Path], Section]


def _loop(settings: Settings, _folder: Path) -> Section:
    from benchmarks.agent_loop import loop_section

    return asyncio.run(loop_section(settings))


def _lists(settings: Settings, folder: Path) -> Section:
    from benchmarks.thread_pages import measure_pages

    return asyncio.run(measure_pages(settings, folder))


def _memory(settings: Settings, _folder: Path) -> Section:
    from benchmarks.served_threads import measure_served

    return measure_served(settings)


def _blocking(settings: Settings, folder: Path) -> Section:
    from benchmarks.blocking_saves import blocking_section

    return blocking_section(settings, folder)


def _http(settings: Settings, folder: Path) -> Section:
    from benchmarks.http_load import http_section

    return asyncio.run(http_section(settings, folder))


def _graphs(settings: Settings, _folder: Path) -> Section:
    from benchmarks.langgraph_bench import graph_section

    return asyncio.run(graph_section(settings))


def _objects(settings: Settings, _folder: Path) -> Section:
    from benchmarks.object_requests import request_section

    return asyncio.run(request_section(settings))


def _commands(settings: Settings, folder: Path) -> Section:
    from benchmarks.command_line import command_section

    return asyncio.run(command_section(settings, folder))


def _inspector(settings: Settings, folder: Path) -> Section:
    from benchmarks.inspector_pages import inspector_section

    return inspector_section(settings, folder)


def _recall(settings: Settings, folder: Path) -> Section:
    from benchmarks.recall.bounds import recall_section

    return asyncio.run(recall_section(settings, folder))


# Each imports what it needs when it runs: all of it takes seconds, and holds memory while others are measured.
TOPICS = {
    "loop": Topic(("memory",), _loop),
    "lists": Topic(("sqlite FULL", "postgresql"), _lists),
    "memory": Topic(("sqlite FULL",), _memory),
    "blocking": Topic(("file", "sqlite FULL"), _blocking),
    "http": Topic(("http on sqlite", "postgresql"), _http),
    "langgraph": Topic(("postgresql",), _graphs),
    "objects": Topic(("s3",), _objects),
    "cli": Topic(("sqlite FULL",), _commands),
    "inspector": Topic(("sqlite FULL",), _inspector),
    "recall": Topic(("sqlite FULL",), _recall),
}
FRAMEWORKS = "frameworks"
FRAMEWORKS_NEED = ("sqlite FULL", "postgresql", "redis always")
"""The first topic: turns through frameworks, next to their own stores."""
EACH = ("saves", "many")
"""The topics that are measured for each backend: saves, reads and turns; and many conversations at once."""
ALL = (FRAMEWORKS, *EACH, *TOPICS)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short threads: to see that it works, not to measure")
    parser.add_argument(
        "--backends", default="", help=f"comma-separated beginnings of names; there are: {', '.join(SUBJECTS)}"
    )
    parser.add_argument(
        "--topics", default="", help=f"comma-separated; there are: {', '.join(ALL)}; "
        "else all for which the chosen backends are enough",
    )  # fmt: skip
    parser.add_argument("--frameworks", default="", help="comma-separated modules of benchmarks/frameworks; else all")
    parser.add_argument("--turns", default="", help="comma-separated lengths of the frameworks' threads; else all")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where latest.md, latest.json and cost.png go")
    parser.add_argument("--dir", type=Path, default=None, help="where the stores are made; else the temporary folder")
    parser.add_argument(
        "--resume", action="store_true", help="keep what latest.json has of the same lengths, and measure the rest"
    )
    parser.add_argument("--publish", action="store_true", help="put the figures into README.md and docs/benchmarks.md")
    parser.add_argument(
        "--peers", action="store_true", default=os.environ.get("PEERS", "") not in ("", "0"),
        help="measure other libraries too, in environments of their own (also: PEERS=1)",
    )  # fmt: skip
    return parser.parse_args()


def chosen(names: str) -> list[type[Subject]]:
    """The backends whose names begin with one of these."""
    beginnings = [name.lower() for name in words(names)] or [""]
    for beginning in beginnings:
        if not any(name.lower().startswith(beginning) for name in SUBJECTS):
            raise SystemExit(f"there is no backend {beginning!r}; there are: {', '.join(SUBJECTS)}")
    return [kind for name, kind in SUBJECTS.items() if name.lower().startswith(tuple(beginnings))]


def chosen_topics(names: str, kinds: list[type[Subject]]) -> list[str]:
    """The topics of that name; else all that need no backend but these."""
    wanted = words(names)
    for name in wanted:
        if name not in ALL:
            raise SystemExit(f"there is no topic {name!r}; there are: {', '.join(ALL)}")
    here = {kind.name for kind in kinds}
    needs = {FRAMEWORKS: FRAMEWORKS_NEED, **{name: topic.needs for name, topic in TOPICS.items()}}
    return wanted or [name for name in ALL if here.issuperset(needs.get(name, ()))]


def words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def progress(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


class Run:
    """One run: its parts one after another, each written down as soon as it is measured."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.settings = QUICK if options.quick else FULL
        if options.turns:
            self.settings = replace(self.settings, framework_lengths=tuple(map(int, words(options.turns))))
        self.frameworks = modules(words(options.frameworks))
        self.out: Path = options.out
        self.kinds = chosen(options.backends)
        self.topics = chosen_topics(options.topics, self.kinds)
        self.peers: bool = options.peers
        self._folder = folder
        self.report = Report(machine=describe(folder), lengths=self.settings.lengths)
        if options.resume and (self.out / "latest.json").exists():
            data = json.loads((self.out / "latest.json").read_text(encoding="utf-8"))
            if data["lengths"] == [*self.settings.lengths] and "took" in data:
                self.report = Report.from_dict({**data, "failed": {}})

    def parts(self) -> Iterator[tuple[str, Callable[[Path], None]]]:
        """The names of the parts, and what measures each."""
        if FRAMEWORKS in self.topics:
            for module in self.frameworks:
                yield f"{FRAMEWORKS}: {module}", lambda place, module=module: self._framework(module, place)  # type: ignore[misc]
        for kind in self.kinds:
            if "saves" in self.topics:
                yield f"{kind.name}: saves", lambda place, kind=kind: self._saves(kind, place)  # type: ignore[misc]
            if "many" in self.topics:
                yield f"{kind.name}: many", lambda place, kind=kind: self._many(kind, place)  # type: ignore[misc]
        for name in self.topics:
            if name in TOPICS:
                yield name, lambda place, name=name: self._section(name, place)  # type: ignore[misc]
        if self.peers:
            yield "peers", self._peers

    def measure(self) -> None:
        for number, (name, part) in enumerate(self.parts()):
            if name in self.report.took:
                progress(f"{name}: measured before")
                continue
            started = time.perf_counter()
            place = self._folder / f"part-{number}"
            place.mkdir()
            try:
                part(place)
            except Exception as error:  # noqa: BLE001 (the other parts are worth having)
                self.report.failed[name] = f"{type(error).__name__}: {str(error)[:200]}"
                progress(f"{name}: {self.report.failed[name]}")
            else:
                self.report.took[name] = time.perf_counter() - started
                progress(f"{name}: {self.report.took[name]:.1f} s")
            self.write()

    def write(self) -> None:
        report = self.report
        report.seconds = sum(report.took.values())
        report.machine["load at the end"] = load()
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / "latest.md").write_text(markdown(report), encoding="utf-8")
        (self.out / "latest.json").write_text(json.dumps(report.as_dict(), indent=1), encoding="utf-8")

    def _framework(self, module: str, place: Path) -> None:
        costs, versions = measure_framework(module, self.settings, place, progress, peers=self.peers)
        self.report.frameworks += costs
        self.report.versions |= versions

    def _saves(self, kind: type[Subject], place: Path) -> None:
        saves, reads, turns = asyncio.run(measure_backend(kind, self.settings, place / "threads"))
        self.report.saves += saves
        self.report.reads += reads
        self.report.turns += turns

    def _many(self, kind: type[Subject], place: Path) -> None:
        self.report.throughput.append(asyncio.run(measure_throughput(kind, self.settings, place / "many")))

    def _section(self, name: str, place: Path) -> None:
        self.report.sections[name] = TOPICS[name].measure(self.settings, place)

    def _peers(self, place: Path) -> None:
        self.report.peers = measure_peers(self.settings, place, progress)


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="locus-bench-", dir=options.dir) as folder:
        run = Run(options, Path(folder))
        try:
            run.measure()
        except KeyboardInterrupt:
            progress("interrupted; --resume goes on from here")
    run.write()
    from benchmarks.plot import draw

    draw(run.report, options.out / "cost.png")
    print(markdown(run.report))
    if options.publish:
        from benchmarks.publish import publish

        publish(options.out / "latest.json")
    progress(f"written to {options.out}: latest.md, latest.json, cost.png")
    sys.exit(1 if run.report.failed else 0)


if __name__ == "__main__":
    main()
