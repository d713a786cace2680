"""`LocusStorage`: Strands' `Storage` on every backend, for its `SnapshotSessionManager` and for any bytes.

A key is a thread of the namespace `strands-storage`, and each write is a checkpoint of it. All snapshots of an agent
are one thread: `snapshot_latest.json`, which every turn writes anew, and those of `immutable_history`, which are
checkpoints with their own ids. They share their messages (see `texts`), so a turn costs what is new in it, and not the
whole conversation.
"""

from __future__ import annotations

import re
from builtins import list as List
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, Self, TypeVar

from strands.storage.search import KeywordSearchStrategy, SearchStrategy
from strands.storage.storage import _NAMESPACED, StorageSearchResult
from strands.types.exceptions import StorageError

from locus.errors import CheckpointNotFoundError, CorruptCheckpointError, InvalidIdError
from locus.integrations.strands.texts import around, message_of, put_together, taken_apart, whole
from locus.threads import (
    ANY,
    AsyncStoreUser,
    EncodedList,
    EncodedVersion,
    Entry,
    SessionPoint,
    fingerprint,
)
from locus.threads.blocking import awaited
from locus.threads.ids import check_id, check_text, shortened
from locus.threads.json import decode
from locus.threads.limits import MOST

__all__ = ["NAMESPACE", "LocusStorage", "snapshot_key"]

V = TypeVar("V")

NAMESPACE: Final = "strands-storage"
"""The namespace of values. For a store without namespaces, pass `namespace="default"`."""

_OWN_OPTIONS = ("refuse_stale", "search_strategy", "namespace")
_ITEMS: Final = "items"
_LATEST: Final = "latest"
_SNAPSHOT: Final = re.compile(
    r"((?:.*/)?snapshots/)(?:snapshot_latest|immutable_history/snapshot_([0-9a-f-]{36}))\.json", re.DOTALL
)
_KEPT_OF_LONG_KEYS: Final = 200
_PAGE: Final = 100
_MOST_HELD: Final = 64 * 1024 * 1024
"""How many bytes of messages are held, so that a write can see that a snapshot was only added to."""


class InvalidKeyError(InvalidIdError, StorageError):
    """A key that Strands' own storages refuse, too."""


class ValuePlace(NamedTuple):
    """The thread and the namespace that keep a value."""

    thread_id: str
    full: str
    """What the thread would be called if ids had no limit."""
    name: str
    """Which snapshot of the thread: `latest`, or its id; empty for a value that is no snapshot."""

    @property
    def checkpoint_id(self) -> str | None:
        return self.name if self.name not in ("", _LATEST) else None

    @property
    def metadata(self) -> dict[str, str]:
        full = {} if self.full == self.thread_id else {"of": self.full}
        return {"strands": self.name, **full}


@dataclass(frozen=True, slots=True)
class _HeldSnapshot:
    """The newest snapshot of a thread that this handle has read or written."""

    version: EncodedVersion
    body: bytes
    """The text of its items, as it stands in the snapshot."""
    size: int
    """About how many bytes this takes."""


class _HeldSnapshots:
    """The snapshots that a handle has used last, up to `_MOST_HELD` bytes."""

    def __init__(self) -> None:
        self._by_thread: OrderedDict[str, _HeldSnapshot] = OrderedDict()
        self._bytes = 0

    def get(self, thread_id: str) -> _HeldSnapshot | None:
        return self._by_thread.get(thread_id)

    def take(self, thread_id: str) -> _HeldSnapshot | None:
        """Take one out."""
        held = self._by_thread.pop(thread_id, None)
        if held is not None:
            self._bytes -= held.size
        return held

    def put(self, thread_id: str, held: _HeldSnapshot) -> None:
        self.take(thread_id)
        self._by_thread[thread_id] = held
        self._bytes += held.size
        while self._bytes > _MOST_HELD:
            self.take(next(iter(self._by_thread)))

    def clear(self) -> None:
        self._by_thread.clear()
        self._bytes = 0


