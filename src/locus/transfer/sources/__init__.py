"""Reads what other libraries have stored, without changing it: one module or package per library."""

from __future__ import annotations

from abc import ABC, abstractmethod

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
        """Release what was opened."""
