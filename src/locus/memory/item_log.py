"""Logs: lists that many writers append to, without anyone reading them first.

A log is a namespace of a thread whose payload is `{"items": [...]}`. Each of its checkpoints says in its metadata what
was done, where the items are (the extents, see `model.records`), and for which `rev` that holds, because metadata that
was copied to another checkpoint says nothing about that one. It is one text, because databases index every value:

    {"log": "["add",[["k3v9…",6,0,28]],"7c01…"]"}

So a handle that has never seen the log needs one small entry, and no item, to append to it. Every change names the
checkpoint that it was worked out for, and if another writer was faster it is worked out anew: batches stay whole, and
none is lost. Stores that keep no runs (see `backends.plain`) get the whole list with every change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from locus.core.tasks import finished
from locus.errors import (
    CheckpointError,
    CheckpointNotFoundError,
    ConfigurationError,
    ConflictError,
    CorruptCheckpointError,
)
from locus.memory.model.codec import decode, encode, encode_trusted
from locus.memory.model.ids import check_ids, new_id
from locus.memory.model.manifest import MOST, checked_extent, decode_manifest, items_text
from locus.memory.model.parts import Range, page_of
from locus.memory.model.payloads import chains
from locus.memory.model.plan import (
    MAX_EXTENTS,
    OPENED,
    UNKNOWN,
    Chain,
    digest_text,
    part,
    run_of,
    run_portions,
    texts_of,
)
from locus.memory.model.records import Base, Commit, Entry, Extent, Outcome, Run, Stored, Verdict
from locus.memory.runtime.per_loop import LoopLocks
from locus.memory.runtime.retry import Backoff
from locus.memory.store import CheckpointStore

__all__ = ["ItemLog", "LoggedChange", "logged_change", "noted"]

_PATH = ("items",)
_HEAD = '{"items":[]}'
_ATTEMPTS = 200
_BETWEEN_ATTEMPTS = Backoff(0.001, 0.05, random_part=1.0)

_locks = LoopLocks()


@dataclass(frozen=True, slots=True)
class LogCheckpoint:
    """What a change needs to know of the checkpoint that it starts from."""

    base: Base
    count: int
    extents: tuple[Extent, ...] | None
    """Where the items are. None: nowhere that a commit could refer to."""
    last: str | None = None
    """The last item, if it is known."""
    chains: Mapping[str, Chain] = field(default_factory=dict)
    """The digests of the branches that the items are on, if they are known: an entry alone does not tell."""


@dataclass(frozen=True, slots=True)
class Edit:
    """The first `kept` items of a checkpoint (`None`: of an empty log), and after them these texts."""

    checkpoint: LogCheckpoint | None
    kept: int
    texts: Sequence[str] = ()


class LoggedChange(NamedTuple):
    """The change that made a checkpoint, and where the items are since then."""

    change: str
    extents: tuple[Extent, ...]
    rev: str | None = None
    """The checkpoint that this is about; None if a transfer to another store has adapted it."""

    @property
    def items(self) -> int:
        return sum(extent.length for extent in self.extents)


class ItemLog:
    """One log. Handles on the same log may be used at once, from any number of tasks and processes."""

    def __init__(self, store: CheckpointStore, thread_id: str, namespace: str) -> None:
        check_ids(thread_id, None, namespace)
        self.store = store
        self.thread_id = thread_id
        self.namespace = namespace
        self._latest: LogCheckpoint | None = None

    async def read(self, limit: int | None = None, checkpoint_id: str | None = None) -> list[Any]:
        """The newest items (all of them without a limit) in their order, as of a checkpoint or of the latest."""
        most = None if limit is None else max(0, min(limit, MOST))
        stored = await self._stored(checkpoint_id, None if most is None else Range(_PATH, -most, most))
        if stored is None:
            if checkpoint_id is not None:
                raise self._no_checkpoint(checkpoint_id)
            return []
        checkpoint = log_checkpoint(stored)
        if checkpoint_id is None and most != 0:  # without any item, the digests of branches are not known
            self._latest = checkpoint
        kept = checkpoint.count if most is None else min(most, checkpoint.count)
        return items_of(stored, checkpoint, checkpoint.count - kept, kept)

    async def append(self, items: Sequence[Any]) -> None:
        """Add items as one batch, in one step. Nothing is written for no items."""
        texts = [encode(item, ("items", index)) for index, item in enumerate(items)]

        async def grown(checkpoint: LogCheckpoint | None) -> Edit | None:
            return Edit(checkpoint, checkpoint.count if checkpoint else 0, texts) if texts else None

        await self._change("add", grown)

    async def pop(self) -> Any | None:
        """Take the last item off, and return it; `None` if there is none. Earlier checkpoints keep it."""
        last: str | None = None

        async def shortened(checkpoint: LogCheckpoint | None) -> Edit | None:
            nonlocal last
            if checkpoint is None or not checkpoint.count:
                last = None
                return None
            last = checkpoint.last
            if last is None:
                (last,) = await self._texts(checkpoint, checkpoint.count - 1, 1)
            return Edit(checkpoint, checkpoint.count - 1)

        await self._change("pop", shortened)
        return None if last is None else decode(last)

    async def rewind(self, checkpoint_id: str) -> None:
        """Go on from an earlier checkpoint. What came after it stays in the history."""

        async def turned_back(_latest: LogCheckpoint | None) -> Edit | None:
            earlier = await self._checkpoint(checkpoint_id)
            if earlier is None:
                raise self._no_checkpoint(checkpoint_id)
            return Edit(earlier, earlier.count)

        await self._change("rewind", turned_back)

    async def replace_from(self, start: int, items: Sequence[Any], *, if_latest: str) -> bool:
        """Put other items in the place of those from `start` on. False if the log has changed since."""
        texts = [encode(item, ("items", index)) for index, item in enumerate(items)]
        stored = await self._stored(None, Range(_PATH, start, MOST))
        if stored is None or stored.entry.checkpoint_id != if_latest:
            return False
        checkpoint = log_checkpoint(stored)
        try:
            return await self._commit("replace", checkpoint, Edit(checkpoint, start, texts)) is Verdict.COMMITTED
        except ConflictError:
            return False

    async def latest(self) -> str | None:
        """The id of the latest checkpoint."""
        entry = await self.store.entry(self.thread_id, None, self.namespace)
        return None if entry is None else entry.checkpoint_id

    async def delete(self) -> None:
        """Remove the log with its history."""
        self._latest = None
        await finished(self.store.delete(self.thread_id, None, self.namespace))

    async def _change(self, name: str, work_out: Callable[[LogCheckpoint | None], Awaitable[Edit | None]]) -> None:
        """Work a change out for the latest checkpoint and commit it, until no other writer is in between."""
        async with self._lock():
            for attempt in range(_ATTEMPTS):
                try:
                    remembered = self._latest
                    checkpoint = remembered or await self._checkpoint(None)
                    edit = await work_out(checkpoint)
                    if edit is None and remembered is None:
                        return
                    # What is remembered may be older than what is there, so "nothing to do" is found out anew.
                    if edit is not None and await self._commit(name, checkpoint, edit) is Verdict.COMMITTED:
                        return
                except ConflictError:
                    # Some stores raise where others return a verdict, and the checkpoint may be gone meanwhile.
                    pass
                self._latest = None
                if attempt:
                    await _BETWEEN_ATTEMPTS.pause(attempt)
        raise ConflictError(
            f"thread {self.thread_id!r} is changed by others faster than this change can follow; try again"
        )

    def _lock(self) -> asyncio.Lock:
        """One lock for all handles of an event loop on this log: they take turns, and do not race each other."""
        return _locks.current((self.store.engine.identity, self.thread_id, self.namespace))

    async def _commit(self, name: str, latest: LogCheckpoint | None, edit: Edit) -> Verdict:
        rev = new_id()
        own_branch = False
        while True:
            extents, runs, base = await self._planned(edit, rev, own_branch)
            count = edit.kept + len(edit.texts)
            runs, known = self._chained(edit.checkpoint, extents, runs)
            commit = self._record(rev, name, latest, edit, extents, runs, base)
            outcome = await self._committed(commit)
            if outcome.verdict is not Verdict.BRANCH_TAKEN or own_branch:
                break
            own_branch = True
        if outcome.verdict is Verdict.COMMITTED:
            last = edit.texts[-1] if edit.texts else None
            kept = extents if self.store.engine.keeps_runs else None
            self._latest = LogCheckpoint(Base(rev, rev), count, kept, last, known)
        return outcome.verdict

    def _chained(
        self, checkpoint: LogCheckpoint | None, extents: Sequence[Extent], runs: tuple[Run, ...]
    ) -> tuple[tuple[Run, ...], Mapping[str, Chain]]:
        """Runs with the digest of what precedes them, as far as it is known, and the chains with them."""
        branches = {extent.branch for extent in extents}
        before_these = {} if checkpoint is None else checkpoint.chains
        known = {branch: chain for branch, chain in before_these.items() if branch in branches}
        sort_keys = not self.store.engine.dialect.exact
        chained: list[Run] = []
        for run in runs:
            chain = known.get(run.branch, OPENED if run.start == 0 else UNKNOWN)
            before = chain.at(run.start, sort_keys)
            if before is None:
                known.pop(run.branch, None)
                chained.append(run)
                continue
            known[run.branch] = chain.continued(run.start, texts_of(run, sort_keys), sort_keys)
            chained.append(run._replace(before=digest_text(before)))
        return tuple(chained), known

    async def _committed(self, commit: Commit) -> Outcome:
        """Commit, and be sure of the outcome even if the caller is cancelled: a second try finds the first."""
        async with self.store.using() as engine:
            try:
                return await engine.commit(commit)
            except asyncio.CancelledError:
                with suppress(CheckpointError, *engine.driver_errors):
                    await finished(engine.commit(replace(commit, fresh_id=False)))
                raise

    def _record(
        self,
        rev: str,
        change: str,
        latest: LogCheckpoint | None,
        edit: Edit,
        extents: tuple[Extent, ...],
        runs: tuple[Run, ...],
        base: Base | None,
    ) -> Commit:
        now = datetime.now(UTC)
        ttl = self.store.ttl_seconds
        places = encode_trusted(extents)
        return Commit(
            thread_id=self.thread_id,
            namespace=self.namespace,
            checkpoint_id=rev,
            rev=rev,
            created_at=now,
            metadata=encode_trusted({"log": f'["{change}",{places},"{rev}"]'}),
            head=_HEAD,
            manifest=f'[[["items"],{places}]]' if extents else "[]",
            runs=runs,
            base=base,
            parent_id=edit.checkpoint.base.checkpoint_id if edit.checkpoint else None,
            if_latest=latest.base.checkpoint_id if latest else None,
            fresh_id=True,
            expires_at=now + timedelta(seconds=ttl) if ttl else None,
        )

    async def _planned(
        self, edit: Edit, rev: str, own_branch: bool
    ) -> tuple[tuple[Extent, ...], tuple[Run, ...], Base | None]:
        """Where the items will be, the runs to write for that, and the checkpoint that it refers to."""
        checkpoint, texts = edit.checkpoint, edit.texts
        kept = first_extents(checkpoint, edit.kept)
        referring = checkpoint is not None and checkpoint.extents is not None and len(kept) <= MAX_EXTENTS
        if checkpoint is not None and not referring:
            texts = [*(await self._texts(checkpoint, 0, edit.kept)), *texts]
            kept = []
        runs: tuple[Run, ...] = ()
        if texts and kept and not own_branch:
            branch, run, skip, length = kept[-1]
            runs = runs_of(branch, run + 1, skip + length, texts)
            kept[-1] = Extent(branch, runs[-1].number, skip, length + len(texts))
        elif texts:
            runs = runs_of(f"{rev}0", 0, 0, texts)
            kept.append(Extent(f"{rev}0", runs[-1].number, 0, len(texts)))
        return tuple(kept), runs, checkpoint.base if checkpoint is not None and referring else None

    async def _checkpoint(self, checkpoint_id: str | None) -> LogCheckpoint | None:
        """A checkpoint, or the latest, without its items where that is possible."""
        async with self.store.using() as engine:
            pass  # some engines know whether they keep runs only after `setup`
        if engine.keeps_runs:
            entry = await self.store.entry(self.thread_id, checkpoint_id, self.namespace)
            checkpoint = checkpoint_from_metadata(entry) if entry else None
            if entry is None or checkpoint is not None:
                return checkpoint
        stored = await self._stored(checkpoint_id, Range(_PATH, -1, 1))
        return None if stored is None else log_checkpoint(stored)

    async def _stored(self, checkpoint_id: str | None, part: Range | None) -> Stored | None:
        """A checkpoint with all items, or at least with those of a range."""
        if part is None:
            return await self.store.read(self.thread_id, checkpoint_id, self.namespace)
        return await self.store.read_part(self.thread_id, checkpoint_id, self.namespace, part)

    async def _texts(self, checkpoint: LogCheckpoint, start: int, count: int) -> list[str]:
        """Some items of a checkpoint."""
        stored = await self._stored(checkpoint.base.checkpoint_id, Range(_PATH, start, count))
        if stored is None or stored.entry.rev != checkpoint.base.rev:
            raise ConflictError(f"thread {self.thread_id!r}: a checkpoint was removed while it was read; try again")
        return [encode(item) for item in items_of(stored, log_checkpoint(stored), start, count)]

    def _no_checkpoint(self, checkpoint_id: str) -> CheckpointNotFoundError:
        return CheckpointNotFoundError(f"thread {self.thread_id!r} has no checkpoint {checkpoint_id!r}")


def logged_change(metadata: str) -> LoggedChange | None:
    """What a checkpoint's metadata says of its log; None if something else made the checkpoint."""
    try:
        change, extents, *rest = decode(decode(metadata)["log"])
        return LoggedChange(str(change), tuple(checked_extent(*extent) for extent in extents), *rest)
    except (KeyError, TypeError, ValueError, CorruptCheckpointError):
        return None


