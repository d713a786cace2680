"""Somebody else's key-value object as an engine: five plain methods, and no transaction.

The object has `save(key, data)`, `load(key)`, `delete(key)`, `exists(key)` and, if it can, `list_threads()`;
they may be async or not. Each thread is kept under keys that other readers of such stores know:

    {thread_id}:{checkpoint_id}   the payload of a checkpoint
    {thread_id}:latest            the payload of the newest
    {thread_id}:_checkpoints      {"last_seq": …, "checkpoints": [{"checkpoint_id": …, "seq": …, …}, …]}

What such an object cannot keep: a save is three writes, so a crash between them, or a second process at the
same time, may lose a checkpoint from the list (the payload is written first, and the list last, so that what
is listed can be loaded); every save writes the whole payload; pending writes have no place. Adapters over one
object exclude each other inside one event loop.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from locus.errors import (
    BackendUnavailableError,
    CapabilityError,
    CheckpointError,
    ConfigurationError,
    CorruptCheckpointError,
    InvalidIdError,
)
from locus.memory.engine import Copies, Engine, FindsMetadata
from locus.memory.model.codec import decode, encode
from locus.memory.model.commit_rules import decide
from locus.memory.model.ids import Pattern
from locus.memory.model.matching import has_value, newest
from locus.memory.model.payloads import payload_text
from locus.memory.model.records import (
    DEFAULT_NAMESPACE,
    Commit,
    Entry,
    Known,
    Outcome,
    Stored,
    Verdict,
)
from locus.memory.model.retention import new_parents
from locus.memory.model.table import entry_of

NEEDED = ("save", "load", "delete", "exists")
INDEX = "_checkpoints"
LATEST = "latest"


class Index:
    """The list of a thread's checkpoints, oldest first."""

    def __init__(self, thread_id: str, data: Any) -> None:
        self.thread_id = thread_id
        self.last_seq = 0
        self.entries: list[Entry] = []
        if data is None:
            return
        try:
            self.last_seq = int(data["last_seq"])
            self.entries = [_entry(thread_id, line) for line in data["checkpoints"]]
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptCheckpointError(f"the list of checkpoints of {thread_id!r} cannot be read") from error

    def find(self, namespace: str, checkpoint_id: str | None) -> Known | None:
        for entry in reversed(self.entries):
            if entry.namespace == namespace and checkpoint_id in (None, entry.checkpoint_id):
                return Known(entry.checkpoint_id, entry.seq, entry.rev, entry.parent_id)
        return None

    def latest(self, namespace: str) -> Known | None:
        return self.find(namespace, None)

    def has_run(self, branch: str, number: int) -> bool:
        return False

    def data(self) -> dict[str, Any]:
        return {"last_seq": self.last_seq, "checkpoints": [_line(entry) for entry in self.entries]}


def _line(entry: Entry) -> dict[str, Any]:
    return {
        "checkpoint_id": entry.checkpoint_id,
        "parent_id": entry.parent_id,
        "namespace": entry.namespace,
        "seq": entry.seq,
        "rev": entry.rev,
        "created_at": entry.created_at.isoformat(),
        "metadata": decode(entry.metadata),
    }


def _entry(thread_id: str, line: dict[str, Any]) -> Entry:
    return Entry(
        thread_id,
        line["namespace"],
        line["checkpoint_id"],
        line["parent_id"],
        line["seq"],
        line["rev"],
        datetime.fromisoformat(line["created_at"]),
        encode(line["metadata"]),
    )


_Locks = WeakKeyDictionary[asyncio.AbstractEventLoop, WeakValueDictionary[str, asyncio.Lock]]
_shared: WeakKeyDictionary[Any, _Locks] = WeakKeyDictionary()


def _locks_of(store: Any) -> _Locks:
    """The locks of a store: the same for all adapters over it, where it can be told apart from others."""
    try:
        return _shared.setdefault(store, WeakKeyDictionary())
    except TypeError:
        return WeakKeyDictionary()


