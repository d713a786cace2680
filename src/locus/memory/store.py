"""`CheckpointStore`: validates, plans, commits and retries a save, reads it back, and translates driver errors.

The public classes (`Checkpointer`, `StorageBackend`, `CheckpointSaver`) are thin layers over this one. Below it,
engines only store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, NoReturn, TypeVar

from locus.errors import (
    CapabilityError,
    CheckpointNotFoundError,
    ConfigurationError,
    ConflictError,
    CorruptCheckpointError,
    LocusError,
    WindowError,
)
from locus.memory.cache import LARGE_NOTE, MOST_NOTES, LoadCache
from locus.memory.engine import CheckpointerCapabilities, Copies, Engine, Expires, FindsMetadata, KeepsWrites, Searches
from locus.memory.model.arguments import (
    CACHE_MB,
    UNLIMITED,
    check_vacuum,
    checked_limit,
    checked_metadata,
    checked_seconds,
    days_before,
)
from locus.memory.model.codec import canonical, decode, encode
from locus.memory.model.ids import check_id, check_ids, check_pattern, checked_terms, new_id, query_terms
from locus.memory.model.manifest import by_branch
from locus.memory.model.parts import Ends, Part
from locus.memory.model.payloads import dict_from, left_out_items, stored_trace, traced_again, unread_trace
from locus.memory.model.plan import (
    ContentNeeded,
    LeftOutNeeded,
    LeftOutUnknown,
    Payload,
    Plan,
    Planner,
    Trace,
    TraceCache,
)
from locus.memory.model.records import ANY, Base, Commit, Entry, Hit, Outcome, Path, Stored, Unset, Verdict, Write
from locus.memory.model.retention import ancestors, outlived
from locus.memory.model.warm import TEXTS, Shape
from locus.memory.runtime.forks import fork_safe_lock

_ATTEMPTS = 8
_NEWEST = 20
_MOST_NAMED = 5
"""How many checkpoints are looked at, and how many namespaces are named, for an error."""
_LAST_ITEMS = 8
"""How many items at the end of what is stored are read to recognise it: an edit is usually among them."""
_LONG_TO_READ = 1_000_000
"""Characters that take some tens of milliseconds to read through."""

SPECIAL_CHANNELS: Mapping[str, int] = {
    "__error__": -1,
    "__scheduled__": -2,
    "__interrupt__": -3,
    "__resume__": -4,
}
"""Channels that are kept beside a task's numbered writes, under an index of their own."""

C = TypeVar("C")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Saved:
    """A save that is done."""

    checkpoint_id: str
    trace: Trace
    attempts: int = 1
    """How often it was planned; again because another writer was faster."""
    commit: Commit | None = None
    """What was sent to the store; None if all of it was there."""


@dataclass(frozen=True, slots=True)
class Loaded(Generic[R]):
    """A checkpoint that was loaded, and what the store sent for it."""

    value: R
    sent: Stored
    hit: bool | None
    """Whether what the handle held was of use; None without a cache."""


class _Using:
    """The engine, set up. What its driver raises becomes a `CheckpointError`, with the cause kept.

    A class, because a save passes through here, and a generator would cost it three times as much.
    """

    __slots__ = ("_store",)

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store

    async def __aenter__(self) -> Engine:
        store = self._store
        if not store.ready:
            try:
                await store.engine.setup()
            except store.engine.driver_errors as error:
                raise store.engine.translate(error) from error
            store.ready = True
        return store.engine

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        engine = self._store.engine
        if isinstance(error, engine.driver_errors) and not isinstance(error, LocusError):
            raise engine.translate(error) from error


