"""`python -m benchmarks.frameworks.running`: sessions of frameworks, ours against each framework's own store.

The same turns go into both, one after the other, and who is first changes from save to save. Each length has a store of
its own on each side. What theirs keep is the latest; ours keep every point of the history.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import pkgutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import benchmarks.frameworks
from benchmarks.clock import frozen, in_turn, settled
from benchmarks.costs import Figure, Section
from benchmarks.figures import FLAT, TINY_MS
from benchmarks.frameworks.subject import FrameworkSubject, Side
from benchmarks.report import ms, table
from benchmarks.settings import FULL, QUICK, Settings

NOT_SLOWER, STORED = 1.0, 1.5
NEWEST = 20
NO_SUBJECTS = {"subject", "running"}


@dataclass(frozen=True)
class Costs:
    """What one side takes at one length. Bytes are of all sessions of that length."""

    save_ms: float
    newest_ms: float
    stored_bytes: int


@dataclass(frozen=True)
class FrameworkCost:
    """What sessions of that many turns take, on ours and on the framework's own store, if it has one."""

    name: str
    own: str | None
    length: int
    content_bytes: int
    ours: Costs
    theirs: Costs | None


def subjects(only: str = "") -> list[FrameworkSubject]:
    """Those of all frameworks, or of the one whose module is named."""
    names = [found.name for found in pkgutil.iter_modules(benchmarks.frameworks.__path__)]
    chosen = [name for name in sorted({*names} - NO_SUBJECTS) if name == (only or name)]
    if not chosen:
        raise SystemExit(f"there is no framework {only!r}; there are: {', '.join(sorted({*names} - NO_SUBJECTS))}")
    return [each for name in chosen for each in importlib.import_module(f"benchmarks.frameworks.{name}").SUBJECTS]


async def measure_subject(subject: FrameworkSubject, settings: Settings, folder: Path) -> list[FrameworkCost]:
    return [
        await _measure_length(subject, length, settings, folder / str(length)) for length in settings.session_lengths
    ]


async def _measure_length(subject: FrameworkSubject, length: int, settings: Settings, folder: Path) -> FrameworkCost:
    """A short session would soon be a long one, so the saves are spread over several."""
    sides = [*_sides(subject, folder)]
    each = min(settings.session_rounds, max(1, length // 2))
    names = [f"session {number}" for number in range(-(-settings.session_rounds // each))]
    times: list[list[float]] = [[] for _ in sides]
    for name in names:
        for side in sides:
            await side.begin(name)
        for number in range(length):
            turn = subject.turn(number)
            for which in _order(len(sides), number):
                elapsed = await _timed_save(sides[which], name, turn)
                if number >= length - each:
                    times[which].append(elapsed)
    kept = [await side.newest(names[-1], NEWEST) for side in sides]
    if not kept[0] or len({len(each) for each in kept}) != 1:
        raise RuntimeError(f"{subject.name}: the two sides have not kept the same")
    with frozen():
        newest = await in_turn([{"ms": partial(side.newest, names[-1], NEWEST)} for side in sides], settings.loads)
    for side in sides:
        await side.close()
    costs = [
        Costs(median(saves), reads["ms"], _stored(side.folder))
        for side, saves, reads in zip(sides, times, newest, strict=True)
    ]
    content = len(names) * sum(subject.content(subject.turn(number)) for number in range(length))
    return FrameworkCost(subject.name, subject.own, length, content, costs[0], costs[1] if len(costs) > 1 else None)


def _sides(subject: FrameworkSubject, folder: Path) -> Iterator[Side]:
    for name, make in {"ours": subject.ours, "theirs": subject.theirs}.items():
        if name == "ours" or subject.own is not None:
            place = folder / name
            place.mkdir(parents=True)
            yield make(place)


def _order(count: int, number: int) -> Sequence[int]:
    return range(count) if number % 2 else range(count - 1, -1, -1)


async def _timed_save(side: Side, session_id: str, turn: Any) -> float:
    await settled()
    started = perf_counter()
    await side.save(session_id, turn)
    return (perf_counter() - started) * 1e3


def _stored(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def framework_figures(costs: Sequence[FrameworkCost]) -> list[Figure]:
    """What was promised of one subject, from its shortest and its longest sessions."""
    first, last = costs[0], costs[-1]
    found = []
    for cost, ahead in ((first, False), (last, True)):
        if cost.theirs is not None:
            ratio = cost.ours.save_ms / cost.theirs.save_ms
            found.append(
                Figure(
                    f"a save ÷ the framework's own, at {cost.length:,} turns",
                    cost.name,
                    f"{'<' if ahead else '≤'} {NOT_SLOWER:g}×",
                    f"{ratio:.2f}×",
                    ratio < NOT_SLOWER if ahead else ratio <= NOT_SLOWER,
                )
            )
    span = f"at {last.length:,} ÷ at {first.length:,} turns"
    if last.theirs is None:
        ratio = last.ours.save_ms / first.ours.save_ms
        found.append(Figure(f"a save, {span}", last.name, f"≤ {FLAT:g}", f"{ratio:.2f}", ratio <= FLAT))
    stored = last.ours.stored_bytes / last.content_bytes
    found.append(
        Figure(
            f"stored bytes ÷ content, at {last.length:,} turns",
            last.name,
            f"≤ {STORED:g}",
            f"{stored:.2f}",
            stored <= STORED,
        )
    )
    early, late = first.ours.newest_ms, last.ours.newest_ms
    found.append(
        Figure(
            f"the newest {NEWEST} messages, {span}",
            last.name,
            f"≤ {FLAT:g} or < {TINY_MS:g} ms more",
            f"{late / early:.2f}",
            late <= FLAT * early or late - early < TINY_MS,
        )
    )
    return found


def framework_table(costs: Sequence[FrameworkCost]) -> str:
    head = [
        *("framework", "its own store", "turns", "save ms", "its own ms", f"newest {NEWEST} ms", "its own ms"),
        *("content MB", "stored MB", "its own MB"),
    ]
    rows = []
    for cost in costs:
        ours, theirs = cost.ours, cost.theirs
        rows.append(
            [
                *(cost.name, cost.own or "–", f"{cost.length:,}"),
                *(ms(ours.save_ms), ms(theirs.save_ms if theirs else None)),
                *(ms(ours.newest_ms), ms(theirs.newest_ms if theirs else None)),
                *(_mb(cost.content_bytes), _mb(ours.stored_bytes), _mb(theirs.stored_bytes) if theirs else "–"),
            ]
        )
    return table(head, rows)


def _mb(value: int) -> str:
    return f"{value / 1e6:,.2f}"


async def framework_section(settings: Settings, folder: Path, only: str = "") -> Section:
    figures: list[Figure] = []
    costs: list[FrameworkCost] = []
    for number, subject in enumerate(subjects(only)):
        found = await measure_subject(subject, settings, folder / f"subject-{number}")
        figures += framework_figures(found)
        costs += found
    return Section("Sessions of frameworks, next to their own stores", figures, framework_table(costs))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.frameworks.running", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short sessions: to see that it works, not to measure")
    parser.add_argument("--only", default="", help="the module of one framework: openai_agents")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="locus-bench-") as folder:
        section = asyncio.run(framework_section(QUICK if options.quick else FULL, Path(folder), options.only))
    print(section.table)
    print()
    for figure in section.figures:
        outcome = "reached" if figure.ok else "missed"
        print(f"{figure.backend}: {figure.what}: {figure.measured}; target {figure.target}: {outcome}")


if __name__ == "__main__":
    main()
