"""The engine for object stores: one engine and one layout for S3 and OCI.

A thread is a log of immutable, numbered objects. See

    schema    for the names of the objects, and for their content
    log       for how a save becomes an object, and why that needs no lock
    index     for the thread that results from its events
    read      for how a thread is read, or only its end
    tip       for how the end of a thread repeats facts of its beginning
    texts     for how parts of large objects are read
    places    for the places of texts in these
    merge     for how any checkpoint of a long thread is read with few requests
    remove    for how deleted content is removed
    copy      for copies and exports
    markers   for lists of threads
    examine   for what `locus doctor` can tell of losses

The costs of operations::

    save      PUT event n, on condition that there is none        1 request; 2 more each 16 saves
    load      LIST the thread, then GET everything at once        2 round trips; 1 where the handle knows the thread
    part      LIST, then GET the ends of merged objects           the same, and as many bytes in any thread
    history   LIST, then GET entries only                         the same
    threads   LIST the markers                                    1 request for 1,000 markers
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from locus.errors import CheckpointError, CorruptCheckpointError, UnsupportedFormatError
from locus.memory.backends.objects.client import ObjectStore, together
from locus.memory.backends.objects.copy import copy_draft, copy_of, page_of
from locus.memory.backends.objects.examine import marker_findings
from locus.memory.backends.objects.index import RECENT, ThreadIndex
from locus.memory.backends.objects.log import Proposal, ThreadLog, Transition
from locus.memory.backends.objects.markers import MarkedThread, ThreadMarkers
from locus.memory.backends.objects.read import Recent
from locus.memory.backends.objects.remove import GRACE, grace_began, sweep_thread
from locus.memory.backends.objects.schema import FAN, Draft, IndexedCheckpoint, TextRef, commit_draft, writes_draft
from locus.memory.backends.objects.texts import FetchedObjects, ObjectGone
from locus.memory.engine import PAGE, Copies, Engine, Exports, FindsMetadata, KeepsWrites, Maintains, warn_of_damage
from locus.memory.model.commit_rules import decide
from locus.memory.model.findings import SECOND, clock
from locus.memory.model.ids import Pattern
from locus.memory.model.manifest import wanted
from locus.memory.model.matching import has_value, newest, newest_threads
from locus.memory.model.parts import Part, Range, needed
from locus.memory.model.records import (
    Base,
    Commit,
    Entry,
    Exported,
    Finding,
    NewestThreads,
    Outcome,
    Run,
    RunInfo,
    Stored,
    TaskWrites,
    Verdict,
    Write,
    writes_order,
)
from locus.memory.model.retention import Copied, Outlived, OutlivedPage, Place, Retention, orphaned, outlived_in
from locus.memory.model.sizes import Measured, MeasuredCheckpoint, MeasuredWrites, text_bytes
from locus.memory.runtime.forks import fork_safe_lock
from locus.memory.runtime.retry import Backoff

_BETWEEN_SWEEPS = Backoff(0.02, 0.15, random_part=0.0)

_MAX_REMEMBERED = 100_000
"""The number of checkpoints that a handle remembers, over all threads."""

_NEWEST: Final = Recent(2 * FAN)
"""The newest events, which are enough to decide on a save: the two latest checkpoints, and a tip."""

_LATEST: Final = Recent()
"""The content of the latest checkpoint: mostly the whole thread, but not if its lists are cut short."""

_ALL_ENTRIES: Final = Recent(2**53)
"""All events, but no texts before it is known which ones are needed."""


class ObjectEngine(Engine, KeepsWrites, FindsMetadata, Copies, Exports, Maintains):
    """Threads as objects of an `ObjectStore`."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.driver_errors = store.driver_errors  # type: ignore[misc]  # known when the store is
        self._markers = ThreadMarkers(store, lambda: self.reading_only)
        self._lock = fork_safe_lock()  # for the logs, too: what it protects only computes
        self._logs: OrderedDict[str, ThreadLog] = OrderedDict()

    @property
    def identity(self) -> str:
        return self.store.identity

    def _opened_space(self, name: str) -> Engine:
        return ObjectEngine(self.store.below(f"space-{name}"))

    def _log(self, thread_id: str) -> ThreadLog:
        with self._lock:
            log = self._logs.get(thread_id)
            if log is None:
                log = self._logs[thread_id] = ThreadLog(self.store, self._markers, thread_id, self._lock)
                self._forget_some()
            self._logs.move_to_end(thread_id)
            return log

    def _forget_some(self) -> None:
        # Not on every use: counting goes over all threads that are remembered.
        if len(self._logs) % 64 == 0:
            size = sum(log.size for log in self._logs.values())
            while size > _MAX_REMEMBERED and len(self._logs) > 1:
                size -= self._logs.popitem(last=False)[1].size

    async def examine(self) -> list[Finding]:
        asked = datetime.now(UTC)
        theirs = await self.store.server_time()
        return [] if theirs is None else clock(theirs, asked, SECOND)

    async def examine_indexes(self) -> list[Finding]:
        return await marker_findings(self.store, self._markers)

    async def commit(self, commit: Commit) -> Outcome:
        def propose(index: ThreadIndex) -> Proposal[Outcome]:
            if commit.fresh_id and (commit.namespace, commit.checkpoint_id) not in index.ids:
                known = None
            else:
                known = index.find(commit.namespace, commit.checkpoint_id)
            if known is not None and known.rev == commit.rev:
                return Proposal(Outcome(Verdict.COMMITTED, known.seq, known.parent_id, repeated=True))
            outcome = decide(commit, index)
            if outcome.verdict is not Verdict.COMMITTED:
                return Proposal(outcome)
            named = outcome.parent_id
            seq = None if named is None else index.seq(commit.namespace, named)
            draft = commit_draft(
                commit, named if seq is None else seq, outcome.replaced.seq if outcome.replaced else None
            )
            return Proposal(outcome, draft, Transition.NONE if index.rows else Transition.BEGINS)

        return await self._log(commit.thread_id).change(propose, _NEWEST)

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        def find(index: ThreadIndex) -> tuple[_LocatedCheckpoint, list[TextRef]] | None:
            row = index.row(namespace, checkpoint_id)
            return None if row is None else _located(index, row, index.holding(wanted(row.manifest)))

        return _stored(await self._log(thread_id).read(find, _LATEST if checkpoint_id is None else None))

    async def read_part(self, thread_id: str, namespace: str, checkpoint_id: str | None, part: Part) -> Stored | None:
        def find(index: ThreadIndex) -> tuple[_LocatedCheckpoint, list[TextRef]] | None:
            row = index.row(namespace, checkpoint_id)
            return None if row is None else _located(index, row, index.holding(needed(row.manifest, part)))

        return _stored(await self._log(thread_id).read(find, _recent(part)))

    async def read_since(self, thread_id: str, namespace: str, checkpoint_id: str | None, held: Base) -> Stored | None:
        def find(index: ThreadIndex) -> tuple[_LocatedCheckpoint, list[TextRef]] | None:
            row = index.row(namespace, checkpoint_id)
            if row is None:
                return None
            seq = index.seq(namespace, held.checkpoint_id)
            base = None if seq is None or index.rows[seq].rev != held.rev else index.rows[seq]
            runs = None if base is None else index.beyond(wanted(base.manifest), wanted(row.manifest))
            if runs is None:
                return _located(index, row, index.holding(wanted(row.manifest)))
            return _located(index, row, runs, held)

        return _stored(await self._log(thread_id).read(find, _NEWEST))

    async def history(
        self, thread_id: str, namespace: str | None, limit: int | None, before_seq: int | None
    ) -> list[Entry]:
        def entries(index: ThreadIndex) -> list[Entry]:
            rows = list(islice(index.newest_first(namespace, before_seq), limit))
            if limit is None or len(rows) < limit:
                index.must_be_whole()
            return [index.entry(row) for row in rows]

        return await self._log(thread_id).ask(entries, None if limit is None else Recent(limit + _NEWEST.events))

    async def manifest(self, thread_id: str, namespace: str, checkpoint_id: str) -> tuple[str, str] | None:
        def find(index: ThreadIndex) -> tuple[str, str] | None:
            row = index.row(namespace, checkpoint_id)
            return None if row is None else (row.rev, row.manifest)

        return await self._log(thread_id).ask(find, _NEWEST)

    async def entry(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Entry | None:
        def one(index: ThreadIndex) -> Entry | None:
            row = index.row(namespace, checkpoint_id)
            return None if row is None else index.entry(row)

        return await self._log(thread_id).ask(one, _NEWEST)

    async def threads(self, pattern: Pattern, limit: int | None) -> list[str]:
        return await self._markers.existing(pattern, limit, self._is_there)

    async def _has_checkpoints(self, thread: MarkedThread) -> tuple[bool, int]:
        return await self._log(thread.thread_id).ask(lambda index: (bool(index.rows), index.last_seq))

    async def _is_there(self, thread: MarkedThread) -> tuple[bool, int]:
        """Tell whether a thread has checkpoints, and as of which number.

        A damaged thread has some, so that it can be looked at, or deleted.
        """
        try:
            return await self._has_checkpoints(thread)
        except UnsupportedFormatError:
            raise
        except CorruptCheckpointError:
            return True, thread.number

    async def delete(self, thread_id: str, namespace: str | None = None, seqs: Mapping[int, str] | None = None) -> int:
        def propose(index: ThreadIndex) -> Proposal[int]:
            doomed = index.chosen(namespace, seqs)
            if doomed:
                transition = Transition.ENDS if len(doomed) == len(index.rows) else Transition.NONE
                return Proposal(len(doomed), Draft("delete", {"seqs": doomed}), transition)
            waiting = namespace is None and seqs is None and index.writes and not index.rows
            return Proposal(0, Draft("reset", {}) if waiting else None)

        log = self._log(thread_id)
        try:
            return await log.change(propose)
        except CorruptCheckpointError:
            if namespace is not None or seqs is not None:
                raise
            await log.reset()
            return 1

    async def recent(self, limit: int, prefix: str = "") -> list[Entry]:
        return newest([entry async for entry in self._entries(prefix)], limit)

    async def newest_threads(self, limit: int, before: str | None = None, prefix: str = "") -> NewestThreads:
        """List threads, with one request each at least: no object says which threads are the newest."""
        damaged: list[CorruptCheckpointError] = []
        names = await self.threads(Pattern(within=prefix), None)
        found = await together([partial(self._entries_of, name, 1, damaged) for name in names], 16)
        warn_of_damage(damaged)
        return newest_threads((entry for entries in found for entry in entries), limit, before)

    async def find(self, key: str, value: str, limit: int, prefix: str = "") -> list[Entry]:
        found = [entry async for entry in self._entries(prefix) if has_value(entry.metadata, key, value)]
        return newest(found, limit)

    async def _entries(self, prefix: str) -> AsyncIterator[Entry]:
        """Yield all entries of all threads with the prefix. An index over them would cost every save a request.

        Damaged threads are left out, with a warning.
        """
        damaged: list[CorruptCheckpointError] = []
        names = await self.threads(Pattern(within=prefix), None)
        for start in range(0, len(names), 64):
            group = names[start : start + 64]
            for entries in await together([partial(self._entries_of, name, None, damaged) for name in group], 16):
                for entry in entries:
                    yield entry
        warn_of_damage(damaged)

    async def _entries_of(
        self, thread_id: str, limit: int | None, damaged: list[CorruptCheckpointError]
    ) -> list[Entry]:
        """Read the newest entries of a thread; none of one that cannot be read, whose error is added to `damaged`."""
        try:
            return await self.history(thread_id, None, limit, None)
        except UnsupportedFormatError:
            raise
        except CorruptCheckpointError as error:
            damaged.append(error)
            return []

    async def put_writes(self, task: TaskWrites) -> None:
        draft = writes_draft(task)
        await self._log(task.thread_id).change(lambda _index: Proposal(None, draft), _NEWEST)

    async def get_writes(self, thread_id: str, namespace: str, checkpoint_id: str, task_id: str | None) -> list[Write]:
        def find(index: ThreadIndex) -> tuple[list[tuple[str, int, str, str, TextRef]], list[TextRef]] | None:
            index.must_be_whole()  # they may have been put long before the checkpoint
            stored = index.writes.get((namespace, checkpoint_id), {})
            pending = [
                (task, idx, write.task_path, write.channel, write.ref)
                for (task, idx), write in stored.items()
                if task_id in (None, task)
            ]
            return (pending, [ref for *_, ref in pending]) if pending else None

        answer = await self._log(thread_id).read(find, _ALL_ENTRIES)
        if answer is None:
            return []
        pending, texts = answer
        writes = [Write(task, path, idx, channel, texts.text(ref)) for task, idx, path, channel, ref in pending]
        return sorted(writes, key=writes_order)

    async def copy(self, source: str, dest: str, copied: Copied) -> int:
        answer = await self._log(source).read(lambda index: copy_of(index, copied))
        if answer is None:
            return 0
        copy, texts = answer

        def propose(index: ThreadIndex) -> Proposal[int]:
            if index.rows:
                return Proposal(-1)
            return Proposal(len(copy.rows), copy_draft(copy, texts.text, index.next), Transition.BEGINS)

        return await self._log(dest).change(propose)

    async def export(self, thread_id: str, after_seq: int, limit: int, known: Mapping[str, int]) -> Exported:
        answer = await self._log(thread_id).read(lambda index: page_of(index, after_seq, limit, known))
        if answer is None:
            return Exported([], [])
        page, texts = answer
        return page.exported(texts.text)

    async def outlived(
        self, retention: Retention, after: str = "", prefix: str = "", limit: int = PAGE
    ) -> AsyncGenerator[OutlivedPage]:
        async def result(thread_id: str) -> Outlived | CorruptCheckpointError:
            def find(index: ThreadIndex) -> Outlived:
                index.must_be_whole()
                entries = [index.entry(row) for row in index.rows.values()]
                return outlived_in(thread_id, entries, retention, orphaned(index.orphans(), retention.orphans_before))

            try:
                return await self._log(thread_id).ask(find)
            except CorruptCheckpointError as error:
                return error

        while thread_ids := await self.threads(Pattern(within=prefix, after=after), limit):
            after = thread_ids[-1]
            results = await together([partial(result, thread_id) for thread_id in thread_ids], 16)
            damaged = [error for error in results if isinstance(error, CorruptCheckpointError)]
            yield OutlivedPage(
                after,
                len(thread_ids),
                [result for result in results if isinstance(result, Outlived) and result],
                damaged,
            )

    async def measure(self, thread_id: str) -> Measured | None:
        """Measure a thread. Events tell the lengths of their texts, except for those that a sweep has put together."""

        def find(index: ThreadIndex) -> tuple[_KnownTexts, list[TextRef]] | None:
            index.must_be_whole()
            if not index.rows:
                return None
            runs, _ = index.needed()
            rows = [(index.entry(row), row.manifest, row.head) for row in index.rows.values()]
            writes = {
                place: [write.ref for write in pending.values()] for place, pending in index.writes.items() if pending
            }
            refs = [*(ref for *_, ref in rows), *runs.values(), *(ref for some in writes.values() for ref in some)]
            sizes = {ref: index.places.size(ref) for ref in refs}
            unknown = [ref for ref, size in sizes.items() if size is None]
            return _KnownTexts(rows, runs, writes, sizes), unknown

        answer = await self._log(thread_id).read(find, _ALL_ENTRIES)
        if answer is None:
            return None
        located, texts = answer

        def size(ref: TextRef) -> int:
            known = located.sizes[ref]
            return text_bytes(texts.text(ref)) if known is None else known

        return Measured(
            [
                MeasuredCheckpoint(entry, manifest, size(head) + text_bytes(manifest) + text_bytes(entry.metadata))
                for entry, manifest, head in located.rows
            ],
            {run: size(ref) for run, ref in located.runs.items()},
            {place: MeasuredWrites(len(refs), sum(map(size, refs))) for place, refs in located.writes.items()},
        )

    async def delete_orphans(self, thread_id: str, places: Collection[Place]) -> int:
        def propose(index: ThreadIndex) -> Proposal[int]:
            """Let one task that has numbered writes write nothing: no event only removes pending writes."""
            index.must_be_whole()
            for place in sorted(index.orphans().keys() & places):
                numbered = Counter(task for task, idx in index.writes[place] if idx >= 0)
                task_id, count = min(numbered.items())
                return Proposal(count, writes_draft(TaskWrites(thread_id, *place, task_id, ())))
            return Proposal(0)

        removed = 0
        while count := await self._log(thread_id).change(propose):
            removed += count
        return removed

    async def sweep(self, grace: timedelta = GRACE) -> int:
        """Remove what deletions, merges and crashes have left; return how many objects were removed.

        Events younger than `grace` stay: a handle may still rely on them. Interrupting it does no harm. Damaged threads
        stay as they are, and the error of the first is raised when all others are done.
        """
        before = await grace_began(self.store, grace)
        damaged: list[CorruptCheckpointError] = []
        removed = await self._sweep_some(await self._markers.long(Pattern()), before, damaged)
        async for page in self._markers.all(Pattern()):
            removed += await self._sweep_some(page, before, damaged)

        async def has_checkpoints(thread: MarkedThread) -> tuple[bool, int]:
            try:
                if all(listed.modified < before for listed in thread.listed):
                    await self._log(thread.thread_id).take_number(thread.number)
                return await self._has_checkpoints(thread)
            except CorruptCheckpointError as error:
                damaged.append(error)
                return True, thread.number - 1  # as if its event were still on its way: the marker stays

        await self._markers.settle(has_checkpoints, before)
        if damaged:
            raise damaged[0]
        return removed

    async def _sweep_some(
        self, threads: Iterable[MarkedThread], before: datetime, damaged: list[CorruptCheckpointError]
    ) -> int:
        return sum(
            await together([partial(self._sweep_one, thread.thread_id, before, damaged) for thread in threads], 8)
        )

    async def _sweep_one(self, thread_id: str, before: datetime, damaged: list[CorruptCheckpointError]) -> int:
        for attempt in range(4):
            try:
                return await sweep_thread(self.store, thread_id, before)
            except CorruptCheckpointError as error:
                damaged.append(error)
                return 0
            except ObjectGone:
                await _BETWEEN_SWEEPS.pause(attempt)
        return 0  # others are at work on this thread just now; the next sweep will do it

    def translate(self, error: BaseException) -> CheckpointError:
        return self.store.translate(error)

    async def close(self) -> None:
        with self._lock:
            self._logs.clear()
        await self.store.close()


class _KnownTexts(NamedTuple):
    """The places of the texts of a thread, and their lengths as far as they are known."""

    rows: list[tuple[Entry, str, TextRef]]
    runs: dict[RunInfo, TextRef]
    writes: dict[Place, list[TextRef]]
    sizes: dict[TextRef, int | None]


class _LocatedCheckpoint(NamedTuple):
    """A checkpoint, with the places of its texts."""

    entry: Entry
    manifest: str
    head: TextRef
    runs: dict[RunInfo, TextRef]
    passed: bool
    since: Base | None


def _located(
    index: ThreadIndex, row: IndexedCheckpoint, runs: dict[RunInfo, TextRef], since: Base | None = None
) -> tuple[_LocatedCheckpoint, list[TextRef]]:
    """Locate a checkpoint with some runs, and list the texts that it needs."""
    located = _LocatedCheckpoint(index.entry(row), row.manifest, row.head, runs, index.passed(row), since)
    return located, [row.head, *runs.values()]


def _stored(answer: tuple[_LocatedCheckpoint, FetchedObjects] | None) -> Stored | None:
    if answer is None:
        return None
    located, texts = answer
    runs: dict[str, list[Run]] = {}
    for info, ref in located.runs.items():
        runs.setdefault(info.branch, []).append(Run(*info, texts.text(ref), ref.before))
    return Stored(located.entry, texts.text(located.head), located.manifest, runs, located.passed, located.since)


def _recent(part: Part) -> Recent:
    """The number of the newest events that probably have a part: each turn is one, and adds to each list."""
    if not isinstance(part, Range):
        return Recent(max(part.last, RECENT) + FAN, part.last)
    if part.start >= 0:
        return _ALL_ENTRIES
    return Recent(max(-part.start, RECENT) + FAN, -part.start if -part.start <= part.count else 0)
