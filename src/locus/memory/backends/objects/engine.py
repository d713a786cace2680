"""Threads in an object store, whichever it is: one layout for S3 and OCI.

A thread is a log of immutable, numbered objects; see `object_log` for why that is enough, `object_keys` for their
names, `object_records` for what is in them, `object_merging` for how any checkpoint is read with few requests, and
`object_sweep` for how what is deleted goes. Which threads there are is told by `object_names`.

::

    save      PUT event n, on condition that there is none        1 request; 2 more each 16 saves
    load      LIST the thread, then GET everything at once        2 round trips; 1 where the handle knows the thread
    history   LIST, then GET entries only                         the same
    threads   LIST the marks                                      1 request for 1,000 marks
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple

from locus.errors import CheckpointError, CorruptCheckpointError
from locus.memory.backends.objects.client import ObjectStore, together
from locus.memory.backends.objects.compaction import GRACE, sweep_thread
from locus.memory.backends.objects.copy import copy_draft, copy_of, page_of
from locus.memory.backends.objects.index import ThreadIndex
from locus.memory.backends.objects.log import Step, ThreadLog, Turn
from locus.memory.backends.objects.read import Vanished
from locus.memory.backends.objects.schema import Draft, Place, commit_draft, writes_draft
from locus.memory.backends.objects.thread_names import Named, Names
from locus.memory.engine import Copies, Engine, Exports, FindsMetadata, KeepsWrites
from locus.memory.model.commit_rules import decide
from locus.memory.model.ids import Pattern
from locus.memory.model.matching import has_value, newest
from locus.memory.model.records import (
    Commit,
    Entry,
    Exported,
    Outcome,
    Run,
    RunInfo,
    Stored,
    Verdict,
    Write,
    writes_order,
)

_REMEMBERED = 100_000
"""How many checkpoints a handle remembers the entries of, over all threads."""


class ObjectEngine(Engine, KeepsWrites, FindsMetadata, Copies, Exports):
    """Threads as objects of an `ObjectStore`."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.driver_errors = store.driver_errors  # type: ignore[misc]  # those of the driver that this one has
        self._names = Names(store)
        self._lock = threading.Lock()
        self._logs: OrderedDict[str, ThreadLog] = OrderedDict()

    @property
    def identity(self) -> str:
        return self.store.identity

    def _log(self, thread_id: str) -> ThreadLog:
        with self._lock:
            log = self._logs.get(thread_id)
            if log is None:
                log = self._logs[thread_id] = ThreadLog(self.store, self._names, thread_id)
                self._forget_some()
            self._logs.move_to_end(thread_id)
            return log

    def _forget_some(self) -> None:
        # Not on every use: counting goes over all threads that are remembered.
        if len(self._logs) % 64 == 0:
            size = sum(log.size for log in self._logs.values())
            while size > _REMEMBERED and len(self._logs) > 1:
                size -= self._logs.popitem(last=False)[1].size

    async def commit(self, commit: Commit) -> Outcome:
        def propose(index: ThreadIndex) -> Step[Outcome]:
            known = index.find(commit.namespace, commit.checkpoint_id)
            if known is not None and known.rev == commit.rev:
                return Step(Outcome(Verdict.COMMITTED, known.seq, known.parent_id, repeated=True))
            outcome = decide(commit, index)
            if outcome.verdict is not Verdict.COMMITTED:
                return Step(outcome)
            named = outcome.parent_id
            parent = None if named is None else index.ids.get((commit.namespace, named), named)
            draft = commit_draft(commit, parent, outcome.replaced.seq if outcome.replaced else None)
            return Step(outcome, draft, Turn.NEITHER if index.rows else Turn.BEGINS)

        return await self._log(commit.thread_id).change(propose)

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        def find(index: ThreadIndex) -> tuple[_Found, list[Place]] | None:
            row = index.row(namespace, checkpoint_id)
            if row is None:
                return None
            runs = index.shown([row])
            found = _Found(index.entry(row), row.manifest, row.head, runs, index.passed(row))
            return found, [row.head, *runs.values()]

        answer = await self._log(thread_id).read(find)
        if answer is None:
            return None
        found, texts = answer
        runs: dict[str, list[Run]] = {}
        for info, place in found.runs.items():
            runs.setdefault(info.branch, []).append(Run(*info, texts.text(place)))
        return Stored(found.entry, texts.text(found.head), found.manifest, runs, found.passed)

    async def history(
        self, thread_id: str, namespace: str | None, limit: int | None, before_seq: int | None
    ) -> list[Entry]:
        def entries(index: ThreadIndex) -> list[Entry]:
            rows = index.newest_first(namespace, before_seq)
            if limit is not None:
                rows = (row for _, row in zip(range(limit), rows, strict=False))
            return [index.entry(row) for row in rows]

        return await self._log(thread_id).ask(entries)

    async def entry(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Entry | None:
        def one(index: ThreadIndex) -> Entry | None:
            row = index.row(namespace, checkpoint_id)
            return None if row is None else index.entry(row)

        return await self._log(thread_id).ask(one)

    async def threads(self, pattern: Pattern, limit: int | None) -> list[str]:
        return await self._names.alive(pattern, limit, self._alive)

    async def _alive(self, named: Named) -> tuple[bool, int]:
        return await self._log(named.thread_id).ask(lambda index: (bool(index.rows), index.last_seq))

    async def delete(self, thread_id: str, namespace: str | None = None, seqs: Mapping[int, str] | None = None) -> int:
        def propose(index: ThreadIndex) -> Step[int]:
            doomed = index.chosen(namespace, seqs)
            if doomed:
                turn = Turn.ENDS if len(doomed) == len(index.rows) else Turn.NEITHER
                return Step(len(doomed), Draft("delete", {"seqs": doomed}), turn)
            waiting = namespace is None and seqs is None and index.writes and not index.rows
            return Step(0, Draft("reset", {}) if waiting else None)

        log = self._log(thread_id)
        try:
            return await log.change(propose)
        except CorruptCheckpointError:
            if namespace is not None or seqs is not None:
                raise
            await log.reset()
            return 1

    async def recent(self, limit: int) -> list[Entry]:
        return newest([entry async for entry in self._entries()], limit)

    async def find(self, key: str, value: str, limit: int) -> list[Entry]:
        found = [entry async for entry in self._entries() if has_value(entry.metadata, key, value)]
        return newest(found, limit)

    async def _entries(self) -> AsyncIterator[Entry]:
        """All entries of all threads; there is no index over them that every save would have to pay for."""
        names = await self.threads(Pattern(), None)
        for start in range(0, len(names), 64):
            group = names[start : start + 64]
            for entries in await together([partial(self.history, name, None, None, None) for name in group], 16):
                for entry in entries:
                    yield entry

    async def put_writes(
        self,
        thread_id: str,
        namespace: str,
        checkpoint_id: str,
        task_id: str,
        writes: Sequence[Write],
        *,
        keep_numbered: bool = False,
    ) -> None:
        draft = writes_draft((namespace, checkpoint_id, task_id), writes, keep_numbered)
        await self._log(thread_id).change(lambda _index: Step(None, draft))

    async def get_writes(self, thread_id: str, namespace: str, checkpoint_id: str, task_id: str | None) -> list[Write]:
        def find(index: ThreadIndex) -> tuple[list[tuple[str, int, str, str, Place]], list[Place]] | None:
            kept = index.writes.get((namespace, checkpoint_id), {})
            found = [
                (task, idx, write.task_path, write.channel, write.place)
                for (task, idx), write in kept.items()
                if task_id in (None, task)
            ]
            return (found, [place for *_, place in found]) if found else None

        answer = await self._log(thread_id).read(find)
        if answer is None:
            return []
        found, texts = answer
        writes = [Write(task, path, idx, channel, texts.text(place)) for task, idx, path, channel, place in found]
        return sorted(writes, key=writes_order)

    async def copy(self, source: str, dest: str, namespace: str | None, checkpoint_ids: Collection[str] | None) -> int:
        answer = await self._log(source).read(lambda index: copy_of(index, namespace, checkpoint_ids))
        if answer is None:
            return 0
        found, texts = answer

        def propose(index: ThreadIndex) -> Step[int]:
            if index.rows:
                return Step(-1)
            return Step(len(found.rows), copy_draft(found, texts.text, index.next), Turn.BEGINS)

        return await self._log(dest).change(propose)

    async def export(self, thread_id: str, after_seq: int, limit: int, known: Mapping[str, int]) -> Exported:
        answer = await self._log(thread_id).read(lambda index: page_of(index, after_seq, limit, known))
        if answer is None:
            return Exported([], [])
        page, texts = answer
        return page.exported(texts.text)

    async def sweep(self, grace: timedelta = GRACE) -> int:
        """Remove what deletions, merges and crashes have left; return how many objects were removed.

        Events younger than `grace` stay: a handle may rely on them still. Interrupting it does no harm.
        """
        before = datetime.now(UTC) - grace
        names = await self._names.long(Pattern())
        removed = await self._sweep_some(names, before)
        async for page in self._names.all(Pattern()):
            removed += await self._sweep_some(page, before)

        async def decided(named: Named) -> tuple[bool, int]:
            if all(listed.modified < before for listed in named.listed):
                await self._log(named.thread_id).take_number(named.number)
            return await self._alive(named)

        await self._names.settle(decided, before)
        return removed

    async def _sweep_some(self, names: Iterable[Named], before: datetime) -> int:
        return sum(await together([partial(self._sweep_one, named.thread_id, before) for named in names], 8))

    async def _sweep_one(self, thread_id: str, before: datetime) -> int:
        for attempt in range(4):
            try:
                return await sweep_thread(self.store, thread_id, before)
            except Vanished:
                await asyncio.sleep(0.05 * attempt)
        return 0  # others are at work on this thread just now, and the next sweep comes

    def translate(self, error: BaseException) -> CheckpointError:
        return self.store.translate(error)

    async def close(self) -> None:
        with self._lock:
            self._logs.clear()
        await self.store.close()


class _Found(NamedTuple):
    """A checkpoint as the index has it."""

    entry: Entry
    manifest: str
    head: Place
    runs: dict[RunInfo, Place]
    passed: bool
