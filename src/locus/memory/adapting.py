"""Whatever a user has, as a checkpointer."""

from __future__ import annotations

from typing import Any

from locus.errors import ConfigurationError
from locus.memory.backends.adapters import StorageBackendAdapter
from locus.memory.checkpointer import BaseCheckpointer
from locus.memory.registry import get_checkpointer


def as_checkpointer(given: Any) -> BaseCheckpointer:
    """A checkpointer as it is; a storage backend adapted; a name or URL opened."""
    if isinstance(given, BaseCheckpointer):
        return given
    if isinstance(given, str):
        return get_checkpointer(given)
    if given is None:
        raise ConfigurationError('a checkpointer is needed: an object, or a URL such as "sqlite:agents.db"')
    return StorageBackendAdapter(given)
