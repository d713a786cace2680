"""Reading whole threads from the tables that the SQL engines share: each row once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from locus.memory.backends.sql.flavour import Flavour, Steps, marks, portions
from locus.memory.backends.sql.read import AT_ONCE, entry_of, now
from locus.memory.model.payloads import newest_runs
from locus.memory.model.records import Exported, Run, Stored, Write, writes_order


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
