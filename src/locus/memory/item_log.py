"""Logs: lists that many writers append to, without anyone reading them first.

A log is a namespace of a thread whose payload is `{"items": [...]}`. Each of its checkpoints says in its metadata what
was done, where the items are (the extents, see `model.records`), and for which `rev` that holds, because metadata that
was copied to another checkpoint says nothing about that one. It is one text, because databases index every value:

    {"log": "["add",[["k3v9…",6,0,28]],"7c01…"]"}

So a handle that has never seen the log needs one small entry, and no item, to append to it. Every change names the
checkpoint that it was worked out for, and if another writer was faster it is worked out anew: batches stay whole, and
none is lost. Stores that keep no runs (see `backends.plain`) get the whole list with every change.

A checkpoint may have notes: a small dict that a change of the log reads and writes, in the same text of the metadata.
So a list of checkpoints tells them, and they cost no other read. `add` decides what is added by what they say.

A list with fields beside it is a document (see `locus.threads.document`), whose manifest says where the items are. If
it is a session, its metadata only say how many there are: `{"log": "["add",28]"}`. A log reads such a thread, too, but
what it writes has no fields.
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
from locus.memory.model.alignment import part
from locus.memory.model.codec import canonical, decode, encode, encode_trusted
from locus.memory.model.digests import OPENED_CHAIN, UNKNOWN_CHAIN, DigestChain
from locus.memory.model.ids import check_ids, new_id
from locus.memory.model.manifest import MOST, checked_extent, decode_manifest, list_items
from locus.memory.model.parts import Range, Window, page_of
from locus.memory.model.payloads import chains
from locus.memory.model.plan import MAX_EXTENTS, NewRuns
from locus.memory.model.records import Base, Commit, Entry, Extent, Outcome, Run, Stored, Verdict
from locus.memory.runtime.per_loop import LoopLocks
from locus.memory.runtime.retry import Backoff
from locus.memory.store import CheckpointStore

__all__ = [
    "Addition",
    "ItemLog",
    "LogPoint",
    "LoggedChange",
    "logged_change",
    "logged_notes",
    "noted",
    "notes_in",
]

_ITEMS = "items"
_PATH = (_ITEMS,)
_HEAD = '{"items":[]}'
_ATTEMPTS = 200
_HELD = 32
_HELD_TEXT = 65_536
"""How many of the newest items a handle holds, and how many characters of them."""
_BETWEEN_ATTEMPTS = Backoff(0.001, 0.05, random_part=1.0)

_locks = LoopLocks()


@dataclass(frozen=True, slots=True)
class LogCheckpoint:
    """The facts about a checkpoint of a log that a change needs."""

    base: Base
    count: int
    extents: tuple[Extent, ...] | None
    """Where the items are. None: nowhere that a commit could refer to."""
    tail: tuple[str, ...] = ()
    """The newest items, as far as they are known."""
    chains: Mapping[str, DigestChain] = field(default_factory=dict)
    """The digests of the branches that the items are on, if they are known: an entry alone does not tell."""
    notes: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """The new content of a log: `kept` items of a checkpoint (`None`: of an empty log), then these texts."""

    checkpoint: LogCheckpoint | None
    kept: int
    texts: Sequence[str] = ()
    new_notes: Mapping[str, Any] | None = None
    """None: those of the checkpoint stay."""
    first: int = 0
    """The position of the first item that is kept."""

    @property
    def notes(self) -> Mapping[str, Any] | None:
        return self.new_notes if self.new_notes is not None or self.checkpoint is None else self.checkpoint.notes


class LogPoint(NamedTuple):
    """The latest checkpoint of a log, as `ItemLog.add` shows it to its callback."""

    checkpoint_id: str
    length: int
    notes: Mapping[str, Any] | None
    """None: whoever made the checkpoint has left none."""


class Addition(NamedTuple):
    """Items to add to a log, and the notes for the new checkpoint."""

    items: Sequence[Any]
    notes: Mapping[str, Any]


class LoggedChange(NamedTuple):
    """The change that made a checkpoint, by its name, and how many items there are after it."""

    change: str
    items: int
    extents: tuple[Extent, ...] | None = None
    """Where they are. None: the metadata do not say it."""
    rev: str | None = None
    """The checkpoint that this is about; None if a transfer to another store has adapted it."""


class ItemLog:
    """One log. Handles on the same log may be used at once, from any number of tasks and processes."""

    def __init__(self, store: CheckpointStore, thread_id: str, namespace: str) -> None:
        check_ids(thread_id, None, namespace)
        self.store = store
        self.thread_id = thread_id
        self.namespace = namespace
        self._latest: LogCheckpoint | None = None

    async def read(self, limit: int | None = None, checkpoint_id: str | None = None, *, hold: int = 0) -> list[Any]:
        """The newest items (all of them without a limit) in their order, as of a checkpoint or of the latest.

        So many of the newest as `hold` says are held for `append_new`.
        """
        most = None if limit is None else max(0, min(limit, MOST))
        stored = await self._stored(checkpoint_id, None if most is None else Range(_PATH, -most, most))
        if stored is None:
            if checkpoint_id is not None:
                raise self._no_checkpoint(checkpoint_id)
            return []
        checkpoint = log_checkpoint(stored)
        kept = checkpoint.count if most is None else min(most, checkpoint.count)
        items = items_of(stored, checkpoint, checkpoint.count - kept, kept)
        if checkpoint_id is None and most != 0:  # without any item, the digests of branches are not known
            self._latest = replace(checkpoint, tail=held_items(items, hold)) if hold else checkpoint
        return items

    async def append(self, items: Sequence[Any]) -> None:
        """Add items as one batch, in one step. Nothing is written for no items."""
        texts = [encode(item, ("items", index)) for index, item in enumerate(items)]

        async def grown(checkpoint: LogCheckpoint | None) -> Edit | None:
            return Edit(checkpoint, checkpoint.count if checkpoint else 0, texts) if texts else None

        await self._change("add", grown)

    async def append_new(self, newest: int, choose: Callable[[list[Any]], Sequence[Any]]) -> None:
        """Add the items that `choose` makes, given the newest items (`newest` at most), in one step.

        If another writer was faster, `choose` is asked again, about what is there then: so whoever leaves out what is
        there already decides it inside the same conditional write. A handle that made the newest items, or has read
        them with `hold`, reads none.
        """

        async def grown(checkpoint: LogCheckpoint | None) -> Edit | None:
            there = [] if checkpoint is None else await self._newest(checkpoint, newest)
            texts = [encode(item, ("items", index)) for index, item in enumerate(choose(there))]
            return Edit(checkpoint, checkpoint.count if checkpoint else 0, texts) if texts else None

        await self._change("add", grown)

    async def add(self, work_out: Callable[[LogPoint | None], Awaitable[Addition | None]]) -> str | None:
        """Add the items that `work_out` makes, given the latest checkpoint, in one step. Returns the new checkpoint.

        It is called again if another writer was faster, so that what is added fits what is there. None: nothing is to
        be added. A `ConflictError` of its own counts as another writer.
        """

        async def grown(checkpoint: LogCheckpoint | None) -> Edit | None:
            addition = await work_out(log_point(checkpoint))
            if addition is None:
                return None
            texts = [encode(item, (_ITEMS, index)) for index, item in enumerate(addition.items)]
            return Edit(checkpoint, checkpoint.count if checkpoint else 0, texts, new_notes=addition.notes)

        return await self._change("add", grown)

    async def pop(self) -> Any | None:
        """Take the last item off, and return it; `None` if there is none. Earlier checkpoints keep it."""
        last: str | None = None

        async def shortened(checkpoint: LogCheckpoint | None) -> Edit | None:
            nonlocal last
            if checkpoint is None or not checkpoint.count:
                last = None
                return None
            last = checkpoint.tail[-1] if checkpoint.tail else None
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

    async def replace_from(self, start: int, items: Sequence[Any], *, if_latest: str, first: int = 0) -> bool:
        """Put other items in the place of those from `start` on. False if the log has changed since.

        With `first`, the log begins with the item that had this position: those before it are left out, too.
        """
        texts = [encode(item, ("items", index)) for index, item in enumerate(items)]
        stored = await self._stored(None, Range(_PATH, start, MOST))
        if stored is None or stored.entry.checkpoint_id != if_latest:
            return False
        checkpoint = log_checkpoint(stored)
        edit = Edit(checkpoint, start - first, texts, first=first)
        try:
            return await self._commit("replace", checkpoint, edit) is Verdict.COMMITTED
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

    async def _change(
        self, name: str, work_out: Callable[[LogCheckpoint | None], Awaitable[Edit | None]]
    ) -> str | None:
        """Work out a change of the latest checkpoint, and commit it; again, as often as another writer was faster.

        Returns the id of the new checkpoint; None if there was nothing to do.
        """
        async with self._lock():
            for attempt in range(_ATTEMPTS):
                try:
                    remembered = self._latest
                    checkpoint = remembered or await self._checkpoint(None)
                    edit = await work_out(checkpoint)
                    if edit is None and remembered is None:
                        return None
                    # What is remembered may be older than what is there, so "nothing to do" is found out anew.
                    if edit is not None and await self._commit(name, checkpoint, edit) is Verdict.COMMITTED:
                        return None if self._latest is None else self._latest.base.checkpoint_id
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
            runs = NewRuns(rev, own_branches=own_branch)
            extents, known, base = await self._planned(edit, runs)
            commit = self._record(rev, name, latest, edit, extents, tuple(runs.added), base)
            outcome = await self._committed(commit)
            if outcome.verdict is not Verdict.BRANCH_TAKEN or own_branch:
                break
            own_branch = True
        if outcome.verdict is Verdict.COMMITTED:
            tail, count = newest_texts(edit), edit.kept + len(edit.texts)
            kept = extents if self.store.engine.keeps_runs else None
            self._latest = LogCheckpoint(Base(rev, rev), count, kept, tail, known, edit.notes)
        return outcome.verdict

    async def _committed(self, commit: Commit) -> Outcome:
        """Send a commit. If the caller is cancelled, send it again, so that it is decided before the caller goes on."""
        async with self.store.using() as engine:
            try:
                return await self.store.commit(commit)
            except asyncio.CancelledError:
                with suppress(CheckpointError, *engine.driver_errors):
                    await finished(self.store.commit(replace(commit, fresh_id=False)))
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
        noted = "" if edit.notes is None else f",{encode(edit.notes, ('notes',))}"
        return Commit(
            thread_id=self.thread_id,
            namespace=self.namespace,
            checkpoint_id=rev,
            rev=rev,
            created_at=now,
            metadata=encode_trusted({"log": f'["{change}",{places},"{rev}"{noted}]'}),
            head=_HEAD,
            manifest=f'[[["{_ITEMS}"],{places}]]' if extents else "[]",
            extents=extents,
            runs=runs,
            base=base,
            parent_id=edit.checkpoint.base.checkpoint_id if edit.checkpoint else None,
            if_latest=latest.base.checkpoint_id if latest else None,
            fresh_id=True,
            expires_at=now + timedelta(seconds=ttl) if ttl else None,
        )

    async def _planned(
        self, edit: Edit, runs: NewRuns
    ) -> tuple[tuple[Extent, ...], Mapping[str, DigestChain], Base | None]:
        """Add the runs that an edit needs. Returns the extents after it, their chains, and the checkpoint below it."""
        checkpoint, texts = edit.checkpoint, edit.texts
        kept = kept_extents(checkpoint, edit.first, edit.kept)
        referring = checkpoint is not None and checkpoint.extents is not None and len(kept) <= MAX_EXTENTS
        if checkpoint is not None and not referring:
            texts = [*(await self._texts(checkpoint, edit.first, edit.kept)), *texts]
            kept = []
        known = {} if checkpoint is None else checkpoint.chains
        chains = {extent.branch: known[extent.branch] for extent in kept if extent.branch in known}
        if texts:
            if kept and runs.may_continue:
                branch, run, skip, length = kept.pop()
                chain = known.get(branch, UNKNOWN_CHAIN)
            else:
                branch, run, skip, length, chain = runs.open_branch(), -1, 0, 0, OPENED_CHAIN
            sort_keys = not self.store.engine.dialect.exact
            if sort_keys:  # the database gives keys back in this order, and digests are of the text
                texts = [canonical(decode(text)) for text in texts]
            newest, chains[branch] = runs.add(branch, run + 1, skip + length, texts, chain, sort_keys=sort_keys)
            kept.append(Extent(branch, newest, skip, length + len(texts)))
        return tuple(kept), chains, checkpoint.base if checkpoint is not None and referring else None

    async def _checkpoint(self, checkpoint_id: str | None) -> LogCheckpoint | None:
        """Read a checkpoint, by default the latest, without its items where the store can leave them out."""
        async with self.store.using() as engine:
            pass  # some engines know whether they keep runs only after `setup`
        if engine.keeps_runs:
            entry = await self.store.entry(self.thread_id, checkpoint_id, self.namespace)
            checkpoint = checkpoint_from_metadata(entry) if entry else None
            if entry is None or checkpoint is not None:
                return checkpoint
        stored = await self._stored(checkpoint_id, Range(_PATH, -1, 1))
        return None if stored is None else log_checkpoint(stored)

    async def _stored(self, checkpoint_id: str | None, part: Range | Window | None) -> Stored | None:
        """Read a checkpoint of the log, with all of its items or at least those in a range."""
        if part is None:
            return await self.store.read(self.thread_id, checkpoint_id, self.namespace)
        return await self.store.read_part(self.thread_id, checkpoint_id, self.namespace, part)

    async def _newest(self, checkpoint: LogCheckpoint, most: int) -> list[Any]:
        """The newest items of a checkpoint, from memory if they are held."""
        start = max(0, checkpoint.count - most)
        count = checkpoint.count - start
        if count <= len(checkpoint.tail):
            return [decode(text) for text in checkpoint.tail[len(checkpoint.tail) - count :]]
        return await self._items(checkpoint, start, count)

    async def _texts(self, checkpoint: LogCheckpoint, start: int, count: int) -> list[str]:
        """Read some items of a checkpoint, as JSON texts."""
        return [encode(item) for item in await self._items(checkpoint, start, count)]

    async def _items(self, checkpoint: LogCheckpoint, start: int, count: int) -> list[Any]:
        """Read some items of a checkpoint."""
        stored = await self._stored(checkpoint.base.checkpoint_id, Range(_PATH, start, count))
        if stored is None or stored.entry.rev != checkpoint.base.rev:
            raise ConflictError(f"thread {self.thread_id!r}: a checkpoint was removed while it was read; try again")
        return items_of(stored, log_checkpoint(stored), start, count)

    def _no_checkpoint(self, checkpoint_id: str) -> CheckpointNotFoundError:
        return CheckpointNotFoundError(f"thread {self.thread_id!r} has no checkpoint {checkpoint_id!r}")


def logged_change(metadata: str) -> LoggedChange | None:
    """The change that a checkpoint's metadata describes; None if the checkpoint is not of a log."""
    return _logged(metadata)[0]


