"""Documents: a namespace of a thread as named lists and fields, of which every save is a checkpoint.

A list is a field at the top that may become long. A save says what becomes of each: how many of the first items stay,
and which items follow them. So nobody needs to read a list to add to it, and a save costs what is new in it. All else
is in `fields`, which every save gives whole: what has not changed is recognised, and not stored again.

A `Version` is a document as of a checkpoint. A save that goes on from a version refers to what is stored of it, and
names in `if_latest` the checkpoint that nobody may have followed yet. `Document.change` does both, and works the change
out anew as long as somebody else is faster.

Stores that keep no runs of items get the whole payload with every save (see `locus.memory.backends.plain`). A version
has its lists whole there, so that adapters need not know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from locus.core.frozen import EMPTY, FrozenDict, FrozenList, freeze
from locus.errors import BackendUnavailableError, ConfigurationError, ConflictError, WindowError
from locus.memory.model.codec import encode
from locus.memory.model.digests import fingerprint
from locus.memory.model.ids import check_ids
from locus.memory.model.manifest import MOST, decode_manifest, list_items
from locus.memory.model.parts import Ends, ItemPage, Range, Window, between, page_of, total_of
from locus.memory.model.payloads import dict_from, dict_payload, kept_trace, unread_trace
from locus.memory.model.plan import Payload
from locus.memory.model.records import ANY, Cuts, Entry, Path, Stored, Unset
from locus.memory.model.trace import FieldTrace, ListTrace, Trace
from locus.memory.model.warm import TEXTS
from locus.memory.runtime.per_loop import LoopLocks
from locus.memory.runtime.retry import Backoff
from locus.memory.store import CheckpointStore, Saved
from locus.threads.limits import AT_ONCE

__all__ = ["Change", "Document", "Kept", "Lists", "Version"]

_ATTEMPTS: Final = 200
_BETWEEN_ATTEMPTS: Final = Backoff(0.001, 0.05, random_part=1.0)
_MANY: Final = 256
"""From so many new items on, a thread plans a save, so that others on the event loop have their turn."""
_FROZEN: Final = frozenset({FrozenDict, FrozenList})

_locks = LoopLocks()

Lists = tuple[str, ...] | Callable[[str], bool]
"""Which fields of a document are lists: their names, or a function that tells by the name.

