"""Documents whose lists the caller encodes, recognises and decodes itself.

A `Document` takes plain values and compares all of them with what is stored. That is too much where the items of a list
are objects that take long to encode, and most of them were saved before. An `EncodedDocument` takes an `EncodedList`
wherever a list may stand, at any depth of dicts: a digest for each item, and a function for the texts. A text is asked
for only if it has to be written, so whoever knows the digests of a list pays for new items alone:

    document = store.encoded_document("alice", "my-framework")
    version = await document.read()
    known = version.digests()["messages",]
    texts = [encode(as_json(message), sort_keys=await store.sorts_keys()) for message in new]
    every = EncodedList((*known, *map(fingerprint, texts)), lambda index: texts[index - len(known)])
    await document.save({"messages": every}, after=version)

A version that was read is decoded when its content is asked for: as plain values, or by an `ItemDecoder`, which makes
the caller's objects of them and decodes what many versions share only once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

from locus.core.frozen import EMPTY
from locus.errors import CorruptCheckpointError
from locus.memory.cache import weight_of_runs, weight_of_trace
from locus.memory.engine import Exports
from locus.memory.model.codec import decode_head
from locus.memory.model.digests import fingerprint
from locus.memory.model.ids import check_ids, shown_thread
from locus.memory.model.manifest import by_branch, decode_manifest, decoded_items, extents_at, list_items, visible
from locus.memory.model.payloads import dict_from, placed, stored_trace
from locus.memory.model.plan import SMALL_LIST, EncodedList, Payload
from locus.memory.model.records import ANY, Base, Entry, Extent, Path, Run, Stored, TaskWrites, Unset, Write
from locus.memory.model.trace import ListTrace, Trace
from locus.memory.model.warm import TEXTS
from locus.memory.store import CheckpointStore
from locus.threads.limits import AT_ONCE

__all__ = [
    "Ancestor",
    "DecodedList",
    "EncodedDocument",
    "EncodedList",
    "EncodedVersion",
    "ItemDecoder",
    "Path",
    "ReadVersion",
    "VersionWithWrites",
    "fingerprint",
    "is_small",
    "read_versions",
]

_PLAIN: Final = frozenset({str, int, float, bool, type(None)})


def is_small(items: Sequence[Any]) -> bool:
    """Whether a list is a few plain values. Give such a list as it is: a save may keep it with the fields."""
    return len(items) <= SMALL_LIST and _PLAIN.issuperset(map(type, items))


class DecodedList(list[Any]):
    """The items of a list that an `ItemDecoder` has decoded."""


class ItemDecoder:
    """Decodes the items of one thread. An item that several versions share is decoded once.

    `decode_items` gets some items of a list as plain values, and the path of the list for errors, and returns as many
    objects. All versions of one thread may share a decoder, and those of another thread need one of their own: the
    parts of a copied thread have the same names.

    `recall` is for a caller who remembers what texts were decoded to: it is given a text, and a function that decodes
    it, and returns new objects.
    """

    def __init__(
        self,
        decode_items: Callable[[Any, Path], list[Any]],
        recall: Callable[[str, Callable[[], list[Any]]], list[Any]] | None = None,
    ) -> None:
        self._decode_items = decode_items
        self._recall = recall
        self._runs: dict[tuple[str, int], list[Any]] = {}
        self._newest: dict[str, _DecodedExtent] = {}

    def _list(self, extents: Collection[Extent], runs: Mapping[str, Sequence[Run]], path: Path) -> DecodedList:
        items = DecodedList()
        for extent in extents:
            items += self._items(extent, runs.get(extent.branch, ()), path)
        return items

    def _items(self, extent: Extent, runs: Sequence[Run], path: Path) -> Sequence[Any]:
        known = self._newest.get(extent.branch)
        if known is not None and known.begins_with(extent):
            return known.items[: extent.length]
        items: list[Any] = []
        for run, low, high in visible(extent, runs):
            decoded = self._runs.get((run.branch, run.number))
            if decoded is None:
                decoded = self._runs[run.branch, run.number] = self._decoded(run, path)
            items += decoded if (low, high) == (0, len(decoded)) else decoded[low:high]
        self._newest[extent.branch] = _DecodedExtent(extent, items, {run.number: run.start for run in runs})
        return items

    def _decoded(self, run: Run, path: Path) -> list[Any]:
        if self._recall is None:
            return self._decode_items(decoded_items(run), path)
        return self._recall(run.items, lambda: self._decode_items(decoded_items(run), path))


@dataclass(frozen=True, slots=True)
class _DecodedExtent:
    """An extent, its decoded items, and the positions at which the runs of its branch start."""

    extent: Extent
    items: list[Any]
    starts: Mapping[int, int]

    def begins_with(self, extent: Extent) -> bool:
        """Whether these items begin with those of an older extent, because later runs only appended to it."""
        known = self.extent
        if extent.skip != known.skip or not extent.run <= known.run or extent.length > known.length:
            return False
        end = extent.skip + extent.length
        return all(self.starts.get(number, -1) >= end for number in range(extent.run + 1, known.run + 1))


class EncodedVersion:
    """An encoded document as of a checkpoint, without its content, for a save that goes on from it."""

    __slots__ = ("_rev", "_trace", "checkpoint_id")

    def __init__(self, base: Base, trace: Trace | None) -> None:
        self.checkpoint_id = base.checkpoint_id
        self._rev = base.rev
        self._trace = trace

    @property
    def rev(self) -> str:
        """Names what was saved: a checkpoint that takes the place of another one under its id has another."""
        return self._rev

    def is_same(self, other: EncodedVersion) -> bool:
        """Whether two versions are of the same checkpoint, and not of two that had the same id."""
        return self._rev == other._rev

    @property
    def size(self) -> int:
        """About how many bytes of memory this version takes."""
        return 0 if self._trace is None else weight_of_trace(self._trace)

    def digests(self, older: EncodedVersion | None = None) -> dict[Path, tuple[bytes, ...]]:
        """The digests of the items of each list that is stored item by item, by path.

        They are worked out when they are first asked for. Items that a list begins with in `older` too, a version whose
        digests are known, are not looked at for that.
        """
        return {
            path: cut.digests
            for field in self._referred(older).fields.values()
            for path, cut in field.cuts.items()
            if isinstance(cut, ListTrace) and cut.digests is not None
        }

    def _referred(self, older: EncodedVersion | None = None) -> Trace:
        """What a save that goes on from this version needs to know of it: see `locus.memory.model.trace`."""
        assert self._trace is not None
        return self._trace


class ReadVersion(EncodedVersion):
    """An encoded document as it was read. Its parts are decoded when they are asked for."""

    __slots__ = ("_sort_keys", "_stored")

    def __init__(self, stored: Stored, sort_keys: bool = False) -> None:
        super().__init__(Base(stored.entry.checkpoint_id, stored.entry.rev), None)
        self._stored = stored
        self._sort_keys = sort_keys

    @property
    def entry(self) -> Entry:
        """The checkpoint without its payload."""
        return self._stored.entry

    @property
    def is_latest(self) -> bool:
        """Whether this was the newest checkpoint of its namespace when it was read. True if the store cannot tell."""
        return not self._stored.passed

    @property
    def size(self) -> int:
        texts = [weight_of_runs(runs) for runs in self._stored.runs.values()]
        return super().size + len(self._stored.head) + sum(texts)

    @property
    def paths(self) -> list[Path]:
        """The paths of the lists that are stored item by item."""
        return [path for path, cut in decode_manifest(self._stored.manifest).items() if not isinstance(cut, str)]

    def fields(self) -> Any:
        """The fields, in which each list that is stored item by item is empty. Any JSON, if this is no document."""
        return decode_head(self._stored.head)

    def content(
        self, decoder: ItemDecoder | None = None, leave_out: Callable[[Path], bool] | None = None
    ) -> dict[str, Any]:
        """The fields with all their lists.

        With a decoder, a list that is stored item by item is a `DecodedList`; everything else is plain JSON. Lists and
        large values with paths for which `leave_out` is true are not decoded, and are missing in their places.
        """
        stored = self._stored
        cuts = decode_manifest(stored.manifest)
        left_out = () if leave_out is None else [path for path in cuts if leave_out(path)]
        if decoder is None:
            return dict_from(stored, left_out)
        content: Any = decode_head(stored.head)
        for path in sorted(cuts, key=len):  # a large value may contain lists that are stored apart as well
            if path in left_out:
                continue
            cut = cuts[path]
            if isinstance(cut, str):
                (value,) = list_items(extents_at(cut), stored.runs)
                content = placed(content, path, value)
            else:
                content = placed(content, path, decoder._list(cut, stored.runs, path))
        if not isinstance(content, dict):
            raise CorruptCheckpointError(
                f"checkpoint {self.checkpoint_id!r} of {shown_thread(stored.entry.thread_id)} is not an object"
            )
        return content

    def _referred(self, older: EncodedVersion | None = None) -> Trace:
        if self._trace is None:
            self._trace = stored_trace(self._stored, self._sort_keys, None if older is None else older._trace)
        return self._trace


class VersionWithWrites(NamedTuple):
    """A version, and the pending writes of its checkpoint as JSON texts."""

    version: ReadVersion
    writes: list[Write]


class Ancestor(NamedTuple):
    """A checkpoint that another one was made from, and what tasks have written since, with values as JSON text."""

    checkpoint_id: str
    rev: str
    version: ReadVersion | None
    """It has its `fields`, but no lists. None if its rev was known."""
    writes: list[Write]


class EncodedDocument:
    """One namespace of a thread as fields whose lists the caller encodes.

    `locus.threads.ThreadStore.encoded_document` makes it. What it saves, a `Document` can read, and the reverse.
    """

    def __init__(self, store: CheckpointStore, thread_id: str, namespace: str) -> None:
        check_ids(thread_id, None, namespace)
        self.thread_id = thread_id
        self.namespace = namespace
        self._store = store

    async def read(self, checkpoint_id: str | None = None) -> ReadVersion | None:
        """Read the document as of a checkpoint, by default the latest; None if that does not exist."""
        return await self._read(checkpoint_id, None)

    async def _read(self, checkpoint_id: str | None, writes: list[Write] | None) -> ReadVersion | None:
        store = self._store
        loaded = await store.load(self.thread_id, checkpoint_id, self.namespace, TEXTS, writes)
        return None if loaded is None else ReadVersion(loaded.value, not store.engine.dialect.exact)

    async def read_with_writes(self, checkpoint_id: str | None = None) -> VersionWithWrites | None:
        """Read the document with the pending writes of its checkpoint, if the store keeps any."""
        writes: list[Write] = []
        version = await self._read(checkpoint_id, writes if self._store.keeps_writes else None)
        return None if version is None else VersionWithWrites(version, writes)

    async def ancestors(
        self, checkpoint_id: str, *, limit: int, channels: Collection[str] = (), known: Collection[str] = ()
    ) -> list[Ancestor]:
        """The checkpoints that one was made from, its parent first, with their pending writes to these channels.

        A checkpoint is not read if its rev is `known`, and lists and large values are not read of any. There are fewer
        than `limit` if the oldest has no parent that is there. All of it is as of one instant.
        """
        store = self._store
        sort_keys = not store.engine.dialect.exact
        found = await store.ancestors(self.thread_id, checkpoint_id, self.namespace, limit, channels, known)
        return [
            Ancestor(name, rev, None if stored is None else ReadVersion(stored, sort_keys), writes)
            for name, rev, stored, writes in found
        ]

    async def save(
        self,
        fields: Mapping[str, Any],
        *,
        head: Mapping[str, Any] = EMPTY,
        after: EncodedVersion | None = None,
        metadata: Mapping[str, Any] | None = None,
        checkpoint_id: str | None = None,
        parent: str | None | Unset = ANY,
        parent_as_named: bool = False,
        if_latest: str | None | Unset = ANY,
        created_at: datetime | None = None,
        writes: Sequence[TaskWrites] = (),
    ) -> EncodedVersion:
        """Save fields as one checkpoint, in one step; in place of any list, an `EncodedList` may stand.

        `fields` and `head` are JSON, and nothing checks that again (`locus.threads.json.check` does). Those in `head`
        are stored with every checkpoint as a whole: they are small, or different each time.

        `after` is the version that is most likely similar: what is unchanged since is referred to. All other
        parameters are those of `Document.save`. `created_at` is the time of the checkpoint, if it is not now.

        `writes` are pending writes of the thread. They are durable, too, when this returns, and if the store can do
        that (`ThreadStore.commits_with_writes`) it is one commit.
        """
        store = self._store
        together = writes if store.commits_with_writes else ()
        saved = await store.save(
            self.thread_id,
            Payload(head, fields, frozen=False, checked=True),
            namespace=self.namespace,
            checkpoint_id=checkpoint_id,
            metadata=metadata,
            parent=parent,
            parent_as_named=parent_as_named,
            if_latest=if_latest,
            known=None if after is None else after._trace or after._referred(),
            created_at=created_at,
            writes=together,
        )
        if not together or saved.commit is None:  # all of it was there
            for task in writes:
                await store.send_writes(task)
        return EncodedVersion(saved.trace.base, saved.trace)


async def read_versions(store: CheckpointStore, entries: Sequence[Entry]) -> list[VersionWithWrites]:
    """Read the versions of these entries that still exist, with their pending writes, in the same order.

    Neighbours in the history of a thread are read in one step, and what they share is read once, if the store can.
    """
    versions: dict[tuple[str, str, str], VersionWithWrites] = {}
    for thread_id, some in groupby(entries, key=lambda entry: entry.thread_id):
        for found in await _of_thread(store, thread_id, list(some)):
            versions[_key_of(found.version.entry)] = found
    return [versions[key] for key in map(_key_of, entries) if key in versions]


def _key_of(entry: Entry) -> tuple[str, str, str]:
    return entry.thread_id, entry.namespace, entry.checkpoint_id


async def _of_thread(store: CheckpointStore, thread_id: str, entries: list[Entry]) -> list[VersionWithWrites]:
    low, high = min(entry.seq for entry in entries), max(entry.seq for entry in entries)
    if store.engine.offers(Exports) and high - low < 4 * len(entries):
        return await _exported(store, thread_id, low, high - low + 1)
    versions: list[VersionWithWrites | None] = []
    for start in range(0, len(entries), AT_ONCE):
        reads = [
            EncodedDocument(store, thread_id, entry.namespace).read_with_writes(entry.checkpoint_id)
            for entry in entries[start : start + AT_ONCE]
        ]
        versions += await asyncio.gather(*reads)
    return [version for version in versions if version is not None]


async def _exported(store: CheckpointStore, thread_id: str, seq: int, count: int) -> list[VersionWithWrites]:
    """Read `count` checkpoints of a thread from a sequence number on, each shared item only once."""
    async with store.using() as engine:
        assert isinstance(engine, Exports)
        pages = [await engine.export(thread_id, seq - 1, count, {})]
        # A server decides what it sends: a page with nothing on it is the last one, whatever it says.
        while (
            pages[-1].more
            and pages[-1].checkpoints
            and (known_count := sum(len(page.checkpoints) for page in pages)) < count
        ):
            known = {run.branch: run.number for page in pages for run in sorted(page.runs, key=itemgetter(1))}
            after = pages[-1].checkpoints[-1].entry.seq
            pages.append(await engine.export(thread_id, after, count - known_count, known))
        sort_keys = not engine.dialect.exact
    runs = by_branch(run for page in pages for run in page.runs)
    return [
        VersionWithWrites(
            ReadVersion(Stored(row.entry, row.head, row.manifest, runs, row.passed), sort_keys),
            page.writes.get((row.entry.namespace, row.entry.checkpoint_id), []),
        )
        for page in pages
        for row in page.checkpoints
    ]
