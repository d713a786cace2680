"""The checkpoints of a thread as people read them: what each is about, what it added, and which ones are new."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from locus.errors import LocusError
from locus.memory.model.codec import decode
from locus.memory.model.manifest import decode_manifest
from locus.memory.model.parts import total_of
from locus.memory.model.records import Entry, Path
from locus.memory.store import CheckpointStore

NEWEST: Final = 20
"""The number of checkpoints that one look at a followed thread reads, unless more have come since the one before."""
PAUSES: Final = (1.0, 5.0)
"""Seconds between two looks at a followed thread: at first, and when nothing comes."""
_SLOWER: Final = 1.5
_MOST_CHARACTERS: Final = 64_000_000
"""The length of the metadata after which a bounded look reads no more."""
_FEW: Final = 4
"""The number of metadata values on one line."""
_AT_ONCE: Final = 8
_BOOKKEEPING: Final = frozenset(
    {
        "agent_id",
        "run_id",
        "iteration",
        "started_at",
        "updated_at",
        "total_tokens_used",
        "prompt_tokens_used",
        "completion_tokens_used",
        "tool_executions",
        "tool_history",
        "confidence",
        "confidence_history",
        "channel_versions",
        "versions_seen",
        "updated_channels",
        "pending_sends",
        "ts",
        "v",
        "last_update_time",
        "record",
        "who",
    }
)
"""The fields with which frameworks count, date and number: they change with every save, whatever was said."""
_LONGEST_MANIFEST: Final = 250_000
"""In characters. Of a manifest with thousands of lists, nobody wants to know how each of them grew."""


def readable_metadata(entry: Entry) -> dict[str, Any]:
    """The metadata of a checkpoint; empty, if they cannot be read: other commands tell of damage."""
    try:
        metadata = decode(entry.metadata)
    except LocusError:
        return {}
    return metadata if isinstance(metadata, dict) else {}


def some_metadata(entry: Entry) -> dict[str, Any]:
    """The first plain values of a checkpoint's metadata, for a line about it."""
    plain = _plain(readable_metadata(entry))
    plain.pop("log", None)  # of a log of items; it says where they are stored
    return dict(list(plain.items())[:_FEW])


def about(entry: Entry) -> str:
    """The metadata of a checkpoint in one line: `step=3 user=alice`; for a log of items, what was done to it."""
    metadata = readable_metadata(entry)
    log = metadata.get("log")
    if isinstance(log, str) and log.startswith('["'):  # of a log of items (see `item_log`)
        return log[2:].partition('"')[0]
    return " ".join(f"{key}={value}" for key, value in _plain(metadata).items())


def _plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if isinstance(value, str | int | float | bool)}


def is_bookkeeping(path: Path) -> bool:
    """Whether a value of a payload says how a framework goes about its work, and nothing that anybody said."""
    of_graph = len(path) > 1 and path[0] == "channel_values" and path[1].startswith(("branch:", "__"))
    return path[0] in _BOOKKEEPING or of_graph


async def growths(store: CheckpointStore, entries: Sequence[Entry]) -> dict[int, Mapping[Path, int]]:
    """The number of items that each checkpoint of a thread added to its parent's lists, by the checkpoint's number.

    It is negative where a list became shorter. Only manifests are read, and no items.
    """
    lengths: dict[tuple[str, str], dict[Path, int]] = {}
    gate = asyncio.Semaphore(_AT_ONCE)

    async def read(key: tuple[str, str]) -> None:
        async with gate, store.using() as engine:
            answer = await engine.manifest(thread_id, *key)
        if answer is None or len(answer[1]) <= _LONGEST_MANIFEST:
            lengths[key] = {} if answer is None else _list_lengths(answer[1])

    if not entries:
        return {}
    thread_id = entries[0].thread_id
    keys = {(entry.namespace, name) for entry in entries for name in (entry.checkpoint_id, entry.parent_id) if name}
    await asyncio.gather(*map(read, sorted(keys)))
    grown: dict[int, Mapping[Path, int]] = {}
    for entry in entries:
        own = lengths.get((entry.namespace, entry.checkpoint_id))
        before = {} if entry.parent_id is None else lengths.get((entry.namespace, entry.parent_id))
        grown[entry.seq] = {} if own is None or before is None else _growth(before, own)
    return grown


def _list_lengths(manifest: str) -> dict[Path, int]:
    return {path: total_of(cut) for path, cut in decode_manifest(manifest).items() if not isinstance(cut, str)}


def _growth(before: Mapping[Path, int], after: Mapping[Path, int]) -> dict[Path, int]:
    changes = {path: after.get(path, 0) - before.get(path, 0) for path in {**before, **after}}
    return {path: by for path, by in sorted(changes.items()) if by}


class Following:
    """Looks at a thread again and again, and gives the checkpoints that are newer than the number `seen`.

    `most` bounds how many checkpoints one look reads. Without it, a look reads everything that has come.
    """

    def __init__(
        self, store: CheckpointStore, thread_id: str, namespace: str | None, seen: int, *, most: int | None = None
    ) -> None:
        self._store = store
        self._thread_id = thread_id
        self._namespace = namespace
        self._most = most
        self.seen = seen
        self.pause = PAUSES[0]
        """Seconds to wait before the next look."""
        self.page: list[Entry] = []
        """The checkpoints that the last look read, newest first."""
        self.missed = False
        """True if the last look left out checkpoints that are new, because there were more than `most`."""
        self.shortened = False
        """True if checkpoints that were there are gone: the whole thread, or its newest ones."""

    async def look(self) -> list[Entry]:
        """The checkpoints that are new since the last look, oldest first."""
        async with self._store.using() as engine:
            page = await engine.history(self._thread_id, self._namespace, NEWEST, None)
            self.page = entries = [*page]
            while len(page) == NEWEST and page[-1].seq > self.seen + 1 and not self._is_enough(entries):
                page = await engine.history(self._thread_id, self._namespace, NEWEST, page[-1].seq)
                entries += page
        self.missed = len(page) == NEWEST and page[-1].seq > self.seen + 1
        self.shortened = self.seen > 0 and (not entries or entries[0].seq < self.seen)
        fresh = [entry for entry in reversed(entries) if entry.seq > self.seen]
        self.seen = max([self.seen, *(entry.seq for entry in fresh)])
        self.pause = PAUSES[0] if fresh else self.slower()
        return fresh

    def slower(self) -> float:
        """Wait longer from now on. Returns the new pause."""
        self.pause = min(PAUSES[1], self.pause * _SLOWER)
        return self.pause

    def _is_enough(self, entries: Sequence[Entry]) -> bool:
        if self._most is None:
            return False
        return len(entries) >= self._most or sum(len(entry.metadata) for entry in entries) >= _MOST_CHARACTERS
