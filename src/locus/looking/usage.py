"""The bytes of threads: by kind, and of many threads together."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Final

from locus.errors import BackendUnavailableError, LocusError
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


def kinds(sizes: ThreadSizes) -> list[tuple[str, int]]:
    """The bytes of a thread by kind: each list by its path, heads, and pending writes."""
    lists = [(dotted(each.path) or "(other)", each.bytes) for each in sizes.lists]
    return [*lists, ("(heads)", sizes.head_bytes), ("(pending writes)", sizes.write_bytes)]


class Sums:
    """The sizes of many threads together, and the largest ones."""

    def __init__(self) -> None:
        self.threads = self.checkpoints = self.bytes = self.freed_bytes = self.freed_checkpoints = 0
        self.shared_bytes = 0
        self.largest: list[ThreadSizes] = []
        self.by_list: dict[str, int] = {}
        self.damaged: list[tuple[str, LocusError]] = []

    def add(self, sizes: ThreadSizes | None, most: int) -> None:
        """Add a thread; the `most` largest are remembered."""
        if sizes is None:  # deleted meanwhile
            return
        self.threads += 1
        self.checkpoints += sizes.checkpoints
        self.bytes += sizes.bytes
        self.shared_bytes += sizes.shared_bytes
        if sizes.freed is not None:
            self.freed_bytes += sizes.freed.bytes
            self.freed_checkpoints += sizes.freed.checkpoints
        for name, size in kinds(sizes):
            self.by_list[name] = self.by_list.get(name, 0) + size
        self.largest.append(sizes)
        if len(self.largest) > 2 * most + 100:
            self.cut(most)

    async def measure(
        self,
        store: CheckpointStore,
        prefix: str,
        rules: tuple[float | None, int | None],
        most: int,
        progress: Callable[[int], None],
    ) -> None:
        """Add all threads of a prefix, as `add` does. `rules` are those of a vacuum: an age in days, and a number."""
        async for thread_id in thread_ids(store, prefix):
            try:
                self.add(await store.sizes(thread_id, *rules), most)
            except BackendUnavailableError:
                raise
            except LocusError as error:
                self.damaged.append((thread_id, error))
            progress(self.threads)

    def cut(self, most: int) -> None:
        """Keep the `most` largest threads, in order."""
        self.largest.sort(key=lambda sizes: (-sizes.bytes, sizes.thread_id))
        del self.largest[most:]