With names, the end of a document is read in one step; with a function, it may take two.
"""


@dataclass(frozen=True, slots=True)
class Kept:
    """A list after a save: its first `count` items stay, and `items` follow them.

    `instead_of` are the items that stood behind the first `count`, as far as the caller knows them. Those of them that
    are among `items` again are not stored a second time.
    """

    count: int
    items: Sequence[Any] = ()
    instead_of: Sequence[Any] = ()


ListChanges = Mapping[str, Kept | Sequence[Any]]
"""By name, what a save makes of each list; a sequence is all of its items."""


@dataclass(frozen=True, slots=True)
class Change:
    """The new content of a document, for `Document.change`. The parameters are those of `Document.save`."""

    fields: Mapping[str, Any]
    lists: ListChanges = EMPTY
    metadata: Mapping[str, Any] | None = None
    after: Version | None = None
    """None: it goes on from the version that it was worked out for."""
    checkpoint_id: str | None = None


class Version:
    """A document as of a checkpoint: its fields, the lengths of its lists, and the items that were read.

    A save refers to it, so nothing of it may be changed in place.
    """

    __slots__ = ("_reading", "_trace", "_uncut", "checkpoint_id", "counts", "entry", "fields", "lists")

    checkpoint_id: str
    fields: Mapping[str, Any]
    """Everything but the lists."""
    counts: Mapping[str, int]
    """By name, how many items each list has."""
    lists: Mapping[str, Sequence[Any]]
    """By name, the items that were read of each list: the newest ones. None of a version that was saved."""
    entry: Entry | None
    """The checkpoint without its payload; None for a version that was saved."""

    def __init__(
        self,
        checkpoint_id: str,
        fields: Mapping[str, Any] = EMPTY,
        counts: Mapping[str, int] = EMPTY,
        lists: Mapping[str, Sequence[Any]] = EMPTY,
        *,
        entry: Entry | None = None,
        uncut: Mapping[str, Sequence[Any]] = EMPTY,
        reading: _Reading | None = None,
        trace: Trace | None = None,
    ) -> None:
        self.checkpoint_id = checkpoint_id
        self.fields = fields
        self.counts = counts
        self.lists = lists
        self.entry = entry
        self._uncut = uncut
        """All items of lists that are stored in one piece with the fields."""
        self._reading = reading
        self._trace = trace

    def _referred(self) -> Trace:
        """The trace for a save that goes on from this version, made when the first such save needs it."""
        if self._trace is None:
            assert self._reading is not None
            stored, newest, sort_keys = self._reading
            self._trace = unread_trace(stored) if newest is None else kept_trace(stored, self.counts, sort_keys)
            self._reading = None
        return self._trace


_Reading = tuple[Stored, int | None, bool]
"""What was read of a document, how many of the last items of each list (None: all), and whether keys are sorted."""


def _with_lists(reading: _Reading, is_list: Callable[[str], bool]) -> Version:
    """Make the version of a document that has lists from what was read."""
    stored, newest, _ = reading
    cuts = decode_manifest(stored.manifest)
    fields = dict_from(stored) if newest is None else dict_from(stored, _list_cuts(cuts, is_list))
    lists: dict[str, Sequence[Any]] = {}
    counts: dict[str, int] = {}
    uncut: dict[str, Sequence[Any]] = {}
    for name in list(filter(is_list, fields)):
        items, extents = fields[name], cuts.get((name,))
        if not isinstance(items, list):
            continue
        del fields[name]
        if not isinstance(extents, tuple):
            uncut[name] = items
        elif newest is not None:
            total = counts[name] = total_of(extents)
            shown = between(extents, total - newest, total) if newest else ()
            lists[name] = list_items(shown, stored.runs)
            continue
        counts[name] = len(items)
        lists[name] = items if newest is None else items[max(0, len(items) - newest) :]
    entry = stored.entry
    return Version(entry.checkpoint_id, fields, counts, lists, entry=entry, uncut=uncut, reading=reading)


def _list_cuts(cuts: Cuts, is_list: Callable[[str], bool]) -> frozenset[Path]:
    """The paths of the lists that are stored in runs."""
    return frozenset(
        [path for path, cut in cuts.items() if len(path) == 1 and isinstance(cut, tuple) and is_list(path[0])]
    )


class Document:
    """One document. Handles on the same one may be used at once, from any number of tasks and processes.

    `locus.threads.ThreadStore.document` makes it. `lists` says which of its fields are lists.
    """

    def __init__(self, store: CheckpointStore, thread_id: str, namespace: str, lists: Lists = ()) -> None:
        check_ids(thread_id, None, namespace)
        self.thread_id = thread_id
        self.namespace = namespace
        self._store = store
        self._is_list: Callable[[str], bool] = lists if callable(lists) else frozenset(lists).__contains__
        self._paths = None if callable(lists) else frozenset((name,) for name in lists)
        self._has_lists = self._paths is None or bool(self._paths)
        self._changed: Version | None = None
        """What `change` has saved last."""
        self._loaded: Version | None = None
        """What `remember` was given last, without its content."""

    async def read(self, checkpoint_id: str | None = None, *, newest: int | None = None) -> Version | None:
        """The document as of a checkpoint, or of the latest; None if that is not there.

        With `newest`, only so many of the last items of each list are read (0: none), and the rest of the document.
        """
        store = self._store
        if newest is None or not self._has_lists:
            loaded = await store.load(self.thread_id, checkpoint_id, self.namespace, TEXTS)
            return None if loaded is None else self._version(loaded.value, None)
        newest = max(0, min(newest, MOST))
        stored = await self._end(checkpoint_id, max(newest, 1))
        return None if stored is None else self._version(stored, newest)

    async def read_many(self, checkpoint_ids: Iterable[str]) -> list[Version]:
        """The document as of these checkpoints, in this order, without those that are gone. A few are read at once."""
        turn = asyncio.Semaphore(AT_ONCE)

        async def read(checkpoint_id: str) -> Version | None:
            async with turn:
                stored = await self._store.read(self.thread_id, checkpoint_id, self.namespace)
            return None if stored is None else self._version(stored, None)

        versions = await asyncio.gather(*map(read, checkpoint_ids))
        return [version for version in versions if version is not None]

    def _version(self, stored: Stored, newest: int | None) -> Version:
        """Make a version from a checkpoint that was read, with the last `newest` items of each list (None: all)."""
        entry, reading = stored.entry, (stored, newest, not self._store.engine.dialect.exact)
        if self._has_lists:
            return _with_lists(reading, self._is_list)
        return Version(entry.checkpoint_id, dict_from(stored), entry=entry, reading=reading)

    async def _end(self, checkpoint_id: str | None, last: int) -> Stored | None:
        """Read the last items of each list, and everything that is no list."""
        read_part, paths = self._store.read_part, self._paths
        if paths is not None:
            return await read_part(self.thread_id, checkpoint_id, self.namespace, Window(last, paths))
        stored = await read_part(self.thread_id, checkpoint_id, self.namespace, Ends(last))
        if stored is None:
            return None
        cuts = decode_manifest(stored.manifest)
        lists = _list_cuts(cuts, self._is_list)
        others = [cut for path, cut in cuts.items() if path not in lists]
        if all(isinstance(cut, tuple) and all(extent.length <= last for extent in cut) for cut in others):
            return stored
        checkpoint_id = stored.entry.checkpoint_id
        return await read_part(self.thread_id, checkpoint_id, self.namespace, Window(last, lists))

    async def items(
        self, path: str | Sequence[str], start: int = 0, count: int = MOST, *, checkpoint_id: str | None = None
    ) -> ItemPage | None:
        """Some items of one list, and how many it has; None if the checkpoint has no list there, or is not there.

        A negative `start` counts from the end. A path of several names leads to a list inside of a field.
        """
        names = (path,) if isinstance(path, str) else tuple(path)
        part = Range(names, max(-MOST, min(start, MOST)), max(0, min(count, MOST)))
        stored = await self._store.read_part(self.thread_id, checkpoint_id, self.namespace, part)
        if stored is None:
            return None
        try:
            return page_of(stored, part)
        except ConfigurationError:
            return None

    async def save(
        self,
        fields: Mapping[str, Any],
        *,
        lists: ListChanges = EMPTY,
        after: Version | None = None,
        metadata: Mapping[str, Any] | None = None,
        checkpoint_id: str | None = None,
        parent: str | None | Unset = ANY,
        parent_as_named: bool = False,
        if_latest: str | None | Unset = ANY,
    ) -> Version:
        """Save fields and lists as one checkpoint, in one step. What is in neither is not in the document any more.

        `after` is the version that this was worked out for: what is unchanged since is referred to, and it is the
        parent unless `parent` names another. A save that keeps items needs it. A field that is frozen (`freeze`) is
        recognised by its identity, any other by its content.

        `if_latest` names the checkpoint that must still be the latest (None: there must be none), else `ConflictError`
        is raised. It is raised as well if the items to keep are gone. Then nothing was written.

        Without a `checkpoint_id` a new one is made. The same content under an id that exists changes nothing; another
        one takes its place and is the newest. With `parent_as_named`, a parent is kept whether or not it exists.
        """
        known, added = None if after is None else after._trace or after._referred(), 0
        if lists:
            payload, known, added = self._taken_apart(fields, lists, after, known)
        elif _FROZEN.isdisjoint(map(type, fields.values())):
            payload = dict_payload(fields)
        else:
            payload = Payload({}, dict_payload(fields).fields, frozen=True)
        try:
            saved = await self._store.save(
                self.thread_id,
                payload,
                namespace=self.namespace,
                checkpoint_id=checkpoint_id,
                metadata=metadata,
                parent=parent,
                parent_as_named=parent_as_named,
                if_latest=if_latest,
                known=known,
                off_loop=added >= _MANY,
            )
        except WindowError as error:
            raise ConflictError(
                f"thread {self.thread_id!r}: the items to keep were removed by another writer; nothing was written. "
                "Read it again, and apply the change to that"
            ) from error
        if lists:
            return self._saved(saved, fields, lists, payload)
        return Version(saved.checkpoint_id, fields, trace=saved.trace)

    def _taken_apart(
        self, fields: Mapping[str, Any], lists: ListChanges, after: Version | None, known: Trace | None
    ) -> tuple[Payload, Trace | None, int]:
        """A save as a payload, the trace that it builds on, and the number of items that it adds."""
        values, traces = dict(fields), {} if known is None else dict(known.fields)
        omitted: dict[str, int] = {}
        added = 0
        for name, change in lists.items():
            if not isinstance(change, Kept):
                values[name] = change
                continue
            count, items = change.count, change.items
            added += len(items)
            there = 0 if after is None else after.counts.get(name, 0)
            if not 0 <= count <= there:
                raise ConfigurationError(f"the list {name!r:.80} has {there} items to keep, and not {count!r:.40}")
            uncut = None if after is None else after._uncut.get(name)
            if uncut is not None:
                values[name] = [*uncut[:count], *items]
                continue
            values[name] = items
            if count:
                omitted[name] = count
            if name in traces:
                traces[name] = self._shown_from(count, change.instead_of, name, traces[name])
        if known is not None:
            known = Trace(known.base, traces, known.passed, known.base)
        return Payload({}, dict_payload(values).fields, frozen=True, omitted=omitted), known, added

    def _shown_from(self, count: int, instead_of: Sequence[Any], name: str, known: FieldTrace) -> FieldTrace:
        """A stored list of which a save keeps the first `count` items and replaces the others."""
        path = (name,)
        cut = known.cuts.get(path)
        if not isinstance(cut, ListTrace):
            return known
        sort_keys = not self._store.engine.dialect.exact
        digests = tuple([fingerprint(encode(item, sort_keys=sort_keys)) for item in instead_of]) if instead_of else ()
        return FieldTrace(None, "[]", {path: ListTrace(cut.extents, None, digests, cut.chains, count)})

    def _saved(self, saved: Saved, fields: Mapping[str, Any], lists: ListChanges, payload: Payload) -> Version:
        counts: dict[str, int] = {}
        uncut: dict[str, Sequence[Any]] = {}
        keeps_runs, traces = self._store.engine.keeps_runs, saved.trace.fields
        for name, change in lists.items():
            counts[name] = change.count + len(change.items) if isinstance(change, Kept) else len(change)
            if not keeps_runs or name not in traces or (name,) not in traces[name].cuts:
                items = payload.fields[name]
                uncut[name] = freeze(items) if items else items  # the caller may go on changing them
        return Version(saved.checkpoint_id, fields, counts, uncut=uncut, trace=saved.trace)

    async def change(
        self, work_out: Callable[[Version | None], Awaitable[Change | None]], *, content: bool = True
    ) -> Version | None:
        """Save the content that `work_out` makes of the latest version; again, as often as another writer was faster.

        `work_out` gets the version without the items of its lists, or None if there is no document yet. It is called
        again if another writer was faster, and whenever it raises or answers None (nothing is to be changed) for a
        version that this handle remembers: that may be older than what is there. A `ConflictError` of its own counts as
        another writer. Returns the version that was saved; None if nothing was.

        With `content=False`, nothing of the document is read or remembered, and `work_out` gets a version that only
        says which checkpoint is the latest: for a change that replaces everything.
        """
        async with self.lock():
            for attempt in range(_ATTEMPTS):
                remembered, self._changed = self._changed if content else None, None
                try:
                    latest = remembered or await (self.read(newest=0) if content else self._unread())
                    change = await work_out(latest)
                    if change is not None:
                        saved = await self.save(
                            change.fields,
                            lists=change.lists,
                            after=change.after or (latest if content else None),
                            metadata=change.metadata,
                            checkpoint_id=change.checkpoint_id,
                            if_latest=None if latest is None else latest.checkpoint_id,
                        )
                        if content:
                            if not _FROZEN.issuperset(map(type, saved.fields.values())):
                                saved.fields = freeze(saved.fields)  # the caller may go on changing them
                            self._changed = saved
                        return saved
                except BackendUnavailableError:
                    raise
                except ConflictError:
                    if attempt:
                        await _BETWEEN_ATTEMPTS.pause(attempt)
                    continue
                except Exception:
                    if remembered is None:
                        raise
                    continue
                if remembered is None:
                    return None
        raise ConflictError(
            f"thread {self.thread_id!r:.80} is changed by others faster than this change can follow; try again"
        )

    async def _unread(self) -> Version | None:
        """The latest version, of which no content was read."""
        entry = await self._store.entry(self.thread_id, None, self.namespace)
        return None if entry is None else Version(entry.checkpoint_id, entry=entry)

    def remember(self, version: Version) -> None:
        """Keep in memory what a save after this version will need, without its content."""
        self._loaded = Version(version.checkpoint_id, trace=version._referred())

    def remembered(self, checkpoint_id: str | None) -> Version | None:
        """Take the version that `remember` has kept, if it is of this checkpoint."""
        version, self._loaded = self._loaded, None
        return version if version is not None and version.checkpoint_id == checkpoint_id else None

    def lock(self) -> asyncio.Lock:
        """One lock for all handles of an event loop on this document: they take turns, and do not race each other."""
        return _locks.current((self._store.engine.identity, self.thread_id, self.namespace))

    async def delete(self) -> bool:
        """Delete the document with its history. True if there was one."""
        async with self.lock():
            self._changed = self._loaded = None
            return await self._store.delete(self.thread_id, None, self.namespace)
