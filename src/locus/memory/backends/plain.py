"""Any key-value object as an engine: five plain methods, and no transaction.

The object has `save(key, data)`, `load(key)`, `delete(key)`, `exists(key)` and, if it can, `list_threads()`. They may
be async or not. Each thread is kept under keys that other readers of such stores know:

    {thread_id}:{checkpoint_id}   the payload of a checkpoint
    {thread_id}:latest            the payload of the newest
    {thread_id}:_checkpoints      {"last_seq": …, "checkpoints": [{"checkpoint_id": …, "seq": …, …}, …]}

What such an object cannot promise: a save is three writes, so a crash between them, or a second process at the same
time, may lose a checkpoint from the list. (The payload is written first and the list last, so what is listed can be
loaded.) Every save writes the whole payload. Pending writes are not kept. Adapters over one object exclude each other
inside one event loop.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

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
from locus.memory.model.ids import Pattern, shown_thread
from locus.memory.model.manifest import by_branch
from locus.memory.model.matching import has_value, newest
from locus.memory.model.payloads import payload_text
from locus.memory.model.records import DEFAULT_NAMESPACE, Commit, Entry, Known, Outcome, Stored, Verdict
from locus.memory.model.retention import Copied, chosen_in, new_parents
from locus.memory.model.table import entry_from
from locus.memory.runtime.per_loop import LoopLocks

NEEDED = ("save", "load", "delete", "exists")
INDEX = "_checkpoints"
LATEST = "latest"


class ListedCheckpoints:
    """The list of a thread's checkpoints, oldest first."""

    def __init__(self, thread_id: str, data: Any) -> None:
        self.thread_id = thread_id
        self.last_seq = 0
        self.entries: list[Entry] = []
        if data is None:
            return
        try:
            self.last_seq = int(data["last_seq"])
            self.entries = [entry_from(thread_id, item) for item in data["checkpoints"]]
        except (KeyError, TypeError, ValueError):
            raise CorruptCheckpointError(f"the checkpoints of {shown_thread(thread_id)} cannot be listed") from None

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
        return {"last_seq": self.last_seq, "checkpoints": [_item(entry) for entry in self.entries]}


def _item(entry: Entry) -> dict[str, Any]:
    return {
        "checkpoint_id": entry.checkpoint_id,
        "parent_id": entry.parent_id,
        "namespace": entry.namespace,
        "seq": entry.seq,
        "rev": entry.rev,
        "created_at": entry.created_at.isoformat(),
        "metadata": decode(entry.metadata),
    }


_locks_by_store: WeakKeyDictionary[Any, LoopLocks] = WeakKeyDictionary()


def _locks_of(store: Any) -> LoopLocks:
    """The locks of a store. All adapters over it share them, unless it cannot be a key of a dict."""
    try:
        return _locks_by_store.setdefault(store, LoopLocks())
    except TypeError:
        return LoopLocks()


