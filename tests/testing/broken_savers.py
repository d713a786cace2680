"""What a versioned saver stands on, broken on purpose, each in one way: engines in memory, and savers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from locus.memory.backends.memory import MemoryEngine
from locus.memory.model.records import DEFAULT_NAMESPACE, Commit, Entry, Outcome, Stored, TaskWrites, Write
from locus.memory.model.table import ThreadTable
from locus.memory.saver import CheckpointInfo, CheckpointSaver, SavedCheckpoint


class OneSetOfWrites(MemoryEngine):
    """What a task writes takes the place of all that it wrote before, special or not."""

    async def put_writes(self, task: TaskWrites) -> None:
        table = self._tables.setdefault(task.thread_id, ThreadTable(task.thread_id))
        kept = table.writes.get((task.namespace, task.checkpoint_id), {})
        for key in [key for key in kept if key[0] == task.task_id and not task.keep_numbered]:
            del kept[key]
        await super().put_writes(task)


class SpecialReplaces(MemoryEngine):
    """Special writes take the place of the numbered ones."""

    async def put_writes(self, task: TaskWrites) -> None:
        await super().put_writes(replace(task, keep_numbered=False))


class AsTextWrites(MemoryEngine):
    """Indexes are put in order as texts: 10 comes before 2."""

    async def get_writes(self, thread_id: str, namespace: str, checkpoint_id: str, task_id: str | None) -> list[Write]:
        found = await super().get_writes(thread_id, namespace, checkpoint_id, task_id)
        return sorted(found, key=lambda write: (write.task_path, write.task_id, str(write.idx)))


class LeavesWrites(MemoryEngine):
    """A thread is deleted, and its pending writes are not."""

    async def delete(self, thread_id: str, namespace: str | None = None, seqs: Mapping[int, str] | None = None) -> int:
        before = self._tables.get(thread_id)
        writes = dict(before.writes) if before else {}
        removed = await super().delete(thread_id, namespace, seqs)
        self._tables.setdefault(thread_id, ThreadTable(thread_id)).writes.update(writes)
        return removed


class KnownParents(MemoryEngine):
    """A parent that is not there gives way to the latest."""

    async def commit(self, commit: Commit) -> Outcome:
        return await super().commit(replace(commit, parent_as_named=False, parent_required=False))


class EmptyIsDefault(MemoryEngine):
    """A namespace without a name is taken for none."""

    async def commit(self, commit: Commit) -> Outcome:
        return await super().commit(replace(commit, namespace=commit.namespace or DEFAULT_NAMESPACE))

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        return await super().read(thread_id, namespace or DEFAULT_NAMESPACE, checkpoint_id)

    async def history(
        self, thread_id: str, namespace: str | None, limit: int | None, before_seq: int | None
    ) -> list[Entry]:
        return await super().history(thread_id, DEFAULT_NAMESPACE if namespace == "" else namespace, limit, before_seq)


class WritesWhole(MemoryEngine):
    """Every put writes all that there is."""

    keeps_runs = False


class Lenient(CheckpointSaver):
    """What JSON cannot hold becomes something that it can."""

    async def put(self, *, checkpoint_data: dict[str, Any], **options: Any) -> None:
        plain = json.loads(json.dumps(checkpoint_data, default=str))
        await super().put(checkpoint_data=plain, **options)


class AlwaysTheNewest(CheckpointSaver):
    """Every page is the first."""

    async def list_checkpoints(self, *, before: str | None = None, **options: Any) -> list[SavedCheckpoint]:
        return await super().list_checkpoints(**options)

    async def history(self, *, before: str | None = None, **options: Any) -> list[CheckpointInfo]:
        return await super().history(**options)
