"""What the suite needs to know of a framework: how its own verbs do what every framework's sessions can do."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum
from typing import Any, ClassVar, NamedTuple

from locus.errors import BackendUnavailableError, ConflictError
from locus.memory.checkpointer import Checkpointer


class Said(NamedTuple):
    """A message: an id that stays the same when it is sent again, and its text."""

    id: str
    text: str


class Appends(Enum):
    """What becomes of two batches that were begun from the same revision."""

    CONDITIONAL = "one is accepted, and the other is refused"
    COMMUTING = "both are accepted, one after the other"
    SNAPSHOTS = "both are accepted, each as a session of its own in the history; the later one is read"


class Retried(Enum):
    """What becomes of a batch that is sent again."""

    ONCE = "it is kept once, or refused"
    AGAIN = "it is another batch, because the framework's messages have no ids"


class FrameworkSessions(ABC):
    """The sessions of one framework on an open store, which the suite closes.

    The verbs are those of the framework, called as a program that uses it would. An error goes through as it is.
    """

    title: ClassVar[str] = ""
    """What these sessions are, where a framework has several kinds."""

    imports: ClassVar[tuple[str, ...]] = ()
    """Modules that every process needs, such as those of the framework: they are imported once for all processes."""

    appends: ClassVar[Appends]
    retried: ClassVar[Retried] = Retried.ONCE

    batch: ClassVar[int] = 3
    """How many messages the framework appends in one step: 1 where it has no verb for more."""

    forks: ClassVar[bool] = True
    """Whether a session can be forked."""

    reads_to_append: ClassVar[bool] = False
    """Whether the framework hands over the whole session with each append, so that it has to read it before."""

    reads_newest: ClassVar[bool] = True
    """Whether the framework, or the integration on top of it, can read the newest messages without the others."""

    refused: ClassVar[tuple[type[Exception], ...]] = (ConflictError,)
    """How the framework refuses a batch that was begun from an older revision, or that is there already."""

    unavailable: ClassVar[tuple[type[Exception], ...]] = (BackendUnavailableError,)
    """What an outage raises."""

    def __init__(self, store: Checkpointer) -> None:
        self.store = store

    @abstractmethod
    async def create(self, session_id: str) -> None:
        """Begin a session. Nothing to do where a session begins with its first message."""

    async def revision(self, session_id: str) -> Any:
        """What an append is begun from: a number, a session object of the framework. It stays in this process."""
        return None

    @abstractmethod
    async def append(self, session_id: str, batch: Sequence[Said], revision: Any) -> None:
        """Add a batch in one step, begun from a revision that `revision` gave."""

    @abstractmethod
    async def read(self, session_id: str, newest: int | None = None) -> list[str]:
        """The texts of all messages, or of the newest, in their order; none for a session that is not known."""

    async def reachable(self, session_id: str) -> list[str]:
        """The texts that can still be had: those of the session, and with snapshots those of its history."""
        return await self.read(session_id)

    @abstractmethod
    async def known(self, session_id: str) -> bool:
        """Whether there is such a session. One that was begun and has no message may be known or not."""

    @abstractmethod
    async def delete(self, session_id: str) -> None:
        """Remove a session with everything that it has."""

    async def fork(self, session_id: str, new_session_id: str) -> None:
        """Make a session that goes on from where another one is."""
        raise NotImplementedError(f"{type(self).__name__} says that it forks, and does not say how")

    async def close(self) -> None:
        """Release what the adapter has opened itself."""


def adapter_class(name: str) -> type[FrameworkSessions]:
    """The class that is named `module:Class`."""
    module, _, kind = name.partition(":")
    found = getattr(importlib.import_module(module), kind)
    if not (isinstance(found, type) and issubclass(found, FrameworkSessions)):
        raise TypeError(f"{name} is no FrameworkSessions")
    return found
