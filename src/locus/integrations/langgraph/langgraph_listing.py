"""Listing checkpoints, a few at a time: nobody reads what is not asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple

from locus.integrations.langgraph.codec import TAG
from locus.integrations.langgraph.langgraph_shared import SharedItems
from locus.integrations.langgraph.payloads import kept_namespace
from locus.integrations.langgraph.read import Found, Reader, place_of
from locus.memory.engine import FindsMetadata
from locus.memory.model.arguments import UNLIMITED, check_ids
from locus.memory.model.codec import decode
from locus.memory.model.records import Entry

FIRST, MOST = 4, 16
"""How many checkpoints are read at once: few at first, because many callers want only the newest."""
PAGE = 200


class Listing:
    """One listing, newest first; `next` gives some more of it, and an empty list at its end.

    Without a thread it is over all threads. `before` is the id of a checkpoint. One that is not in the namespace stands
    for the time it was made at, which its id begins with: LangGraph names a graph's to find its subgraph's.
    """

    def __init__(
        self,
        reader: Reader,
        thread_id: str | None,
        namespace: str | None,
        checkpoint_id: str | None,
        *,
        where: Mapping[str, Any] | None,
        before: str | None,
        limit: int | None,
    ) -> None:
        if thread_id is not None:
            check_ids(thread_id, checkpoint_id, None)
        self._reader = reader
        self._thread_id = thread_id
        self._namespace = None if namespace is None else kept_namespace(namespace)
        self._checkpoint_id = checkpoint_id
        # As it is stored: what is there need not be read, and may have been written by somebody else.
        self._where = {key: reader.codec.encode(value, ("filter", key)) for key, value in (where or {}).items()}
        self._before = before
        self._left = UNLIMITED if limit is None else max(0, limit)
        self._size = FIRST if limit is None else MOST
        self._before_seq: int | None = None
        self._waiting: list[Entry] = []
        self._ended = False
        self._seen: set[tuple[str, str, str]] = set()

    async def next(self) -> list[CheckpointTuple]:
        while self._left and not (self._ended and not self._waiting):
            count = min(self._size, self._left)
            while len(self._waiting) < count and not self._ended:
                self._waiting += [entry for entry in await self._page(count) if self._is_asked(entry)]
            part, self._waiting = self._waiting[:count], self._waiting[count:]
            self._size = MOST
            found = await self._reader.many(part)
            self._left -= len(found)
            if found:
                shared: dict[str, SharedItems] = {}
                return [self._tuple_of(one, shared) for one in found]
        return []

    def _tuple_of(self, found: Found, shared: dict[str, SharedItems]) -> CheckpointTuple:
        items = shared.setdefault(found[0].entry.thread_id, SharedItems(self._reader.codec))
        return self._reader.tuple_of(found, items)

    async def _page(self, count: int) -> list[Entry]:
        """Some more entries of what is looked through."""
        if self._thread_id is None:
            return await self._page_of_all()
        if self._checkpoint_id is not None and self._namespace is not None:
            self._ended = True
            entry = await self._reader.threads.entry(self._thread_id, self._checkpoint_id, self._namespace)
            return [] if entry is None else [entry]
        await self._find_beginning(self._thread_id)
        size = PAGE if self._where or self._before or self._checkpoint_id else count
        async with self._reader.threads.using() as engine:
            entries = await engine.history(self._thread_id, self._namespace, size, self._before_seq)
        self._ended = len(entries) < size
        self._before_seq = entries[-1].seq if entries else None
        return entries

    async def _find_beginning(self, thread_id: str) -> None:
        if self._before is None or self._before_seq is not None or self._namespace is None:
            return
        entry = await self._reader.threads.entry(thread_id, self._before, self._namespace)
        if entry is not None:
            self._before, self._before_seq = None, entry.seq

    async def _page_of_all(self) -> list[Entry]:
        """Entries of all threads. Where the store finds by metadata, and a text is looked for, only such."""
        threads = self._reader.threads
        text = next((item for item in self._where.items() if isinstance(item[1], str)), None)
        if text is not None and isinstance(threads.engine, FindsMetadata):
            self._ended = True
            return await threads.find(*text, None)
        size = PAGE * (1 + len(self._seen)) if not self._where else None
        entries = await threads.recent(size)
        self._ended = size is None or len(entries) < size
        fresh = [entry for entry in entries if place_of(entry) not in self._seen]
        self._seen.update(map(place_of, fresh))
        return fresh

    def _is_asked(self, entry: Entry) -> bool:
        if self._checkpoint_id is not None and entry.checkpoint_id != self._checkpoint_id:
            return False
        if self._thread_id is None and self._namespace not in (None, entry.namespace):
            return False
        if self._before is not None and entry.checkpoint_id >= self._before:
            return False
        if not self._where:
            return True
        metadata = decode(entry.metadata)
        if metadata.get(TAG) == "dict" and "items" in metadata:
            metadata = {key: value for key, value in metadata["items"] if isinstance(key, str)}
        return all(metadata.get(key) == value for key, value in self._where.items())
