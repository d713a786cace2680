"""Reading from the tables of SQL databases: one checkpoint, lists of them, and whole threads for export."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from locus.errors import CorruptCheckpointError
from locus.memory.backends.sql.flavour import Flavour, Row, Steps, marks, portions
from locus.memory.backends.sql.schema import CheckpointRow
from locus.memory.engine import LOOKED_AT, contents_of, has_room
from locus.memory.model.arguments import UNLIMITED
from locus.memory.model.cursors import cursor_of, numbers_in
from locus.memory.model.ids import Pattern, prefix_end
from locus.memory.model.manifest import check_named, has_named, newest_runs, wanted
from locus.memory.model.matching import has_value
from locus.memory.model.parts import Part, needed
from locus.memory.model.records import (
    DEFAULT_NAMESPACE,
    Ancestor,
    AncestorQuery,
    Base,
    Contents,
    Entry,
    Exported,
    Extent,
    NewestThreads,
    Run,
    Stored,
    Write,
    writes_order,
)
from locus.memory.model.retention import Place
from locus.memory.model.sizes import brought, fitting

PAGE = 200
AT_ONCE = 20
"""The number of extents that one statement reads. Only a checkpoint of many small lists has more."""
_IDS_AT_ONCE = 10_000
_IDS_LOOKED_AT = 1_000
"""The number of ids of threads that one statement returns: of threads that match, and of those that may match."""
_MOST_SAVES = 50_000
_NEWEST_PORTIONS = (200, LOOKED_AT - 200, 10_000)
"""The numbers of checkpoints to go through, one after the other, for the newest threads.