noted = logged_change
"""Another name for `logged_change`."""


def checkpoint_from_metadata(entry: Entry) -> LogCheckpoint | None:
    """The checkpoint as its metadata describes it; None if the metadata is about another one."""
    found = logged_change(entry.metadata)
    if found is None or found.rev not in (None, entry.rev):
        return None
    return LogCheckpoint(Base(entry.checkpoint_id, entry.rev), found.items, found.extents)


def log_checkpoint(stored: Stored) -> LogCheckpoint:
    """The checkpoint as it is stored, whoever made it."""
    base = Base(stored.entry.checkpoint_id, stored.entry.rev)
    cut = decode_manifest(stored.manifest).get(_PATH)
    if isinstance(cut, tuple):
        return LogCheckpoint(base, sum(extent.length for extent in cut), cut, chains=chains(stored, cut))
    items = _items_in_head(stored)
    return LogCheckpoint(base, len(items), () if not items else None)


def _items_in_head(stored: Stored) -> list[Any]:
    """The items of a list that was not cut out, because it is short, or because the store keeps no runs."""
    try:
        return page_of(stored, Range(_PATH, 0, MOST)).items
    except ConfigurationError:
        entry = stored.entry
        raise CorruptCheckpointError(
            f"thread {entry.thread_id!r}, namespace {entry.namespace!r}, is no list of items: something else uses it. "
            "Use another id, or another namespace"
        ) from None


def first_extents(checkpoint: LogCheckpoint | None, count: int) -> list[Extent]:
    """Where the first items of a checkpoint are, as far as a commit can refer to them."""
    if checkpoint is None or checkpoint.extents is None:
        return []
    return list(checkpoint.extents) if count == checkpoint.count else part(checkpoint.extents, 0, count)


def runs_of(branch: str, number: int, start: int, texts: Sequence[str]) -> tuple[Run, ...]:
    """The runs that add these items to a branch, from a number and a position on."""
    runs: list[Run] = []
    for some in run_portions(texts):
        runs.append(run_of(branch, number + len(runs), start, some))
        start += len(some)
    return tuple(runs)


def items_of(stored: Stored, checkpoint: LogCheckpoint, start: int, count: int) -> list[Any]:
    """So many items from position `start` on."""
    if checkpoint.extents is None:
        return _items_in_head(stored)[start : start + count]
    return list(decode(items_text(part(checkpoint.extents, start, count), stored.runs)))
