"""Strands Agents on every backend: `LocusSessionRepository` for its session managers, `LocusStorage` for its snapshots,
and `LocusMemoryStore` for its memory manager.

    from strands.session import RepositorySessionManager
    from locus.integrations.strands import LocusSessionRepository

    sessions = LocusSessionRepository("sqlite:agents.db")
    agent = Agent(session_manager=RepositorySessionManager("alice", sessions))

They are imported when they are first named: `document` and `texts` describe what is stored, and need no Strands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from locus.extras import lazy_names, require

if TYPE_CHECKING:
    from locus.integrations.strands.memory import LocusMemoryStore
    from locus.integrations.strands.repository import LocusSessionRepository, SessionPoint
    from locus.integrations.strands.storage import LocusStorage, snapshot_key

__all__ = ["LocusMemoryStore", "LocusSessionRepository", "LocusStorage", "SessionPoint", "snapshot_key"]

_names = lazy_names(
    __name__,
    {
        "memory": ("LocusMemoryStore",),
        "repository": ("LocusSessionRepository", "SessionPoint"),
        "storage": ("LocusStorage", "snapshot_key"),
    },
)


def __getattr__(name: str) -> Any:
    if name in __all__:
        require("strands.session", "strands")
    return _names(name)
