"""Reads that Oracle Database does differently from the shared steps: checkpoints, and queries by metadata."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from locus.errors import CorruptCheckpointError
from locus.memory.backends.oracle.schema import OracleFlavour
from locus.memory.backends.sql.flavour import Steps, marks, portions
from locus.memory.backends.sql.read import one, stored_of, with_metadata
from locus.memory.backends.sql.schema import RUN_INFO, CheckpointRow, of
from locus.memory.backends.sql.search import metadata_key
from locus.memory.model.manifest import check_named, visible, wanted
from locus.memory.model.records import Entry, Extent, Run, Stored

AT_ONCE = 50
"""How many extents one statement reads; a checkpoint of many small lists may have more."""


def read(sql: OracleFlavour, thread_id: str, namespace: str, checkpoint_id: str | None) -> Steps[Stored | None]:
    """A checkpoint with its runs, in two statements.

    Runs never change, and their names are never used again. So the second statement finds what the first would have
    found, unless the checkpoint was deleted in between and some runs are missing. Then both are repeated.
    """
    while True:
        row = yield from one(sql, sql.stored, thread_id, namespace, checkpoint_id)
        if row is None:
            return None
        stored = yield from _with_runs(sql, row)
        if _is_whole(stored):
            return stored
        if (yield from _is_there(sql, row)):
            check_named(wanted(stored.manifest), stored.runs, since=False)
            return stored


def _with_runs(sql: OracleFlavour, row: CheckpointRow) -> Steps[Stored]:
    runs: dict[str, list[Run]] = {}
    stored = stored_of(sql, row, runs)
    found = {(run.branch, run.number): run for run in (yield from _runs(sql, row.thread, wanted(stored.manifest)))}
    for run in found.values():
        runs.setdefault(run.branch, []).append(run)
    return stored


def _runs(sql: OracleFlavour, thread: int, extents: Sequence[Extent]) -> Steps[list[Run]]:
    """The runs that extents need: the newest that begins at or before an extent's start, and those after it."""
    if not all(isinstance(number, int) for extent in extents for number in extent[1:]):
        raise CorruptCheckpointError("stored manifest cannot be read: it has no numbers where they should be")
    conditions: list[tuple[str, Sequence[Any]]] = []
    for branches in portions([extent.branch for extent in extents if extent.run == 0]):
        conditions.append((f"r.number = 0 AND r.branch IN {marks(len(branches))}", branches))
    for extent in extents:
        if extent.run > 0:
            oldest = (
                f"SELECT MAX(o.number) FROM {sql.runs} o"
                " WHERE o.thread = ? AND o.branch = ? AND o.number <= ? AND o.start <= ?"
            )
            newest = (extent.branch, extent.run)
            conditions.append(
                (
                    f"r.branch = ? AND r.number <= ? AND r.number >= ({oldest})",
                    (*newest, thread, *newest, extent.skip),
                )
            )
    found: list[Run] = []
    for together in portions(conditions, AT_ONCE):
        rows = yield (
            f"SELECT {of('r', RUN_INFO)}, r.items, r.items_before FROM {sql.runs} r WHERE r.thread = ?"
            f" AND ({' OR '.join(f'({condition})' for condition, _ in together)})",
            [thread, *(value for _, values in together for value in values)],
        )
        found += map(sql.read_run, rows)
    return found


def _is_whole(stored: Stored) -> bool:
    try:
        check_named(wanted(stored.manifest), stored.runs, since=False)
        for extent in wanted(stored.manifest):
            visible(extent, stored.runs.get(extent.branch, ()))
    except CorruptCheckpointError:
        return False
    return True


def _is_there(sql: OracleFlavour, row: CheckpointRow) -> Steps[bool]:
    """Whether the checkpoint is unchanged. Then missing runs mean that it is damaged."""
    rows = yield (
        f"SELECT rev FROM {sql.checkpoints} WHERE thread = ? AND namespace = ? AND seq = ?",
        (row.thread, row.namespace, row.seq),
    )
    return any(rev == row.rev for (rev,) in rows)


def find(sql: OracleFlavour, key: str, value: str, limit: int, prefix: str) -> Steps[list[Entry]]:
    """Look up a pair by its digest; `value` is canonical JSON."""
    tables = (
        f"{sql.metadata_pairs} p"
        f" JOIN {sql.checkpoints} c ON c.thread = p.thread AND c.namespace = p.namespace AND c.seq = p.seq"
        f" JOIN {sql.threads} t ON t.id = c.thread"
    )
    return (yield from with_metadata(sql, tables, "p.pair = ?", [metadata_key(key, value)], key, value, limit, prefix))
