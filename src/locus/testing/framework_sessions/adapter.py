"""The adapter between the suite and a framework: it implements the suite's operations with the framework's methods."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum
from typing import Any, ClassVar, NamedTuple

from locus.errors import BackendUnavailableError, ConflictError
from locus.memory.checkpointer import Checkpointer


class Said(NamedTuple):
    """A message. When it is sent again, it has the same id."""

    id: str
    text: str


class Appends(Enum):
    """The outcomes for two batches that were begun from the same revision."""

    CONDITIONAL = "one is accepted, and the other is refused"
    COMMUTING = "both are accepted, one after the other"
    SNAPSHOTS = "both are accepted, each as a session of its own in the history; the later one is read"


class Retried(Enum):
    """What becomes of a batch that is sent again because its answer was lost."""

    ONCE = "it is kept once, or refused"
    AGAIN = "it is another batch, because the framework's messages have no ids"


class FrameworkSessions(ABC):
    """The sessions of one framework on an open store, which the suite closes.

    Implement the methods by calls of the framework, in the way its users call it, and let its errors through.
    """

    title: ClassVar[str] = ""
    """The kind of sessions, if the framework has several kinds."""

    imports: ClassVar[tuple[str, ...]] = ()
    """Modules to import once for all processes, such as those of the framework."""

    appends: ClassVar[Appends]
    retried: ClassVar[Retried] = Retried.ONCE

    batch: ClassVar[int] = 3
    """How many messages the framework can append in one step."""

    forks: ClassVar[bool] = True
    """Whether a session can be forked."""

    reads_to_append: ClassVar[bool] = False
    """Whether the framework passes the whole session to each append, so that it has to read the session before."""

    reads_newest: ClassVar[bool] = True
    """Whether the framework, or its integration, can read the newest messages without the others."""

    refused: ClassVar[tuple[type[Exception], ...]] = (ConflictError,)
    """The errors for a batch that was begun from an older revision, or that is stored already."""

    unavailable: ClassVar[tuple[type[Exception], ...]] = (BackendUnavailableError,)
    """The errors that an outage raises."""

    def __init__(self, store: Checkpointer) -> None:
        self.store = store

    @abstractmethod
    async def create(self, session_id: str) -> None:
        """Begin a session. Do nothing if the framework begins it with its first message."""

    async def revision(self, session_id: str) -> Any:
        """The revision that an append is begun from, such as a number, or a session object of the framework.

        It stays in this process.
        """
        return None

    @abstractmethod
    async def append(self, session_id: str, batch: Sequence[Said], revision: Any) -> None:
        """Append a batch in one step. `revision` comes from the method `revision`."""

    @abstractmethod
    async def read(self, session_id: str, newest: int | None = None) -> list[str]:
        """The texts of all messages, or of the newest ones, in their order; empty for an unknown session."""

    async def reachable(self, session_id: str) -> list[str]:
        """The texts that can still be read: those of the session, and with snapshots those of its history."""
        return await self.read(session_id)

    @abstractmethod
    async def known(self, session_id: str) -> bool:
        """Whether a session exists. For one that was begun and has no messages, either answer is right."""

    @abstractmethod
    async def delete(self, session_id: str) -> None:
        """Remove a session with all its messages."""

    async def fork(self, session_id: str, new_session_id: str) -> None:
        """Make a new session that begins with the messages of another."""
        raise NotImplementedError(f"{type(self).__name__} says that it forks, and does not say how")

    async def close(self) -> None:
        """Close all that the adapter has opened itself."""


def adapter_class(name: str) -> type[FrameworkSessions]:
    """Import the adapter class with the name `module:Class`."""
    module, _, kind = name.partition(":")
    named = getattr(importlib.import_module(module), kind)
    if not (isinstance(named, type) and issubclass(named, FrameworkSessions)):
        raise TypeError(f"{name} is no FrameworkSessions")
    return named
