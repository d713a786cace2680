"""A copy of a thread is one event of the new one: it has rows, runs, writes and all their texts in it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from locus.memory.backends.object_index import PutWrite, ThreadIndex
from locus.memory.backends.object_records import Draft, Place, Row, row_facts
from locus.memory.decisions import unneeded_runs
from locus.memory.payloads import wanted
from locus.memory.records import RunInfo


@dataclass(frozen=True)
class Copy:
    """What is to be copied, as it is numbered in the source."""

    rows: list[Row]
    runs: dict[RunInfo, Place]
    writes: list[tuple[str, str, str, int, PutWrite]]


def copy_of(index: ThreadIndex, namespace: str | None, ids: Collection[str] | None) -> tuple[Copy, list[Place]] | None:
    """All checkpoints, or these of one namespace, and what they need; `None` if there are none."""
    rows = [
        replace(row, parent=index.parent(row))
        for row in index.rows.values()
        if ids is None or (row.namespace == namespace and row.checkpoint_id in ids)
    ]
    if not rows:
        return None
    extents = [extent for row in rows for extent in wanted(row.manifest)]
    infos = [run for runs in index.runs.values() for run in runs]
    unneeded = set(unneeded_runs(extents, infos))
    runs = {run: index.places[run.branch, run.number] for run in infos if run not in unneeded}
    writes = [
        (row.namespace, row.checkpoint_id, task_id, idx, write)
        for row in rows
        for (task_id, idx), write in index.writes.get((row.namespace, row.checkpoint_id), {}).items()
    ]
    places = [*(row.head for row in rows), *runs.values(), *(write.place for *_, write in writes)]
    return Copy(rows, runs, writes), places


def copy_draft(found: Copy, text: Callable[[Place], str], number: int) -> Draft:
    """The event, if it gets this number: its checkpoints are numbered from there on."""
    seqs = {row.seq: number + position for position, row in enumerate(found.rows)}
    lines: list[str] = []

    def placed(place: Place) -> Place:
        lines.append(text(place))
        return Place(number, len(lines) - 1)

    rows: list[list[Any]] = []
    for row in found.rows:
        parent = None if row.parent is None else seqs.get(row.parent)
        rows.append(row_facts(replace(row, seq=seqs[row.seq], parent=parent, head=placed(row.head))))
    facts = {
        "to": number + len(rows) - 1,
        "rows": rows,
        "runs": [[*run, *placed(place)] for run, place in found.runs.items()],
        "writes": [
            [namespace, checkpoint_id, task_id, idx, write.task_path, write.channel, *placed(write.place)]
            for namespace, checkpoint_id, task_id, idx, write in found.writes
        ],
    }
    return Draft("copy", facts, lines)