class PlainStoreEngine(Engine, FindsMetadata, Copies):
    """Threads in an object with the five methods."""

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

    async def _call(self, method: str, *args: Any) -> Any:
        result = getattr(self._store, method)(*args)
        return await result if inspect.isawaitable(result) else result

    async def _listed(self, thread_id: str) -> ListedCheckpoints:
        return ListedCheckpoints(thread_id, await self._call("load", f"{thread_id}:{INDEX}"))

    async def commit(self, commit: Commit) -> Outcome:
        _check_key(commit.namespace, commit.checkpoint_id)
        async with self._locks.current(commit.thread_id):
            listed = await self._listed(commit.thread_id)
            outcome = decide(commit, listed)
            if outcome.verdict is not Verdict.COMMITTED or outcome.repeated:
                return outcome
            entry = commit.entry(outcome)
            runs = by_branch((*commit.runs, *commit.values))
            data = decode(payload_text(Stored(entry, commit.head, commit.manifest, runs)))
            if outcome.replaced is not None:
                listed.entries = _without(listed.entries, {outcome.replaced.seq})
            listed.entries.append(entry)
            listed.last_seq = outcome.seq
            await self._call("save", f"{entry.thread_id}:{entry.checkpoint_id}", data)
            await self._call("save", f"{entry.thread_id}:{LATEST}", data)
            await self._call("save", f"{entry.thread_id}:{INDEX}", listed.data())
            return outcome

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        entry = await self.entry(thread_id, namespace, checkpoint_id)
        if entry is None:
            return None
        return Stored(entry, encode(await self._payload(thread_id, entry)), "[]")

    async def _payload(self, thread_id: str, entry: Entry) -> Any:
        data = await self._call("load", f"{thread_id}:{entry.checkpoint_id}")
        if data is None:
            raise CorruptCheckpointError(f"checkpoint {entry.seq} is listed, but its payload is gone")
        return data

    async def entry(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Entry | None:
        listed = await self._listed(thread_id)
        known = listed.find(namespace, checkpoint_id)
        return None if known is None else next(entry for entry in listed.entries if entry.seq == known.seq)

    async def history(
        self, thread_id: str, namespace: str | None, limit: int | None, before_seq: int | None
    ) -> list[Entry]:
        found = [
            entry
            for entry in reversed((await self._listed(thread_id)).entries)
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
        async with self._locks.current(thread_id):
            listed = await self._listed(thread_id)
            doomed = [
                entry
                for entry in listed.entries
                if namespace in (None, entry.namespace) and (seqs is None or seqs.get(entry.seq) == entry.rev)
            ]
            if not doomed:
                return 0
            listed.entries = _without(listed.entries, {entry.seq for entry in doomed})
            await self._unlist(listed)
            for entry in doomed:
                await self._call("delete", f"{thread_id}:{entry.checkpoint_id}")
            return len(doomed)

    async def _unlist(self, listed: ListedCheckpoints) -> None:
        """Shorten the list before the payloads of removed checkpoints are deleted."""
        if not listed.entries:
            await self._call("delete", f"{listed.thread_id}:{INDEX}")
            await self._call("delete", f"{listed.thread_id}:{LATEST}")
            return
        await self._call("save", f"{listed.thread_id}:{INDEX}", listed.data())
        newest_left = await self._call("load", f"{listed.thread_id}:{listed.entries[-1].checkpoint_id}")
        await self._call("save", f"{listed.thread_id}:{LATEST}", newest_left)

    async def recent(self, limit: int, prefix: str = "") -> list[Entry]:
        return newest(await self._all(prefix), limit)

    async def find(self, key: str, value: str, limit: int, prefix: str = "") -> list[Entry]:
        return newest((entry for entry in await self._all(prefix) if has_value(entry.metadata, key, value)), limit)

    async def _all(self, prefix: str) -> list[Entry]:
        return [
            entry
            for thread_id in await self.threads(Pattern(within=prefix), None)
            for entry in (await self._listed(thread_id)).entries
        ]

    async def copy(self, source: str, dest: str, copied: Copied) -> int:
        listed = await self._listed(source)
        chosen = chosen_in(listed.entries, copied)
        async with self._locks.current(dest):
            if not chosen:
                return 0
            if (await self._listed(dest)).entries:
                return -1
            copy = ListedCheckpoints(dest, None)
            for entry in chosen:
                data = await self._payload(source, entry)
                await self._call("save", f"{dest}:{entry.checkpoint_id}", data)
                await self._call("save", f"{dest}:{LATEST}", data)
                copy.entries.append(replace(entry, thread_id=dest))
            copy.last_seq = listed.last_seq
            if copy.entries:
                await self._call("save", f"{dest}:{INDEX}", copy.data())
            return len(copy.entries)

    def translate(self, error: BaseException) -> CheckpointError:
        return BackendUnavailableError(f"{type(self._store).__name__} failed: {type(error).__name__}")

    async def close(self) -> None:
        """Does nothing: whoever opened the object closes it."""


def _check_key(namespace: str, checkpoint_id: str) -> None:
    """Refuse ids whose keys could be taken for other keys."""
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
