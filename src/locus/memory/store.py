"""`CheckpointStore`: validates, plans, commits and retries a save, reads it back, and translates driver errors.

The public classes (`Checkpointer`, `StorageBackend`, `CheckpointSaver`) are thin layers over this one. Below it,
engines only store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Generic, Literal, NoReturn, Self, TypeVar, cast

from locus.errors import (
    CapabilityError,
    CheckpointNotFoundError,
    ConfigurationError,
    ConflictError,
    CorruptCheckpointError,
    LocusError,
    WindowError,
)
from locus.memory.cache import LARGE_NOTE, MOST_NOTES, LoadCache, TraceCache
from locus.memory.engine import (
    LOOKED_AT,
    CheckpointerCapabilities,
    CommitsWithWrites,
    Compares,
    ConfirmsDeletions,
    Copies,
    Deadline,
    Engine,
    Expires,
    FindsMetadata,
    KeepsWrites,
    Searches,
)
from locus.memory.model.arguments import (
    CACHE_MB,
    SEARCH_SECONDS,
    UNLIMITED,
    check_vacuum,
    checked_ancestors,
    checked_limit,
    checked_metadata,
    checked_seconds,
)
from locus.memory.model.changes import PayloadDiff, checked_page
from locus.memory.model.codec import SEALED_BEGINNING, canonical, decode, encode, looks_sealed
from locus.memory.model.comparison import (
    HEAD_ONLY,
    Comparison,
    PartRequests,
    Side,
    payload_diff,
)
from locus.memory.model.cursors import (
    check_cursor,
)
from locus.memory.model.ids import (
    MAX_ID_LENGTH,
    check_id,
    check_ids,
    check_pattern,
    check_prefix,
    checked_terms,
    new_id,
    query_terms,
)
from locus.memory.model.manifest import LONGEST_REMEMBERED, by_branch, wanted
from locus.memory.model.parts import Ends, Part
from locus.memory.model.payloads import dict_from, left_out_items, stored_trace, traced_again, unread_trace
from locus.memory.model.plan import MOST_CUTS, ContentNeeded, LeftOutNeeded, LeftOutUnknown, Payload, Plan, Planner
from locus.memory.model.price import IN_PROCESS, Amount, amount, check_amount, check_cuts, most_values_of, repeats
from locus.memory.model.records import (
    ANY,
    DEFAULT_NAMESPACE,
    Ancestor,
    AncestorQuery,
    Base,
    CheckpointKey,
    Commit,
    Entry,
    Hits,
    NewestThreads,
    Outcome,
    Path,
    Stored,
    TaskWrites,
    Unset,
    Verdict,
    Write,
)
from locus.memory.model.retention import (
    STEPS_NEEDED,
    Line,
    Outlived,
    OutlivedPage,
    VacuumProgress,
    orphaned,
    outlived_in,
    retention,
    spared,
    steps_needed,
)
from locus.memory.model.sizes import ThreadSizes, freed_by, thread_sizes
from locus.memory.model.trace import Trace
from locus.memory.model.warm import TEXTS, LoadForm
from locus.memory.runtime.direct import CallersLoop
from locus.memory.runtime.per_loop import running_loop
from locus.memory.together import Lanes, lanes_to, send_alone

_ATTEMPTS = 8
_NEWEST = 20
_ROW = 100
"""About how much a row adds to what is sent, in characters."""
_MOST_NAMED = 5
"""How many checkpoints are looked at, and how many namespaces are named, for an error."""
_LAST_ITEMS = 8
"""How many items at the end of what is stored are read to recognise it: an edit is usually among them."""
_LONG_TO_READ = 1_000_000
_MANY_ITEMS = 2_000
_MANY_CHECKPOINTS = 500
"""Characters, items and checkpoints that take some tens of milliseconds to read through."""

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
    """The result of a save."""

    checkpoint_id: str
    trace: Trace
    attempts: int = 1
    """How often it was planned; again because another writer was faster."""
    commit: Commit | None = None
    """What was sent to the store; None if all of it was there."""


@dataclass(frozen=True, slots=True)
class Loaded(Generic[R]):
    """The result of a load, and the records that the store sent for it."""

    value: R
    sent: Stored
    hit: bool | None
    """Whether what the handle held was of use; None without a cache."""


def _admit_all(_found: Amount) -> None:
    """Whoever saves in their own process knows what they have stored."""


class _ReplacedError(Exception):
    """A checkpoint was replaced while it was being compared."""


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
            running_loop()
            try:
                await store.engine.setup()
                if store.when_ready is not None:
                    await store.when_ready(store.engine)
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
            raise CapabilityError(
                f"{type(engine).__name__} does not support threads that expire; leave out ttl_seconds"
            )
        self.engine = engine
        self.ttl_seconds = ttl_seconds
        self.ready = False
        self._traces = TraceCache()
        self.cache = LoadCache(cache_mb)
        self.when_ready: Callable[[Engine], Awaitable[object]] | None = None
        """What has to be done with the engine before its first use."""
        self._lanes = lanes_to(engine)
        self._lanes_here: Lanes | None = None
        self._spaces: dict[str, Self] = {}
        self.caches = self.cache.max_bytes > 0 and type(engine).read_since is not Engine.read_since
        """Whether anything is held. Whoever gets everything from the engine anyway has no use for it."""

    def key_space(self, name: str) -> Self:
        """Another space of keys in the same store (see `Engine.key_space`), as a store of its own."""
        space = self._spaces.get(name)
        if space is None:
            space = self._spaces.setdefault(name, type(self)(self.engine.key_space(name), cache_mb=0))
        return space

    def hold_nothing(self) -> None:
        """Keep no checkpoint in memory from now on: for a caller that only passes data on."""
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

    @property
    def commits_with_writes(self) -> bool:
        """Whether a save may bring pending writes of its thread."""
        return isinstance(self.engine, CommitsWithWrites)

    def using(self) -> _Using:
        """The engine, set up, with its errors translated: for a caller that has checked everything already."""
        return _Using(self)

    def _with_capability(self, kind: type[C], what: str) -> C:
        if not isinstance(self.engine, kind):
            raise CapabilityError(f"{type(self.engine).__name__} does not support {what}; check `.capabilities` first")
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
        writes: Sequence[TaskWrites] = (),
        admit: Callable[[Amount], None] = _admit_all,
    ) -> Saved:
        """Plan and commit a payload. `known` is the trace of the checkpoint that it was made from, if that is known.

        `created_at` is for a checkpoint that was made earlier, elsewhere. `writes` are pending writes of the thread
        that are written in the same step; only some stores can do that (`commits_with_writes`).

        With `off_loop`, a worker thread plans it, so that others have their turn meanwhile: for a large payload in a
        process that serves many. `admit` is told what a stored checkpoint amounts to before the payload is compared
        with it, and may raise.
        """
        check_ids(thread_id, None, namespace)
        for value, what in ((parent, "parent"), (if_latest, "if_latest"), (checkpoint_id, "checkpoint_id")):
            if value is not None and value is not ANY:
                check_id(value, what)
        metadata_text = "{}" if metadata is None else encode(checked_metadata(metadata), ("metadata",))
        known = known or payload.lineage.get((self.engine.identity, thread_id, namespace))
        if payload.omitted and known is None:
            raise _window_error("it was not loaded from this thread by this process, or belongs to another store")
        base = (known or await self._base(thread_id, namespace, payload, admit)) if self.engine.keeps_runs else None
        if payload.omitted and base is None:
            raise _window_error("this store saves every checkpoint as a whole")
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
                base = await self._read_base(thread_id, namespace, payload, admit)
                own_branches = base is not None and base.passed
                continue
            except LeftOutUnknown:
                raise _window_error("its omitted items do not match the checkpoint that it was loaded from") from None
            commit = Commit(
                thread_id=thread_id,
                namespace=namespace,
                checkpoint_id=checkpoint_id or rev,
                rev=rev,
                created_at=created_at or now,
                metadata=metadata_text,
                head=plan.head,
                manifest=plan.manifest,
                extents=plan.extents,
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
                writes=tuple(writes),
            )
            if SEALED_BEGINNING in plan.head:
                raise looks_sealed()
            if len(plan.cuts) > MOST_CUTS:
                check_cuts(plan.cuts, plan.manifest, IN_PROCESS)
                check_amount(amount(plan.extents, by_branch((*plan.runs, *plan.values))), IN_PROCESS)
            async with self.using():
                outcome = await self.commit(commit)
            match outcome.verdict:
                case Verdict.COMMITTED:
                    return self._remember(commit, plan, attempt, base if payload.omitted else None)
                case Verdict.EXISTS:
                    stored = await self._read(thread_id, commit.checkpoint_id, namespace)
                    if stored is None:
                        continue
                    if payload.omitted:
                        assert base is not None
                        repeated = await self._repeated_window(commit, plan, base, stored, metadata)
                        if repeated is not None:
                            await self._send_each(commit.writes)
                            return Saved(commit.checkpoint_id, repeated, attempt)
                        replaces = stored.entry.rev
                        continue
                    is_long = off_loop or _is_much(stored)
                    admit(await _done(is_long, partial(_amount, stored)))
                    same = await _done(is_long, partial(_equal, stored, payload, metadata))
                    if same:
                        await self._send_each(commit.writes)
                        trace = await _done(is_long, partial(self._trace_of, stored))
                        return Saved(commit.checkpoint_id, trace, attempt)
                    replaces = stored.entry.rev
                    base = await _done(is_long, partial(self._trace_of, stored)) if self.engine.keeps_runs else None
                case Verdict.BRANCH_TAKEN:
                    if own_branches or all(run.number == 0 for run in commit.runs):
                        rev = new_id()  # every branch was to be opened: one of this name was sent before
                    own_branches = True
                case Verdict.STALE_BASE:
                    if payload.omitted:
                        raise _window_error("the checkpoint that it was loaded from is gone")
                    self._traces.drop((thread_id, namespace))
                    base = None
                case _:
                    self.refused(commit, outcome)
        raise ConflictError(f"thread {thread_id!r} keeps being changed by other writers; try again")

    def _current_lanes(self) -> Lanes | None:
        """The lanes of the running event loop; None if the engine cannot commit saves together, or a caller blocks."""
        if self._lanes is None:
            return None
        lanes, loop = self._lanes_here, asyncio.get_running_loop()
        if lanes is None or lanes.loop is not loop:
            if isinstance(loop, CallersLoop):
                return None
            lanes = self._lanes_here = self._lanes.current()
        return lanes

    def commit(self, commit: Commit) -> Coroutine[Any, Any, Outcome]:
        """Send a commit to the engine, possibly in one transaction with others. The caller is inside of `using`."""
        lanes = self._current_lanes()
        if lanes is None:
            return self.engine.commit(commit)
        if commit.writes and lanes.is_busy:
            return self._commit_after_writes(commit, lanes)
        return lanes.send(commit, _size_of(commit))

    async def _commit_after_writes(self, commit: Commit, lanes: Lanes) -> Outcome:
        """Send a commit and its pending writes by themselves, so that each shares a transaction with many others."""
        await self._send_each(commit.writes)
        commit = replace(commit, writes=())
        return await lanes.send(commit, _size_of(commit))

    async def _send_each(self, writes: Sequence[TaskWrites]) -> None:
        """Keep the pending writes of a commit that are not written with it."""
        if writes:
            await asyncio.gather(*map(self.send_writes, writes))

    @staticmethod
    def refused(commit: Commit, outcome: Outcome) -> NoReturn:
        """Raise the error for a commit that an engine has refused."""
        if outcome.verdict is Verdict.CONFLICT and not isinstance(commit.if_latest, Unset):
            expected = repr(commit.if_latest) if commit.if_latest else "no checkpoint"
            raise ConflictError(
                f"thread {commit.thread_id!r}: expected {expected} to be the latest, but the latest is "
                f"{outcome.latest!r}; nothing was written. Load the latest, and apply the change to that",
                expected=commit.if_latest,
                latest=outcome.latest,
            )
        raise CheckpointNotFoundError(
            f"thread {commit.thread_id!r} has no checkpoint {commit.parent_id!r} to use as the parent; "
            "nothing was written"
        )

    def _remember(self, commit: Commit, plan: Plan, attempts: int, window: Trace | None) -> Saved:
        trace = Trace(Base(commit.checkpoint_id, commit.rev), plan.fields, window=window.window if window else None)
        key = (commit.thread_id, commit.namespace)
        if plan.has_digests:
            self._traces.put(key, trace)
        elif key in self._traces.known:
            self._traces.drop(key)
        if self.caches:
            notes = self.cache.notes
            notes.append((commit, plan.cuts))
            if len(notes) >= MOST_NOTES or sum([len(run.items) for run in commit.runs]) >= LARGE_NOTE:
                self.cache.take_notes()
        return Saved(commit.checkpoint_id, trace, attempts, commit)

    def _trace_of(self, stored: Stored) -> Trace:
        """The trace of a checkpoint that was read whole."""
        return stored_trace(stored, sort_keys=not self.engine.dialect.exact)

    async def _left_out(self, thread_id: str, namespace: str, base: Trace) -> Mapping[Path, Sequence[object]]:
        """Read the items that a window left out, for a save that has to write them anew."""
        stored = await self._read(thread_id, base.base.checkpoint_id, namespace)
        if stored is None or stored.entry.rev != base.base.rev:
            raise _window_error("the checkpoint that it was loaded from is gone")
        return left_out_items(stored, base)

    async def _repeated_window(
        self, commit: Commit, plan: Plan, base: Trace, stored: Stored, metadata: Mapping[str, Any] | None
    ) -> Trace | None:
        """The trace of a window that is already stored under this id; None if the id has other content."""
        whole = await self._read(commit.thread_id, base.base.checkpoint_id, commit.namespace)
        if whole is None or whole.entry.rev != base.base.rev or not _same_metadata(stored, metadata):
            return None
        runs = {branch: list(found) for branch, found in whole.runs.items()}
        for run in (*plan.runs, *plan.values):
            runs[run.branch] = [old for old in runs.get(run.branch, ()) if old.number != run.number] + [run]
        again = Stored(stored.entry, plan.head, plan.manifest, runs)
        if canonical(dict_from(again)) != canonical(dict_from(stored)):
            return None
        return traced_again(plan.fields, stored, base.window)

    async def _base(
        self, thread_id: str, namespace: str, payload: Payload, admit: Callable[[Amount], None]
    ) -> Trace | None:
        """The trace that a save of unknown origin is compared with: that of the last save, here or in the store."""
        known = self._traces.known.get((thread_id, namespace))
        if known is not None:
            return known
        if payload.checked:  # by a caller who has digests of items, and few of their texts
            return await self._read_base(thread_id, namespace, payload, admit)
        async with self.using() as engine:
            stored = await engine.read_part(thread_id, namespace, None, Ends(_LAST_ITEMS))
        return None if stored is None else await read_out(stored, partial(unread_trace, stored))

    async def _read_base(
        self, thread_id: str, namespace: str, payload: Payload, admit: Callable[[Amount], None]
    ) -> Trace | None:
        """The trace of the latest checkpoint, read whole, for a payload that does not simply continue it."""
        if payload.frozen or not self.caches:
            stored = await self._read(thread_id, None, namespace)
        else:
            loaded = await self.load(thread_id, None, namespace, TEXTS)
            stored = None if loaded is None else loaded.value
        if stored is None:
            return None
        admit(await read_out(stored, partial(_amount, stored)))
        return await read_out(stored, partial(self._trace_of, stored))

    async def read(self, thread_id: str, checkpoint_id: str | None, namespace: str) -> Stored | None:
        """A checkpoint as it is stored, with all of its runs; the latest if no id is given."""
        check_ids(thread_id, checkpoint_id, namespace)
        return await self._read(thread_id, checkpoint_id, namespace)

    async def _read(self, thread_id: str, checkpoint_id: str | None, namespace: str) -> Stored | None:
        async with self.using() as engine:
            return await engine.read(thread_id, namespace, checkpoint_id)

    async def load(
        self,
        thread_id: str,
        checkpoint_id: str | None,
        namespace: str,
        form: LoadForm[R],
        writes: list[Write] | None = None,
    ) -> Loaded[R] | None:
        """Load a checkpoint in the form that the caller wants. Items that this handle holds are not read again.

        If `writes` is a list, it will have the pending writes of the checkpoint.
        """
        check_ids(thread_id, checkpoint_id, namespace)
        place = (thread_id, namespace, checkpoint_id)
        if not self.caches:
            async with self.using() as engine:
                stored = await _read_from(engine, place, None, writes)
            return None if stored is None else Loaded(form(stored, None)[0], stored, None)
        key = (thread_id, namespace)
        seen = self.cache.get(key)
        # What is held serves for the latest checkpoint, and seldom for an older one.
        held = seen if seen is not None and checkpoint_id in (None, seen.base.checkpoint_id) else None
        async with self.using() as engine:
            stored = None
            if held is not None:
                with suppress(CorruptCheckpointError):  # if more is damaged than what is held, it is told below
                    stored = await _read_from(engine, place, held.base, writes)
                    if stored is None:
                        return None
                    if stored.since is not None:
                        value, now_held = form(stored, held)
                        self.cache.count(hit=True)
                        if not stored.passed:
                            self.cache.put(key, now_held, seen)
                        return Loaded(value, stored, True)
            if stored is not None and stored.since is not None:
                stored = held = None  # the two do not give all of it
            if stored is None:
                stored = await _read_from(engine, place, None, writes)
        self.cache.count(hit=False)
        if stored is None:
            return None
        value, now_held = form(stored, None)
        # An older checkpoint does not take the place of what is held, unless that is gone.
        if seen is None or held is not None or not stored.passed:
            self.cache.put(key, now_held, seen)
        return Loaded(value, stored, False)

    async def read_part(self, thread_id: str, checkpoint_id: str | None, namespace: str, part: Part) -> Stored | None:
        check_ids(thread_id, checkpoint_id, namespace)
        async with self.using() as engine:
            return await engine.read_part(thread_id, namespace, checkpoint_id, part)

    async def read_since(self, thread_id: str, checkpoint_id: str | None, namespace: str, held: Base) -> Stored | None:
        """Read a checkpoint for a caller that has the checkpoint `held`. `Stored.since` tells if runs were left out."""
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
        check_ids(thread_id, before, "" if namespace is None else namespace)
        async with self.using() as engine:
            before_seq = None
            if before is not None:
                known = await engine.entry(thread_id, namespace or "", before)
                if known is None:
                    raise await self.not_found(thread_id, before, namespace, " to list from")
                before_seq = known.seq
            return await engine.history(thread_id, namespace, checked_limit(limit, None), before_seq)

    async def diff(
        self, old: CheckpointKey, new: CheckpointKey, start: int, limit: int, most: int | None = None
    ) -> PayloadDiff:
        """A page of the changes from one checkpoint to another. `most` limits the text read, as in `compare`."""
        start, limit = checked_page(start, limit)
        _check_keys(old, new)
        async with self.using() as engine:
            if isinstance(engine, Compares) and engine.offers(Compares):
                return await engine.diff(old, new, start, limit)
        return await self.compare(old, new, lambda comparison: payload_diff(comparison, start, limit), most)

    async def compare(
        self,
        old: CheckpointKey,
        new: CheckpointKey,
        result: Callable[[Comparison], PartRequests[R]],
        most: int | None = None,
    ) -> R:
        """Compare two checkpoints as of one instant, and return the result. Only parts that differ are read.

        `most` is how many characters may be put together of either; `TooMuchText` is raised if that is not enough.
        """
        _check_keys(old, new)
        same_thread, sort_keys = old.thread_id == new.thread_id, not self.engine.dialect.exact
        for _ in range(_ATTEMPTS):
            first = [await self._side(key, HEAD_ONLY, None) for key in (old, new)]
            sides = [await read_out(stored, partial(Side, index, stored, most)) for index, stored in enumerate(first)]
            steps = result(Comparison(*sides, same_thread=same_thread, sort_keys=sort_keys))
            try:
                return await self._driven(steps, (old, new), first)
            except _ReplacedError:
                continue
        raise ConflictError("these checkpoints keep being replaced while they are compared; try again")

    async def _driven(self, steps: PartRequests[R], keys: Sequence[CheckpointKey], read: list[Stored]) -> R:
        """Read the parts that a comparison asks for, until it ends."""
        revs = [stored.entry.rev for stored in read]
        answer: Stored | None = None
        seen_again = False
        heavy = any(map(_is_much, read))
        characters = items = 0
        while True:
            # Others on the event loop have their turn while much is compared: all that was read until now.
            asked, value = await asyncio.to_thread(_advance, steps, answer) if heavy else _advance(steps, answer)
            if asked is None:
                break
            index, part = asked
            answer = await self._side(keys[index], part, revs[index])
            heavy = heavy or _is_much(answer)
            more = _size_of_stored(answer)
            characters, items = characters + more[0], items + more[1]
            heavy = heavy or characters >= _LONG_TO_READ or items >= _MANY_ITEMS
            seen_again |= index == 0
        if not seen_again:
            # What the manifests said of the runs was true if the first one still stood when the second was read.
            async with self.using() as engine:
                entry = await engine.entry(keys[0].thread_id, keys[0].namespace, keys[0].checkpoint_id)
            if entry is None or entry.rev != revs[0]:
                raise _ReplacedError
        return cast(R, value)

    async def _side(self, key: CheckpointKey, part: Part, rev: str | None) -> Stored:
        async with self.using() as engine:
            stored = await engine.read_part(key.thread_id, key.namespace, key.checkpoint_id, part)
        if stored is None:
            raise await self.not_found(key.thread_id, key.checkpoint_id, key.namespace)
        if rev not in (None, stored.entry.rev):
            raise _ReplacedError
        return stored

    async def namespaces(self, thread_id: str) -> list[str]:
        """The namespaces in which a thread has checkpoints, in order; empty if there is no such thread."""
        check_id(thread_id)
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
        """A text for errors: the namespaces that the thread has checkpoints in. Empty if this is one of them.

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
        check_ids(thread_id, checkpoint_id, "" if namespace is None else namespace)
        lanes = self._current_lanes()
        if lanes is not None:
            await lanes.settle(thread_id)  # a save whose caller gave up must not come after this
        async with self.using() as engine:
            if checkpoint_id is None:
                return await engine.delete(thread_id, namespace) > 0
            entry = await engine.entry(thread_id, namespace or "", checkpoint_id)
            found = {} if entry is None else {entry.seq: entry.rev}
            return await self.delete_found(thread_id, namespace, found) > 0

    async def delete_found(self, thread_id: str, namespace: str | None, seqs: Mapping[int, str]) -> int:
        """Delete checkpoints that were looked up before. If there are none, an earlier deletion is confirmed."""
        if not seqs:
            await self.confirm_deletions(thread_id)
            return 0
        async with self.using() as engine:
            return await engine.delete(thread_id, namespace, seqs)

    async def confirm_deletions(self, thread_id: str | None = None) -> None:
        """Wait until earlier deletions from a thread, or from all threads, cannot come undone in a failover."""
        async with self.using() as engine:
            if isinstance(engine, ConfirmsDeletions):
                await engine.confirm(thread_id)

    async def list_threads(
        self, limit: int | None, pattern: str, *, after: str | None = None, prefix: str = ""
    ) -> list[str]:
        matching, most = check_pattern(pattern, within=prefix, after=after), checked_limit(limit, None)
        async with self.using() as engine:
            return [] if matching.matches_none else await engine.threads(matching, most)

    async def unlisted_threads(self, prefix: str, after: str, limit: int) -> list[str]:
        """The ids of stored threads that `list_threads` does not show; see `Engine.unlisted`."""
        check_prefix(prefix)
        async with self.using() as engine:
            return await engine.unlisted(prefix, after, limit) if len(prefix) <= MAX_ID_LENGTH else []

    async def recent(self, limit: int | None, prefix: str = "") -> list[Entry]:
        """The newest entries of all threads whose ids start with `prefix`."""
        most, prefix = checked_limit(limit, UNLIMITED), check_prefix(prefix)
        async with self.using() as engine:
            if len(prefix) > MAX_ID_LENGTH:
                return []
            return await (engine.recent(most, prefix) if prefix else engine.recent(most))

    async def newest_threads(self, limit: int | None, before: str | None = None, prefix: str = "") -> NewestThreads:
        """The threads with the newest checkpoints, each with its newest; at most `LOOKED_AT`."""
        most = min(checked_limit(limit, LOOKED_AT), LOOKED_AT)
        cursor, within = check_cursor(before), check_prefix(prefix)
        async with self.using() as engine:
            if len(within) > MAX_ID_LENGTH:
                return NewestThreads([])
            return await engine.newest_threads(most, cursor, within)

    async def find(self, key: str, value: Any, limit: int | None, prefix: str = "") -> list[Entry]:
        engine = self._with_capability(FindsMetadata, "metadata_query")
        if not isinstance(key, str):
            raise ConfigurationError(f"a metadata key must be text, got {type(key).__name__}: {key!r:.80}")
        text = canonical(value, (key,))
        encode(key)
        most, prefix = checked_limit(limit, UNLIMITED), check_prefix(prefix)
        async with self.using():
            if len(prefix) > MAX_ID_LENGTH:
                return []
            return await (engine.find(key, text, most, prefix) if prefix else engine.find(key, text, most))

    async def search(
        self, query: str, limit: int | None, prefix: str = "", timeout_seconds: float = SEARCH_SECONDS
    ) -> Hits:
        """Search for all words of a query. With a prefix, other threads affect neither scores nor order."""
        if not isinstance(query, str):
            raise ConfigurationError(f"a search query must be text, got {type(query).__name__}: {query!r:.80}")
        encode(query)
        return await self.search_terms(query_terms(query), limit, prefix, timeout_seconds)

    async def search_terms(
        self, terms: Sequence[str], limit: int | None, prefix: str = "", timeout_seconds: float = SEARCH_SECONDS
    ) -> Hits:
        """Search for terms, which are words as `words` makes them."""
        engine = self._with_capability(Searches, "search")
        found, most, prefix = checked_terms(terms), checked_limit(limit, UNLIMITED), check_prefix(prefix)
        checked_seconds(timeout_seconds, "timeout_seconds")
        async with self.using():
            if not found or not most or len(prefix) > MAX_ID_LENGTH:
                return Hits()
            return await engine.search_until(found, most, prefix, Deadline(timeout_seconds))

    async def vacuum(
        self,
        older_than_days: float | None,
        keep_last: int | None,
        dry_run: bool,
        progress: Callable[[VacuumProgress], None] | None = None,
    ) -> int:
        """Remove what is old, and return how many checkpoints. `progress` is called after each page of threads."""
        check_vacuum(older_than_days, keep_last)
        now = datetime.now(UTC)
        done = VacuumProgress()
        damage: CorruptCheckpointError | None = None
        async with self.using() as engine:
            if isinstance(engine, Expires) and not dry_run:
                try:
                    done += VacuumProgress(checkpoints=await engine.expire(now))
                except CorruptCheckpointError as error:
                    damage = error  # the other threads are not left to grow because of it
            async with aclosing(engine.outlived(retention(now, older_than_days, keep_last))) as pages:
                async for page in pages:
                    removed, found = await remove_outlived(engine, page, dry_run)
                    done += removed
                    damage = damage or found
                    if progress is not None:
                        progress(done)
            if not dry_run:
                await self.confirm_deletions()  # an earlier vacuum may have removed what this one does not find
        if damage is not None:
            raise damage
        return done.checkpoints

    async def sizes(
        self,
        thread_id: str,
        older_than_days: float | None = None,
        keep_last: int | None = None,
        deleting: Collection[str] = (),
        namespace: str = DEFAULT_NAMESPACE,
    ) -> ThreadSizes | None:
        """The size of a thread, and what a vacuum or a deletion would free; None if the thread does not exist."""
        by_vacuum = check_measuring(thread_id, older_than_days, keep_last, deleting, namespace)
        async with self.using() as engine:
            measured = await engine.measure(thread_id)
        if measured is None:
            return None
        entries = [one.entry for one in measured.checkpoints]
        freed = None
        if by_vacuum:
            kept = retention(datetime.now(UTC), older_than_days, keep_last)
            outlived = outlived_in(thread_id, entries, kept, orphaned(measured.orphans(), kept.orphans_before))
            async with self.using() as engine:
                freed = freed_by(measured, await _spared(engine, outlived, entries))
        elif deleting:
            revs = {entry.checkpoint_id: (entry.seq, entry.rev) for entry in entries if entry.namespace == namespace}
            missing = next((name for name in deleting if name not in revs), None)
            if missing is not None:
                raise await self.not_found(thread_id, missing, namespace, " to measure")
            freed = freed_by(measured, Outlived(thread_id, dict(revs[name] for name in deleting)))
        if len(measured.checkpoints) < _MANY_CHECKPOINTS:
            return thread_sizes(thread_id, measured, freed)
        return await asyncio.to_thread(thread_sizes, thread_id, measured, freed)

    async def copy(
        self,
        source: str,
        dest: str,
        checkpoint_id: str | None,
        namespace: str,
        ancestors: int | Literal["all"] = "all",
    ) -> bool:
        engine = self._with_capability(Copies, "branching")
        check_ids(source, checkpoint_id, namespace)
        check_id(dest, "dest_thread_id")
        most = checked_ancestors(ancestors, checkpoint_id)
        async with self.using():
            line = None if checkpoint_id is None else Line(namespace, checkpoint_id, most)
            copied = await engine.copy(source, dest, line)
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
        place = (thread_id, namespace, checkpoint_id, task_id)
        if off_loop:
            task = await asyncio.to_thread(self.task_writes, *place, writes, task_path, keep_numbered)
        else:
            task = self.task_writes(*place, writes, task_path, keep_numbered)
        await self.send_writes(task)

    def task_writes(
        self,
        thread_id: str,
        namespace: str,
        checkpoint_id: str,
        task_id: str,
        writes: Sequence[tuple[str, Any]],
        task_path: str,
        keep_numbered: bool,
    ) -> TaskWrites:
        """The pending writes of a task, checked and encoded."""
        self._with_capability(KeepsWrites, "pending writes")
        check_ids(thread_id, None, namespace)
        check_id(checkpoint_id, "checkpoint_id")
        check_id(task_id, "task_id")
        check_id(task_path, "task_path", empty=True)
        rows = tuple(_write_rows(task_id, task_path, writes))
        return TaskWrites(thread_id, namespace, checkpoint_id, task_id, rows, keep_numbered)

    async def send_writes(self, task: TaskWrites) -> None:
        """Keep the pending writes of a task."""
        async with self.using() as engine:
            lanes = self._current_lanes()
            if lanes is None:
                await send_alone(engine, task)
            else:
                await lanes.send(task, sum(len(row.value) + len(row.channel) + _ROW for row in task.writes))

    async def get_writes(
        self, thread_id: str, checkpoint_id: str, *, task_id: str | None, namespace: str
    ) -> list[Write]:
        engine = self._with_capability(KeepsWrites, "pending writes")
        check_ids(thread_id, None, namespace)
        check_id(checkpoint_id, "checkpoint_id")
        if task_id is not None:
            check_id(task_id, "task_id")
        async with self.using():
            return await engine.get_writes(thread_id, namespace, checkpoint_id, task_id)

    async def ancestors(
        self,
        thread_id: str,
        checkpoint_id: str,
        namespace: str,
        limit: int,
        channels: Collection[str],
        known: Collection[str] = (),
    ) -> list[Ancestor]:
        """Checkpoints from which one was made, without their runs, and what tasks wrote to these channels since.

        The caller has those whose revs are `known`, so they need not be given again.
        """
        engine = self._with_capability(KeepsWrites, "pending writes")
        check_ids(thread_id, None, namespace)
        check_id(checkpoint_id, "checkpoint_id")
        for channel in channels:
            check_id(channel, "channel", empty=True)
        async with self.using():
            query = AncestorQuery(thread_id, namespace, checkpoint_id, max(1, limit), channels, known)
            return await engine.ancestors(query)

    async def close(self) -> None:
        for space in self._spaces.values():
            await space.close()
        self._lanes_here = None
        if self._lanes is not None:
            await self._lanes.close()
        self.ready = False
        self.cache.clear()
        await self.engine.close()


