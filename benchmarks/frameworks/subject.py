"""What is measured of a framework: the same turns on our store, on the framework's own, and on its store in memory."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

NEVER = 10**9


class Side(ABC):
    """Sessions of a framework in one store, which has a folder for itself."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def open(self) -> None:
        """Open the store, where that is not done yet."""

    async def begin(self, session_id: str) -> None:
        """Make a session, where a framework wants that before the first turn."""

    @abstractmethod
    async def save(self, session_id: str, turn: Any) -> None:
        """Add a turn to a session that `begin` has made. Only this is timed, so it does what a program would do."""

    async def save_many(self, session_id: str, turns: Sequence[Any]) -> None:
        """Begin a long session with these turns, in few steps. Needed if the subject has `one_by_one`."""
        raise NotImplementedError(f"{type(self).__name__} takes one turn at a time")

    @abstractmethod
    async def newest(self, session_id: str, count: int) -> list[Any]:
        """The newest messages of a session, in their order."""

    def stored_bytes(self) -> int | None:
        """What the store takes, or `None` if that can't be told. Here: all files, with no WAL of SQLite beside them."""
        for path in self.folder.rglob("*.db"):
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("PRAGMA wal_checkpoint(FULL)")
        return sum(path.stat().st_size for path in self.folder.rglob("*") if _counts(path))

    async def close(self) -> None:
        """Close the store."""


def _counts(path: Path) -> bool:
    return path.is_file() and not path.name.endswith(("-wal", "-shm"))


class MemorySide(Side):
    """Sessions in the memory of the process."""

    def stored_bytes(self) -> None:
        return None


class FrameworkSubject(ABC):
    """One kind of store that a framework wants, on one database."""

    name: str
    """The framework and what is stored, as the table names it: "Google ADK, sessions"."""

    call: str
    """What a program calls for a turn: "`add_items`"."""

    store: str = "SQLite, FULL"
    """The database and its durability, on both sides."""

    own: str | None = None
    """What the framework brings: "`SqliteSessionService`". None, if it brings nothing that outlives the process."""

    in_memory: str | None = None
    """What the framework brings for sessions in memory, if anything."""

    blocking: bool = False
    """Whether a program calls it without an event loop. Then no method of a side may wait for anything."""

    one_by_one: int = NEVER
    """Sessions that are longer than this are begun with `save_many`."""

    libraries: tuple[str, ...]
    """The distributions whose versions matter."""

    peers: bool = False
    """Whether the framework's own store needs libraries that only `PEERS=1` installs."""

    @abstractmethod
    def turn(self, number: int) -> Any:
        """What one turn adds, in the framework's own types: made of `benchmarks.turns.turn(number)`, 3 KB of text."""

    @abstractmethod
    def content(self, turn: Any) -> int:
        """The bytes of a turn as compact JSON, with what the framework itself puts into its messages."""

    @abstractmethod
    def ours(self, folder: Path) -> Side:
        """As durable as the framework's own store."""

    def theirs(self, folder: Path) -> Side:
        """The framework's own store, as durable as it can be told to be."""
        raise NotImplementedError(f"{self.name} says that it brings {self.own}, and does not say how to open it")

    def floor(self, folder: Path) -> Side:
        """The framework's store in memory."""
        raise NotImplementedError(f"{self.name} says that it brings {self.in_memory}, and does not say how to make it")

    def servers(self) -> dict[str, str]:
        """The versions of the servers that are used."""
        return {"SQLite": sqlite3.sqlite_version}
