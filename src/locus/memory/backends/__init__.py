"""The databases. Names are imported when they are first used, so that no driver is needed but the one in use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from locus.memory.backends.adapters import StorageBackendAdapter, sqlite_checkpointer
    from locus.memory.backends.file import FileCheckpointer
    from locus.memory.backends.memory import MemoryCheckpointer
    from locus.memory.backends.sqlite import SQLiteBackend

_HOMES = {
    "FileCheckpointer": "file",
    "MemoryCheckpointer": "memory",
    "SQLiteBackend": "sqlite",
    "StorageBackendAdapter": "adapters",
    "sqlite_checkpointer": "adapters",
}

__all__ = [
    "FileCheckpointer",
    "MemoryCheckpointer",
    "SQLiteBackend",
    "StorageBackendAdapter",
    "sqlite_checkpointer",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