def logged_notes(metadata: str) -> Mapping[str, Any] | None:
    """The notes in a checkpoint's metadata, whichever checkpoint they are about; None if there are none."""
    return _logged(metadata)[1]


def _logged(metadata: str) -> tuple[LoggedChange | None, Mapping[str, Any] | None]:
    try:
        found: list[Any] = decode(decode(metadata)["log"])
        change, places, rev, notes = [*found, None, None][:4]
        if type(places) is int and 0 <= places <= MOST:
            return LoggedChange(str(change), places), None
        extents = tuple(checked_extent(*extent) for extent in places)
        logged = LoggedChange(str(change), sum(extent.length for extent in extents), extents, rev)
    except (KeyError, TypeError, ValueError, CorruptCheckpointError):
        return None, None
    return logged, notes if isinstance(notes, dict) else None


noted = logged_change
"""Another name for `logged_change`."""


def checkpoint_from_metadata(entry: Entry) -> LogCheckpoint | None:
    """The facts about a checkpoint that its own metadata tells; None if it tells too little."""
    found, notes = _logged(entry.metadata)
    if found is None or found.extents is None or found.rev not in (None, entry.rev):
        return None
    return LogCheckpoint(Base(entry.checkpoint_id, entry.rev), found.items, found.extents, notes=notes)


