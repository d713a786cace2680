"""Reads the stores of other libraries, without changing them: one module or package per library."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import UTC, datetime
from typing import Any

from locus.errors import CorruptCheckpointError
from locus.memory.model.ids import Pattern


class ForeignStore(ABC):
    """A store of another library, or of another version of this one. It is only read."""

    @property
    @abstractmethod
    def name(self) -> str:
        """A name to show to people, without secrets."""

    @abstractmethod
    async def threads(self, pattern: Pattern) -> list[str]:
        """The ids of the threads that match, sorted."""

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
