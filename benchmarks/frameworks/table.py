"""Turns through frameworks as a table, and what was promised of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.costs import Figure, FrameworkCost, SideCost
from benchmarks.frameworks.running import NEWEST
from benchmarks.tables import ms, table

NOT_SLOWER, FLAT, STORED, TINY_MS = 1.0, 1.2, 1.5, 0.1
GRAPHS = "LangGraph"
GRAPH_LIMITS = {30: 1.0, 400: 0.5}
"""What our saver may add to a turn, divided by what LangGraph's own adds, by the turns of the thread."""
GRAPH_GROWTH = 1.3
SAVE_LENGTHS = (10, 1_000)
"""At which a save is compared with the framework's own, and with each other."""

NOTES = f"""\
*In memory* is the framework with the store that it brings for tests: the floor. *Adds* is what a turn takes beyond
that. It is below zero where a store does less than the one in memory: LangGraph's `InMemorySaver` encodes the whole
state with every step. *÷* is what Locus adds divided by what the framework's own store adds. *KB a turn* is what a
turn of 3 KB adds to the store. The newest {NEWEST} messages are read as the framework reads them; LangGraph reads
the whole state. Both sides are equally durable: FULL is SQLite's `synchronous=FULL`; unsynced files stand next to
SQLite's NORMAL, which does not sync a commit either; PostgreSQL commits with an fsync, as does Redis with
`appendfsync always`. LangGraph saves with `durability="sync"`. Its threads of more than 100 turns begin with 24
turns and one `update_state` that has all the rest; sessions of more than 1,000 turns begin with one save, where the
framework has a verb for that.
"""


def subjects_of(costs: Sequence[FrameworkCost]) -> Iterator[list[FrameworkCost]]:
    """The costs of each subject, by length."""
    for subject in dict.fromkeys(cost.subject for cost in costs):
        yield sorted((cost for cost in costs if cost.subject == subject), key=lambda cost: cost.length)


def framework_figures(costs: Sequence[FrameworkCost]) -> list[Figure]:
    found = [figure for those in subjects_of(costs) for figure in _of_subject(those)]
    order = list(dict.fromkeys(figure.what for figure in found))
    return sorted(found, key=lambda figure: order.index(figure.what))


def _of_subject(costs: Sequence[FrameworkCost]) -> Iterator[Figure]:
    graph = costs[0].framework.startswith(GRAPHS)
    yield from _of_graphs(costs) if graph else _of_sessions(costs)


def _of_graphs(costs: Sequence[FrameworkCost]) -> Iterator[Figure]:
    name = subject_name(costs[0])
    for cost in costs:
        ours, theirs = cost.adds(cost.ours), cost.adds(cost.theirs)
        limit = GRAPH_LIMITS.get(cost.length)
        if limit is not None and ours is not None and theirs is not None:
            what = f"what the saver adds to a turn ÷ what LangGraph's own adds, at {cost.length:,} turns"
            shown = f"{ours / theirs:.2f} ({signed(ours)} and {signed(theirs)} ms)"
            yield Figure(what, name, f"≤ {limit:g}", shown, ours <= limit * theirs)
    first = next((cost for cost in costs if cost.length in GRAPH_LIMITS), costs[0])
    last = [cost for cost in costs if cost.adds(cost.ours) is not None or cost is first][-1]
    before, after = first.adds(first.ours), last.adds(last.ours)
    if before is not None and after is not None and first is not last:
        what = f"what the saver adds to a turn, at {last.length:,} ÷ at {first.length:,} turns"
        shown = f"{signed(before)} → {signed(after)} ms"
        yield Figure(what, name, f"≤ {GRAPH_GROWTH:g}", shown, after <= GRAPH_GROWTH * before)


