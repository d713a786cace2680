"""An implementation of llmfy's checkpointer contract in memory, which does not need llmfy."""

from __future__ import annotations

import builtins
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from locus.errors import ConfigurationError
from locus.threads.blocking import fork_safe_lock
from locus.threads.limits import checked_limit, checked_seconds

__all__ = ["Checkpoint", "CheckpointMetadata", "InMemoryCheckpointer"]


@dataclass
class CheckpointMetadata:
    """The origin of a checkpoint: the session, its run, and the node that has just run.

    `step` counts within the run. `updated_fields` are the keys of the state that the node changed. `attempt` is the
    attempt that succeeded, and `dispatch_id` is the fan-out, for the checkpoint of a whole fan-out.
    """

    checkpoint_id: str
    session_id: str
    run_id: str
    created_at: datetime
    node: str
    prev_node: str
    step: int
    updated_fields: list[str]
    attempt: int | None
    dispatch_id: str | None


@dataclass
class Checkpoint:
    """A state of a flow, and its metadata."""

    metadata: CheckpointMetadata
    state: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """This checkpoint as one flat dict, with the time as text."""
        return {**vars(self.metadata), "created_at": self.metadata.created_at.isoformat(), "state": self.state}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Checkpoint:
        """The checkpoint that `to_dict` has converted."""
        facts = {name: data[name] for name in CheckpointMetadata.__dataclass_fields__}
        facts["created_at"] = datetime.fromisoformat(facts["created_at"])
        return cls(CheckpointMetadata(**facts), data["state"])


class AnyCheckpoint(Protocol):
    """A checkpoint of llmfy or of this module."""

    @property
    def metadata(self) -> Any: ...
    @property
    def state(self) -> dict[str, Any]: ...


class InMemoryCheckpointer:
    """Checkpoints in the memory of this process. Each is a deep copy, so a state may contain any objects.

    The newest checkpoint is the one that was saved last, whatever its time. Ids are unique within a session. Saving a
    checkpoint with the same metadata again keeps its position. A different checkpoint with an existing id replaces the
    old one and becomes the newest.

    `max_checkpoints_per_session` keeps only that many of the newest, and `ttl_seconds` only those younger than that.
    Both are applied with every save.
    """

    requires_serialization = False
    """Tells llmfy not to convert objects to JSON."""

    def __init__(self, max_checkpoints_per_session: int | None = None, ttl_seconds: float | None = None) -> None:
        check_most(max_checkpoints_per_session)
        if ttl_seconds is not None:
            checked_seconds(ttl_seconds, "ttl_seconds")
        self.max_checkpoints_per_session = max_checkpoints_per_session
        self.ttl_seconds = ttl_seconds
        self._lock = fork_safe_lock()
        self._sessions: dict[str, dict[str, Any]] = {}
        """By session, then by checkpoint id, oldest first."""

    async def save(self, checkpoint: AnyCheckpoint) -> None:
        """Keep a copy of a checkpoint."""
        kept, metadata = deepcopy(checkpoint), checkpoint.metadata
        with self._lock:
            session = self._sessions.setdefault(metadata.session_id, {})
            there = session.get(metadata.checkpoint_id)
            if there is not None and there.metadata != metadata:
                del session[metadata.checkpoint_id]
            session[metadata.checkpoint_id] = kept
            self._drop_old(metadata.session_id, session)

    def _drop_old(self, session_id: str, session: dict[str, Any]) -> None:
        doomed: set[str] = set()
        if self.ttl_seconds is not None:
            cutoff = datetime.now(UTC) - timedelta(seconds=self.ttl_seconds)
            doomed |= {name for name, kept in session.items() if _aware(kept.metadata.created_at) < cutoff}
        if self.max_checkpoints_per_session is not None:
            doomed |= set(builtins.list(session)[: -self.max_checkpoints_per_session])
        for name in doomed:
            del session[name]
        if not session:
            del self._sessions[session_id]

    async def load(self, session_id: str, checkpoint_id: str | None = None) -> Any | None:
        """A copy of that checkpoint, or of the newest; `None` if there is none."""
        with self._lock:
            session = self._sessions.get(session_id, {})
            name = next(reversed(session), None) if checkpoint_id is None else checkpoint_id
            found = None if name is None else session.get(name)
        return deepcopy(found)

    async def list(self, session_id: str, limit: int = 10) -> builtins.list[Any]:
        """Copies of a session's checkpoints, newest first."""
        count = checked_limit(limit, None)
        with self._lock:
            found = builtins.list(reversed(self._sessions.get(session_id, {}).values()))[:count]
        return deepcopy(found)

    async def delete(self, session_id: str, checkpoint_id: str | None = None) -> None:
        """Delete one checkpoint, or the whole session."""
        with self._lock:
            session = self._sessions.get(session_id, {})
            if checkpoint_id is not None:
                session.pop(checkpoint_id, None)
            if checkpoint_id is None or not session:
                self._sessions.pop(session_id, None)

    async def clear_all(self) -> None:
        """Delete everything."""
        with self._lock:
            self._sessions.clear()

    def get_stats(self) -> dict[str, Any]:
        """How many sessions and checkpoints there are, and how many of each session."""
        with self._lock:
            counts = {name: len(session) for name, session in self._sessions.items()}
        return {
            "total_sessions": len(counts),
            "total_checkpoints": sum(counts.values()),
            "checkpoints_per_session": counts,
        }


def check_most(max_checkpoints_per_session: int | None) -> None:
    """Refuse a number of checkpoints that a session cannot have."""
    if max_checkpoints_per_session is not None and max_checkpoints_per_session < 1:
        raise ConfigurationError("max_checkpoints_per_session must be a number from 1 on, or None")


def _aware(at: datetime) -> datetime:
    return at if at.tzinfo else at.replace(tzinfo=UTC)
