"""Where the bytes of threads are: by kind, and of many threads together. Pure but for `thread_ids`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

from locus.errors import LocusError
from locus.looking.formatting import dotted
from locus.memory.model.sizes import ThreadSizes
from locus.memory.store import CheckpointStore

_PAGE: Final = 500


async def thread_ids(store: CheckpointStore, prefix: str = "") -> AsyncGenerator[str, None]:
    """The ids of all threads that begin with a prefix, in order."""
    after: str | None = None
    while page := await store.list_threads(_PAGE, "*", after=after, prefix=prefix):
        for thread_id in page:
            yield thread_id
        after = page[-1]


def kinds(found: ThreadSizes) -> list[tuple[str, int]]:
    """What the bytes of a thread are, by kind."""
    lists = [(dotted(each.path) or "(other)", each.bytes) for each in found.lists]
    return [*lists, ("(heads)", found.head_bytes), ("(pending writes)", found.write_bytes)]


class Sums:
    """The sizes of many threads together, and the largest ones."""

    def __init__(self) -> None:
        self.threads = self.checkpoints = self.bytes = self.freed_bytes = self.freed_checkpoints = 0
        self.shared_bytes = 0
        self.largest: list[ThreadSizes] = []
        self.by_list: dict[str, int] = {}
        self.damaged: list[tuple[str, LocusError]] = []

    def add(self, found: ThreadSizes | None, most: int) -> None:
        """Add a thread; `most` of the largest are remembered."""
        if found is None:  # deleted meanwhile
            return
        self.threads += 1
        self.checkpoints += found.checkpoints
        self.bytes += found.bytes
        self.shared_bytes += found.shared_bytes
        if found.freed is not None:
            self.freed_bytes += found.freed.bytes
            self.freed_checkpoints += found.freed.checkpoints
        for name, size in kinds(found):
            self.by_list[name] = self.by_list.get(name, 0) + size
        self.largest.append(found)
        if len(self.largest) > 2 * most + 100:
            self.cut(most)

    def cut(self, most: int) -> None:
        self.largest.sort(key=lambda found: (-found.bytes, found.thread_id))
        del self.largest[most:]