class LocusStorage(AsyncStoreUser):
    """A `Storage` of Strands on any Locus store, for every event loop and OS thread.

    `store` is a checkpointer, a storage backend, or a name or URL with its `options`. `close` closes a store that was
    opened here by name, and leaves others open.

    As in Strands' own storages, the last writer of a key wins; what it took the place of is in the `history`. With
    `refuse_stale`, a write raises `ConflictError` if somebody else has written to the thread since this handle has read
    or written it. `search_strategy` is one of Strands: it gets what is written, and answers `search`.
    """

    def __init__(
        self,
        store: Any,
        *,
        refuse_stale: bool = False,
        search_strategy: SearchStrategy[Any] | None = None,
        namespace: str = NAMESPACE,
        **options: Any,
    ) -> None:
        self._open(store, options, _OWN_OPTIONS)
        self._refuse_stale = refuse_stale
        self._search_strategy = search_strategy
        self._space = namespace
        self._prefix = ""
        self._held = _HeldSnapshots()

    def _closed_error(self, name: str) -> Exception:
        return StorageError(f"this storage is closed: make a new {name}")

    async def write(self, key: str, data: bytes) -> None:
        """Keep bytes under a key."""
        place = self._place(key)
        await awaited(self._write(place, bytes(data)))
        if self._search_strategy is not None:
            await self._search_strategy.index(self, _checked_key(key), data)

    async def read(self, key: str, *, checkpoint_id: str | None = None) -> bytes | None:
        """The bytes under a key, as of a checkpoint of its history or of the latest; None if there are none."""
        place = self._place(key)
        if checkpoint_id is not None:
            check_id(checkpoint_id, "checkpoint_id")
        return await awaited(self._read(place, checkpoint_id))

    async def messages(self, key: str, limit: int | None = None, *, checkpoint_id: str | None = None) -> List[Any]:
        """The newest messages of a snapshot, in order; none if there is no snapshot. Older ones are not read."""
        place = self._place(key)
        return await awaited(self._messages(place, limit, checkpoint_id))

    async def delete(self, key: str) -> None:
        """Delete the value under a key, with its history."""
        await awaited(self._delete(self._place(key)))

    async def list(self, query: str = "") -> List[str]:
        """The keys that start with a prefix, in order."""
        prefix = self._prefix + _checked_prefix(query)
        found = await awaited(self._list(prefix))
        return [key[len(self._prefix) :] for key in found]

    async def search(self, query: str) -> List[StorageSearchResult]:
        """The keys that the search strategy finds. By default, every value is searched for the query's words."""
        strategy: SearchStrategy[Any] = self._search_strategy or KeywordSearchStrategy()
        return await strategy.search(self, query)

    def namespace(self, prefix: str) -> Self:
        """A view of this storage that has only the keys under a prefix. Closing either closes both."""
        inner = _checked_prefix(prefix).rstrip("/")
        scoped = copy(self)
        scoped._prefix = f"{self._prefix}{inner}/" if inner else self._prefix
        scoped._namespaced = _NAMESPACED  # type: ignore[attr-defined]  # how Strands knows a view that has a prefix
        return scoped

    async def history(self, key: str, limit: int | None = 10, before: str | None = None) -> List[SessionPoint]:
        """The points in the history of a key, newest first. All snapshots of an agent share one history.

        `items` is how many messages there were, if that is known, and `change` is `latest` or the id of a snapshot.
        """
        place = self._place(key)
        entries = await awaited(self._store.history(place.thread_id, self._space, limit, before))
        return [_point(entry) for entry in entries]

    async def rewind(self, key: str, checkpoint_id: str) -> None:
        """Restore the value that a key had at a checkpoint. Later points stay in the history."""
        data = await self.read(key, checkpoint_id=checkpoint_id)
        if data is None:
            raise CheckpointNotFoundError(f"the key has no checkpoint {checkpoint_id!r:.80}")
        await self.write(key, data)

    async def fork(self, key: str, new_key: str, checkpoint_id: str | None = None) -> None:
        """Begin a new key from a point in the history of another, by default the latest.

        For a snapshot that is the thread of its agent: `fork(snapshot_key("alice"), snapshot_key("alice-2"))`. Raises
        `ConflictError` if the new key is in use.
        """
        source, dest = self._place(key), self._place(new_key)
        if bool(source.name) != bool(dest.name) or dest.full != dest.thread_id or source.full != source.thread_id:
            raise InvalidKeyError("a key is forked to another of its kind, and both must have less than 200 characters")
        await awaited(self._fork(source, dest, checkpoint_id))

    async def _end(self) -> None:
        self._held.clear()
        await awaited(super()._end())  # where the store is used

    def _place(self, key: str) -> ValuePlace:
        full = self._prefix + _checked_key(key)
        found = _SNAPSHOT.fullmatch(full)
        if found is None:
            return ValuePlace(shortened(full), full, "")
        return ValuePlace(shortened(found[1]), found[1], found[2] or _LATEST)

    async def _write(self, place: ValuePlace, data: bytes) -> None:
        store = self._store
        sort_keys = await store.sorts_keys()
        async with store.document(place.thread_id, self._space).lock():
            held = self._held.take(place.thread_id)
            known = held.version.digests().get((_ITEMS,), ()) if held and held.body else ()
            apart = taken_apart(data, held.body if held else b"", len(known), sort_keys=sort_keys)
            if apart is None:
                encoded, fields = None, whole(data)
            else:
                encoded = _encoded(data, known[: apart.known], apart.fresh, sort_keys)
                fields = {**around(apart), _ITEMS: encoded, "length": len(data)}
            version = await store.encoded_document(place.thread_id, self._space).save(
                fields,
                after=held.version if held else None,
                metadata=place.metadata | ({} if encoded is None else {"messages": len(encoded)}),
                checkpoint_id=place.checkpoint_id,
                if_latest=held.version.checkpoint_id if self._refuse_stale and held else ANY,
            )
            self._hold(place.thread_id, version, b"" if apart is None else apart.body)

    def _hold(self, thread_id: str, version: EncodedVersion, body: bytes) -> None:
        self._held.put(thread_id, _HeldSnapshot(version, body, len(body) + version.size))

    async def _read(self, place: ValuePlace, checkpoint_id: str | None) -> bytes | None:
        document = self._store.encoded_document(place.thread_id, self._space)
        version = await document.read(checkpoint_id or place.checkpoint_id)
        if version is not None and checkpoint_id is None:
            version = await self._at(place, version, version.entry, document.read)
        if version is None or _full(version.entry) != place.full:
            return None
        data, body = put_together(version.content())
        held = self._held.get(place.thread_id)
        if version.is_latest and (held is None or not held.version.is_same(version)):
            self._hold(place.thread_id, version, body)
        return data

    async def _messages(self, place: ValuePlace, limit: int | None, checkpoint_id: str | None) -> List[Any]:
        document = self._store.document(place.thread_id, self._space, (_ITEMS,))
        count = MOST if limit is None else max(0, min(limit, MOST))
        read = partial(document.read, newest=count)
        version = await read(checkpoint_id or place.checkpoint_id)
        if version is not None and version.entry is not None and checkpoint_id is None:
            version = await self._at(place, version, version.entry, read)
        if version is None or version.entry is None or _full(version.entry) != place.full:
            return []
        return [message_of(item) for item in version.lists.get(_ITEMS, ())]  # what is no snapshot has none

    async def _at(
        self, place: ValuePlace, newest: V, entry: Entry, read: Callable[[str], Awaitable[V | None]]
    ) -> V | None:
        """The checkpoint that holds a place's value: the newest, or the last before snapshots of the history."""
        if place.name != _LATEST or _name(entry) == _LATEST:
            return newest
        async for older in self._entries(place.thread_id):
            if _name(older) == _LATEST:
                return await read(older.checkpoint_id)
        return None

    async def _entries(self, thread_id: str) -> AsyncIterator[Entry]:
        before: Entry | None = None
        while True:
            entries = await self._store.history(thread_id, self._space, _PAGE, before)
            for entry in entries:
                yield entry
            if len(entries) < _PAGE:
                return
            before = entries[-1]

    async def _delete(self, place: ValuePlace) -> None:
        async with self._store.document(place.thread_id, self._space).lock():
            self._held.take(place.thread_id)
            if place.name != _LATEST:
                await self._store.delete(place.thread_id, self._space, place.checkpoint_id)
                return
            chosen = [entry async for entry in self._entries(place.thread_id) if _name(entry) == _LATEST]
            await self._store.delete_entries(place.thread_id, self._space, chosen)

    async def _list(self, prefix: str) -> List[str]:
        threads = await self._store.list_threads(prefix=prefix[:_KEPT_OF_LONG_KEYS])
        inside = prefix[: prefix.rfind("snapshots/") + len("snapshots/")] if "snapshots/" in prefix else ""
        found: set[str] = set()
        for thread_id in {*threads, shortened(inside)} if inside else threads:
            found.update(key for key in await self._keys(thread_id) if key.startswith(prefix))
        return sorted(found)

    async def _keys(self, thread_id: str) -> set[str]:
        newest = await self._store.entry(thread_id, self._space)
        if newest is None:
            return set()
        full = _full(newest)
        if not _name(newest):
            return {full}
        names = {_name(entry) async for entry in self._entries(thread_id)}
        return {f"{full}{_file(name)}" for name in names}

    async def _fork(self, source: ValuePlace, dest: ValuePlace, checkpoint_id: str | None) -> None:
        if not await self._store.fork(source.thread_id, dest.thread_id, self._space, checkpoint_id):
            raise CheckpointNotFoundError("the key has no such checkpoint to fork from")


