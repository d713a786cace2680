"""A vacuum of a long thread in many short transactions, so that nobody waits long for the thread, or for the file.

A transaction that only reads, without a lock, gathers what the plan needs (see `Trimming`). Each portion then checks
that the plan still holds, spares what was saved since, and removes its rows. If nothing of a thread stays, the thread
ends at once, as if it had expired, and its rows are removed afterwards. A process that is killed in between leaves
nothing that anybody can see, and `expire`, with which every vacuum begins, removes the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Protocol, TypeVar

from locus.memory.backends.sql.commit import SQLThread, SQLThreads
from locus.memory.backends.sql.flavour import Steps, marks, portions
from locus.memory.backends.sql.schema import RUN_INFO, CheckpointRow
from locus.memory.model.manifest import wanted
from locus.memory.model.records import Entry, Extent, RunInfo
from locus.memory.model.retention import Removal
from locus.memory.model.trimming import MOST_ROWS, Portion, Trimming

T = TypeVar("T")

LONG = MOST_ROWS
"""The longest thread, in numbers that it was ever given, that is trimmed in one transaction."""
ATTEMPTS = 20
"""The number of plans. A new one is needed when others have removed something of the thread meanwhile."""
ENDED = datetime(1970, 1, 2, tzinfo=UTC)
"""The time at which a thread expires if nothing of it is left. It is in the past for every clock."""


class Reading(Protocol):
    """Carries out steps that only read, as of one instant."""

    async def __call__(self, operation: Callable[[], Steps[T]], /) -> T: ...


class Changing(Protocol):
    """Carries out steps that change threads, in one transaction."""

    async def __call__(self, change: Callable[[SQLThreads], Steps[T]], /) -> T: ...


@dataclass(frozen=True, slots=True)
class Outline:
    """The parts of a thread that a plan needs."""

    key: int
    checkpoints: Mapping[int, tuple[Entry, str]]
    """Entry and manifest of each, by sequence number."""
    runs: Sequence[RunInfo]

    def trimming(self, doomed: set[int]) -> Trimming:
        extents = {seq: wanted(manifest) for seq, (_, manifest) in self.checkpoints.items()}
        return Trimming((entry for entry, _ in self.checkpoints.values()), extents, self.runs, doomed, MOST_ROWS)


async def trim_long(
    threads: SQLThreads, read: Reading, change: Changing, thread_id: str, seqs: Mapping[int, str]
) -> int:
    """Remove these checkpoints (sequence number and rev) of a long thread in portions, and return how many."""
    removed = 0
    for _ in range(ATTEMPTS):
        outline = await read(partial(_outline, threads, thread_id))
        checkpoints = {} if outline is None else outline.checkpoints
        doomed = {seq for seq, (entry, _) in checkpoints.items() if seqs.get(seq) == entry.rev}
        if outline is None or not doomed:
            return removed
        if len(doomed) == len(checkpoints):
            if await change(partial(_end, thread_id=thread_id, outline=outline)):
                await _sweep(change, thread_id)
                return removed + len(doomed)
            continue
        # A thread of its own, because there may be tens of thousands of manifests to read.
        plan = await asyncio.to_thread(outline.trimming, doomed)
        while portion := plan.next():
            if not await change(partial(_take, thread_id=thread_id, key=outline.key, plan=plan, portion=portion)):
                break
            plan.done(portion)
            removed += len(portion.entries)
        else:
            return removed
    # Others remove something all the time. What nobody can plan beforehand is done at once.
    return removed + await change(lambda threads: threads.delete(thread_id, None, seqs))


async def _sweep(change: Changing, thread_id: str) -> None:
    while await change(partial(_sweep_some, thread_id=thread_id)):
        pass


def trim_short(threads: SQLThreads, thread_id: str, seqs: Mapping[int, str]) -> Steps[int | None]:
    """Remove these checkpoints at once, and return how many; None if the thread is long, and then nothing is done."""
    sql = threads.sql
    rows = yield f"SELECT t.last_seq FROM {sql.threads} t WHERE t.thread_id = ?", (sql.text(thread_id),)
    if rows and rows[0][0] > LONG:
        return None
    return (yield from threads.delete(thread_id, None, seqs))


def _outline(threads: SQLThreads, thread_id: str) -> Steps[Outline | None]:
    sql = threads.sql
    rows = yield (
        f"SELECT t.id, t.last_seq FROM {sql.threads} t WHERE t.thread_id = ? AND {sql.alive}",
        (sql.text(thread_id), sql.now()),
    )
    if not rows:
        return None
    ((key, last_seq),) = rows
    thread = threads.thread(key, thread_id, last_seq)
    checkpoints = yield from thread.entries()
    return Outline(key, checkpoints, (yield from thread.runs()))


def _end(threads: SQLThreads, thread_id: str, outline: Outline) -> Steps[bool]:
    """End a thread that has nothing but what the outline has; False if it has something else by now."""
    newest = max(outline.checkpoints)
    thread = yield from _as_planned(threads, thread_id, outline.key, newest, len(outline.checkpoints))
    if thread is None or not (yield from _has_revs(thread, [outline.checkpoints[newest][0]])):
        return False
    if (yield from _newer(thread, newest)):
        return False
    yield from thread.take_out([], Removal([], {}))  # a handle that saved here before must notice
    yield from thread.expire_at(ENDED)
    return True


def _take(threads: SQLThreads, thread_id: str, key: int, plan: Trimming, portion: Portion) -> Steps[bool]:
    """Remove a portion; False if the thread has changed in a way that the plan does not allow."""
    thread = yield from _as_planned(threads, thread_id, key, plan.last_seq, plan.left)
    if thread is None or not (yield from _has_revs(thread, portion.entries)):
        return False
    newer = yield from _newer(thread, plan.last_seq)
    runs: list[RunInfo] = []
    for branch, number in plan.contested(portion, [extents for _, extents in newer]).items():
        rows = yield (
            f"SELECT {RUN_INFO} FROM {threads.sql.runs} WHERE thread = ? AND branch = ? AND number > ? ORDER BY number",
            (key, branch, number),
        )
        runs += [RunInfo(*row) for row in rows]
    yield from thread.take_out(portion.entries, plan.removal(portion, newer, runs))
    return True


def _as_planned(threads: SQLThreads, thread_id: str, key: int, last_seq: int, left: int) -> Steps[SQLThread | None]:
    """Lock a thread that has this key, and so many checkpoints up to a number; None if it has not.

    No number is given out twice, so nothing else was removed from it.
    """
    thread = yield from threads.open(thread_id)
    if thread is None or thread.key != key:
        return None
    ((count,),) = yield (
        f"SELECT count(*) FROM {threads.sql.checkpoints} WHERE thread = ? AND seq <= ?",
        (key, last_seq),
    )
    return thread if count == left else None


def _has_revs(thread: SQLThread, entries: Sequence[Entry]) -> Steps[bool]:
    """Tell whether these checkpoints still have their revs: the thread may have been begun anew."""
    revs: dict[int, str] = {}
    for some in portions([entry.seq for entry in entries]):
        rows = yield (
            f"SELECT seq, rev FROM {thread.sql.checkpoints} WHERE thread = ? AND seq IN {marks(len(some))}",
            (thread.key, *some),
        )
        revs |= dict(rows)
    return all(revs.get(entry.seq) == entry.rev for entry in entries)


def _newer(thread: SQLThread, last_seq: int) -> Steps[list[tuple[Entry, list[Extent]]]]:
    """Read the entries and extents of the checkpoints after a number."""
    sql = thread.sql
    if thread.last_seq <= last_seq:
        return []
    rows = yield (
        f"SELECT {sql.columns('manifest')} FROM {sql.joined} WHERE c.thread = ? AND c.seq > ?",
        (thread.key, last_seq),
    )
    newer = [CheckpointRow(*row) for row in rows]
    return [(sql.read_entry(row), wanted(sql.read_json(row.manifest))) for row in newer]


def _sweep_some(threads: SQLThreads, thread_id: str) -> Steps[bool]:
    """Remove some rows of a thread that has ended; False if that was all, or if the thread was begun anew."""
    sql = threads.sql
    rows = yield (
        f"SELECT id, last_seq FROM {sql.threads} WHERE thread_id = ? AND expires_at <= ?{sql.lock}",
        (sql.text(thread_id), sql.time(ENDED)),
    )
    for key, last_seq in rows:
        _, is_gone = yield from threads.thread(key, thread_id, last_seq).drop_some(MOST_ROWS)
        return not is_gone
    return False
