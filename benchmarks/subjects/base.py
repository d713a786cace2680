"""What a backend under measurement has to tell of itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, NamedTuple

from benchmarks.subjects.floors import Floor
from locus.memory.checkpointer import Checkpointer


class Occupied(NamedTuple):
    """Bytes that a store occupies, its search index counted apart."""

    content: int
    search: int = 0


class Subject(ABC):
    """One empty store of a backend, in a scratch folder of its own, with its floor beside it."""

    name: ClassVar[str]
    save_limit: ClassVar[float | None]
    """How many times the floor's time a save may take; `None` if nothing is promised."""
    load_limit: ClassVar[float] = 2.0
    """How many times what parsing takes a load may take; where the floor can read, parsing and reading."""
    stored_limit: ClassVar[float] = 1.4
    """How many times the floor's bytes may be stored."""
    longest_thread: ClassVar[int] = 10_000
    """In turns: more would take too long to make."""
    turn_limit: ClassVar[float] = 1.25
    """How many times longer a turn of a worker that knows nothing may take in a long thread than in a short one."""
    cold_load_limit: ClassVar[float] = 1.5
    """How many times what parsing takes a load may take that knows nothing."""

    blocking_limit: ClassVar[float | None] = None
    """How many times the floor's time a blocking save may take, where the floor can be called without a loop too."""

    many_limit: ClassVar[float | None] = None
    """How many saves per second at least, of many conversations at once, over those of the floor."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder

    @abstractmethod
    def open(self) -> Checkpointer:
        """A new handle on the same data, that knows nothing yet."""

    @abstractmethod
    def floor(self) -> Floor:
        """The raw driver, at the same durability."""

    def warm_up(self) -> None:
        """Come into the state that a long-running program finds; a handle has been opened."""

    @abstractmethod
    def occupied(self) -> Occupied:
        """What is stored now. Handles may be open, but idle."""

    async def remove(self) -> None:
        """Clean up what is not in the folder."""