async def _read_from(
    engine: Engine, place: tuple[str, str, str | None], held: Base | None, writes: list[Write] | None
) -> Stored | None:
    """Read a checkpoint, or what a reader of `held` lacks of it; and its pending writes, if `writes` is a list."""
    if writes is None:
        return await (engine.read(*place) if held is None else engine.read_since(*place, held))
    assert isinstance(engine, KeepsWrites)
    found = await engine.read_with_writes(*place, held)
    if found is None:
        return None
    stored, writes[:] = found
    return stored


def _check_keys(*keys: CheckpointKey) -> None:
    for key in keys:
        check_id(key.checkpoint_id, "checkpoint_id")
        check_ids(key.thread_id, None, key.namespace)


def _advance(steps: PartRequests[R], answer: Stored | None) -> tuple[tuple[int, Part] | None, R | None]:
    """Resume a comparison. Returns the part that it asks for next, or its result."""
    try:
        return (next(steps) if answer is None else steps.send(answer)), None
    except StopIteration as stop:
        return None, stop.value


async def _done(is_long: bool, work: Callable[[], R]) -> R:
    """Do work: in a thread if it takes long, so that the event loop goes on."""
    return await asyncio.to_thread(work) if is_long else work()


async def read_out(stored: Stored, work: Callable[[], R]) -> R:
    """Do work on records that were read: in a thread if they are large, so that the event loop goes on."""
    return await _done(_is_much(stored), work)


