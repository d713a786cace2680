"""Copies and exports: some checkpoints of a thread, and everything they need.

A copy is one event of the new thread, which holds rows, runs, writes and all their texts. An export is a page of
records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

from locus.memory.backends.objects.index import ThreadIndex, WriteInfo
from locus.memory.backends.objects.schema import Draft, IndexedCheckpoint, TextRef, one_line, row_facts
from locus.memory.model.manifest import newest_runs, wanted
from locus.memory.model.records import Entry, Exported, Run, RunInfo, Stored, Write, writes_order
from locus.memory.model.retention import Copied, chosen_in, unneeded_runs
from locus.memory.model.sizes import brought, fitting


@dataclass(frozen=True)
class CopiedCheckpoints:
    """The content to copy, with the numbers of the source."""

    rows: list[IndexedCheckpoint]
    runs: dict[RunInfo, TextRef]
    writes: list[tuple[str, str, str, int, WriteInfo]]


@dataclass(frozen=True)
class Page:
    """Some checkpoints of a thread, with the texts, runs and writes that they need."""

    entries: list[tuple[Entry, IndexedCheckpoint]]
    runs: dict[RunInfo, TextRef]
    writes: dict[tuple[str, str], dict[tuple[str, int], WriteInfo]]
    more: bool

    @property
    def refs(self) -> list[TextRef]:
        writes = [write.ref for pending in self.writes.values() for write in pending.values()]
        return [*(row.head for _, row in self.entries), *self.runs.values(), *writes]

    def exported(self, text: Callable[[TextRef], str]) -> Exported:
        writes = {
            of: [Write(task, put.task_path, idx, put.channel, text(put.ref)) for (task, idx), put in pending.items()]
            for of, pending in self.writes.items()
        }
        return Exported(
            [Stored(entry, text(row.head), row.manifest) for entry, row in self.entries],
            [Run(*run, text(ref), ref.before) for run, ref in self.runs.items()],
            {of: sorted(some, key=writes_order) for of, some in writes.items()},
            self.more,
        )


def page_of(
    index: ThreadIndex, after_seq: int, limit: int, known: Mapping[str, int]
) -> tuple[Page, list[TextRef]] | None:
    """Gather the checkpoints that follow a number; None if there are none.

    Texts of unknown length take no room: they are in an object that is read as a whole in any case.
    """
    rows = [row for seq, row in sorted(index.rows.items()) if seq > after_seq][:limit]
    if not rows:
        return None
    page = _page(index, rows, known)

    def size(ref: TextRef) -> int:
        return index.places.size(ref) or 0

    run_sizes = ((run.branch, run.number, size(ref)) for run, ref in page.runs.items())
    write_sizes = (
        sum(size(write.ref) for write in page.writes.get((row.namespace, row.checkpoint_id), {}).values())
        for row in rows
    )
    count = min(
        fitting(size(row.head) for row in rows),
        fitting(brought((newest_runs([row.manifest]) for row in rows), run_sizes)),
        fitting(write_sizes),
    )
    if count < len(rows):
        page = replace(_page(index, rows[:count], known), more=True)
    return page, page.refs


def _page(index: ThreadIndex, rows: Sequence[IndexedCheckpoint], known: Mapping[str, int]) -> Page:
    runs = {
        run: index.run_refs[branch, run.number]
        for branch, newest in newest_runs(row.manifest for row in rows).items()
        for run in index.runs.get(branch, [])
        if known.get(branch, -1) < run.number <= newest
    }
    names = [(row.namespace, row.checkpoint_id) for row in rows]
    writes = {name: dict(index.writes[name]) for name in names if name in index.writes}
    return Page([(index.entry(row), row) for row in rows], runs, writes, more=False)


def copy_of(index: ThreadIndex, copied: Copied) -> tuple[CopiedCheckpoints, list[TextRef]] | None:
    """Gather checkpoints to copy, and everything that they need; None if there are none."""
    chosen = chosen_in(map(index.entry, index.rows.values()), copied)
    located = [(index.rows[entry.seq], entry.parent_id) for entry in chosen]
    rows = [replace(row, parent=None if parent_id is None else index.parent(row)) for row, parent_id in located]
    if not rows:
        return None
    extents = [extent for row in rows for extent in wanted(row.manifest)]
    infos = [run for runs in index.runs.values() for run in runs]
    unneeded = set(unneeded_runs(extents, infos))
    runs = {run: index.run_refs[run.branch, run.number] for run in infos if run not in unneeded}
    writes = [
        (row.namespace, row.checkpoint_id, task_id, idx, write)
        for row in rows
        for (task_id, idx), write in index.writes.get((row.namespace, row.checkpoint_id), {}).items()
    ]
    refs = [*(row.head for row in rows), *runs.values(), *(write.ref for *_, write in writes)]
    return CopiedCheckpoints(rows, runs, writes), refs


def copy_draft(copy: CopiedCheckpoints, text: Callable[[TextRef], str], number: int) -> Draft:
    """Make the event of a copy, if it gets this number. Its checkpoints are numbered from there on."""
    seqs = {row.seq: number + position for position, row in enumerate(copy.rows)}
    lines: list[str] = []

    def stored(ref: TextRef) -> TextRef:
        lines.append(text(ref))
        return TextRef(number, len(lines) - 1, crc32(one_line(lines[-1]).encode()), ref.before)

    rows: list[list[Any]] = []
    for row in copy.rows:
        parent = seqs.get(row.parent) if isinstance(row.parent, int) else row.parent
        rows.append(row_facts(replace(row, seq=seqs[row.seq], parent=parent, head=stored(row.head))))
    facts = {
        "to": number + len(rows) - 1,
        "rows": rows,
        "runs": [[*run, *stored(ref)] for run, ref in copy.runs.items()],
        "writes": [
            [namespace, checkpoint_id, task_id, idx, write.task_path, write.channel, *stored(write.ref)[:3]]
            for namespace, checkpoint_id, task_id, idx, write in copy.writes
        ],
    }
    return Draft("copy", facts, lines)