class PlainStoreEngine(Engine, FindsMetadata, Copies):
    """An engine over the five methods."""

    driver_errors = (Exception,)
    keeps_runs = False

    def __init__(self, store: Any) -> None:
        missing = [name for name in NEEDED if not callable(getattr(store, name, None))]
        if missing:
            raise ConfigurationError(
                f"{type(store).__name__} is no storage backend: it has no method {', '.join(missing)}"
            )
        self._store = store
        self._locks = _locks_of(store)

    @property
    def identity(self) -> str:
        return f"plain:{id(self._store)}"

    def _lock(self, thread_id: str) -> asyncio.Lock:
        locks = self._locks.setdefault(asyncio.get_running_loop(), WeakValueDictionary())
        lock = locks.get(thread_id)
        if lock is None:
            lock = locks[thread_id] = asyncio.Lock()
        return lock

    async def _call(self, method: str, *args: Any) -> Any:
        result = getattr(self._store, method)(*args)
        return await result if inspect.isawaitable(result) else result

    async def _index(self, thread_id: str) -> Index:
        return Index(thread_id, await self._call("load", f"{thread_id}:{INDEX}"))

    async def commit(self, commit: Commit) -> Outcome:
        check_key(commit.namespace, commit.checkpoint_id)
        async with self._lock(commit.thread_id):
            index = await self._index(commit.thread_id)
            outcome = decide(commit, index)
            if outcome.verdict is not Verdict.COMMITTED or outcome.repeated:
                return outcome
            entry = entry_of(commit, outcome)
            runs = {run.branch: [run] for run in (*commit.runs, *commit.values)}
            data = decode(payload_text(Stored(entry, commit.head, commit.manifest, runs)))
            if outcome.replaced is not None:
                index.entries = _without(index.entries, {outcome.replaced.seq})
            index.entries.append(entry)
            index.last_seq = outcome.seq
            await self._call("save", f"{entry.thread_id}:{entry.checkpoint_id}", data)
            await self._call("save", f"{entry.thread_id}:{LATEST}", data)
            await self._call("save", f"{entry.thread_id}:{INDEX}", index.data())
            return outcome

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        entry = await self.entry(thread_id, namespace, checkpoint_id)
        if entry is None:
            return None
        return Stored(entry, encode(await self._payload(thread_id, entry)), "[]")

    async def _payload(self, thread_id: str, entry: Entry) -> Any:
        data = await self._call("load", f"{thread_id}:{entry.checkpoint_id}")
        if data is None:
            raise CorruptCheckpointError(f"checkpoint {entry.checkpoint_id!r} is listed, but its payload is gone")
        return data

    async def entry(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Entry | None:
        index = await self._index(thread_id)
        known = index.find(namespace, checkpoint_id)
        return None if known is None else next(entry for entry in index.entries if entry.seq == known.seq)

    async def history(
        self, thread_id: str, namespace: str | None, limit: int | None, before_seq: int | None
    ) -> list[Entry]:
        found = [
            entry
            for entry in reversed((await self._index(thread_id)).entries)
            if namespace in (None, entry.namespace) and (before_seq is None or entry.seq < before_seq)
        ]
        return found[:limit]

    async def threads(self, pattern: Pattern, limit: int | None) -> list[str]:
        end = f":{INDEX}"
        keys = [str(key) for key in await self._call("list_threads")]
        return sorted(key.removesuffix(end) for key in keys if key.endswith(end) and pattern.matches(key[: -len(end)]))[
            :limit
        ]

    async def delete(self, thread_id: str, namespace: str | None = None, seqs: Mapping[int, str] | None = None) -> int:
        async with self._lock(thread_id):
            index = await self._index(thread_id)
            doomed = [
                entry
                for entry in index.entries
                if namespace in (None, entry.namespace) and (seqs is None or seqs.get(entry.seq) == entry.rev)
            ]
            if not doomed:
                return 0
            index.entries = _without(index.entries, {entry.seq for entry in doomed})
            await self._unlist(index)
            for entry in doomed:
                await self._call("delete", f"{thread_id}:{entry.checkpoint_id}")
            return len(doomed)

    async def _unlist(self, index: Index) -> None:
        """The list is shortened before what it lists goes."""
        if not index.entries:
            await self._call("delete", f"{index.thread_id}:{INDEX}")
            await self._call("delete", f"{index.thread_id}:{LATEST}")
            return
        await self._call("save", f"{index.thread_id}:{INDEX}", index.data())
        newest_left = await self._call("load", f"{index.thread_id}:{index.entries[-1].checkpoint_id}")
        await self._call("save", f"{index.thread_id}:{LATEST}", newest_left)

    async def recent(self, limit: int) -> list[Entry]:
        return newest(await self._all(), limit)

    async def find(self, key: str, value: str, limit: int) -> list[Entry]:
        return newest((entry for entry in await self._all() if has_value(entry.metadata, key, value)), limit)

    async def _all(self) -> list[Entry]:
        return [
            entry
            for thread_id in await self.threads(Pattern(), None)
            for entry in (await self._index(thread_id)).entries
        ]

    async def copy(self, source: str, dest: str, namespace: str | None, checkpoint_ids: Collection[str] | None) -> int:
        async with self._lock(dest):
            if (await self._index(dest)).entries:
                return -1
            copy, index = Index(dest, None), await self._index(source)
            for entry in index.entries:
                if checkpoint_ids is None or (entry.namespace == namespace and entry.checkpoint_id in checkpoint_ids):
                    data = await self._payload(source, entry)
                    await self._call("save", f"{dest}:{entry.checkpoint_id}", data)
                    await self._call("save", f"{dest}:{LATEST}", data)
                    copy.entries.append(replace(entry, thread_id=dest))
            copy.last_seq = index.last_seq
            if copy.entries:
                await self._call("save", f"{dest}:{INDEX}", copy.data())
            return len(copy.entries)

    def translate(self, error: BaseException) -> CheckpointError:
        return BackendUnavailableError(f"{type(self._store).__name__} failed: {type(error).__name__}")

    async def close(self) -> None:
        """The object was opened by somebody else, who closes it."""


def check_key(namespace: str, checkpoint_id: str) -> None:
    """Every key must say in one way only whose it is."""
    if namespace != DEFAULT_NAMESPACE:
        raise CapabilityError(f"such a store has no namespaces, and cannot keep {namespace!r}")
    if checkpoint_id in (INDEX, LATEST) or ":" in checkpoint_id:
        raise InvalidIdError(
            f"checkpoint_id {checkpoint_id!r} would be taken for another key of such a store; "
            "choose one without a colon"
        )


def _without(entries: Sequence[Entry], doomed: Collection[int]) -> list[Entry]:
    parents = new_parents(entries, doomed)
    return [
        replace(entry, parent_id=parents.get(entry.seq, entry.parent_id))
        for entry in entries
        if entry.seq not in doomed
    ]