def _is_much(stored: Stored) -> bool:
    """Whether it takes some tens of milliseconds to go through these records, with everything that they repeat."""
    characters, items = _size_of_stored(stored)
    if characters >= _LONG_TO_READ or items >= _MANY_ITEMS or len(stored.manifest) > LONGEST_REMEMBERED:
        return True
    times = repeats(wanted(stored.manifest))
    return bool(times) and max(times.values()) * characters >= _LONG_TO_READ


def _size_of_stored(stored: Stored) -> tuple[int, int]:
    """The number of characters and of items in records that were read."""
    runs = [run for some in stored.runs.values() for run in some]
    characters = len(stored.head) + len(stored.manifest) + sum(len(run.items) for run in runs)
    return characters, sum(run.length for run in runs)


def _amount(stored: Stored) -> Amount:
    """What the records that were read come to, with everything that their manifest repeats."""
    found = amount(wanted(stored.manifest), stored.runs)
    characters = len(stored.head) + len(stored.manifest) + found.characters
    return Amount(characters, most_values_of(stored.head) + found.values)


async def remove_outlived(
    engine: Engine, page: OutlivedPage, dry_run: bool
) -> tuple[VacuumProgress, CorruptCheckpointError | None]:
    """Remove the checkpoints on a page of a vacuum, or only count them. Returns the first damage as well."""
    damaged = list(page.damaged)
    checkpoints = writes = 0
    for found in page.threads:
        try:
            outlived = found
            if found.checkpoints and isinstance(engine, KeepsWrites):
                outlived = await _spared(engine, found, await engine.history(found.thread_id, None, None, None))
            if dry_run:
                checkpoints += len(outlived.checkpoints)
                writes += sum(outlived.writes.values())
                continue
            if outlived.checkpoints:
                checkpoints += await engine.trim(outlived.thread_id, outlived.checkpoints)
            if outlived.writes and isinstance(engine, KeepsWrites):
                writes += await engine.delete_orphans(outlived.thread_id, outlived.writes.keys())
        except CorruptCheckpointError as error:
            damaged.append(error)
    done = VacuumProgress(page.looked_at, checkpoints, writes, len(damaged))
    return done, damaged[0] if damaged else None


