"""What the contract suite needs to know of a backend: how to open it, and how to hurt it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager

from locus.memory.checkpointer import Checkpointer


class TestStore(ABC):
    """One empty store, for one test. Every handle that `open` gives is on the same data."""

    __test__ = False

    @abstractmethod
    def open(self, *, ttl_seconds: float | None = None) -> Checkpointer:
        """A new handle. The suite closes it."""

    @abstractmethod
    async def corrupt(self, thread_id: str) -> None:
        """Damage what is stored of a thread (all its items), behind the backend's back."""


class OutageTestStore(TestStore):
    """A store that can be out of reach."""

    @abstractmethod
    def outage(self) -> AbstractAsyncContextManager[None]:
        """While this is entered the store cannot be reached; afterwards it is as it was."""


class DurableTestStore(OutageTestStore):
    """A store that other processes can open too."""

    @property
    @abstractmethod
    def url(self) -> str:
        """What `locus.memory.get_checkpointer` opens it with, in any process."""

    def open_after_kill(self) -> Checkpointer:
        """A new handle, once everything that a killed process had sent is done: a server may still carry it out."""
        return self.open()


class Stall(ABC):
    """A handle whose queries can be made to stall: they arrive, and nobody answers."""

    handle: Checkpointer

    @abstractmethod
    async def begin(self) -> None:
        """From now on a query of the handle stalls."""

    async def query(self) -> object:
        """Ask what stalls: anything, or a query that the store has made for it. There is a thread "t"."""
        return await self.handle.load("t")

    @abstractmethod
    async def reached(self) -> None:
        """Return when a query has stalled."""

    @abstractmethod
    async def end(self) -> None:
        """From now on queries are answered as ever."""


class StallTestStore(TestStore):
    """A store whose queries can stall, at its server or on the way. One that is no such store says that it cannot."""

    @abstractmethod
    def stalling(self, seconds: float) -> AbstractAsyncContextManager[Stall]:
        """A handle that gives each query so many seconds, and tries none again; it is closed at the end."""
