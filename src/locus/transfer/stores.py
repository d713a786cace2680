"""Opens stores by name or URL, to move threads from and to. A source is never created or changed."""

from __future__ import annotations

import os

from locus.errors import ConfigurationError
from locus.memory.checkpointer import StoreVerbs
from locus.memory.engine import NothingThereError
from locus.memory.registry import get_checkpointer
from locus.memory.store import CheckpointStore

FROM_ENVIRONMENT = "env:"


def resolve_url(given: str) -> str:
    """The URL itself, or for `env:NAME` the value of that variable, because other users can see command lines."""
    if not given.startswith(FROM_ENVIRONMENT):
        return given
    name = given.removeprefix(FROM_ENVIRONMENT)
    url = os.environ.get(name)
    if not url:
        raise ConfigurationError(f"the variable {name!r:.80} is not set, and should hold the URL of a store")
    return url


def open_store(given: str, token: str | None = None) -> CheckpointStore:
    """Open the store at a URL. It connects when it is first used. `token` is for a store on a server."""
    url = resolve_url(given)
    if url.partition(":")[0] == "memory":
        raise ConfigurationError("a store in memory ends with this command: name one that lasts")
    checkpointer = get_checkpointer(url) if token is None else get_checkpointer(url, token=token)
    if not isinstance(checkpointer, StoreVerbs):
        raise ConfigurationError(f"{type(checkpointer).__name__} is not a store of threads that could be moved")
    return checkpointer.store


def open_to_read(given: str, token: str | None = None) -> CheckpointStore:
    """Open the store at a URL for reading only: it is neither created nor changed."""
    store = open_store(given, token)
    store.engine.reading_only = True
    return store


async def open_existing(given: str, token: str | None = None) -> CheckpointStore | None:
    """Open the store at a URL for reading only, or return None if it does not exist."""
    store = open_to_read(given, token)
    try:
        async with store.using():
            return store
    except NothingThereError:
        await store.close()
        return None