async def _spared(engine: Engine, outlived: Outlived, entries: Sequence[Entry]) -> Outlived:
    """What a vacuum removes, without what a checkpoint that stays is made from. `entries` are all of the thread."""
    steps: dict[int, int] = {}
    for entry in entries if outlived.checkpoints else ():
        if entry.seq in outlived.checkpoints or STEPS_NEEDED not in entry.metadata:
            continue
        stored = await engine.read_part(entry.thread_id, entry.namespace, entry.checkpoint_id, Ends(1))
        if stored is not None:
            steps[entry.seq] = steps_needed(entry.metadata, stored.head)
    return spared(outlived, entries, steps)


def check_measuring(
    thread_id: str, older_than_days: float | None, keep_last: int | None, deleting: Collection[str], namespace: str
) -> bool:
    """Check the arguments of `sizes`. True if they ask what a vacuum would free."""
    check_ids(thread_id, None, namespace)
    by_vacuum = older_than_days is not None or keep_last is not None
    if by_vacuum:
        check_vacuum(older_than_days, keep_last)
    if isinstance(deleting, str):
        raise ConfigurationError("`deleting` must be a list of checkpoint ids, got a single text")
    for checkpoint_id in deleting:
        check_id(checkpoint_id, "checkpoint_id")
    if by_vacuum and deleting:
        raise ConfigurationError("give either the options of a vacuum or `deleting`, not both")
    return by_vacuum


