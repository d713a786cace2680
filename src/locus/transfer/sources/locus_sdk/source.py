"""Threads that locus-sdk 3 has kept, wherever its stores are; see `locus_sdk_stores` for how they lie there.

Every checkpoint of it is a whole state. Here each becomes a checkpoint under the same id, with the same time and
metadata, and the one before it as its parent: the order is that of the times, as it is there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from locus.core.state import AgentState
from locus.errors import CorruptCheckpointError
from locus.memory.model.codec import canonical, encode
from locus.memory.model.ids import Pattern
from locus.memory.model.records import DEFAULT_NAMESPACE
from locus.transfer.content import Checkpoint, Whole, state_dict


@dataclass(frozen=True)
class OldCheckpoint:
    """A checkpoint as a store of locus-sdk 3 has it. `data` is a state, or what a program gave a bare backend."""

    checkpoint_id: str
    created_at: datetime
    metadata: Mapping[str, Any]
    data: Mapping[str, Any]
    is_state: bool = True


class OldStore(ABC):
    """A store of locus-sdk 3, to be read from."""

    @property
    @abstractmethod
    def name(self) -> str:
        """For people; it holds no secret."""

    @abstractmethod
    async def threads(self, pattern: Pattern) -> list[str]:
        """The ids of threads that match, in order."""

    @abstractmethod
    def checkpoints(self, thread_id: str) -> AsyncGenerator[OldCheckpoint, None]:
        """The checkpoints of a thread, oldest first."""

    async def close(self) -> None:
        """Release what was opened."""


class LocusSDKSource:
    """The threads of such a store."""

    def __init__(self, store: OldStore) -> None:
        self._store = store

    @property
    def name(self) -> str:
        return self._store.name

    async def threads(self, pattern: Pattern) -> list[str]:
        return await self._store.threads(pattern)

    async def checkpoints(self, thread_id: str) -> AsyncGenerator[Checkpoint, None]:
        parent: str | None = None
        async for old in self._store.checkpoints(thread_id):
            yield Checkpoint(
                namespace=DEFAULT_NAMESPACE,
                checkpoint_id=old.checkpoint_id,
                parent_id=parent,
                created_at=old.created_at,
                metadata=encode(dict(old.metadata), ("metadata",)),
                content=Whole(_payload(thread_id, old)),
            )
            parent = old.checkpoint_id

    async def close(self) -> None:
        await self._store.close()


def _payload(thread_id: str, old: OldCheckpoint) -> dict[str, Any]:
    """The payload as a checkpointer of ours would have saved it."""
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
