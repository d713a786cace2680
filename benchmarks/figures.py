"""The figures that were promised, and what was measured."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import NamedTuple

from benchmarks.costs import Report
from benchmarks.subjects import SUBJECTS
from benchmarks.workloads import WORKLOADS

FLAT = 1.5
WARM_GROWTH, WARM_MS, WARM_DICT, COLD_SAVE = 3.0, 2.0, 1.3, 1.6
TINY_MS = 0.1
"""A difference below this is no growth, whatever the ratio of two such small numbers is."""


class Figure(NamedTuple):
    """One promise. `measured` has a value for each workload, or one."""

    what: str
    backend: str
    target: str
    measured: str
    ok: bool


def figures(report: Report) -> list[Figure]:
    found = [figure for backend in report.backends for figure in _of_backend(report, backend)]
    order = list(dict.fromkeys(figure.what for figure in found))
    return sorted(found, key=lambda figure: order.index(figure.what))


def _of_backend(report: Report, backend: str) -> Iterator[Figure]:
    short, long = report.lengths[0], report.lengths[-1]
    span = f"at {long:,} ÷ at {short:,} turns"
    timed = [workload.name for workload in WORKLOADS if workload.flat_time]
    every = [workload.name for workload in WORKLOADS]

    def growth(value: str, workloads: list[str]) -> dict[str, float]:
        pairs = {name: (report.save(backend, name, short), report.save(backend, name, long)) for name in workloads}
        return {name: _ratio(getattr(last, value), getattr(first, value)) for name, (first, last) in pairs.items()}

    yield _ratios(f"time of a save, {span}", backend, FLAT, growth("save_ms", timed))
    yield _ratios(f"bytes of a save as sent to the engine, {span}", backend, FLAT, growth("sent_bytes", every))
    yield _ratios(f"bytes that a save adds to the store, {span}", backend, FLAT, growth("grown_bytes", every))
    limit = SUBJECTS[backend].save_limit
    if limit is not None:
        costs = {name: report.save(backend, name, long) for name in timed}
        over = {name: cost.save_ms / cost.floor_ms for name, cost in costs.items()}
        yield _ratios(f"time of a save ÷ the floor, at {long:,} turns", backend, limit, over)
    yield from _of_reads(report, backend, short, long, span)
    yield from _of_turns(report, backend)


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


def _of_reads(report: Report, backend: str, short: int, long: int, span: str) -> Iterator[Figure]:
    first, last = report.read(backend, short), report.read(backend, long)
    stored = {"": last.stored_bytes / last.floor_bytes}
    yield _ratios(f"stored bytes ÷ the floor's, at {long:,} turns", backend, SUBJECTS[backend].stored_limit, stored)
    least = last.validate_ms + (last.read_ms or 0.0)
    what = "`model_validate_json`" if last.read_ms is None else "the raw driver's read and `model_validate_json`"
    loading = {"warm": last.load_ms / least, "new handle": last.cold_load_ms / least}
    yield _ratios(f"load ÷ {what}, at {long:,} turns", backend, SUBJECTS[backend].load_limit, loading)
    reads = {"list": (first.list_ms, last.list_ms), "history": (first.history_ms, last.history_ms)}
    yield Figure(
        f"`list_checkpoints` and `history`, {span}",
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
