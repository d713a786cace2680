"""Writes checkpoints to a Locus store in order, and skips those that the store has already.

If the destination has checkpoints in a namespace, they must be the first ones of the source, moved by an earlier run.
An interrupted move therefore continues where it stopped, and a second move adds new checkpoints. Other namespaces of
the thread at the destination are ignored.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Protocol, TypeVar

from locus.errors import CapabilityError, ConflictError, CorruptCheckpointError
from locus.memory.engine import KeepsWrites
from locus.memory.model.codec import decode
from locus.memory.model.ids import check_id, check_ids, new_id
from locus.memory.model.records import Base, Commit, Entry, TaskWrites, Verdict, Write
from locus.memory.store import SPECIAL_CHANNELS, CheckpointStore
from locus.transfer.content import MovedCheckpoint, MovedContent, Planned, header_of

_MAX_REMEMBERED = 1_000
"""How many saved checkpoints are remembered as bases of deltas. A fork of an older one costs a little more."""


class _PreviousCheckpoint(NamedTuple):
    """A checkpoint at the destination that the next save can be a delta to."""

    base: Base
    delta_base: Any
    passed: bool = False
    """Whether other checkpoints were based on it before this move began."""


class ThreadWriter:
    """Writes the checkpoints of a source to one thread of the destination."""

    def __init__(self, store: CheckpointStore, thread_id: str, *, in_space: bool = False) -> None:
        self._store = store
        self._in_space = in_space
        self._thread_id = thread_id
        self._present: dict[str, list[Entry]] = {}
        self._at: dict[str, int] = {}
        self._latest: dict[str, str] = {}
        self._last_match: dict[str, tuple[MovedContent, Entry]] = {}
        self._saved: OrderedDict[tuple[str, str], _PreviousCheckpoint] = OrderedDict()

    async def read_present(self) -> None:
        """Read the list of checkpoints that the destination has already."""
        check_id(self._thread_id)
        for entry in reversed(await self._store.history(self._thread_id, None, None, None)):
            self._present.setdefault(entry.namespace, []).append(entry)

    def is_ahead(self, namespace: str) -> bool:
        """Whether the destination has more checkpoints in a namespace than the source has returned so far."""
        return self._at.get(namespace, 0) < len(self._present.get(namespace, ()))

    def has(self, checkpoint: MovedCheckpoint) -> bool:
        """Whether the destination has the next checkpoint of the source already."""
        namespace = checkpoint.namespace
        check_ids(self._thread_id, checkpoint.checkpoint_id, namespace)
        if not self.is_ahead(namespace):
            return False
        at = self._at.get(namespace, 0)
        entry = self._present[namespace][at]
        if header_of(entry) != checkpoint.header:
            raise self._conflict(
                f"checkpoint {entry.checkpoint_id!r} stands where the source has {checkpoint.checkpoint_id!r}"
                if entry.checkpoint_id != checkpoint.checkpoint_id
                else f"checkpoint {entry.checkpoint_id!r} is another one than the source's"
            )
        self._at[namespace] = at + 1
        self._latest[namespace] = entry.checkpoint_id
        self._last_match[namespace] = (checkpoint.content, entry)
        return True

    def _conflict(self, what: str) -> ConflictError:
        return ConflictError(
            f"thread {self._thread_id!r} is at the destination with other content: {what}. Delete it there, or "
            "choose another destination; nothing of it was changed"
        )

    async def save(self, checkpoint: MovedCheckpoint) -> None:
        """Save the next checkpoint of the source, which the destination lacks."""
        await self.put_writes(checkpoint)
        namespace, rev = checkpoint.namespace, new_id()
        previous = await self._base_for(namespace, checkpoint.parent_id)
        own_branches = previous is not None and previous.passed
        for _ in range(4):
            planned = checkpoint.content.plan(
                rev, previous.delta_base if previous else None, own_branches=own_branches, sort_keys=self._sort_keys
            )
            commit = self._commit(checkpoint, rev, planned, previous)
            async with self._store.using():
                outcome = await self._store.commit(commit)
            match outcome.verdict:
                case Verdict.COMMITTED:
                    self._remember(commit, planned)
                    return
                case Verdict.BRANCH_TAKEN:
                    own_branches = True
                case Verdict.STALE_BASE:
                    previous = None
                case _:
                    break
        raise ConflictError(
            f"thread {self._thread_id!r} is changed by another program at the destination; stop that, and try again"
        )

    @property
    def _sort_keys(self) -> bool:
        return not self._store.engine.dialect.exact

    def _commit(
        self, checkpoint: MovedCheckpoint, rev: str, planned: Planned, previous: _PreviousCheckpoint | None
    ) -> Commit:
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
            base=previous.base if previous else None,
            parent_id=checkpoint.parent_id,
            parent_as_named=checkpoint.parent_id is not None,
            if_latest=self._latest.get(checkpoint.namespace),
            expires_at=self._ends(planned.head),
        )

    def _ends(self, head: str) -> datetime | None:
        """When the thread ends: as its store says, or, in a key space, as its payload says."""
        if not self._in_space:
            ttl = self._store.ttl_seconds
            return datetime.now(UTC) + timedelta(seconds=ttl) if ttl else None
        ends = decode(head).get("expires_at")
        try:
            return datetime.fromisoformat(ends) if ends is not None and self._store.capabilities.ttl else None
        except (TypeError, ValueError):
            raise CorruptCheckpointError("it says that it ends, and names no time") from None

    def _remember(self, commit: Commit, planned: Planned) -> None:
        self._latest[commit.namespace] = commit.checkpoint_id
        previous = _PreviousCheckpoint(Base(commit.checkpoint_id, commit.rev), planned.delta_base)
        self._saved[commit.namespace, commit.checkpoint_id] = previous
        if len(self._saved) > _MAX_REMEMBERED:
            self._saved.popitem(last=False)

    async def _base_for(self, namespace: str, parent_id: str | None) -> _PreviousCheckpoint | None:
        """The checkpoint that the next save is a delta to: its parent if that was copied, or the last one saved."""
        if not self._store.engine.keeps_runs or namespace not in self._latest:
            return None
        for checkpoint_id in (parent_id, self._latest[namespace]):
            previous = self._saved.get((namespace, checkpoint_id or ""))
            if previous is not None:
                return previous
        return await self._last_present(namespace)

    async def _last_present(self, namespace: str) -> _PreviousCheckpoint | None:
        """The last checkpoint that the destination had when this move began."""
        if namespace not in self._last_match:
            return None
        content, entry = self._last_match[namespace]
        stored = await self._store.read(self._thread_id, entry.checkpoint_id, namespace)
        if stored is None or stored.entry.rev != entry.rev:
            return None
        delta_base = content.stored_base(stored, sort_keys=self._sort_keys)
        previous = _PreviousCheckpoint(Base(entry.checkpoint_id, entry.rev), delta_base, stored.passed)
        self._saved[namespace, entry.checkpoint_id] = previous
        return previous

    async def check_writes(self, checkpoint: MovedCheckpoint) -> None:
        """Raise ConflictError if the destination has pending writes of a checkpoint that the source does not have."""
        if not self._store.keeps_writes:
            return
        place = (self._thread_id, checkpoint.checkpoint_id)
        present = await self._store.get_writes(*place, task_id=None, namespace=checkpoint.namespace)
        known = {(write.task_id, write.idx) for write in checkpoint.writes}
        if any((write.task_id, write.idx) not in known for write in present):
            raise self._conflict(
                f"checkpoint {checkpoint.checkpoint_id!r} has pending writes that it does not have at the source"
            )

    async def put_writes(self, checkpoint: MovedCheckpoint) -> None:
        """Save pending writes, before the checkpoint itself, so that it never exists without them."""
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
                await engine.put_writes(TaskWrites(*place, task_id, tuple(in_positions(writes))))


class Indexed(Protocol):
    """A pending write, of Locus or of another library."""

    @property
    def idx(self) -> int: ...

    @property
    def channel(self) -> str: ...


W = TypeVar("W", bound=Indexed)


def in_positions(writes: Sequence[W]) -> list[W]:
    """Order the writes of a task so that each stands at the position of its index: a store numbers them by position.

    Writes to special channels have no index of their own, and fill gaps.
    """
    special = [write for write in writes if write.channel in SPECIAL_CHANNELS]
    in_order: list[W] = []
    for write in sorted((write for write in writes if write.channel not in SPECIAL_CHANNELS), key=lambda w: w.idx):
        while special and len(in_order) < write.idx:
            in_order.append(special.pop(0))
        in_order.append(write)
    return in_order + special
