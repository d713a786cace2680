"""Reads the stores of other libraries, without changing them: one module or package per library."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable
from datetime import UTC, datetime
from typing import Any

from locus.errors import CorruptCheckpointError
from locus.memory.model.ids import Pattern
from locus.transfer.content import MovedCheckpoint


class Source(ABC):
    """A store that threads can be moved from. It is only read."""

    @property
    @abstractmethod
    def name(self) -> str:
        """A name to show to people, without secrets."""

    @abstractmethod
    async def ids(self) -> Iterable[str]:
        """The ids of all threads, each once."""

    async def threads(self, pattern: Pattern) -> list[str]:
        """The ids of the threads that match, sorted."""
        return sorted(filter(pattern.matches, await self.ids()))

    @abstractmethod
    def checkpoints(self, thread_id: str) -> AsyncGenerator[MovedCheckpoint, None]:
        """The checkpoints of a thread, oldest first. It is called after `threads`."""

    async def close(self) -> None:
        """Close all that was opened to read the store."""


def read_moment(value: Any, kind: str = "time") -> datetime:
    """A time from text, or as a driver returns it. Without an offset it is in UTC. `kind` names it in an error."""
    if isinstance(value, datetime):
        moment = value
    else:
        try:
            moment = datetime.fromisoformat(value)
        except (TypeError, ValueError) as error:
            raise CorruptCheckpointError(f"{value!r:.40} is no {kind}") from error
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
