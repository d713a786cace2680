"""Backends in memory that are broken on purpose, each in one way. The suite must find them out."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

from locus.memory.backends.memory import MemoryEngine
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.arguments import UNLIMITED
from locus.memory.model.commit_rules import decide
from locus.memory.model.ids import Pattern
from locus.memory.model.manifest import newest_runs, wanted
from locus.memory.model.records import (
    DEFAULT_NAMESPACE,
    Base,
    Commit,
    Entry,
    Hit,
    NewestThreads,
    Outcome,
    Run,
    Stored,
    Verdict,
)
from locus.memory.model.retention import Removal
from locus.memory.model.table import Row, ThreadTable
from locus.memory.store import CheckpointStore
from locus.testing.stores import TestStore


def newer_than(runs: Iterable[Run], held: str) -> list[Run]:
    """These runs without those that a reader has who holds the checkpoint with the manifest `held`."""
    known = newest_runs([held])
    return [run for run in runs if run.number > known.get(run.branch, -1)]


class NoLock(MemoryEngine):
    """Others get in between the decision and the writing."""

    async def commit(self, commit: Commit) -> Outcome:
        table = self._table(commit.thread_id) or ThreadTable(commit.thread_id)
        outcome = decide(commit, table)
        await asyncio.sleep(0)
        if outcome.verdict is Verdict.COMMITTED and not outcome.repeated:
            table.add(commit, outcome)
            self._tables[commit.thread_id] = table
        return outcome


class NoBaseCheck(MemoryEngine):
    """A delta is attached to whatever is there."""

    async def commit(self, commit: Commit) -> Outcome:
        return await super().commit(replace(commit, base=None))


class OwnTables(MemoryEngine):
    """Threads are kept in tables of another kind."""

    kind: ClassVar[type[ThreadTable]]

    def _table(self, thread_id: str) -> ThreadTable | None:
        return super()._table(thread_id) or self._tables.setdefault(thread_id, self.kind(thread_id))


class BlindTable(ThreadTable):
    def has_run(self, branch: str, number: int) -> bool:
        return False


class NoBranchCheck(OwnTables):
    """The second writer of a branch is told that all is well, and its run is dropped."""

    kind = BlindTable


class ClockTable(ThreadTable):
    def row(self, namespace: str, checkpoint_id: str | None) -> Row | None:
        if checkpoint_id is not None:
            return super().row(namespace, checkpoint_id)
        rows = [row for row in self.rows.values() if row.entry.namespace == namespace]
        return max(rows, key=lambda row: row.entry.created_at, default=None)


class LatestByClock(OwnTables):
    """The newest is what the clock says."""

    kind = ClockTable


class PointerTable(ThreadTable):
    _latest_row: Row | None = None

    def put(self, row: Row) -> None:
        super().put(row)
        self._latest_row = row

    def clone(self) -> ThreadTable:
        copy = super().clone()
        assert isinstance(copy, PointerTable)
        copy._latest_row = self._latest_row
        return copy

    def row(self, namespace: str, checkpoint_id: str | None) -> Row | None:
        return super().row(namespace, checkpoint_id) if checkpoint_id is not None else self._latest_row


class LatestBesides(OwnTables):
    """What is the latest is written down apart, and deleting does not know of it."""

    kind = PointerTable


class RecountingTable(ThreadTable):
    def remove(self, doomed: Collection[int], spare: Row | None = None) -> Removal:
        removal = super().remove(doomed, spare)
        self.last_seq = max(self.rows, default=0)
        return removal


class NumbersAgain(OwnTables):
    """The next number is one more than the highest that is left."""

    kind = RecountingTable


class GreedyTable(ThreadTable):
    def remove(self, doomed: Collection[int], spare: Row | None = None) -> Removal:
        branches = {extent.branch for seq in doomed for extent in wanted(self.rows[seq].manifest)}
        removal = super().remove(doomed, spare)
        for branch in branches & self.runs.keys():
            del self.runs[branch]
        return removal


class DeletesShared(OwnTables):
    """A deleted checkpoint takes every run with it that it refers to."""

    kind = GreedyTable


class LowerCase(OwnTables):
    """A collation that does not tell `Alice` from `alice`."""

    kind = ThreadTable

    def _table(self, thread_id: str) -> ThreadTable | None:
        return super()._table(thread_id.lower())


class LikePatterns(MemoryEngine):
    """The pattern goes into LIKE as it is."""

    async def threads(self, pattern: Pattern, limit: int | None) -> list[str]:
        like = "".join({"%": ".*", "_": ".", "*": ".*", "?": "."}.get(char, re.escape(char)) for char in pattern.text)
        return sorted(table.thread_id for table in self._live() if re.fullmatch(like, table.thread_id, re.DOTALL))[
            :limit
        ]


class FiltersAfterwards(MemoryEngine):
    """The prefix is looked at when the limit has cut off already what is of others."""

    async def recent(self, limit: int, prefix: str = "") -> list[Entry]:
        return [entry for entry in await super().recent(limit) if entry.thread_id.startswith(prefix)]


class BeginsAnew(MemoryEngine):
    """Every page is the first one."""

    async def threads(self, pattern: Pattern, limit: int | None) -> list[str]:
        return await super().threads(replace(pattern, after=""), limit)


class FilledByOne(MemoryEngine):
    """A list of the newest threads is made of the newest checkpoints, as many as there may be threads."""

    async def newest_threads(self, limit: int, before: str | None = None, prefix: str = "") -> NewestThreads:
        found: dict[str, Entry] = {}
        for entry in await self.recent(limit, prefix):
            found.setdefault(entry.thread_id, entry)
        return NewestThreads([*found.values()])


class SharedScores(MemoryEngine):
    """A hit counts for less, the more threads of all have one of the words."""

    async def search(self, terms: Sequence[str], limit: int, prefix: str = "") -> list[Hit]:
        everywhere = 0
        for term in terms:
            everywhere += len(await super().search([term], UNLIMITED))
        found = await super().search(terms, limit, prefix)
        return [replace(hit, score=hit.score / everywhere) for hit in found]


class NoNamespaces(MemoryEngine):
    """All namespaces are one."""

    async def commit(self, commit: Commit) -> Outcome:
        return await super().commit(replace(commit, namespace=DEFAULT_NAMESPACE))

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        return await super().read(thread_id, DEFAULT_NAMESPACE, checkpoint_id)

    async def entry(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Entry | None:
        return await super().entry(thread_id, DEFAULT_NAMESPACE, checkpoint_id)

    async def history(
        self, thread_id: str, namespace: str | None, limit: int | None, before_seq: int | None
    ) -> list[Entry]:
        return await super().history(thread_id, DEFAULT_NAMESPACE, limit, before_seq)


class MergesNamespaces(MemoryEngine):
    """Lists namespaces that differ in case as one, as some collations do."""

    async def namespaces(self, thread_id: str) -> list[str]:
        return sorted({name.lower() for name in await super().namespaces(thread_id)})


class NeverEnds(MemoryEngine):
    """What has expired is seen until a vacuum comes by."""

    def _table(self, thread_id: str) -> ThreadTable | None:
        return self._tables.get(thread_id)


class TrustsHolders(MemoryEngine):
    """Whoever says what he holds is believed, though that may be gone, and its numbers given out again."""

    def __init__(self) -> None:
        super().__init__()
        self._manifests: dict[str, str] = {}

    async def commit(self, commit: Commit) -> Outcome:
        self._manifests[commit.rev] = commit.manifest
        return await super().commit(commit)

    async def read_since(self, thread_id: str, namespace: str, checkpoint_id: str | None, held: Base) -> Stored | None:
        stored = await self.read(thread_id, namespace, checkpoint_id)
        if stored is None:
            return None
        runs = {name: newer_than(found, self._manifests[held.rev]) for name, found in stored.runs.items()}
        return replace(stored, runs=runs, since=held)


class MemoryStore(TestStore):
    """Handles on one engine in memory."""

    def __init__(self, engine: MemoryEngine) -> None:
        self._engine = engine

    def open(self, *, ttl_seconds: float | None = None) -> Checkpointer:
        return Checkpointer(CheckpointStore(self._engine, ttl_seconds=ttl_seconds))

    async def corrupt(self, thread_id: str) -> None:
        raise NotImplementedError