class CheckpointStore:
    """Threads in one engine. `ttl_seconds` lets a thread end that long after its last save.

    `cache_mb` is how many megabytes may be held in memory, so that loads read and decode only what is new.
    """

    def __init__(self, engine: Engine, *, ttl_seconds: float | None = None, cache_mb: float = CACHE_MB) -> None:
        if ttl_seconds is not None:
            checked_seconds(ttl_seconds, "ttl_seconds")
        if ttl_seconds is not None and not isinstance(engine, Expires):
            raise CapabilityError(f"{type(engine).__name__} cannot let threads expire; leave out ttl_seconds")
        self.engine = engine
        self.ttl_seconds = ttl_seconds
        self.ready = False
        self._traces = TraceCache(fork_safe_lock())
        self.cache = LoadCache(cache_mb)
        self.caches = self.cache.max_bytes > 0 and type(engine).read_since is not Engine.read_since
        """Whether anything is held. Whoever gets everything from the engine anyway has no use for it."""

    def hold_nothing(self) -> None:
        """Keep nothing of what is loaded and saved in memory: for a caller that only passes it on."""
        self.caches = False
        self.cache.clear()

    @property
    def capabilities(self) -> CheckpointerCapabilities:
        engine = self.engine
        return CheckpointerCapabilities(
            search=engine.offers(Searches),
            metadata_query=isinstance(engine, FindsMetadata),
            vacuum=True,
            branching=isinstance(engine, Copies),
            ttl=isinstance(engine, Expires),
            list_threads=True,
            list_with_metadata=True,
            persistent_checkpoint_ids=True,
            windows=engine.keeps_runs,
        )

    @property
    def keeps_writes(self) -> bool:
        """Whether the engine keeps pending writes."""
        return isinstance(self.engine, KeepsWrites)

    def using(self) -> _Using:
        """The engine, set up, with its errors translated: for a caller that has checked everything already."""
        return _Using(self)

    def _with_capability(self, kind: type[C], what: str) -> C:
        if not isinstance(self.engine, kind):
            raise CapabilityError(f"{type(self.engine).__name__} does not support {what}; ask `.capabilities` first")
        return self.engine

    async def save(
        self,
        thread_id: str,
        payload: Payload,
        *,
        namespace: str,
        checkpoint_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        parent: str | None | Unset = ANY,
        parent_as_named: bool = False,
        if_latest: str | None | Unset = ANY,
        known: Trace | None = None,
        created_at: datetime | None = None,
        off_loop: bool = False,
    ) -> Saved:
        """Commit a payload. `known` is the checkpoint that it was derived from, if that is known.

        `created_at` is for a checkpoint that was made earlier, elsewhere.

        With `off_loop`, a worker thread plans it, so that others have their turn meanwhile: for a large payload in a
        process that serves many.
        """
        check_ids(thread_id, None, namespace)
        for value, what in ((parent, "parent"), (if_latest, "if_latest"), (checkpoint_id, "checkpoint_id")):
            if value is not None and value is not ANY:
                check_id(value, what)
        metadata_text = "{}" if metadata is None else encode(checked_metadata(metadata), ("metadata",))
        if payload.omitted and known is None:
            raise _window_error("it was not loaded from this thread by this process, or belongs to another store")
        base = (known or await self._base(thread_id, namespace, payload)) if self.engine.keeps_runs else None
        if payload.omitted and base is None:
            raise _window_error("this store keeps every checkpoint whole")
        left_out: Mapping[Path, Sequence[object]] | None = None
        rev = new_id()
        implied = known.base.checkpoint_id if known else ANY
        now = datetime.now(UTC)
        # A base that newer checkpoints follow has most likely had its branches continued by them.
        own_branches, replaces = base is not None and base.passed, None
        for attempt in range(1, _ATTEMPTS + 1):
            planner = Planner(
                rev, base, own_branches=own_branches, sort_keys=not self.engine.dialect.exact, left_out=left_out
            )
            try:
                plan = await asyncio.to_thread(planner.plan, payload) if off_loop else planner.plan(payload)
            except LeftOutNeeded:
                assert base is not None
                left_out = await self._left_out(thread_id, namespace, base)
                continue
            except ContentNeeded:
                base = await self._read_base(thread_id, namespace, payload)
                own_branches = base is not None and base.passed
                continue
            except LeftOutUnknown:
                raise _window_error("what it left out is not that of the checkpoint that it was loaded from") from None
            commit = Commit(
                thread_id=thread_id,
                namespace=namespace,
                checkpoint_id=checkpoint_id or rev,
                rev=rev,
                created_at=created_at or now,
                metadata=metadata_text,
                head=plan.head,
                manifest=plan.manifest,
                runs=plan.runs,
                values=plan.values,
                base=base.base if base else None,
                parent_id=implied if parent is ANY else parent,
                parent_required=parent is not ANY,
                parent_as_named=parent_as_named and isinstance(parent, str),
                if_latest=if_latest,
                replaces=replaces,
                fresh_id=checkpoint_id is None,
                expires_at=now + timedelta(seconds=self.ttl_seconds) if self.ttl_seconds else None,
            )
            async with self.using() as engine:
                outcome = await engine.commit(commit)
            match outcome.verdict:
                case Verdict.COMMITTED:
                    return self._remember(commit, plan, attempt, base if payload.omitted else None)
                case Verdict.EXISTS:
                    stored = await self.read(thread_id, commit.checkpoint_id, namespace)
                    if stored is None:
                        continue
                    if payload.omitted:
                        assert base is not None
                        repeated = await self._repeated_window(commit, plan, base, stored, metadata)
                        if repeated is not None:
                            return Saved(commit.checkpoint_id, repeated, attempt)
                        replaces = stored.entry.rev
                        continue
                    same = (
                        _equal(stored, payload, metadata)
                        if not off_loop
                        else await asyncio.to_thread(_equal, stored, payload, metadata)
                    )
                    if same:
                        return Saved(commit.checkpoint_id, self._trace_of(stored), attempt)
                    replaces = stored.entry.rev
                    base = self._trace_of(stored) if self.engine.keeps_runs else None
                case Verdict.BRANCH_TAKEN:
                    own_branches = True
                case Verdict.STALE_BASE:
                    if payload.omitted:
                        raise _window_error("the checkpoint that it was loaded from is gone")
                    self._traces.drop((thread_id, namespace))
                    base = None
                case _:
                    self.refused(commit, outcome)
        raise ConflictError(f"thread {thread_id!r} is changed by others faster than this save can follow; try again")

    @staticmethod
    def refused(commit: Commit, outcome: Outcome) -> NoReturn:
        """Raise the error for a commit that an engine has refused."""
        if outcome.verdict is Verdict.CONFLICT and not isinstance(commit.if_latest, Unset):
            expected = repr(commit.if_latest) if commit.if_latest else "no checkpoint"
            raise ConflictError(
                f"thread {commit.thread_id!r}: expected {expected} to be the latest, but it is "
                f"{outcome.latest!r}; nothing was written. Load the latest, and apply the change to that",
                expected=commit.if_latest,
                latest=outcome.latest,
            )
        raise CheckpointNotFoundError(
            f"thread {commit.thread_id!r} has no checkpoint {commit.parent_id!r} to be the parent; nothing was written"
        )

    def _remember(self, commit: Commit, plan: Plan, attempts: int, window: Trace | None) -> Saved:
        trace = Trace(Base(commit.checkpoint_id, commit.rev), plan.fields, window=window.window if window else None)
        self._traces.put((commit.thread_id, commit.namespace), trace)
        if self.caches:
            notes = self.cache.notes
            notes.append(commit)
            if len(notes) >= MOST_NOTES or sum(len(run.items) for run in commit.runs) >= LARGE_NOTE:
                self.cache.take_notes()
        return Saved(commit.checkpoint_id, trace, attempts, commit)

    def _trace_of(self, stored: Stored) -> Trace:
        """What the next save may refer to, found by reading everything that is stored."""
        return stored_trace(stored, sort_keys=not self.engine.dialect.exact)

    async def _left_out(self, thread_id: str, namespace: str, base: Trace) -> Mapping[Path, Sequence[object]]:
        """The items that a window left out, for a save that has to write them anew."""
        stored = await self.read(thread_id, base.base.checkpoint_id, namespace)
        if stored is None or stored.entry.rev != base.base.rev:
            raise _window_error("the checkpoint that it was loaded from is gone")
        return left_out_items(stored, base)

    async def _repeated_window(
        self, commit: Commit, plan: Plan, base: Trace, stored: Stored, metadata: Mapping[str, Any] | None
    ) -> Trace | None:
        """The trace of a window that is stored under its id already; None if something else is."""
        whole = await self.read(commit.thread_id, base.base.checkpoint_id, commit.namespace)
        if whole is None or whole.entry.rev != base.base.rev or not _same_metadata(stored, metadata):
            return None
        runs = {branch: list(found) for branch, found in whole.runs.items()}
        for run in (*plan.runs, *plan.values):
            runs[run.branch] = [old for old in runs.get(run.branch, ()) if old.number != run.number] + [run]
        again = Stored(stored.entry, plan.head, plan.manifest, runs)
        if canonical(dict_from(again)) != canonical(dict_from(stored)):
            return None
        return traced_again(plan.fields, stored, base.window)

    async def _base(self, thread_id: str, namespace: str, payload: Payload) -> Trace | None:
        """The checkpoint that a payload of unknown origin most likely resembles: the last one, here or in the store."""
        known = self._traces.get((thread_id, namespace))
        if known is not None:
            return known
        if payload.checked:  # by a caller who has digests of items, and few of their texts
            return await self._read_base(thread_id, namespace, payload)
        stored = await self.read_part(thread_id, None, namespace, Ends(_LAST_ITEMS))
        return None if stored is None else unread_trace(stored)

    async def _read_base(self, thread_id: str, namespace: str, payload: Payload) -> Trace | None:
        """The same, with everything that is stored read: what is saved is not a continuation of it."""
        if payload.frozen:
            stored = await self.read(thread_id, None, namespace)
        else:
            loaded = await self.load(thread_id, None, namespace, TEXTS)
            stored = None if loaded is None else loaded.value
        if stored is None:
            return None
        if sum(len(run.items) for runs in stored.runs.values() for run in runs) < _LONG_TO_READ:
            return self._trace_of(stored)
        return await asyncio.to_thread(self._trace_of, stored)  # the event loop may have others to serve

    async def read(self, thread_id: str, checkpoint_id: str | None, namespace: str) -> Stored | None:
        check_ids(thread_id, checkpoint_id, namespace)
        async with self.using() as engine:
            return await engine.read(thread_id, namespace, checkpoint_id)

    async def load(
        self, thread_id: str, checkpoint_id: str | None, namespace: str, shape: Shape[R]
    ) -> Loaded[R] | None:
        """A checkpoint in the shape that the caller wants. What this handle holds of the thread is not read again."""
        if not self.caches:
            stored = await self.read(thread_id, checkpoint_id, namespace)
            return None if stored is None else Loaded(shape.whole(stored)[0], stored, None)
        check_ids(thread_id, checkpoint_id, namespace)
        key = (thread_id, namespace)
        seen = self.cache.get(key)
        # What is held serves for the latest checkpoint, and seldom for an older one.
        held = seen if seen is not None and checkpoint_id in (None, seen.base.checkpoint_id) else None
        async with self.using() as engine:
            stored = None
            if held is not None:
                with suppress(CorruptCheckpointError):  # if more is damaged than what is held, it is told below
                    stored = await engine.read_since(thread_id, namespace, checkpoint_id, held.base)
                    if stored is None:
                        return None
            if held is not None and stored is not None and stored.since is not None:
                found = shape.since(held, stored)
                if found is not None:
                    self.cache.count(hit=True)
                    if not stored.passed:
                        self.cache.put(key, found[1], seen)
                    return Loaded(found[0], stored, True)
                stored, held = None, None
            if stored is None:
                stored = await engine.read(thread_id, namespace, checkpoint_id)
        self.cache.count(hit=False)
        if stored is None:
            return None
        value, now_held = shape.whole(stored)
        # An older checkpoint does not take the place of what is held, unless that is gone.
        if seen is None or held is not None or not stored.passed:
            self.cache.put(key, now_held, seen)
        return Loaded(value, stored, False)

    async def read_part(self, thread_id: str, checkpoint_id: str | None, namespace: str, part: Part) -> Stored | None:
        check_ids(thread_id, checkpoint_id, namespace)
        async with self.using() as engine:
            return await engine.read_part(thread_id, namespace, checkpoint_id, part)

    async def read_since(self, thread_id: str, checkpoint_id: str | None, namespace: str, held: Base) -> Stored | None:
        """A checkpoint, to a reader that has the checkpoint `held`; `Stored.since` says if its runs were left out."""
        check_ids(thread_id, checkpoint_id, namespace)
        async with self.using() as engine:
            return await engine.read_since(thread_id, namespace, checkpoint_id, held)

    async def entry(self, thread_id: str, checkpoint_id: str | None, namespace: str) -> Entry | None:
        check_ids(thread_id, checkpoint_id, namespace)
        async with self.using() as engine:
            return await engine.entry(thread_id, namespace, checkpoint_id)

    async def history(
        self, thread_id: str, limit: int | None, before: str | None, namespace: str | None
    ) -> list[Entry]:
        check_ids(thread_id, before, namespace)
        async with self.using() as engine:
            before_seq = None
            if before is not None:
                known = await engine.entry(thread_id, namespace or "", before)
                if known is None:
                    raise await self.not_found(thread_id, before, namespace, " to list from")
                before_seq = known.seq
            return await engine.history(thread_id, namespace, checked_limit(limit, None), before_seq)

    async def namespaces(self, thread_id: str) -> list[str]:
        """The namespaces in which a thread has checkpoints, in order; empty if there is no such thread."""
        check_ids(thread_id, None, None)
        async with self.using() as engine:
            return await engine.namespaces(thread_id)

    async def not_found(
        self, thread_id: str, checkpoint_id: str, namespace: str | None, purpose: str = ""
    ) -> CheckpointNotFoundError:
        """The error for a checkpoint that is not there. It says if the thread is in another namespace."""
        there = "" if namespace is None else await self.other_namespaces(thread_id, namespace)
        where = "" if namespace is None else f" in the namespace {namespace!r:.80}"
        return CheckpointNotFoundError(
            f"thread {thread_id!r} has no checkpoint {checkpoint_id!r}{where}{purpose}{there and '; '}{there}"
        )

    async def other_namespaces(self, thread_id: str, namespace: str) -> str:
        """Says for an error where a thread has checkpoints, if it is not in this namespace; else it is empty.

        Only the newest checkpoints are looked at, so that an error costs no more for a long thread.
        """
        check_ids(thread_id, None, namespace)
        async with self.using() as engine:
            entries = await engine.history(thread_id, None, _NEWEST, None)
        others = sorted({entry.namespace for entry in entries} - {namespace})
        named = ", ".join(f"{name!r:.80}" for name in others[:_MOST_NAMED])
        more = ", …" if len(others) > _MOST_NAMED else ""
        return f"the thread has checkpoints in other namespaces: {named}{more}" if others else ""

    async def delete(self, thread_id: str, checkpoint_id: str | None, namespace: str | None) -> bool:
        """Delete a checkpoint of a namespace, or a whole namespace, or a whole thread."""
        check_ids(thread_id, checkpoint_id, namespace)
        async with self.using() as engine:
            if checkpoint_id is None:
                return await engine.delete(thread_id, namespace) > 0
            entry = await engine.entry(thread_id, namespace or "", checkpoint_id)
            return entry is not None and await engine.delete(thread_id, namespace, {entry.seq: entry.rev}) > 0

    async def list_threads(self, limit: int | None, pattern: str) -> list[str]:
        matching = check_pattern(pattern)
        async with self.using() as engine:
            return await engine.threads(matching, checked_limit(limit, None))

    async def recent(self, limit: int | None, prefix: str = "") -> list[Entry]:
        """The newest entries of all threads, or of those whose ids start with `prefix`; so with `find` and `search`."""
        most = checked_limit(limit, UNLIMITED)
        async with self.using() as engine:
            return await (engine.recent(most, prefix) if prefix else engine.recent(most))

    async def find(self, key: str, value: Any, limit: int | None, prefix: str = "") -> list[Entry]:
        engine = self._with_capability(FindsMetadata, "metadata_query")
        if not isinstance(key, str):
            raise ConfigurationError(f"a metadata key is text, got {type(key).__name__}: {key!r:.80}")
        text = canonical(value, (key,))
        encode(key)
        most = checked_limit(limit, UNLIMITED)
        async with self.using():
            return await (engine.find(key, text, most, prefix) if prefix else engine.find(key, text, most))

    async def search(self, query: str, limit: int | None, prefix: str = "") -> list[Hit]:
        """With a prefix, neither scores nor order depend on what other threads hold."""
        if not isinstance(query, str):
            raise ConfigurationError(f"a search query is text, got {type(query).__name__}: {query!r:.80}")
        encode(query)
        return await self.search_terms(query_terms(query), limit, prefix)

    async def search_terms(self, terms: Sequence[str], limit: int | None, prefix: str = "") -> list[Hit]:
        """The same for words that `words` has made already."""
        engine = self._with_capability(Searches, "search")
        found, most = checked_terms(terms), checked_limit(limit, UNLIMITED)
        async with self.using():
            if not found or not most:
                return []
            return await (engine.search(found, most, prefix) if prefix else engine.search(found, most))

    async def vacuum(self, older_than_days: float | None, keep_last: int | None, dry_run: bool) -> int:
        check_vacuum(older_than_days, keep_last)
        now = datetime.now(UTC)
        cutoff = None if older_than_days is None else days_before(now, older_than_days)
        removed = 0
        async with self.using() as engine:
            if isinstance(engine, Expires) and not dry_run:
                removed += await engine.expire(now)
            damage: CorruptCheckpointError | None = None
            for thread_id in await engine.threads(check_pattern("*"), None):
                try:
                    entries = await engine.history(thread_id, None, None, None)
                    seqs = outlived(entries, cutoff, keep_last)
                    doomed = {entry.seq: entry.rev for entry in entries if entry.seq in seqs}
                    if doomed:
                        removed += len(doomed) if dry_run else await engine.delete(thread_id, None, doomed)
                except CorruptCheckpointError as error:
                    damage = damage or error  # the other threads are not left to grow because of it
            if damage is not None:
                raise damage
        return removed

    async def copy(self, source: str, dest: str, checkpoint_id: str | None, namespace: str) -> bool:
        engine = self._with_capability(Copies, "branching")
        check_ids(source, checkpoint_id, namespace)
        check_id(dest, "dest_thread_id")
        async with self.using() as plain:
            line = None
            if checkpoint_id is not None:
                line = ancestors(await plain.history(source, namespace, None, None), checkpoint_id)
                if not line:
                    return False
            ids = None if line is None else {entry.checkpoint_id for entry in line}
            copied = await engine.copy(source, dest, namespace if ids is not None else None, ids)
        if copied < 0:
            raise ConflictError(f"thread {dest!r} exists already; choose another id, or delete it first")
        return copied > 0

    async def put_writes(
        self,
        thread_id: str,
        checkpoint_id: str,
        task_id: str,
        writes: Sequence[tuple[str, Any]],
        *,
        task_path: str,
        namespace: str,
        keep_numbered: bool = False,
        off_loop: bool = False,
    ) -> None:
        engine = self._with_capability(KeepsWrites, "pending writes")
        check_ids(thread_id, checkpoint_id, namespace)
        check_id(task_id, "task_id")
        check_id(task_path, "task_path", empty=True)
        if off_loop:
            rows = await asyncio.to_thread(_write_rows, task_id, task_path, writes)
        else:
            rows = _write_rows(task_id, task_path, writes)
        async with self.using():
            await engine.put_writes(thread_id, namespace, checkpoint_id, task_id, rows, keep_numbered=keep_numbered)

    async def get_writes(
        self, thread_id: str, checkpoint_id: str, *, task_id: str | None, namespace: str
    ) -> list[Write]:
        engine = self._with_capability(KeepsWrites, "pending writes")
        check_ids(thread_id, checkpoint_id, namespace)
        if task_id is not None:
            check_id(task_id, "task_id")
        async with self.using():
            return await engine.get_writes(thread_id, namespace, checkpoint_id, task_id)

    async def close(self) -> None:
        self.ready = False
        self.cache.clear()
        await self.engine.close()


