"""Checkpoints into a store of ours: what is there already is recognised, and what is missing is saved, in order.

A namespace of a thread at the destination has to begin with the checkpoints that it has at the source: those were moved
before. So a move that was killed goes on where it was, and one that is run again moves what has been added since. What
else the thread has there, in other namespaces, is none of its business.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Protocol, TypeVar

from locus.errors import CapabilityError, ConflictError
from locus.memory.engine import KeepsWrites
from locus.memory.model.ids import check_id, check_ids, new_id
from locus.memory.model.records import Base, Commit, Entry, Verdict, Write
from locus.memory.store import SPECIAL_CHANNELS, CheckpointStore
from locus.transfer.content import Checkpoint, Content, Planned, entry_header

_GROUNDS = 1_000
"""How many of the checkpoints that were saved can be built upon; a fork of an older one costs a little more."""


class _Ground(NamedTuple):
    """A checkpoint at the destination that the next one can build upon."""

    base: Base
    planted: Any
    passed: bool = False
    """Others were built upon it before this move began."""


class ThreadWriter:
    """Moves checkpoints into one thread."""

    def __init__(self, store: CheckpointStore, thread_id: str) -> None:
        self._store = store
        self._thread_id = thread_id
        self._present: dict[str, list[Entry]] = {}
        self._at: dict[str, int] = {}
        self._latest: dict[str, str] = {}
        self._moved_before: dict[str, tuple[Content, Entry]] = {}
        self._grounds: OrderedDict[tuple[str, str], _Ground] = OrderedDict()

    async def look(self) -> None:
        """Find out what is there."""
        check_ids(self._thread_id, None, None)
        for entry in reversed(await self._store.history(self._thread_id, None, None, None)):
            self._present.setdefault(entry.namespace, []).append(entry)

    def is_ahead(self, namespace: str) -> bool:
        """Whether there is more at the destination than the source has given up to now."""
        return self._at.get(namespace, 0) < len(self._present.get(namespace, ()))

    def has(self, checkpoint: Checkpoint) -> bool:
        """Whether the next checkpoint of the source is there already."""
        namespace = checkpoint.namespace
        check_ids(self._thread_id, checkpoint.checkpoint_id, namespace)
        if not self.is_ahead(namespace):
            return False
        at = self._at.get(namespace, 0)
        entry = self._present[namespace][at]
        if entry_header(entry) != checkpoint.header:
            raise self._conflict(
                f"checkpoint {entry.checkpoint_id!r} stands where the source has {checkpoint.checkpoint_id!r}"
                if entry.checkpoint_id != checkpoint.checkpoint_id
                else f"checkpoint {entry.checkpoint_id!r} is another one than the source's"
            )
        self._at[namespace] = at + 1
        self._latest[namespace] = entry.checkpoint_id
        self._moved_before[namespace] = (checkpoint.content, entry)
        return True

    def _conflict(self, what: str) -> ConflictError:
        return ConflictError(
            f"thread {self._thread_id!r} is at the destination with other content: {what}. Delete it there, or "
            "choose another destination; nothing of it was changed"
        )

    async def save(self, checkpoint: Checkpoint) -> None:
        """Save the next checkpoint of the source, which is not there."""
        await self.put_writes(checkpoint)
        namespace, rev = checkpoint.namespace, new_id()
        ground = await self._ground(namespace, checkpoint.parent_id)
        own_branches = ground is not None and ground.passed
        for _ in range(4):
            planned = checkpoint.content.plan(
                rev, ground.planted if ground else None, own_branches=own_branches, sort_keys=self._sort_keys
            )
            commit = self._commit(checkpoint, rev, planned, ground)
            async with self._store.using() as engine:
                outcome = await engine.commit(commit)
            match outcome.verdict:
                case Verdict.COMMITTED:
                    self._remember(commit, planned)
                    return
                case Verdict.BRANCH_TAKEN:
                    own_branches = True
                case Verdict.STALE_BASE:
                    ground = None
                case _:
                    break
        raise ConflictError(
            f"thread {self._thread_id!r} is changed by another program at the destination; stop that, and try again"
        )

    @property
    def _sort_keys(self) -> bool:
        return not self._store.engine.dialect.exact

    def _commit(self, checkpoint: Checkpoint, rev: str, planned: Planned, ground: _Ground | None) -> Commit:
        ttl = self._store.ttl_seconds
        return Commit(
            thread_id=self._thread_id,
            namespace=checkpoint.namespace,
            checkpoint_id=checkpoint.checkpoint_id,
            rev=rev,
            created_at=checkpoint.created_at,
            metadata=checkpoint.content.metadata(checkpoint.metadata, planned),
            head=planned.head,
            manifest=planned.manifest,
            runs=planned.runs,
            values=planned.values,
            base=ground.base if ground else None,
            parent_id=checkpoint.parent_id,
            parent_as_named=checkpoint.parent_id is not None,
            if_latest=self._latest.get(checkpoint.namespace),
            expires_at=datetime.now(UTC) + timedelta(seconds=ttl) if ttl else None,
        )

    def _remember(self, commit: Commit, planned: Planned) -> None:
        self._latest[commit.namespace] = commit.checkpoint_id
        ground = _Ground(Base(commit.checkpoint_id, commit.rev), planned.base)
        self._grounds[commit.namespace, commit.checkpoint_id] = ground
        if len(self._grounds) > _GROUNDS:
            self._grounds.popitem(last=False)

    async def _ground(self, namespace: str, parent_id: str | None) -> _Ground | None:
        """What to build upon: the parent, or what was saved last."""
        if not self._store.engine.keeps_runs or namespace not in self._latest:
            return None
        for checkpoint_id in (parent_id, self._latest[namespace]):
            found = self._grounds.get((namespace, checkpoint_id or ""))
            if found is not None:
                return found
        return await self._old_ground(namespace)

    async def _old_ground(self, namespace: str) -> _Ground | None:
        """The last checkpoint that was there when this move began."""
        if namespace not in self._moved_before:
            return None
        content, entry = self._moved_before[namespace]
        stored = await self._store.read(self._thread_id, entry.checkpoint_id, namespace)
        if stored is None or stored.entry.rev != entry.rev:
            return None
        planted = content.planted(stored, sort_keys=self._sort_keys)
        ground = _Ground(Base(entry.checkpoint_id, entry.rev), planted, stored.passed)
        self._grounds[namespace, entry.checkpoint_id] = ground
        return ground

    async def put_writes(self, checkpoint: Checkpoint) -> None:
        """Before the checkpoint, so that it is never there without them."""
        if not checkpoint.writes:
            return
        engine = self._store.engine
        if not isinstance(engine, KeepsWrites) or not self._store.keeps_writes:
            raise CapabilityError(
                f"thread {self._thread_id!r} has pending writes, and the destination has no place for them"
            )
        tasks: dict[str, list[Write]] = {}
        for write in checkpoint.writes:
            check_id(write.task_id, "task_id")
            check_id(write.task_path, "task_path", empty=True)
            check_id(write.channel, "channel", empty=True)
            tasks.setdefault(write.task_id, []).append(write)
        place = (self._thread_id, checkpoint.namespace, checkpoint.checkpoint_id)
        async with self._store.using():
            for task_id, writes in tasks.items():
                await engine.put_writes(*place, task_id, in_positions(writes))


class Indexed(Protocol):
    """A pending write, of ours or of others."""

    @property
    def idx(self) -> int: ...

    @property
    def channel(self) -> str: ...


W = TypeVar("W", bound=Indexed)


def in_positions(writes: Sequence[W]) -> list[W]:
    """The writes of a task, each at the position that its index says: whoever takes them counts.

    Those of special channels have no position of their own, and stand where a place is free.
    """
    special = [write for write in writes if write.channel in SPECIAL_CHANNELS]
    in_order: list[W] = []
    for write in sorted((write for write in writes if write.channel not in SPECIAL_CHANNELS), key=lambda w: w.idx):
        while special and len(in_order) < write.idx:
            in_order.append(special.pop(0))
        in_order.append(write)
    return in_order + special
