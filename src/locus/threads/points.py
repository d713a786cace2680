"""Points in the history of a session, and the sessions that a store has.

A store may hold damaged threads. A list leaves them out and tells of them with a `DamagedThreadsWarning`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from locus.errors import CorruptCheckpointError
from locus.memory.checkpointer import metadata_of
from locus.memory.engine import warn_of_damage
from locus.memory.item_log import logged_change
from locus.memory.model.codec import encode_trusted
from locus.memory.model.records import Entry
from locus.threads.limits import AT_ONCE, UNLIMITED, checked_limit
from locus.threads.store import ThreadStore

__all__ = [
    "SessionPoint",
    "metadata_of",
    "point_metadata",
    "readable",
    "session_ids",
    "session_point",
    "session_points",
    "warn_of_damage",
]

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True)
class SessionPoint:
    """A point in the history of a session: its number of items, and the change that made it (`add`, `pop`, …).

    For a checkpoint that was not made by a session, `items` is None and `change` is empty.
    """

    checkpoint_id: str
    parent_id: str | None
    created_at: datetime
    items: int | None
    change: str


def session_point(entry: Entry) -> SessionPoint:
    """The history point of an entry of a session: of a log, or of a document with `point_metadata`."""
    log = logged_change(entry.metadata)
    count, change = (log.items, log.change) if log else (None, "")
    return SessionPoint(entry.checkpoint_id, entry.parent_id, entry.created_at, count, change)


def point_metadata(change: str, items: int) -> dict[str, str]:
    """Metadata for a checkpoint of a document that is a session: `session_point` reads the change and the count there.

    They are one text, because databases index every value.
    """
    return {"log": encode_trusted([change, items])}


async def session_points(
    store: ThreadStore, thread_id: str, namespace: str, limit: int | None = 10, before: str | None = None
) -> list[SessionPoint]:
    """The points in the history of a session, newest first. No items are read."""
    return [session_point(entry) for entry in await store.history(thread_id, namespace, limit, before)]


async def readable(
    read: Callable[[S], Awaitable[T]], wanted: Sequence[S], damaged: list[CorruptCheckpointError]
) -> list[tuple[S, T]]:
    """Read something for each of these names, some at the same time. Damaged ones are left out, into `damaged`."""
    results: list[tuple[S, T]] = []
    for start in range(0, len(wanted), AT_ONCE):
        some = wanted[start : start + AT_ONCE]
        answers = await asyncio.gather(*map(read, some), return_exceptions=True)
        for key, answer in zip(some, answers, strict=True):
            if isinstance(answer, CorruptCheckpointError):
                damaged.append(answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                results.append((key, answer))
    return results


async def session_ids(store: ThreadStore, namespace: str, limit: int | None, pattern: str) -> list[str]:
    """The ids of the threads that have checkpoints in a namespace. Each thread has to be looked at for that."""
    most = checked_limit(limit, UNLIMITED)
    threads = await store.list_threads(pattern=pattern)
    sessions: list[str] = []
    damaged: list[CorruptCheckpointError] = []
    for start in range(0, len(threads), AT_ONCE):
        if len(sessions) >= most:
            break
        some = threads[start : start + AT_ONCE]
        entries = await readable(lambda thread_id: store.entry(thread_id, namespace), some, damaged)
        sessions += [thread_id for thread_id, entry in entries if entry is not None]
    warn_of_damage(damaged)
    return sessions[:most]
