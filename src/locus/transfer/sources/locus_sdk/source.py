"""Converts checkpoints of locus-sdk 3 for a move.

Each keeps its id, time and metadata. Its parent is the checkpoint before it, in the order of time, which is that of
locus-sdk 3.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from locus.core.state import AgentState
from locus.errors import CorruptCheckpointError
from locus.memory.model.codec import canonical, encode
from locus.memory.model.records import DEFAULT_NAMESPACE
from locus.transfer.content import MovedCheckpoint, WholeContent, state_dict
from locus.transfer.sources import Source, read_moment


@dataclass(frozen=True)
class OldCheckpoint:
    """A checkpoint of locus-sdk 3. `data` is a state, or plain data that a program has saved with a bare backend."""

    checkpoint_id: str
    created_at: datetime
    metadata: Mapping[str, Any]
    data: Mapping[str, Any]
    is_state: bool = True


class OldStore(Source):
    """A store of locus-sdk 3."""

    @abstractmethod
    def old_checkpoints(self, thread_id: str) -> AsyncGenerator[OldCheckpoint, None]:
        """The checkpoints of a thread, oldest first."""

    async def checkpoints(self, thread_id: str) -> AsyncGenerator[MovedCheckpoint, None]:
        """The checkpoints of a thread to move, oldest first."""
        parent: str | None = None
        async with aclosing(self.old_checkpoints(thread_id)) as checkpoints:
            async for old in checkpoints:
                yield MovedCheckpoint(
                    namespace=DEFAULT_NAMESPACE,
                    checkpoint_id=old.checkpoint_id,
                    parent_id=parent,
                    created_at=old.created_at,
                    metadata=encode(dict(old.metadata), ("metadata",)),
                    content=WholeContent(_payload(thread_id, old)),
                )
                parent = old.checkpoint_id


def _payload(thread_id: str, old: OldCheckpoint) -> dict[str, Any]:
    """The payload that a Locus checkpointer saves for a checkpoint of locus-sdk 3."""
    if not old.is_state:
        return dict(old.data)
    try:
        state = AgentState.model_validate_json(canonical(dict(old.data)))
    except ValidationError as error:
        raise CorruptCheckpointError(
            f"checkpoint {old.checkpoint_id!r} of thread {thread_id!r} is not a state: "
            f"{error.errors(include_url=False, include_input=False)[0]}"
        ) from error
    return state_dict(state)


def as_dict(value: Any, key: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CorruptCheckpointError(f"what stands under {key!r:.80} is no checkpoint of locus-sdk 3")
    return value


def moment(value: Any) -> datetime:
    """A time in UTC, from text or from the value that a driver returns."""
    return read_moment(value).astimezone(UTC)
