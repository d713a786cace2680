"""The figures that were promised, and what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf

from benchmarks.costs import Figure, Report
from benchmarks.subjects import SUBJECTS
from benchmarks.workloads import WORKLOADS

FLAT = 1.2
WARM_GROWTH, WARM_MS, WARM_DICT, COLD_SAVE = 3.0, 2.0, 1.3, 1.6
TINY_MS = 0.1
"""A difference below this is no growth, whatever the ratio of two such small numbers is."""


def figures(report: Report) -> list[Figure]:
    """All that are promised of every backend."""
    return [*save_figures(report), *read_figures(report), *turn_figures(report), *many_figures(report)]


def save_figures(report: Report) -> list[Figure]:
    return _sorted(figure for backend in report.backends for figure in _of_saves(report, backend))


def read_figures(report: Report) -> list[Figure]:
    return _sorted(figure for backend in report.backends for figure in _of_reads(report, backend))


def turn_figures(report: Report) -> list[Figure]:
    return _sorted(figure for backend in report.backends for figure in _of_turns(report, backend))


def many_figures(report: Report) -> list[Figure]:
    """Saves per second of many conversations at once."""
    found = []
    for rate in report.throughput:
        limit = SUBJECTS[rate.backend].many_limit
        if limit is not None:
            ratio = rate.ours / rate.floor
            what = "saves per second of many conversations at once ÷ the floor's"
            found.append(Figure(what, rate.backend, f"≥ {limit:g}", f"{ratio:.2f}", ratio >= limit))
    return found


def _sorted(found: Iterable[Figure]) -> list[Figure]:
    figures = list(found)
    order = list(dict.fromkeys(figure.what for figure in figures))
    return sorted(figures, key=lambda figure: order.index(figure.what))


def _of_saves(report: Report, backend: str) -> Iterator[Figure]:
    measured = {cost.workload for cost in report.saves if cost.backend == backend}
    workloads = [workload for workload in WORKLOADS if workload.name in measured]
    timed = [workload.name for workload in workloads if workload.flat_time]
    every = [workload.name for workload in workloads]
    short = min(cost.length for cost in report.saves if cost.backend == backend)
    longest = {name: report.longest(backend, name) for name in every}
    long = max(cost.length for cost in longest.values())
    span = f"at {long:,} ÷ at {short:,} turns"

    def shown(name: str) -> str:
        return name if longest[name].length == long else f"{name} (at {longest[name].length:,})"

    def growth(value: str, names: list[str]) -> dict[str, float]:
        pairs = {name: (report.save(backend, name, short), longest[name]) for name in names}
        return {
            shown(name): _ratio(getattr(last, value), getattr(first, value)) for name, (first, last) in pairs.items()
        }

    yield _ratios(f"time of a save, {span}", backend, FLAT, growth("save_ms", timed))
    yield _ratios(f"bytes of a save as sent to the engine, {span}", backend, FLAT, growth("sent_bytes", every))
    yield _ratios(f"bytes that a save adds to the store, {span}", backend, FLAT, growth("grown_bytes", every))
    limit = SUBJECTS[backend].save_limit
    if limit is not None:
        over = {shown(name): longest[name].save_ms / longest[name].floor_ms for name in timed}
        yield _ratios(f"time of a save ÷ the floor, at {long:,} turns", backend, limit, over)


def _of_turns(report: Report, backend: str) -> Iterator[Figure]:
    costs = [cost for cost in report.turns if cost.backend == backend]
    if not costs:
        return
    subject, first, last = SUBJECTS[backend], costs[0], costs[-1]
    span, end = f"at {last.length:,} ÷ at {first.length:,} turns", f"at {last.length:,} turns"
    turn = {"": last.turn_ms / first.turn_ms}
    yield _ratios(f"a turn of a worker that knows nothing, {span}", backend, subject.turn_limit, turn)
    ratio = last.warm_load_ms / first.warm_load_ms
    yield Figure(
        f"warm load of a state with one new turn, {span}",
        backend,
        f"≤ {WARM_GROWTH:g} and ≤ {WARM_MS:g} ms",
        f"{ratio:.2f}, {last.warm_load_ms:.2f} ms",
        ratio <= WARM_GROWTH and last.warm_load_ms <= WARM_MS,
    )
    warm_dict = {"": last.warm_dict_load_ms / last.parse_ms}
    yield _ratios(f"warm load of a dict with one new turn ÷ parsing, {end}", backend, WARM_DICT, warm_dict)
    cold = {"": last.cold_load_ms / last.validate_ms}
    yield _ratios(f"cold load ÷ `model_validate_json`, {end}", backend, subject.cold_load_limit, cold)
    saved = {"": last.cold_save_ms / last.encode_ms}
    yield _ratios(f"cold save ÷ encoding item by item, {end}", backend, COLD_SAVE, saved)


def _of_reads(report: Report, backend: str) -> Iterator[Figure]:
    costs = [cost for cost in report.reads if cost.backend == backend]
    if not costs:
        return
    first, last = costs[0], costs[-1]
    end = f"at {last.length:,} turns"
    stored = {"": last.stored_bytes / last.floor_bytes}
    yield _ratios(f"stored bytes ÷ the floor's, {end}", backend, SUBJECTS[backend].stored_limit, stored)
    least = last.validate_ms + (last.read_ms or 0.0)
    what = "`model_validate_json`" if last.read_ms is None else "the raw driver's read and `model_validate_json`"
    loading = {"warm": last.load_ms / least, "new handle": last.cold_load_ms / least}
    yield _ratios(f"load ÷ {what}, {end}", backend, SUBJECTS[backend].load_limit, loading)
    reads = {"list": (first.list_ms, last.list_ms), "history": (first.history_ms, last.history_ms)}
    yield Figure(
        f"`list_checkpoints` and `history`, at {last.length:,} ÷ at {first.length:,} turns",
        backend,
        f"≤ {FLAT} or < {TINY_MS} ms more",
        ", ".join(f"{name} {after / before:.2f}" for name, (before, after) in reads.items()),
        all(after <= FLAT * before or after - before < TINY_MS for before, after in reads.values()),
    )


def _ratio(last: float, first: float) -> float:
    """A store grows by whole pages: a few saves may add nothing that can be seen."""
    return last / first if first else inf if last else 1.0


def _ratios(what: str, backend: str, limit: float, found: dict[str, float]) -> Figure:
    shown = ", ".join(f"{name} {value:.2f}".strip() for name, value in found.items())
    return Figure(what, backend, f"≤ {limit:g}", shown, all(value <= limit for value in found.values()))
