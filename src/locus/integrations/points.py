"""The points in the history of a framework's session, and the sessions that a store has."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from locus.errors import CorruptCheckpointError
from locus.memory.engine import warn_of_damage
from locus.memory.item_log import logged_change
from locus.memory.model.arguments import UNLIMITED, checked_limit
from locus.memory.model.records import Entry
from locus.memory.store import CheckpointStore

AT_ONCE = 8
"""How many threads are looked into at the same time."""

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True)
class SessionPoint:
    """One point in the history of a session: how many items it had, and what the change was (`add`, `pop`, …).

    For a checkpoint that was not made by a session, `items` is None and `change` is empty.
    """

    checkpoint_id: str
    parent_id: str | None
    created_at: datetime
    items: int | None
    change: str


def session_point(entry: Entry) -> SessionPoint:
    log = logged_change(entry.metadata)
    count, change = (log.items, log.change) if log else (None, "")
    return SessionPoint(entry.checkpoint_id, entry.parent_id, entry.created_at, count, change)


async def readable(
    read: Callable[[S], Awaitable[T]], wanted: Sequence[S], damaged: list[CorruptCheckpointError]
) -> list[tuple[S, T]]:
    """What is read for each of these, some at the same time. `damaged` gets the errors of those that are left out."""
    found: list[tuple[S, T]] = []
    for start in range(0, len(wanted), AT_ONCE):
        some = wanted[start : start + AT_ONCE]
        answers = await asyncio.gather(*map(read, some), return_exceptions=True)
        for one, answer in zip(some, answers, strict=True):
            if isinstance(answer, CorruptCheckpointError):
                damaged.append(answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found.append((one, answer))
    return found


async def session_ids(store: CheckpointStore, namespace: str, limit: int | None, pattern: str) -> list[str]:
    """The threads that have something in the namespace. A store lists threads, and not what is in them."""
    most = checked_limit(limit, UNLIMITED)
    threads = await store.list_threads(None, pattern)
    found: list[str] = []
    damaged: list[CorruptCheckpointError] = []
    for start in range(0, len(threads), AT_ONCE):
        if len(found) >= most:
            break
        some = threads[start : start + AT_ONCE]
        entries = await readable(lambda thread_id: store.entry(thread_id, None, namespace), some, damaged)
        found += [thread_id for thread_id, entry in entries if entry is not None]
    warn_of_damage(damaged)
    return found[:most]