def _write_rows(task_id: str, task_path: str, writes: Sequence[tuple[str, Any]]) -> list[Write]:
    rows = []
    for position, (channel, value) in enumerate(writes):
        check_id(channel, "channel", empty=True)
        idx = SPECIAL_CHANNELS.get(channel, position)
        rows.append(Write(task_id, task_path, idx, channel, encode(value, ("writes", position, channel))))
    return rows


def _equal(stored: Stored, payload: Payload, metadata: Mapping[str, Any] | None) -> bool:
    """Whether what is stored under an id is what is to be saved under it again."""
    if not _same_metadata(stored, metadata):
        return False
    fresh = Planner("", None).plan(payload)
    again = Stored(stored.entry, fresh.head, fresh.manifest, by_branch((*fresh.runs, *fresh.values)))
    return canonical(dict_from(again)) == canonical(dict_from(stored))


def _same_metadata(stored: Stored, metadata: Mapping[str, Any] | None) -> bool:
    return metadata is None or canonical(decode(stored.entry.metadata)) == canonical(dict(metadata))


def _window_error(reason: str) -> WindowError:
    return WindowError(
        f"this state is a window of a thread, and cannot be saved here: {reason}. Nothing was written. "
        "Load the thread whole, without `last`, and apply the change to that; or save `state.without_omitted()` "
        "to let the omitted items go"
    )