Most pages need only the first.
"""
FEW = 8
"""The number of runs, beyond those that an extent can show, that are read without a closer look."""


def within(sql: Flavour, prefix: str, thread: str = "t") -> tuple[str, list[Any]]:
    """A condition, and its values: the id of the thread `t` starts with a prefix."""
    if not prefix:
        return "1 = 1", []
    end = prefix_end(prefix)
    if end is None:
        return f"{thread}.thread_id >= ?", [sql.text(prefix)]
    return f"{thread}.thread_id >= ? AND {thread}.thread_id < ?", [sql.text(prefix), sql.text(end)]


def has_prefix(sql: Flavour, prefix: str) -> Steps[tuple[str, list[Any]]]:
    """A condition, and its values, for a query over checkpoints `c`: the id of their thread starts with a prefix.

    If few threads have the prefix, the query should begin with these. If many have it, the query should go through the
    checkpoints and look at each one's thread; then the condition must not look as if the threads were a way to begin.
    """
    here, bounds = within(sql, prefix)
    if not prefix or (yield from is_small(sql, prefix)):
        return here, bounds
    here, bounds = within(sql, prefix, "x")
    return f"(SELECT x.id FROM {sql.threads} x WHERE x.id = c.thread AND {here}) IS NOT NULL", bounds


def write_of(sql: Flavour, row: Row) -> Write:
    """Make a pending write of the columns of `write_list`."""
    return sql.read_pending(row)


def write_list(sql: Flavour, alias: str = "") -> str:
    """The columns of a pending write, in the order of the table."""
    dot = f"{alias}." if alias else ""
    return f"{dot}task_id, {dot}idx, {dot}task_path, {dot}channel, {sql.write_columns(dot)}"


def checkpoint_row(
    sql: Flavour, columns: str, thread_id: str, namespace: str, checkpoint_id: str | None
) -> Steps[CheckpointRow | None]:
    """Read some columns of one checkpoint: the latest if no id is given."""
    which, values = sql.which_one(thread_id, namespace, checkpoint_id)
    rows = yield f"SELECT {columns} FROM {sql.joined} WHERE {which}", values
    row = CheckpointRow(*rows[0]) if rows else None
    yield from sql.proven(row, thread_id, namespace, checkpoint_id)
    return row


def entry(sql: Flavour, thread_id: str, namespace: str, checkpoint_id: str | None) -> Steps[Entry | None]:
    row = yield from checkpoint_row(sql, sql.one_entry, thread_id, namespace, checkpoint_id)
    return None if row is None else sql.read_entry(row)


def manifest(sql: Flavour, thread_id: str, namespace: str, checkpoint_id: str) -> Steps[tuple[str, str] | None]:
    """Read the rev and the manifest of a checkpoint."""
    row = yield from checkpoint_row(sql, sql.stored, thread_id, namespace, checkpoint_id)
    if row is None:
        return None
    stored = sql.read_checkpoint(row)
    return stored.entry.rev, stored.manifest


def read(
    sql: Flavour,
    thread_id: str,
    namespace: str,
    checkpoint_id: str | None,
    part: Part | None = None,
    held: Base | None = None,
    *,
    at_once: bool,
) -> Steps[Stored | None]:
    """Read a checkpoint in two statements: first its row, then its runs.

    With `part`, only the runs that hold it are read; with `held`, only those that a reader of `held` lacks.

    `at_once`: both statements see the same instant. If they don't, the second one also asks whether the checkpoint
    still exists. As long as it does, no other run takes the place of one of its runs; the number of a run is given out
    again only after a deletion. If the checkpoint is gone, or another one has its id, everything is read again.
    """
    while True:
        if held is None:
            row, known = (yield from checkpoint_row(sql, sql.stored, thread_id, namespace, checkpoint_id)), None
        else:
            row, known = yield from row_since(sql, thread_id, namespace, checkpoint_id, held)
        if row is None:
            return None
        stored = sql.read_checkpoint(row)
        extents = wanted(stored.manifest) if part is None else needed(stored.manifest, part)
        if known is not None:
            extents = new_extents(extents, known)
        runs = yield from runs_of(sql, row, extents, known or {}, at_once=at_once)
        if at_once or has_named(extents, runs) or (yield from _stands(sql, row)):
            check_named(extents, runs, since=row.checksum is not None)
            return replace(stored, runs=runs, since=held if known is not None else None)


def _stands(sql: Flavour, row: CheckpointRow) -> Steps[bool]:
    """Tell whether a checkpoint is still the same. If it is, missing runs are damage."""
    condition, values = _standing(sql, row)
    rows = yield f"SELECT 1 FROM {sql.threads} WHERE id = ? AND {condition}", (row.thread, *values)
    return bool(rows)


def _standing(sql: Flavour, row: CheckpointRow) -> tuple[str, Sequence[Any]]:
    """A condition, and its values: a checkpoint still exists."""
    one = f"SELECT 1 FROM {sql.checkpoints} WHERE thread = ? AND namespace = ? AND seq = ? AND rev = ?"
    return f"EXISTS ({one})", (row.thread, row.namespace, row.seq, row.rev)


def row_since(
    sql: Flavour, thread_id: str, namespace: str, checkpoint_id: str | None, held: Base
) -> Steps[tuple[CheckpointRow | None, HeldExtents | None]]:
    """Read the row of one checkpoint, and the extents of the checkpoint `held`.

    The extents are None if `held` is gone, or if another checkpoint has its id. They are also None if `held` is
    damaged: that is no reason to refuse the checkpoint that is read.
    """
    which, values = sql.which_one(thread_id, namespace, checkpoint_id)
    rows = yield (
        f"SELECT {sql.stored}, {sql.held} FROM {sql.joined} LEFT JOIN {sql.checkpoints} h"
        f" ON h.thread = c.thread AND h.namespace = c.namespace AND h.checkpoint_id = ? WHERE {which}",
        (sql.text(held.checkpoint_id), *values),
    )
    if not rows:
        yield from sql.proven(None, thread_id, namespace, checkpoint_id)
        return None, None
    fields = len(CheckpointRow._fields)
    row, other = CheckpointRow(*rows[0][:-fields]), CheckpointRow(*rows[0][-fields:])
    yield from sql.proven(row, thread_id, namespace, checkpoint_id)
    if other.rev != held.rev:
        return row, None
    try:
        sql.check_checkpoint(other)
        return row, held_by(sql.read_json(other.manifest))
    except CorruptCheckpointError:
        return row, None


HeldExtents = Mapping[str, Sequence[Extent]]
"""The extents that a reader has already, by branch."""


def held_by(manifest: str) -> HeldExtents:
    """The extents that a reader of the checkpoint with this manifest has."""
    held: dict[str, list[Extent]] = {}
    for extent in wanted(manifest):
        held.setdefault(extent.branch, []).append(extent)
    return held


def continued(extent: Extent, held: HeldExtents) -> Extent | None:
    """Find the newest extent that a reader has and that an extent continues; None if there is none.

    It is an extent of the same version of the branch that contains all of this one, or the beginning of this one in an
    older version. Of a version the reader has only what lies within the extent that it holds.
    """
    newest: Extent | None = None
    for other in held.get(extent.branch, ()):
        within = extent.skip + extent.length <= other.skip + other.length
        fits = other.skip <= extent.skip and (other.run < extent.run or (other.run == extent.run and within))
        if fits and (newest is None or (newest.run, newest.length) < (other.run, other.length)):
            newest = other
    return newest


def new_extents(extents: Iterable[Extent], held: HeldExtents) -> list[Extent]:
    """The extents of which something has to be read."""
    pairs = ((extent, continued(extent, held)) for extent in extents)
    return [extent for extent, other in pairs if other is None or other.run < extent.run]


def runs_of(
    sql: Flavour, row: CheckpointRow, extents: Sequence[Extent], held: HeldExtents, *, at_once: bool
) -> Steps[dict[str, list[Run]]]:
    """Read the runs that extents of a checkpoint show, by branch, without those that a reader of `held` has.

    An extent shows something of the run that it names, and of older ones, down to one that begins at or before its
    start. If that is the first run of the branch, and there cannot be many more runs than items, all of them are read.
    Else the oldest one is looked for among a limited number of runs. It may not be there, because later runs have
    hidden others again and again, or because the extent is far from the end of its branch. Then only those runs are
    read that show something of the extent.

    The run that an extent names is always read, because it has to be there. If the newer runs begin only after the end
    of the held extent, that extent is of no use, and the older runs are read as well.
    """
    thread = row.thread
    condition, standing = ("", ()) if at_once else _standing(sql, row)
    select = f"SELECT {sql.run} FROM {sql.runs} WHERE {f'{condition} AND ' if condition else ''}thread = ?"
    first = (*standing, thread)
    parts: list[Selected] = []
    for branches in portions([extent.branch for extent in extents if extent.run == 0]):
        parts.append((f"{select} AND number = 0 AND branch IN {marks(len(branches))}", (*first, *branches)))
    looked_for: list[tuple[Extent, int]] = []
    begun: list[tuple[Extent, Extent]] = []
    for extent in extents:
        branch, run, skip, length = extent
        if run == 0:
            continue
        other, most = continued(extent, held), _many(extent)
        after = -1 if other is None else other.run
        if other is not None:
            begun.append((extent, other))
        if run - after > most or (skip > 0 > after):
            looked_for.append((extent, after))
            oldest = (
                f"SELECT number FROM {sql.runs} WHERE thread = ? AND branch = ? AND number <= ? AND number > ?"
                " AND start <= ? ORDER BY number DESC LIMIT 1"
            )
            here = f"branch = ? AND number <= ? AND number >= ({oldest}) AND (start < ? OR number = ?)"
            values = (branch, run, thread, branch, run, run - most, skip, skip + length, run)
            parts.append((f"{select} AND {here}", (*first, *values)))
        else:
            parts.append((f"{select} AND branch = ? AND number <= ? AND number > ?", (*first, branch, run, after)))
    runs: dict[str, dict[int, Run]] = {}
    yield from _gather(sql, parts, runs, thread)
    lacking = [pair for pair in looked_for if not _reaches(pair[0], runs.get(pair[0].branch, {}))]
    for extent, after in lacking:
        yield from _gather(sql, _shown(sql, select, first, thread, extent, after), runs, thread)
    for extent, other in begun:
        if not _goes_on(extent, other, runs.get(extent.branch, {})):
            yield from _gather(sql, _shown(sql, select, first, thread, extent, -1), runs, thread)
    return {branch: list(by_number.values()) for branch, by_number in runs.items()}


Selected = tuple[str, Sequence[Any]]
"""A SELECT with its values."""


def _gather(sql: Flavour, parts: Sequence[Selected], runs: dict[str, dict[int, Run]], thread: int) -> Steps[None]:
    for together in portions(parts, AT_ONCE):
        statement = " UNION ALL ".join(text for text, _ in together)
        rows = yield statement, [value for _, values in together for value in values]
        sql.read_runs(rows, runs, thread)


def _many(extent: Extent) -> int:
    """The number of runs that a list of this length may have. If there are more, later ones hide most of them."""
    return 2 * extent.length + FEW


def _reaches(extent: Extent, runs: Mapping[int, Run]) -> bool:
    """Tell whether the runs that were looked through reach back to the start of an extent."""
    oldest = extent.run - _many(extent)
    return any(run.start <= extent.skip and oldest < run.number <= extent.run for run in runs.values())


def _goes_on(extent: Extent, other: Extent, runs: Mapping[int, Run]) -> bool:
    """Tell whether runs are read that continue the items of `other`, which the reader has, without a gap."""
    end = other.skip + other.length
    return any(run.start <= end and other.run < run.number <= extent.run for run in runs.values())


def _shown(sql: Flavour, select: str, first: Sequence[Any], thread: int, extent: Extent, after: int) -> list[Selected]:
    """The SELECTs of the run that an extent names, and of those after a number that show something of the extent.

    A run shows something if it begins before all newer ones. `lowest` is the lowest position at which a run or a newer
    one begins. Of all runs with the same `lowest`, only the newest shows anything. No items are read to find that out.
    """
    branch, run, skip, length = extent
    here, bounds = f"FROM {sql.runs} WHERE thread = ? AND branch = ? AND number > ?", (thread, branch, after)
    newest = f"SELECT number {here} AND number <= ? AND start < ? ORDER BY number DESC LIMIT 1"
    not_newer = "number <= (SELECT number FROM newest)"
    oldest = f"SELECT number {here} AND {not_newer} AND start <= ? ORDER BY number DESC LIMIT 1"
    lowest = "MIN(start) OVER (ORDER BY number DESC)"
    numbers = (
        f"WITH newest AS ({newest}), oldest AS ({oldest}) SELECT MAX(number) FROM ("
        f"SELECT number, {lowest} AS lowest {here}"
        f" AND {not_newer} AND number >= COALESCE((SELECT number FROM oldest), 0)) v GROUP BY lowest"
    )
    values = (*bounds, run, skip + length, *bounds, skip, *bounds)
    return [
        (f"{select} AND branch = ? AND number = ?", (*first, branch, run)),
        (f"{select} AND branch = ? AND number IN ({numbers})", (*first, branch, *values)),
    ]


def entries(
    sql: Flavour, condition: str, values: Sequence[Any], limit: int | None, tables: str = "", hint: str = ""
) -> Steps[list[Entry]]:
    """List the entries of checkpoints `c` that meet a condition, in threads `t` that have not expired."""
    return [sql.read_entry(row) for row in (yield from _entry_rows(sql, condition, values, limit, tables, hint))]


def _entry_rows(
    sql: Flavour, condition: str, values: Sequence[Any], limit: int | None, tables: str = "", hint: str = ""
) -> Steps[list[CheckpointRow]]:
    ending, bound = ("", ()) if limit is None else (" LIMIT ?", (limit,))
    rows = yield (
        f"SELECT {hint}{sql.entry} FROM {tables or sql.joined} WHERE {sql.alive} AND {condition}{ending}",
        (sql.now(), *values, *bound),
    )
    return [CheckpointRow(*row) for row in rows]


def with_metadata(
    sql: Flavour, tables: str, condition: str, values: Sequence[Any], key: str, value: str, limit: int, prefix: str
) -> Steps[list[Entry]]:
    """List entries whose metadata has this value (canonical JSON) under this key, newest first.

    The condition finds candidates by an index of `tables`, which may not be exact. So each candidate is checked.
    """
    matching: list[Entry] = []
    here, bounds = yield from has_prefix(sql, prefix)
    page, after = "", list[int]()
    size = min(limit, PAGE)
    while len(matching) < limit:
        rows = yield (
            f"SELECT {sql.columns('key')} FROM {tables} WHERE {sql.alive} AND {condition} AND {here}{page}"
            f" ORDER BY c.id DESC LIMIT {size}",
            (sql.now(), *values, *bounds, *after),
        )
        candidates = [CheckpointRow(*row) for row in rows]
        entries = (sql.read_entry(row) for row in candidates)
        matching += [entry for entry in entries if has_value(entry.metadata, key, value)]
        if len(rows) < size:
            break
        page, after = " AND c.id < ?", [candidates[-1].key]
        size = min(4 * size, PAGE)
    return matching[:limit]


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
    condition = f"{' AND '.join(conditions)} ORDER BY c.seq DESC"
    hint = "" if namespace is None else sql.along_history
    rows = yield from _entry_rows(sql, condition, [*values, *bounds], limit, hint=hint)
    yield from sql.proven_history(rows, thread_id, namespace, limit, before_seq)
    return [sql.read_entry(row) for row in rows]


def namespaces(sql: Flavour, thread_id: str) -> Steps[list[str]]:
    rows = yield (
        f"SELECT DISTINCT c.namespace FROM {sql.joined} WHERE {sql.of_thread} AND {sql.alive}",
        (sql.text(thread_id), sql.now()),
    )
    return sorted(sql.read_text(namespace) for (namespace,) in rows)


def recent(sql: Flavour, limit: int, prefix: str) -> Steps[list[Entry]]:
    here, bounds = yield from has_prefix(sql, prefix)
    return (yield from entries(sql, f"{here} ORDER BY {sql.newest}", bounds, limit))


def newest_threads(sql: Flavour, limit: int, before: str | None, prefix: str) -> Steps[NewestThreads]:
    """List the threads with the newest checkpoints, each once.

    If a prefix has few threads and checkpoints, all of its threads are looked at. Otherwise checkpoints are gone
    through in the order of their ids, in portions. The database reduces each portion to one row for each thread, so
    that a thread with very many checkpoints does not have to be sent.
    """
    end = None if before is None else numbers_in(before, 1)[0]
    if not limit:
        return NewestThreads([])
    if prefix and (yield from is_small(sql, prefix, _MOST_SAVES)):
        return _page((yield from _newest_of_all(sql, limit + 1, end, prefix)), limit)
    newest: list[tuple[Entry, int]] = []
    for size in _NEWEST_PORTIONS:
        portion = yield from _portion(sql, end, size)
        if portion is None:
            return _page(newest, limit)
        threads, most = {entry.thread_id for entry, _ in newest}, limit + 1 - len(newest)
        more = yield from _newest_in_portion(sql, portion, end, most, prefix)
        # A thread whose newest checkpoint was removed a moment ago has its newest one in this portion, too.
        newest += [pair for pair in more if pair[0].thread_id not in threads]
        if len(newest) > limit:
            return _page(newest, limit)
        end = portion.low if len(more) < most else more[-1][1]
    return NewestThreads([entry for entry, _ in newest], cursor_of(end or 0))


def _page(newest: Sequence[tuple[Entry, int]], limit: int) -> NewestThreads:
    """Make a page of entries with their ids. One entry too many says that there are more."""
    entries = [entry for entry, _ in newest[:limit]]
    return NewestThreads(entries, cursor_of(newest[limit - 1][1]) if len(newest) > limit else None)


def is_small(sql: Flavour, prefix: str, saves: int = UNLIMITED) -> Steps[bool]:
    """Tell whether a prefix has few threads, with so many saves at most. No thread has more checkpoints."""
    here, bounds = within(sql, prefix)
    rows = yield (
        "SELECT COUNT(*), COALESCE(SUM(w.last_seq), 0) FROM"
        f" (SELECT t.last_seq FROM {sql.threads} t WHERE {here} LIMIT {LOOKED_AT + 1}) w",
        bounds,
    )
    threads, saved = rows[0]
    return bool(threads <= LOOKED_AT and saved <= saves)


def _newest_of_all(sql: Flavour, most: int, end: int | None, prefix: str) -> Steps[list[tuple[Entry, int]]]:
    """List the newest checkpoint of every thread of a prefix, with its id, newest first.

    With `end`, threads are left out that have a checkpoint from `end` on.
    """
    here, bounds = within(sql, prefix, "x")
    # Without the addition, some databases would look for the highest id of all, and then for its thread. And without
    # the limit, which is none here, some would work out the highest id of a thread for each of its checkpoints.
    newest = f"(SELECT MAX(m.id + 0) FROM {sql.checkpoints} m WHERE m.thread = x.id)"
    threads = f"SELECT {newest} AS newest FROM {sql.threads} x WHERE {here} LIMIT {10 * LOOKED_AT}"
    older, values = ("", []) if end is None else (" AND c.id < ?", [end])
    rows = yield (
        f"SELECT {sql.columns('key')} FROM ({threads}) w JOIN {sql.checkpoints} c ON c.id = w.newest"
        f" JOIN {sql.threads} t ON t.id = c.thread WHERE {sql.alive}{older} ORDER BY c.id DESC LIMIT {most}",
        (*bounds, sql.now(), *values),
    )
    return _entries_with_keys(sql, rows)


class _Portion(NamedTuple):
    """The lowest and the highest id of some checkpoints. Those that are saved later are not among them."""

    low: int
    high: int
    size: int


def _portion(sql: Flavour, end: int | None, size: int) -> Steps[_Portion | None]:
    """Choose so many checkpoints: the newest, or those before `end`; None if there are none."""
    older, values = ("", ()) if end is None else (" WHERE m.id < ?", (end,))
    ids = f"SELECT m.id FROM {sql.checkpoints} m{older} ORDER BY m.id DESC LIMIT {size}"
    ((low, high),) = yield f"SELECT MIN(w.id), MAX(w.id) FROM ({ids}) w", values
    return None if low is None else _Portion(low, high, size)


def _newest_in_portion(
    sql: Flavour, portion: _Portion, end: int | None, most: int, prefix: str
) -> Steps[list[tuple[Entry, int]]]:
    """List the newest checkpoint of every thread in a portion, with its id, newest first.

    With `end`, threads are left out that have a checkpoint from `end` on.
    """
    here, bounds = within(sql, prefix)
    latest, after = "", list[int]()
    if end is not None:
        # Whether its own namespace has newer ones is an index away, and nearly always all that it takes.
        others = f"EXISTS (SELECT 1 FROM {sql.checkpoints} m WHERE m.thread = c.thread AND m.id >= ?)"
        latest, after = f" AND (c.seq = t.last_seq OR NOT ({sql.passed} OR {others}))", [end]
    # The limit, which is none, keeps databases from going through an index of threads instead.
    ids = f"SELECT m.id, m.thread FROM {sql.checkpoints} m WHERE m.id >= ? AND m.id <= ?"
    rows_of_portion = f"{ids} ORDER BY m.id DESC LIMIT {2 * portion.size}"
    newest = f"SELECT MAX(p.id) AS newest FROM ({rows_of_portion}) p GROUP BY p.thread ORDER BY newest DESC"
    # As a value, so that each is looked up by its id: a join might be taken for a reason to read all threads.
    meant = f"SELECT 1 FROM {sql.joined} WHERE c.id = g.newest AND {sql.alive} AND {here}{latest}"
    chosen = f"SELECT g.newest FROM ({newest}) g WHERE ({meant}) IS NOT NULL ORDER BY g.newest DESC LIMIT {most}"
    rows = yield (
        f"SELECT {sql.columns('key')} FROM ({chosen}) w JOIN {sql.checkpoints} c ON c.id = w.newest"
        f" JOIN {sql.threads} t ON t.id = c.thread ORDER BY c.id DESC",
        (portion.low, portion.high, sql.now(), *bounds, *after),
    )
    return _entries_with_keys(sql, rows)


def _entries_with_keys(sql: Flavour, rows: Sequence[Row]) -> list[tuple[Entry, int]]:
    found = [CheckpointRow(*row) for row in rows]
    return [(sql.read_entry(row), row.key) for row in found]


def threads(sql: Flavour, pattern: Pattern, limit: int | None) -> Steps[list[str]]:
    return [thread_id for thread_id, _ in (yield from counted(sql, pattern, limit, "1"))]


def newest(sql: Flavour, prefix: str, after: str, limit: int, *, at_once: bool) -> Steps[Contents]:
    """Read the newest checkpoints of a page of threads: most in one statement, and those that have runs one by one."""
    ids = yield from threads(sql, Pattern(within=prefix, after=after), limit)
    if not ids:
        return Contents([])
    rows = yield (
        f"SELECT {sql.stored} FROM {sql.joined} WHERE t.thread_id >= ? AND t.thread_id <= ? AND {sql.alive}"
        f" AND c.namespace = ? AND NOT {sql.passed}",
        (sql.text(ids[0]), sql.text(ids[-1]), sql.now(), sql.text(DEFAULT_NAMESPACE)),
    )
    by_id = {sql.read_text(row[0]): row for row in rows}
    found: list[Stored | CorruptCheckpointError | None] = []
    for thread_id in ids:
        one = yield from _newest_in(sql, thread_id, by_id.get(thread_id), at_once=at_once)
        found.append(one)
        if isinstance(one, Stored) and one.runs and not has_room(found):
            break
    return contents_of(ids, found, limit)


def versions(sql: Flavour, prefix: str, after: str, limit: int) -> Steps[list[tuple[str, str]]]:
    """List a page of threads with the ids of their newest checkpoints in the default namespace."""
    here, values = within(sql, prefix)
    if after:
        here, values = f"{here} AND t.thread_id > ?", [*values, sql.text(after)]
    rows = yield (
        f"SELECT t.thread_id, c.checkpoint_id FROM {sql.joined} WHERE {here} AND {sql.alive} AND c.namespace = ?"
        f" AND NOT {sql.passed} ORDER BY t.thread_id LIMIT ?",
        (*values, sql.now(), sql.text(DEFAULT_NAMESPACE), limit),
    )
    return [(sql.read_text(thread_id), sql.read_text(checkpoint_id)) for thread_id, checkpoint_id in rows]


def newest_of(
    sql: Flavour, thread_ids: Sequence[str], *, at_once: bool
) -> Steps[list[Stored | CorruptCheckpointError | None]]:
    """Read the newest checkpoints of these threads, many in one statement."""
    by_id: dict[str, Row] = {}
    for some in portions(thread_ids):
        # A power of two, so that a connection prepares few statements.
        filled = [*some, *some[-1:] * ((1 << (len(some) - 1).bit_length()) - len(some))]
        rows = yield (
            f"SELECT {sql.stored} FROM {sql.joined} WHERE t.thread_id IN {marks(len(filled))} AND {sql.alive}"
            f" AND c.namespace = ? AND NOT {sql.passed}",
            (*map(sql.text, filled), sql.now(), sql.text(DEFAULT_NAMESPACE)),
        )
        by_id |= {sql.read_text(row[0]): row for row in rows}
    found: list[Stored | CorruptCheckpointError | None] = []
    for thread_id in thread_ids:
        found.append((yield from _newest_in(sql, thread_id, by_id.get(thread_id), at_once=at_once)))
    return found


def _newest_in(
    sql: Flavour, thread_id: str, row: Row | None, *, at_once: bool
) -> Steps[Stored | CorruptCheckpointError | None]:
    """The newest checkpoint of a thread, of which this is the row; or why it cannot be read."""
    try:
        one = None if row is None else CheckpointRow(*row)
        yield from sql.proven(one, thread_id, DEFAULT_NAMESPACE, None)
        stored = None if one is None else sql.read_checkpoint(one)
        if stored is not None and wanted(stored.manifest):
            return (yield from read(sql, thread_id, DEFAULT_NAMESPACE, None, at_once=at_once))
    except CorruptCheckpointError as error:
        return error
    return stored


def unlisted(sql: Flavour, prefix: str, after: str, limit: int) -> Steps[list[str]]:
    """List the ids of threads that have expired, or have no checkpoint."""
    here, values = within(sql, prefix)
    if after:
        here, values = f"{here} AND t.thread_id > ?", [*values, sql.text(after)]
    rows = yield (
        f"SELECT t.thread_id FROM {sql.threads} t WHERE {here} AND (NOT {sql.alive}"
        f" OR NOT EXISTS (SELECT 1 FROM {sql.checkpoints} c WHERE c.thread = t.id)) ORDER BY t.thread_id LIMIT ?",
        (*values, sql.now(), limit),
    )
    return [sql.read_text(thread_id) for (thread_id,) in rows]


def count(sql: Flavour, pattern: Pattern) -> Steps[int]:
    """Count the checkpoints of all threads that match."""
    checkpoints = f"(SELECT count(*) FROM {sql.checkpoints} n WHERE n.thread = t.id)"
    return sum(number for _, number in (yield from counted(sql, pattern, None, checkpoints)))


def counted(sql: Flavour, pattern: Pattern, limit: int | None, what: str) -> Steps[list[tuple[str, int]]]:
    """List threads that match, each with a number, page by page.

    A page has as many as are still wanted. If each id has to be compared with the pattern, few of them may match, and a
    page has a fixed size.
    """
    matching: list[tuple[str, int]] = []
    most = UNLIMITED if limit is None else limit
    begin, values = "t.thread_id >= ?", [sql.text(pattern.prefix)]
    if pattern.from_after:
        begin, values = "t.thread_id > ?", [sql.text(pattern.after)]
    stop, end = ("", []) if pattern.end is None else (" AND t.thread_id < ?", [sql.text(pattern.end)])
    while len(matching) < most and not pattern.matches_none:
        size = min(most - len(matching), _IDS_AT_ONCE) if pattern.matches_range else _IDS_LOOKED_AT
        rows = yield (
            f"SELECT t.thread_id, {what} FROM {sql.threads} t WHERE {begin}{stop} AND {sql.alive}"
            f" AND EXISTS (SELECT 1 FROM {sql.checkpoints} c WHERE c.thread = t.id) ORDER BY t.thread_id LIMIT ?",
            (*values, *end, sql.now(), size),
        )
        named = [(sql.read_text(stored), number) for stored, number in rows]
        if any(type(thread_id) is not str for thread_id, _ in named):
            raise CorruptCheckpointError("the id of a thread is no text: its row is damaged")
        matching += [(thread_id, number) for thread_id, number in named if pattern.matches(thread_id)]
        if len(rows) < size:
            break
        begin, values = "t.thread_id > ?", [rows[-1][0]]
    return matching[:most]


def get_writes(
    sql: Flavour, thread_id: str, namespace: str, checkpoint_id: str, task_id: str | None
) -> Steps[list[Write]]:
    condition, values = ("", []) if task_id is None else (" AND w.task_id = ?", [sql.text(task_id)])
    rows = yield (
        f"SELECT {write_list(sql, 'w')} FROM {sql.writes} w"
        f" JOIN {sql.threads} t ON t.id = w.thread WHERE {sql.is_of_thread('w')} AND {sql.alive} AND w.namespace = ?"
        f" AND w.checkpoint_id = ?{condition} ORDER BY w.task_path, w.task_id, w.idx",
        (sql.text(thread_id), sql.now(), sql.text(namespace), sql.text(checkpoint_id), *values),
    )
    yield from sql.proven_writes(rows, thread_id, namespace, checkpoint_id)
    return [write_of(sql, row) for row in rows]


def read_with_writes(
    sql: Flavour, thread_id: str, namespace: str, checkpoint_id: str | None, held: Base | None, *, at_once: bool
) -> Steps[tuple[Stored, list[Write]] | None]:
    """Read a checkpoint, and then its pending writes."""
    stored = yield from read(sql, thread_id, namespace, checkpoint_id, held=held, at_once=at_once)
    if stored is None:
        return None
    return stored, (yield from get_writes(sql, thread_id, namespace, stored.entry.checkpoint_id, None))


LINE_PAGE = 500
"""The number of ancestors that one statement reads. MySQL follows 1,000 steps at most."""


def line_of(sql: Flavour, query: AncestorQuery) -> tuple[str, list[Any]]:
    """A table expression `line`, and its values: a checkpoint and its ancestors, up to so many.

    Each row names its parent. It is the ancestor at `place`, counted from 0, if it exists.
    """
    which, values = sql.which_one(*query[:3])
    return (
        "WITH RECURSIVE line (place, thread, namespace, parent_id) AS ("
        f"SELECT 0, c.thread, c.namespace, c.parent_id FROM {sql.joined} WHERE {which}"
        f" UNION ALL SELECT l.place + 1, p.thread, p.namespace, p.parent_id FROM line l CROSS JOIN {sql.checkpoints} p"
        " WHERE p.thread = l.thread AND p.namespace = l.namespace AND p.checkpoint_id = l.parent_id AND l.place < ?)"
    ), [*values, query.limit - 1]


def is_parent(alias: str) -> str:
    """A condition: a row belongs to the checkpoint that is the parent of the row `l` of `line`."""
    dot = f"{alias}."
    return f"{dot}thread = l.thread AND {dot}namespace = l.namespace AND {dot}checkpoint_id = l.parent_id"


def ancestors(sql: Flavour, query: AncestorQuery) -> Steps[list[Ancestor]]:
    """Read the ancestors of a checkpoint. All statements have to see the same instant."""
    return (yield from in_line(query, partial(_page_before, sql)))


def in_line(query: AncestorQuery, page_of: Callable[[AncestorQuery], Steps[list[Ancestor]]]) -> Steps[list[Ancestor]]:
    """Read a line in pages. It may be a circle: a checkpoint may have been saved again as a child of its own child."""
    line: dict[str, Ancestor] = {}
    at = query.checkpoint_id
    while len(line) < query.limit:
        size = min(LINE_PAGE, query.limit - len(line))
        page = yield from page_of(query._replace(checkpoint_id=at, limit=size))
        for ancestor in page:
            at = ancestor.checkpoint_id
            if at in line or at == query.checkpoint_id:
                return [*line.values()]
            line[at] = ancestor
        if len(page) < size:
            break
    return [*line.values()]


def _page_before(sql: Flavour, query: AncestorQuery) -> Steps[list[Ancestor]]:
    line, values = line_of(sql, query)
    rows = yield (
        f"{line} SELECT c.thread, c.seq, c.checkpoint_id, c.rev FROM line l CROSS JOIN {sql.checkpoints} c"
        f" WHERE {is_parent('c')} ORDER BY l.place",
        values,
    )
    stored: dict[int, Stored] = {}
    for seqs in portions([seq for _, seq, _, rev in rows if rev not in query.known]):
        more = yield (
            f"SELECT {sql.exported} FROM {sql.joined} WHERE c.thread = ? AND c.seq IN {marks(len(seqs))}",
            (rows[0][0], *seqs),
        )
        stored |= {row.seq: sql.read_checkpoint(row) for row in (CheckpointRow(*columns) for columns in more)}
    found = [Ancestor(sql.read_text(name), rev, stored.get(seq), []) for _, seq, name, rev in rows]
    for some in portions(list(query.channels)) if found else ():
        rows = yield (
            f"{line} SELECT l.place, {write_list(sql, 'w')} FROM line l CROSS JOIN {sql.writes} w"
            f" WHERE {is_parent('w')} AND w.channel IN {marks(len(some))}",
            (*values, *map(sql.text, some)),
        )
        for place, *row in rows:
            if place < len(found):
                found[place].writes.append(write_of(sql, row))
    for ancestor in found:
        ancestor.writes.sort(key=writes_order)
    return found


def export(sql: Flavour, thread_id: str, after_seq: int, limit: int, known: Mapping[str, int]) -> Steps[Exported]:
    """Read a page of checkpoints, with their runs and their pending writes.

    Users decide how large these are. So the sizes are read first, and then only as much as fits.
    """
    here = f"FROM {sql.joined} WHERE {sql.of_thread} AND {sql.alive} AND c.seq > ? ORDER BY c.seq LIMIT ?"
    values = (sql.text(thread_id), sql.now(), after_seq)
    size = " + ".join(sql.bytes_of(column) for column in ("c.head", "c.manifest", "c.metadata"))
    sizes = yield f"SELECT {size} {here}", (*values, limit)
    if not sizes:
        return Exported([], [])
    rows = yield f"SELECT {sql.exported} {here}", (*values, fitting(int(size) for (size,) in sizes))
    checkpoint_rows = [CheckpointRow(*row) for row in rows]
    checkpoints, thread = [sql.read_checkpoint(row) for row in checkpoint_rows], checkpoint_rows[0].thread
    writes = yield from _writes(sql, thread, checkpoints)
    named = [newest_runs([stored.manifest]) for stored in checkpoints[: len(writes)]]
    newest = newest_runs(stored.manifest for stored in checkpoints[: len(writes)])
    run_sizes = yield from _runs(sql, f"branch, number, {sql.bytes_of('items')}", thread, newest, known)
    count = fitting(brought(named, ((branch, number, int(size)) for branch, number, size in run_sizes)))
    newest = newest_runs(stored.manifest for stored in checkpoints[:count])
    runs = yield from _runs(sql, sql.run, thread, newest, known)
    kept = {place: some for place, some in writes[:count] if some}
    return Exported(checkpoints[:count], list(map(sql.read_run, runs)), kept, more=count < len(sizes))


def _runs(
    sql: Flavour, columns: str, thread: int, newest: Mapping[str, int], known: Mapping[str, int]
) -> Steps[list[Row]]:
    select = f"SELECT {columns} FROM {sql.runs} WHERE thread = ?"
    parts: list[tuple[str, Sequence[Any]]] = []
    single = [branch for branch, number in newest.items() if number == 0 and branch not in known]
    for branches in portions(single):
        parts.append((f"{select} AND number = 0 AND branch IN {marks(len(branches))}", (thread, *branches)))
    for branch, number in newest.items():
        after = known.get(branch, -1)
        if number > max(0, after):
            condition = "branch = ? AND number > ? AND number <= ?"
            parts.append((f"{select} AND {condition}", (thread, branch, after, number)))
    rows: list[Row] = []
    for together in portions(parts, AT_ONCE):
        statement = " UNION ALL ".join(text for text, _ in together)
        rows += yield statement, [value for _, values in together for value in values]
    return rows


def _writes(sql: Flavour, thread: int, checkpoints: Sequence[Stored]) -> Steps[list[tuple[Place, list[Write]]]]:
    """Read the pending writes of these checkpoints: of the first ones, as many as fit."""
    places = [(stored.entry.namespace, stored.entry.checkpoint_id) for stored in checkpoints]
    if not (yield f"SELECT 1 FROM {sql.writes} WHERE thread = ? LIMIT 1", (thread,)):
        return [(place, []) for place in places]
    sizes = yield from _of_places(
        sql, f"sum({sql.write_bytes()})", thread, places, " GROUP BY namespace, checkpoint_id"
    )
    fit = places[: fitting(int(sizes[place][0][0] or 0) if place in sizes else 0 for place in places)]
    rows = yield from _of_places(sql, write_list(sql), thread, fit)
    writes: list[tuple[Place, list[Write]]] = []

    def unpacked() -> Iterator[int]:
        # Kept small, they may be large: each is unpacked when those before it have left room.
        for place in fit:
            writes.append((place, sorted((write_of(sql, row) for row in rows.get(place, ())), key=writes_order)))
            yield sum(len(write.value) for write in writes[-1][1])

    return writes[: fitting(unpacked())]


def _of_places(
    sql: Flavour, columns: str, thread: int, places: Sequence[Place], grouped: str = ""
) -> Steps[dict[Place, list[Row]]]:
    """Read columns of the pending writes of checkpoints, by checkpoint."""
    rows_of: dict[Place, list[Row]] = {}
    for some in portions(places):
        rows = yield (
            f"SELECT namespace, checkpoint_id, {columns} FROM {sql.writes}"
            f" WHERE thread = ? AND (namespace, checkpoint_id) IN {sql.pairs(len(some))}{grouped}",
            (thread, *(sql.text(name) for place in some for name in place)),
        )
        for namespace, checkpoint_id, *row in rows:
            rows_of.setdefault((sql.read_text(namespace), sql.read_text(checkpoint_id)), []).append(row)
    return rows_of
