"""Locus keeps the state of AI agents, with any framework and any database. A save's cost does not grow with the thread.

Names are imported from their modules when they are first used, so that `import locus` is quick and needs no driver.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from locus import _moved
from locus._other_distribution import refuse_mixture

if TYPE_CHECKING:
    from locus.agent import Agent
    from locus.core.messages import Message
    from locus.core.state import AgentState
    from locus.errors import (
        BackendUnavailableError,
        CapabilityError,
        CheckpointError,
        CheckpointNotFoundError,
        ConfigurationError,
        ConflictError,
        CorruptCheckpointError,
        InvalidIdError,
        LocusError,
        MissingDependencyError,
        SerializationError,
        ThreadBusyError,
        ThreadTakenOverError,
        UnsupportedFormatError,
        WindowError,
    )
    from locus.memory import get_checkpointer
    from locus.tools import tool

__version__ = "0.2.0"

_HOMES = {
    "Agent": "agent",
    "AgentState": "core.state",
    "Message": "core.messages",
    "get_checkpointer": "memory",
    "tool": "tools",
}

__all__ = [
    "Agent",
    "AgentState",
    "BackendUnavailableError",
    "CapabilityError",
    "CheckpointError",
    "CheckpointNotFoundError",
    "ConfigurationError",
    "ConflictError",
    "CorruptCheckpointError",
    "InvalidIdError",
    "LocusError",
    "Message",
    "MissingDependencyError",
    "SerializationError",
    "ThreadBusyError",
    "ThreadTakenOverError",
    "UnsupportedFormatError",
    "WindowError",
    "get_checkpointer",
    "tool",
]

refuse_mixture()
_moved.install()


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
