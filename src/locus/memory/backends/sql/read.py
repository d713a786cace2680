"""Reading from the tables that the SQL backends share: one checkpoint, lists of them, and whole threads for export."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from locus.errors import CorruptCheckpointError
from locus.memory.backends.sql.flavour import Flavour, Row, Steps, marks, portions
from locus.memory.model.ids import Pattern
from locus.memory.model.manifest import newest_runs, wanted
from locus.memory.model.records import Entry, Exported, Extent, Run, Stored, Write, writes_order

AT_ONCE = 20
"""How many extents are read by one statement; a checkpoint of many small lists has more."""


def now(sql: Flavour) -> Any:
    """The current time as the driver takes it."""
    return sql.time(datetime.now(UTC))


def entry_of(sql: Flavour, row: Row) -> Entry:
    """An entry from a row that begins with the columns of `Flavour.entry`."""
    thread_id, namespace, checkpoint_id, parent_id, seq, rev, created_at, metadata = row[:8]
    try:
        created = sql.read_time(created_at)
    except (TypeError, ValueError) as error:
        raise CorruptCheckpointError(f"checkpoint {checkpoint_id!r} has no time that can be read") from error
    return Entry(
        sql.read_text(thread_id),
        sql.read_text(namespace),
        sql.read_text(checkpoint_id),
        None if parent_id is None else sql.read_text(parent_id),
        seq,
        rev,
        created,
        sql.read_json(metadata),
    )


def one(sql: Flavour, columns: str, thread_id: str, namespace: str, checkpoint_id: str | None) -> Steps[Row | None]:
    """These columns of one checkpoint, the latest if no id is given."""
    values = [sql.text(thread_id), now(sql), sql.text(namespace)]
    condition = f"{sql.in_order('c.namespace')} = ? ORDER BY c.seq DESC LIMIT 1"
    if checkpoint_id is not None:
        condition = "c.namespace = ? AND c.checkpoint_id = ?"
        values.append(sql.text(checkpoint_id))
    rows = yield (
        f"SELECT {columns} FROM {sql.joined} WHERE {sql.of_thread} AND {sql.alive} AND {condition}",
        values,
    )
    return rows[0] if rows else None


def entry(sql: Flavour, thread_id: str, namespace: str, checkpoint_id: str | None) -> Steps[Entry | None]:
    row = yield from one(sql, sql.entry, thread_id, namespace, checkpoint_id)
    return None if row is None else entry_of(sql, row)


def read(sql: Flavour, thread_id: str, namespace: str, checkpoint_id: str | None) -> Steps[Stored | None]:
    """A checkpoint with its runs, in two statements."""
    head, manifest = sql.json_column("c.head"), sql.json_column("c.manifest")
    columns = f"{sql.entry}, {head}, {manifest}, c.thread, {sql.truth(sql.passed)}"
    row = yield from one(sql, columns, thread_id, namespace, checkpoint_id)
    if row is None:
        return None
    texts = sql.read_json(row[8]), sql.read_json(row[9])
    runs: dict[str, list[Run]] = {}
    for run in (yield from runs_of(sql, row[10], wanted(texts[1]))):
        runs.setdefault(run.branch, []).append(run)
    return Stored(entry_of(sql, row), *texts, runs, bool(row[11]))


def runs_of(sql: Flavour, thread: int, extents: Sequence[Extent]) -> Steps[list[Run]]:
    """The runs that extents show: for each, the newest run that begins at or before its start, and all later ones."""
    if not all(isinstance(number, int) for extent in extents for number in extent[1:]):
        raise CorruptCheckpointError("stored manifest cannot be read: it has no numbers where they should be")
    select = f"SELECT branch, number, start, count, {sql.json_column('items')} FROM {sql.runs} WHERE thread = ?"
    parts: list[tuple[str, Sequence[Any]]] = []
    for branches in portions([extent.branch for extent in extents if extent.run == 0]):
        parts.append((f"{select} AND number = 0 AND branch IN {marks(len(branches))}", (thread, *branches)))
    for extent in extents:
        if extent.run > 0:
            newest = (
                f"SELECT number FROM {sql.runs} WHERE thread = ? AND branch = ? AND number <= ? AND start <= ?"
                " ORDER BY number DESC LIMIT 1"
            )
            place = (thread, extent.branch, extent.run)
            condition = f"branch = ? AND number <= ? AND number >= ({newest})"
            parts.append((f"{select} AND {condition}", (*place, *place, extent.skip)))
    found: dict[tuple[str, int], Run] = {}
    for together in portions(parts, AT_ONCE):
        statement = " UNION ALL ".join(text for text, _ in together)
        rows = yield statement, [value for _, values in together for value in values]
        found |= {(row[0], row[1]): _run(sql, row) for row in rows}
    return list(found.values())


def _run(sql: Flavour, row: Row) -> Run:
    return Run(row[0], row[1], row[2], row[3], sql.read_json(row[4]))


def entries(sql: Flavour, condition: str, values: Sequence[Any], limit: int | None) -> Steps[list[Entry]]:
    """The entries of checkpoints `c` that meet a condition, in threads `t` that have not expired."""
    ending, bound = ("", ()) if limit is None else (" LIMIT ?", (limit,))
    rows = yield (
        f"SELECT {sql.entry} FROM {sql.joined} WHERE {sql.alive} AND {condition}{ending}",
        (now(sql), *values, *bound),
    )
    return [entry_of(sql, row) for row in rows]


def history(
    sql: Flavour, thread_id: str, namespace: str | None, limit: int | None, before_seq: int | None
) -> Steps[list[Entry]]:
    conditions, values = [sql.of_thread], [sql.text(thread_id)]
    if namespace is not None:
        conditions.append(f"{sql.in_order('c.namespace')} = ?")
        values.append(sql.text(namespace))
    bounds: list[Any] = []
    if before_seq is not None:
        conditions.append("c.seq < ?")
        bounds.append(before_seq)
    return (yield from entries(sql, f"{' AND '.join(conditions)} ORDER BY c.seq DESC", [*values, *bounds], limit))


def recent(sql: Flavour, limit: int) -> Steps[list[Entry]]:
    return (yield from entries(sql, f"1 = 1 ORDER BY {sql.newest}", (), limit))


def threads(sql: Flavour, pattern: Pattern, limit: int | None) -> Steps[list[str]]:
    return [thread_id for thread_id, _ in (yield from counted(sql, pattern, limit, "1"))]


def count(sql: Flavour, pattern: Pattern) -> Steps[int]:
    """How many checkpoints the threads that match have together."""
    checkpoints = f"(SELECT count(*) FROM {sql.checkpoints} n WHERE n.thread = t.id)"
    return sum(number for _, number in (yield from counted(sql, pattern, None, checkpoints)))


def counted(sql: Flavour, pattern: Pattern, limit: int | None, what: str) -> Steps[list[tuple[str, int]]]:
    """Threads that match, each with a number; in pages, so that a pattern that matches little does not read
    everything at once."""
    found: list[tuple[str, int]] = []
    after, comparison = sql.text(pattern.prefix), ">="
    while True:
        size = max(1_000, limit or 0)
        rows = yield (
            f"SELECT t.thread_id, {what} FROM {sql.threads} t WHERE t.thread_id {comparison} ? AND {sql.alive}"
            f" AND EXISTS (SELECT 1 FROM {sql.checkpoints} c WHERE c.thread = t.id) ORDER BY t.thread_id LIMIT ?",
            (after, now(sql), size),
        )
        for stored, number in rows:
            thread_id = sql.read_text(stored)
            if (limit is not None and len(found) >= limit) or not thread_id.startswith(pattern.prefix):
                return found
            if pattern.matches(thread_id):
                found.append((thread_id, number))
        if len(rows) < size:
            return found
        after, comparison = rows[-1][0], ">"


def get_writes(
    sql: Flavour, thread_id: str, namespace: str, checkpoint_id: str, task_id: str | None
) -> Steps[list[Write]]:
    condition, values = ("", []) if task_id is None else (" AND w.task_id = ?", [sql.text(task_id)])
    rows = yield (
        f"SELECT w.task_id, w.task_path, w.idx, w.channel, {sql.write_columns('w.')} FROM {sql.writes} w"
        f" JOIN {sql.threads} t ON t.id = w.thread WHERE t.thread_id = ? AND {sql.alive} AND w.namespace = ?"
        f" AND w.checkpoint_id = ?{condition} ORDER BY w.task_path, w.task_id, w.idx",
        (sql.text(thread_id), now(sql), sql.text(namespace), sql.text(checkpoint_id), *values),
    )
    return [
        Write(sql.read_text(row[0]), sql.read_text(row[1]), row[2], sql.read_text(row[3]), sql.read_write(row[4:]))
        for row in rows
    ]


def export(sql: Flavour, thread_id: str, after_seq: int, limit: int, known: Mapping[str, int]) -> Steps[Exported]:
    """A page of checkpoints, with the runs and the pending writes that belong to it."""
    rows = yield (
        f"SELECT {sql.entry}, {sql.json_column('c.head')}, {sql.json_column('c.manifest')}, c.thread FROM {sql.joined}"
        f" WHERE {sql.of_thread} AND {sql.alive} AND c.seq > ? ORDER BY c.seq LIMIT ?",
        (sql.text(thread_id), now(sql), after_seq, limit),
    )
    if not rows:
        return Exported([], [])
    checkpoints = [Stored(entry_of(sql, row), sql.read_json(row[8]), sql.read_json(row[9])) for row in rows]
    thread = rows[0][10]
    runs = yield from _runs(sql, thread, newest_runs(stored.manifest for stored in checkpoints), known)
    writes = yield from _writes(sql, thread, checkpoints)
    return Exported(checkpoints, runs, writes)


def _runs(sql: Flavour, thread: int, newest: Mapping[str, int], known: Mapping[str, int]) -> Steps[list[Run]]:
    select = f"SELECT branch, number, start, count, {sql.json_column('items')} FROM {sql.runs} WHERE thread = ?"
    parts: list[tuple[str, Sequence[Any]]] = []
    single = [branch for branch, number in newest.items() if number == 0 and branch not in known]
    for branches in portions(single):
        parts.append((f"{select} AND number = 0 AND branch IN {marks(len(branches))}", (thread, *branches)))
    for branch, number in newest.items():
        after = known.get(branch, -1)
        if number > max(0, after):
            condition = "branch = ? AND number > ? AND number <= ?"
            parts.append((f"{select} AND {condition}", (thread, branch, after, number)))
    found: list[Run] = []
    for together in portions(parts, AT_ONCE):
        statement = " UNION ALL ".join(text for text, _ in together)
        rows = yield statement, [value for _, values in together for value in values]
        found += [Run(row[0], row[1], row[2], row[3], sql.read_json(row[4])) for row in rows]
    return found


def _writes(sql: Flavour, thread: int, checkpoints: Sequence[Stored]) -> Steps[dict[tuple[str, str], list[Write]]]:
    found: defaultdict[tuple[str, str], list[Write]] = defaultdict(list)
    any_writes = yield f"SELECT 1 FROM {sql.writes} WHERE thread = ? LIMIT 1", (thread,)
    for some in portions(checkpoints if any_writes else []):
        names = [sql.text(name) for row in some for name in (row.entry.namespace, row.entry.checkpoint_id)]
        rows = yield (
            f"SELECT namespace, checkpoint_id, task_id, task_path, idx, channel, {sql.write_columns()}"
            f" FROM {sql.writes} WHERE thread = ? AND (namespace, checkpoint_id) IN {sql.pairs(len(some))}",
            (thread, *names),
        )
        for row in rows:
            namespace, checkpoint_id, task_id, task_path = map(sql.read_text, row[:4])
            write = Write(task_id, task_path, row[4], sql.read_text(row[5]), sql.read_write(row[6:]))
            found[namespace, checkpoint_id].append(write)
    return {place: sorted(writes, key=writes_order) for place, writes in found.items()}
