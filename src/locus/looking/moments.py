"""Finds the checkpoint that was the latest at a moment: "what did the agent know at 14:03:20?"."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from locus.errors import ConfigurationError
from locus.memory.model.records import Entry
from locus.memory.store import CheckpointStore

_FRACTION: Final = re.compile(r":\d\d[.,]\d")
_SECOND: Final = timedelta(seconds=1) - timedelta(microseconds=1)


def moment_of(text: str) -> datetime:
    """A time as people and browsers write it, in UTC unless it says something else.

    Pages show times to the second. So a time without a fraction is the end of its second: what was saved in that second
    was known then.
    """
    try:
        found = datetime.fromisoformat(text)
        found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
        return end_of_second(found, text)
    except (ValueError, OverflowError):
        raise ConfigurationError("a time is written as 2026-11-16T14:03:20, in UTC") from None


def end_of_second(moment: datetime, text: str) -> datetime:
    """The moment that a text means which was read as this one: the end of its second, unless it has a fraction."""
    return moment if _FRACTION.search(text) else moment + _SECOND


async def first_of(store: CheckpointStore, thread_id: str, namespace: str | None) -> Entry | None:
    """The first checkpoint of a thread that is still there."""
    async with store.using() as engine:
        newest = await engine.history(thread_id, namespace, 1, None)
        if not newest:
            return None
        found, low = newest[0], 0
        """Nothing is there up to `low`."""
        while found.seq - low > 1:
            middle = (low + found.seq) // 2
            older = await engine.history(thread_id, namespace, 1, middle + 1)
            if older:
                found = older[0]
            else:
                low = middle
        return found


async def latest_at(store: CheckpointStore, thread_id: str, namespace: str | None, moment: datetime) -> Entry | None:
    """The newest checkpoint that was saved by then; None if there is none.

    Numbers grow with time, so the half in which it is becomes clear by looking at one checkpoint in the middle.
    """
    async with store.using() as engine:
        newest = await engine.history(thread_id, namespace, 1, None)
        if not newest or newest[0].created_at <= moment:
            return newest[0] if newest else None
        found: Entry | None = None
        low, high = 0, newest[0].seq
        """What is up to `low` was saved by then; what is from `high` on was not."""
        while high - low > 1:
            middle = (low + high) // 2
            older = await engine.history(thread_id, namespace, 1, middle + 1)
            if not older:  # nothing is there up to the middle
                low = middle
            elif older[0].created_at <= moment:
                found, low = older[0], middle
            else:
                high = older[0].seq
        return found