def _encoded(data: bytes, known: tuple[bytes, ...], fresh: Sequence[str], sort_keys: bool) -> EncodedList:
    """The items of a snapshot as an encoded list. Known items are taken apart only if they must be written."""
    every: list[str] = []

    def text(index: int) -> str:
        if index >= len(known):
            return fresh[index - len(known)]
        if not every:
            again = taken_apart(data, sort_keys=sort_keys)
            assert again is not None
            every.extend(again.fresh)
        return every[index]

    return EncodedList((*known, *map(fingerprint, fresh)), text)


def snapshot_key(session_id: str, agent_id: str = "default") -> str:
    """The key under which a `SnapshotSessionManager` keeps the latest snapshot of an agent."""
    return f"session/{session_id}/scopes/agent/{agent_id}/snapshots/snapshot_latest.json"


def _file(name: str) -> str:
    return "snapshot_latest.json" if name == _LATEST else f"immutable_history/snapshot_{name}.json"


def _metadata(entry: Entry) -> Mapping[str, Any]:
    found = decode(entry.metadata)
    if not isinstance(found, dict) or not isinstance(found.get("strands"), str):
        raise CorruptCheckpointError(
            "a thread in the namespace of Strands' storage is none of its values: something else uses it. "
            "Use another namespace"
        )
    return found