def _size_of(commit: Commit) -> int:
    """The characters of a commit, about."""
    size = len(commit.head) + len(commit.manifest) + len(commit.metadata)
    for run in commit.runs:
        size += len(run.items)
    for run in commit.values:
        size += len(run.items)
    return size


def _write_rows(task_id: str, task_path: str, writes: Sequence[tuple[str, Any]]) -> list[Write]:
    rows = []
    for position, (channel, value) in enumerate(writes):
        check_id(channel, "channel", empty=True)
        idx = SPECIAL_CHANNELS.get(channel, position)
        rows.append(Write(task_id, task_path, idx, channel, encode(value, ("writes", position, channel))))
    return rows


def _equal(stored: Stored, payload: Payload, metadata: Mapping[str, Any] | None) -> bool:
    """Whether a stored checkpoint has the same content and metadata as a save under its id."""
    if not _same_metadata(stored, metadata):
        return False
    fresh = Planner("", None).plan(payload)
    again = Stored(stored.entry, fresh.head, fresh.manifest, by_branch((*fresh.runs, *fresh.values)))
    return canonical(dict_from(again)) == canonical(dict_from(stored))


def _same_metadata(stored: Stored, metadata: Mapping[str, Any] | None) -> bool:
    return metadata is None or canonical(decode(stored.entry.metadata)) == canonical(dict(metadata))


def _window_error(reason: str) -> WindowError:
    return WindowError(
        f"this state holds only a part of a thread (it was loaded with `last`), and cannot be saved here: {reason}. "
        "Nothing was written. "
        "Load the thread whole, without `last`, and apply the change to that; or save `state.without_omitted()` "
        "to let the omitted items go"
    )