def notes_in(entry: Entry) -> Mapping[str, Any] | None:
    """The notes of a checkpoint of a log; None if it has none."""
    found = checkpoint_from_metadata(entry)
    return None if found is None else found.notes


def log_checkpoint(stored: Stored) -> LogCheckpoint:
    """The facts about a checkpoint that was read with its manifest. It need not have been saved by a log."""
    base = Base(stored.entry.checkpoint_id, stored.entry.rev)
    notes = notes_in(stored.entry)
    cut = decode_manifest(stored.manifest).get(_PATH)
    if isinstance(cut, tuple):
        return LogCheckpoint(base, sum(extent.length for extent in cut), cut, (), chains(stored, cut), notes)
    items = _items_in_head(stored)
    return LogCheckpoint(base, len(items), () if not items else None, notes=notes)


def _items_in_head(stored: Stored) -> list[Any]:
    """The items of a list that stands in the head: it is short, or the store keeps no runs."""
    try:
        return page_of(stored, Range(_PATH, 0, MOST)).items
    except ConfigurationError:
        entry = stored.entry
        raise CorruptCheckpointError(
            f"thread {entry.thread_id!r}, namespace {entry.namespace!r}, is no list of items: something else uses it. "
            "Use another id, or another namespace"
        ) from None


def log_point(checkpoint: LogCheckpoint | None) -> LogPoint | None:
    if checkpoint is None:
        return None
    return LogPoint(checkpoint.base.checkpoint_id, checkpoint.count, checkpoint.notes)


