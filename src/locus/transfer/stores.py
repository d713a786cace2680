"""Stores by their names or URLs, to move from and to. A source is never made or changed."""

from __future__ import annotations

import os

from locus.errors import ConfigurationError
from locus.memory.checkpointer import StoreVerbs
from locus.memory.engine import NothingThereError
from locus.memory.registry import get_checkpointer
from locus.memory.store import CheckpointStore

FROM_ENVIRONMENT = "env:"


def location(given: str) -> str:
    """What was given, or, for `env:NAME`, what that variable holds: command lines can be seen by others."""
    if not given.startswith(FROM_ENVIRONMENT):
        return given
    name = given.removeprefix(FROM_ENVIRONMENT)
    found = os.environ.get(name)
    if not found:
        raise ConfigurationError(f"the variable {name!r:.80} is not set, and should hold the URL of a store")
    return found


def opened(given: str) -> CheckpointStore:
    """A store of ours, not opened yet."""
    url = location(given)
    if url.partition(":")[0] == "memory":
        raise ConfigurationError("a store in memory ends with this command: name one that lasts")
    checkpointer = get_checkpointer(url)
    if not isinstance(checkpointer, StoreVerbs):
        raise ConfigurationError(f"{type(checkpointer).__name__} is not a store of threads that could be moved")
    return checkpointer.store


def reading(given: str) -> CheckpointStore:
    """A store to read from: nothing in it is changed, and nothing is made if it is not there."""
    store = opened(given)
    store.engine.reading_only = True
    return store


async def existing(given: str) -> CheckpointStore | None:
    """A store to look into, if it is there."""
    store = reading(given)
    try:
        async with store.using():
            return store
    except NothingThereError:
        await store.close()
        return None
