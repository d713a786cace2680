"""Finds what a vacuum would remove, in many threads at once, and measures threads. Nothing is changed.

Threads are looked at in the order of their ids, a page at a time. The age of a checkpoint has no index, because every
save would pay for it; but the checkpoints of a page are found by their thread, and the database compares their ages. If
a vacuum keeps so many checkpoints of each thread, only those threads are read that have more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from locus.errors import CorruptCheckpointError
from locus.memory.backends.sql.flavour import Flavour, Steps, marks, portions
from locus.memory.backends.sql.read import within
from locus.memory.backends.sql.schema import RUN_INFO, CheckpointRow
from locus.memory.model.ids import shown_thread
from locus.memory.model.records import Entry, RunInfo
from locus.memory.model.retention import Outlived, OutlivedPage, Place, Retention, orphaned, outlived_in
from locus.memory.model.sizes import Measured, MeasuredCheckpoint, MeasuredWrites

MOST_ROWS = 100_000
"""The approximate number of checkpoints that a page covers, so that no statement takes long."""


def outlived(sql: Flavour, retention: Retention, after: str, prefix: str, limit: int) -> Steps[OutlivedPage | None]:
    """List what a vacuum would remove from the threads that follow one; None if there are no more."""
    here, bounds = within(sql, prefix)
    if after:
        here, bounds = f"{here} AND t.thread_id > ?", [*bounds, sql.text(after)]
    rows = yield (
        f"SELECT t.id, t.thread_id, t.last_seq FROM {sql.threads} t WHERE {here} AND {sql.alive}"
        " ORDER BY t.thread_id LIMIT ?",
        (*bounds, sql.now(), limit),
    )
    if not rows:
        return None
    threads, most = dict[Any, str](), MOST_ROWS
    for key, thread_id, last_seq in rows:
        threads[key] = sql.read_text(thread_id)
        most -= last_seq  # no thread has more checkpoints than it was given numbers
        if most <= 0:
            break
    several = {key for key, _, last_seq in rows if key in threads and last_seq > 1}
    page = _VacuumPage(sql, threads)
    if retention.keep_last is None:
        yield from _old(page, retention)
    else:
        yield from _surplus(page, several, retention, retention.keep_last)
    orphans = yield from _orphans(sql, threads)
    outliving = [
        Outlived(thread_id, page.doomed.get(key, {}), orphaned(orphans.get(key, {}), retention.orphans_before))
        for key, thread_id in threads.items()
    ]
    last = next(reversed(threads.values()))
    return OutlivedPage(last, len(threads), list(filter(None, outliving)), list(page.damaged.values()))


class _VacuumPage:
    """The checkpoints to remove from the threads of a page, and the damage in these, by the keys of threads."""

    def __init__(self, sql: Flavour, threads: Mapping[Any, str]) -> None:
        self.sql = sql
        self.threads = threads
        self.doomed: dict[Any, dict[int, str]] = {}
        self.damaged: dict[Any, CorruptCheckpointError] = {}

    def time(self, key: Any, value: Any) -> Any:
        """Read a stored time; None if it is invalid, and then the thread is noted as damaged."""
        try:
            return self.sql.read_time(value)
        except (TypeError, ValueError):
            self.doomed.pop(key, None)
            thread = shown_thread(self.threads[key])
            self.damaged[key] = CorruptCheckpointError(f"a checkpoint of {thread} has no time that can be read")
            return None


def _old(page: _VacuumPage, retention: Retention) -> Steps[None]:
    """Find checkpoints by age alone. The database returns only those that go."""
    sql = page.sql
    assert retention.cutoff is not None
    for keys in portions(list(page.threads)):
        rows = yield (
            f"SELECT c.thread, c.seq, c.rev, c.created_at FROM {sql.checkpoints} c"
            f" WHERE c.thread IN {marks(len(keys))} AND {_maybe_old(sql)}",
            (*keys, sql.time(retention.cutoff)),
        )
        for key, seq, rev, created_at in rows:
            created = page.time(key, created_at)
            if created is not None and created < retention.cutoff and key not in page.damaged:
                page.doomed.setdefault(key, {})[seq] = rev


def _maybe_old(sql: Flavour) -> str:
    """A condition: the checkpoint `c` is older than `?`, or its time is invalid."""
    return f"(c.created_at < ? OR {sql.no_time('c.created_at')})"


def _surplus(page: _VacuumPage, keys: Collection[Any], retention: Retention, keep_last: int) -> Steps[None]:
    """Find checkpoints by number, and maybe by age. Threads are read that have more than are kept, or a circle."""
    sql = page.sql
    candidates = [key for key in page.threads if key in keys]
    if retention.cutoff is not None:
        old: set[Any] = set()
        for some in portions(candidates):
            rows = yield (
                f"SELECT DISTINCT c.thread FROM {sql.checkpoints} c"
                f" WHERE c.thread IN {marks(len(some))} AND {_maybe_old(sql)}",
                (*some, sql.time(retention.cutoff)),
            )
            old |= {key for (key,) in rows}
        candidates = [key for key in candidates if key in old]
    entries: defaultdict[Any, list[Entry]] = defaultdict(list)
    for some in portions((yield from _with_more(sql, candidates, keep_last))):
        rows = yield (
            "SELECT c.thread, c.namespace, c.checkpoint_id, c.parent_id, c.seq, c.rev, c.created_at"
            f" FROM {sql.checkpoints} c WHERE c.thread IN {marks(len(some))}",
            some,
        )
        for key, namespace, checkpoint_id, parent_id, seq, rev, created_at in rows:
            created = page.time(key, created_at)
            if created is not None:
                parent = None if parent_id is None else sql.read_text(parent_id)
                names = (sql.read_text(namespace), sql.read_text(checkpoint_id), parent)
                entries[key].append(Entry(page.threads[key], *names, seq, rev, created, "{}"))
    for key, members in entries.items():
        if key not in page.damaged:
            page.doomed[key] = dict(outlived_in(page.threads[key], members, retention, {}).checkpoints)


def _with_more(sql: Flavour, keys: Sequence[Any], number: int) -> Steps[list[Any]]:
    """Find threads with more than so many checkpoints in a namespace, or with parents that may form a circle.

    The checkpoints in a circle need not be on the line of any checkpoint that is kept. There is a circle only if some
    parent came after its child.
    """
    surplus: set[Any] = set()
    for some in portions(keys):
        rows = yield (
            f"SELECT c.thread FROM {sql.checkpoints} c WHERE c.thread IN {marks(len(some))}"
            " GROUP BY c.thread, c.namespace HAVING count(*) > ?",
            (*some, number),
        )
        surplus |= {key for (key,) in rows}
        rows = yield (
            f"SELECT c.thread FROM {sql.checkpoints} c JOIN {sql.checkpoints} p ON p.thread = c.thread"
            " AND p.namespace = c.namespace AND p.checkpoint_id = c.parent_id"
            f" WHERE c.thread IN {marks(len(some))} AND p.seq >= c.seq",
            some,
        )
        surplus |= {key for (key,) in rows}
    return [key for key in keys if key in surplus]


def _orphans(sql: Flavour, threads: Mapping[Any, str]) -> Steps[dict[Any, dict[Place, int]]]:
    """Count the pending writes of checkpoints that do not exist, by thread."""
    orphans: defaultdict[Any, dict[Place, int]] = defaultdict(dict)
    exists = (
        f"SELECT 1 FROM {sql.checkpoints} c WHERE c.thread = w.thread AND c.namespace = w.namespace"
        " AND c.checkpoint_id = w.checkpoint_id"
    )
    for keys in portions(list(threads)):
        rows = yield (
            f"SELECT w.thread, w.namespace, w.checkpoint_id, count(*) FROM {sql.writes} w"
            f" WHERE w.thread IN {marks(len(keys))} AND NOT EXISTS ({exists})"
            " GROUP BY w.thread, w.namespace, w.checkpoint_id",
            keys,
        )
        for key, namespace, checkpoint_id, count in rows:
            orphans[key][sql.read_text(namespace), sql.read_text(checkpoint_id)] = count
    return orphans


def measure(sql: Flavour, thread_id: str) -> Steps[Measured | None]:
    """Measure the bytes of everything in a thread. The database counts them, and sends no text but the manifests."""
    size = " + ".join(sql.bytes_of(column) for column in ("c.head", "c.manifest", "c.metadata"))
    rows = yield (
        f"SELECT c.thread, c.namespace, c.checkpoint_id, c.parent_id, c.seq, c.rev, c.created_at,"
        f" {sql.json_column('c.manifest')}, {size} FROM {sql.joined}"
        f" WHERE {sql.of_thread} AND {sql.alive} ORDER BY c.seq",
        (sql.text(thread_id), sql.now()),
    )
    if not rows:
        return None
    key, checkpoints = rows[0][0], list[MeasuredCheckpoint]()
    for _, namespace, checkpoint_id, parent_id, seq, rev, created_at, manifest, size_found in rows:
        row = CheckpointRow("", namespace, checkpoint_id, parent_id, seq, rev, created_at, manifest)
        entry = replace(sql.unproven_entry(row), thread_id=thread_id, metadata="{}")
        checkpoints.append(MeasuredCheckpoint(entry, sql.read_json(manifest), int(size_found)))
    runs = yield f"SELECT {RUN_INFO}, {sql.bytes_of('items')} FROM {sql.runs} WHERE thread = ?", (key,)
    writes = yield (
        f"SELECT namespace, checkpoint_id, count(*), sum({sql.write_bytes()}) FROM {sql.writes} WHERE thread = ?"
        " GROUP BY namespace, checkpoint_id",
        (key,),
    )
    return Measured(
        checkpoints,
        {RunInfo(*row[:4]): int(row[4]) for row in runs},
        {
            (sql.read_text(namespace), sql.read_text(checkpoint_id)): MeasuredWrites(count, int(written))
            for namespace, checkpoint_id, count, written in writes
        },
    )