def kept_extents(checkpoint: LogCheckpoint | None, first: int, count: int) -> list[Extent]:
    """The extents of `count` items of a checkpoint from `first` on; none if a commit cannot refer to them."""
    if checkpoint is None or checkpoint.extents is None:
        return []
    return list(checkpoint.extents) if count == checkpoint.count else part(checkpoint.extents, first, count)


def newest_texts(edit: Edit) -> tuple[str, ...]:
    """The texts of the newest items after an edit, as far as they are known."""
    before = edit.checkpoint.tail if edit.checkpoint else ()
    taken_off = edit.checkpoint.count - edit.first - edit.kept if edit.checkpoint else 0
    return held_texts((*before[: max(0, len(before) - taken_off)], *edit.texts)[-_HELD:])


def held_texts(texts: Sequence[str]) -> tuple[str, ...]:
    """The last of these texts that a handle may keep in memory: a few, and not too long together."""
    if len(texts) <= _HELD and sum(map(len, texts)) <= _HELD_TEXT:
        return tuple(texts)
    start, length = len(texts), 0
    while start > 0 and len(texts) - start < _HELD:
        length += len(texts[start - 1])
        if length > _HELD_TEXT:
            break
        start -= 1
    return tuple(texts[start:])


def held_items(items: Sequence[Any], most: int) -> tuple[str, ...]:
    """The texts of the last of these items that a handle may keep in memory. Only those are encoded."""
    texts: list[str] = []
    length = 0
    for item in reversed(items[-min(most, _HELD) :]):
        text = encode(item)
        length += len(text)
        if length > _HELD_TEXT:
            break
        texts.append(text)
    return tuple(reversed(texts))


def items_of(stored: Stored, checkpoint: LogCheckpoint, start: int, count: int) -> list[Any]:
    """The `count` items from position `start` on, out of a checkpoint that was read."""
    if checkpoint.extents is None:
        return _items_in_head(stored)[start : start + count]
    return list_items(part(checkpoint.extents, start, count), stored.runs)
