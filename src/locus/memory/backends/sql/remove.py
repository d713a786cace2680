"""What a vacuum would remove, asked of the tables for many threads at once; and what a thread takes.

Nothing here changes anything.

Threads are looked at in the order of their ids, a page at a time. The age of a checkpoint has no index, because every
save would pay for it; but the checkpoints of a page are found by their thread, and the database compares their ages.
Where a number of them is to be kept, only those threads are read that have more.
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
"""About as many checkpoints are looked at for one page, so that no statement takes long."""


def outlived(sql: Flavour, kept: Retention, after: str, prefix: str, limit: int) -> Steps[OutlivedPage | None]:
    """What a vacuum removes from the threads that follow one; None if there are no more."""
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
    found = _Found(sql, threads)
    if kept.keep_last is None:
        yield from _old(found, kept)
    else:
        yield from _surplus(found, several, kept, kept.keep_last)
    orphans = yield from _orphans(sql, threads)
    outliving = [
        Outlived(thread_id, found.doomed.get(key, {}), orphaned(orphans.get(key, {}), kept.orphans_before))
        for key, thread_id in threads.items()
    ]
    last = next(reversed(threads.values()))
    return OutlivedPage(last, len(threads), [one for one in outliving if one], list(found.damaged.values()))


class _Found:
    """What was found in the threads of a page, by their keys."""

    def __init__(self, sql: Flavour, threads: Mapping[Any, str]) -> None:
        self.sql = sql
        self.threads = threads
        self.doomed: dict[Any, dict[int, str]] = {}
        self.damaged: dict[Any, CorruptCheckpointError] = {}

    def time(self, key: Any, value: Any) -> Any:
        """A stored time; None if it is none, and then the thread is damaged."""
        try:
            return self.sql.read_time(value)
        except (TypeError, ValueError):
            self.doomed.pop(key, None)
            thread = shown_thread(self.threads[key])
            self.damaged[key] = CorruptCheckpointError(f"a checkpoint of {thread} has no time that can be read")
            return None


def _old(found: _Found, kept: Retention) -> Steps[None]:
    """By age alone: the database finds just what goes."""
    sql = found.sql
    assert kept.cutoff is not None
    for keys in portions(list(found.threads)):
        rows = yield (
            f"SELECT c.thread, c.seq, c.rev, c.created_at FROM {sql.checkpoints} c"
            f" WHERE c.thread IN {marks(len(keys))} AND {_maybe_old(sql)}",
            (*keys, sql.time(kept.cutoff)),
        )
        for key, seq, rev, created_at in rows:
            created = found.time(key, created_at)
            if created is not None and created < kept.cutoff and key not in found.damaged:
                found.doomed.setdefault(key, {})[seq] = rev


def _maybe_old(sql: Flavour) -> str:
    """A condition: the checkpoint `c` is older than `?`, or nobody can tell."""
    return f"(c.created_at < ? OR {sql.no_time('c.created_at')})"


def _surplus(found: _Found, keys: Collection[Any], kept: Retention, keep_last: int) -> Steps[None]:
    """By number, and maybe by age too: of threads that have more than are kept, or that nobody can tell from those."""
    sql = found.sql
    candidates = [key for key in found.threads if key in keys]
    if kept.cutoff is not None:
        old: set[Any] = set()
        for some in portions(candidates):
            rows = yield (
                f"SELECT DISTINCT c.thread FROM {sql.checkpoints} c"
                f" WHERE c.thread IN {marks(len(some))} AND {_maybe_old(sql)}",
                (*some, sql.time(kept.cutoff)),
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
            created = found.time(key, created_at)
            if created is not None:
                parent = None if parent_id is None else sql.read_text(parent_id)
                names = (sql.read_text(namespace), sql.read_text(checkpoint_id), parent)
                entries[key].append(Entry(found.threads[key], *names, seq, rev, created, "{}"))
    for key, members in entries.items():
        if key not in found.damaged:
            found.doomed[key] = dict(outlived_in(found.threads[key], members, kept, {}).checkpoints)


def _with_more(sql: Flavour, keys: Sequence[Any], number: int) -> Steps[list[Any]]:
    """The threads with more than so many checkpoints in a namespace, or with parents that may lead in a circle.

    Of what is in such a circle nothing need be on a line. There is one only if some parent came after its child.
    """
    found: set[Any] = set()
    for some in portions(keys):
        rows = yield (
            f"SELECT c.thread FROM {sql.checkpoints} c WHERE c.thread IN {marks(len(some))}"
            " GROUP BY c.thread, c.namespace HAVING count(*) > ?",
            (*some, number),
        )
        found |= {key for (key,) in rows}
        rows = yield (
            f"SELECT c.thread FROM {sql.checkpoints} c JOIN {sql.checkpoints} p ON p.thread = c.thread"
            " AND p.namespace = c.namespace AND p.checkpoint_id = c.parent_id"
            f" WHERE c.thread IN {marks(len(some))} AND p.seq >= c.seq",
            some,
        )
        found |= {key for (key,) in rows}
    return [key for key in keys if key in found]


def _orphans(sql: Flavour, threads: Mapping[Any, str]) -> Steps[dict[Any, dict[Place, int]]]:
    """How many pending writes wait for a checkpoint that is not there, by thread."""
    found: defaultdict[Any, dict[Place, int]] = defaultdict(dict)
    there = (
        f"SELECT 1 FROM {sql.checkpoints} c WHERE c.thread = w.thread AND c.namespace = w.namespace"
        " AND c.checkpoint_id = w.checkpoint_id"
    )
    for keys in portions(list(threads)):
        rows = yield (
            f"SELECT w.thread, w.namespace, w.checkpoint_id, count(*) FROM {sql.writes} w"
            f" WHERE w.thread IN {marks(len(keys))} AND NOT EXISTS ({there})"
            " GROUP BY w.thread, w.namespace, w.checkpoint_id",
            keys,
        )
        for key, namespace, checkpoint_id, count in rows:
            found[key][sql.read_text(namespace), sql.read_text(checkpoint_id)] = count
    return found


def measure(sql: Flavour, thread_id: str) -> Steps[Measured | None]:
    """The bytes of everything that a thread has. The database counts them, and sends no text but the manifests."""
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
        entry = replace(sql.read_entry(row), thread_id=thread_id, metadata="{}")
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
            (sql.read_text(namespace), sql.read_text(checkpoint_id)): MeasuredWrites(count, int(found))
            for namespace, checkpoint_id, count, found in writes
        },
    )
