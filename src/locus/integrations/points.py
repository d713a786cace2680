"""`locus.threads.points` for integrations that use more of a store than `locus.threads` shows."""

from __future__ import annotations

from locus.memory.store import CheckpointStore
from locus.threads import SessionPoint, ThreadStore, points, readable, session_point

__all__ = ["SessionPoint", "readable", "session_ids", "session_point"]


async def session_ids(store: CheckpointStore, namespace: str, limit: int | None, pattern: str) -> list[str]:
    """The threads that have something in the namespace."""
    return await points.session_ids(ThreadStore(store), namespace, limit, pattern)
