"""What is measured of a framework: the same turns on both sides, ours and the framework's own store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar


class Side(ABC):
    """Sessions of a framework in one store, which has a folder for itself."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def begin(self, session_id: str) -> None:
        """Make a session, where a framework wants that before the first turn."""

    @abstractmethod
    async def save(self, session_id: str, turn: Any) -> None:
        """Add a turn to a session that `begin` has made. Only this is timed, so it does what a program would do."""

    @abstractmethod
    async def newest(self, session_id: str, count: int) -> list[Any]:
        """The newest messages of a session, in their order."""

    async def close(self) -> None:
        """Afterwards everything that is stored stands in the files of the folder."""


class FrameworkSubject(ABC):
    """One kind of store that a framework wants."""

    name: ClassVar[str]
    """The framework and what is stored, as the table names it: "Google ADK, sessions"."""

    own: ClassVar[str | None]
    """What the framework brings: "`SqliteSessionService`". None, if it brings nothing that outlives the process."""

    @abstractmethod
    def turn(self, number: int) -> Any:
        """What one turn adds, in the framework's own types: made of `benchmarks.turns.turn(number)`, 3 KB of text."""

    @abstractmethod
    def content(self, turn: Any) -> int:
        """The bytes of a turn as compact JSON, with what the framework itself puts into its messages."""

    @abstractmethod
    def ours(self, folder: Path) -> Side:
        """On SQLite with `durability="full"`, or with files, if that is what the framework has."""

    def theirs(self, folder: Path) -> Side:
        """The framework's own store, as durable as it can be told to be."""
        raise NotImplementedError(f"{self.name} says that it brings {self.own}, and does not say how to open it")
