"""The stores under test, for the contract suite: how to open one, damage it, make it unreachable or stall it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager

from locus.memory.checkpointer import Checkpointer


class TestStore(ABC):
    """An empty store for one test. All handles from `open` are on the same data."""

    __test__ = False

    @abstractmethod
    def open(self, *, ttl_seconds: float | None = None) -> Checkpointer:
        """A new handle. The suite closes it."""

    @abstractmethod
    async def corrupt(self, thread_id: str) -> None:
        """Damage all stored items of a thread, behind the backend's back."""


class OutageTestStore(TestStore):
    """A store that can be made unreachable."""

    @abstractmethod
    def outage(self) -> AbstractAsyncContextManager[None]:
        """A context in which the store cannot be reached. Afterwards it is as it was."""


class DurableTestStore(OutageTestStore):
    """A store that other processes can open."""

    @property
    @abstractmethod
    def url(self) -> str:
        """The URL with which `locus.memory.get_checkpointer` opens the store in any process."""

    def open_after_kill(self) -> Checkpointer:
        """A new handle, opened after the server has finished whatever a killed process had sent."""
        return self.open()


class Stall(ABC):
    """A handle whose queries can be made to stall: they arrive, and are not answered."""

    handle: Checkpointer

    @abstractmethod
    async def begin(self) -> None:
        """Make the queries of the handle stall from now on."""

    async def query(self) -> object:
        """Make a query that stalls. The store has a thread "t"."""
        return await self.handle.load("t")

    @abstractmethod
    async def reached(self) -> None:
        """Return when a query has stalled."""

    @abstractmethod
    async def end(self) -> None:
        """Answer the queries of the handle again."""


class StallTestStore(TestStore):
    """A store whose queries can stall, at its server or on the way."""

    @abstractmethod
    def stalling(self, seconds: float) -> AbstractAsyncContextManager[Stall]:
        """A handle whose queries have a deadline of `seconds` and are not tried again. It is closed at the end."""