def _of_sessions(costs: Sequence[FrameworkCost]) -> Iterator[Figure]:
    name = subject_name(costs[0])
    ends = [cost for cost in costs if cost.length in SAVE_LENGTHS] or [costs[0], costs[-1]]
    for cost in ends:
        if cost.ours is not None and cost.theirs is not None:
            ratio = cost.ours.turn_ms / cost.theirs.turn_ms
            what = f"a save ÷ the framework's own, at {cost.length:,} turns"
            yield Figure(what, name, f"≤ {NOT_SLOWER:g}×", f"{ratio:.2f}×", ratio <= NOT_SLOWER)
    measured = [(cost, cost.ours) for cost in costs if cost.ours is not None]
    if not measured:
        return
    (first, early), (last, late) = measured[0], measured[-1]
    span = f"at {last.length:,} ÷ at {first.length:,} turns"
    yield _flat(f"a save, {span}", name, early.turn_ms, late.turn_ms)
    yield _flat(f"the newest {NEWEST} messages, {span}", name, early.newest_ms, late.newest_ms)
    whole = [(cost, ours.stored_bytes) for cost, ours in measured if ours.stored_bytes is not None]
    for cost, stored_bytes in whole[-1:]:
        stored = stored_bytes / cost.content_bytes
        what = f"stored bytes ÷ content, at {cost.length:,} turns"
        yield Figure(what, name, f"≤ {STORED:g}", f"{stored:.2f}", stored <= STORED)


def _flat(what: str, name: str, early: float, late: float) -> Figure:
    ok = late <= FLAT * early or late - early < TINY_MS
    return Figure(what, name, f"≤ {FLAT:g} or < {TINY_MS:g} ms more", f"{late / early:.2f}", ok)


def subject_name(cost: FrameworkCost) -> str:
    own = "" if cost.own is None else f", next to {cost.own}"
    return f"{cost.framework}, {cost.call}, {cost.store}{own}"


def framework_table(costs: Sequence[FrameworkCost]) -> str:
    """A line for each framework, store and length."""
    head = [
        *("framework", "a turn is", "store", "its own", "turns", "in memory, ms", "its own, ms", "Locus, ms"),
        *("its own adds", "Locus adds", "÷", "its own, KB a turn", "Locus, KB a turn"),
        *(f"its own, newest {NEWEST}, ms", f"Locus, newest {NEWEST}, ms"),
    ]
    return table(head, [_row(cost) for cost in costs])


def _row(cost: FrameworkCost) -> list[str]:
    ours, theirs = cost.adds(cost.ours), cost.adds(cost.theirs)
    ratio = f"{max(0.0, ours) / theirs:.2f}" if ours is not None and theirs is not None and theirs > 0 else "–"
    floor = None if cost.floor is None else cost.floor.turn_ms
    return [
        *(cost.framework, cost.call, cost.store, cost.own or "–", f"{cost.length:,}"),
        *(ms(floor), _turn(cost.theirs), _turn(cost.ours), signed(theirs), signed(ours), ratio),
        *(_kilobytes(cost.theirs), _kilobytes(cost.ours)),
        *(ms(side.newest_ms if side else None) for side in (cost.theirs, cost.ours)),
    ]


def _turn(side: SideCost | None) -> str:
    return ms(None if side is None else side.turn_ms)


def _kilobytes(side: SideCost | None) -> str:
    return "–" if side is None or side.added_bytes is None else f"{side.added_bytes / 1e3:,.1f}"


def signed(value: float | None) -> str:
    return "–" if value is None else f"−{ms(-value)}" if value < 0 else ms(value)


def framework_notes(costs: Sequence[FrameworkCost], versions: Mapping[str, str]) -> str:
    """How to read the table, what was left out, and the versions of everything."""
    known = ", ".join(f"{name} {number}" for name, number in sorted(versions.items(), key=lambda one: one[0].lower()))
    missing = [f"- {subject_name(cost)}, {cost.length:,} turns: {cost.note}" for cost in costs if cost.note]
    left_out = ["Left out, because it did not come that far in its time:", "\n".join(missing)] if missing else []
    return "\n\n".join([NOTES.strip().replace("\n", " "), *left_out, f"Versions: {known}."])
