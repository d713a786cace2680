"""Threads by the time of their last checkpoint, the newest first, however they came into the store.

A store lists threads in the order of its commits. That is the order of time, unless somebody imported or copied
threads: these come with the times that they had. Where a page shows that times are out of order, the threads of a store
with at most `LOOKED_AT` of them are sorted by time here. Otherwise they stay in the order of their commits, and a page
costs what it shows.
"""

from __future__ import annotations

from typing import Final

from locus.memory.engine import LOOKED_AT
from locus.memory.model import matching
from locus.memory.model.records import NewestThreads
from locus.memory.store import CheckpointStore

_BY_TIME: Final = "time."


async def newest_by_time(
    store: CheckpointStore, limit: int, before: str | None = None, prefix: str = ""
) -> NewestThreads:
    """A page of the newest threads; `before` is `next` of the page before."""
    if before is None or not before.startswith(_BY_TIME):
        page = await store.newest_threads(limit, before, prefix)
        times = [entry.created_at for entry in page.entries]
        if before is not None or times == sorted(times, reverse=True):
            return page
        everything = await store.newest_threads(LOOKED_AT, None, prefix)
        if everything.next is not None:
            return page
        after = None
    else:
        everything = await store.newest_threads(LOOKED_AT, None, prefix)
        after = before.removeprefix(_BY_TIME)
    page = matching.newest_threads(everything.entries, limit, after)
    return NewestThreads(page.entries, None if page.next is None else f"{_BY_TIME}{page.next}")