def _name(entry: Entry) -> str:
    name: str = _metadata(entry)["strands"]
    return name


def _full(entry: Entry) -> str:
    return str(_metadata(entry).get("of", entry.thread_id))


def _point(entry: Entry) -> SessionPoint:
    found = _metadata(entry)
    items = found.get("messages")
    count = items if isinstance(items, int) else None
    return SessionPoint(entry.checkpoint_id, entry.parent_id, entry.created_at, count, found["strands"])


def _checked_key(key: str) -> str:
    """A key in the form of Strands' own storages: single slashes between names, and none at the ends."""
    normal = _checked_prefix(key).rstrip("/")
    if not normal:
        raise InvalidKeyError("a key must not be empty")
    return normal


def _checked_prefix(prefix: str) -> str:
    if not isinstance(prefix, str):
        raise InvalidKeyError(f"a key is text, got {type(prefix).__name__}")
    try:
        check_text(prefix, "key")
    except InvalidIdError as error:
        raise InvalidKeyError(str(error)) from None
    if "\\" in prefix:
        raise InvalidKeyError("backslashes are not allowed in a key")
    normal = re.sub(r"/+", "/", prefix).lstrip("/")
    if ".." in normal.split("/"):
        raise InvalidKeyError("'..' path segments are not allowed in a key")
    return normal
