"""SQLite: one file, no server. Several processes may use it at once."""

from locus.memory.backends.sqlite.backend import SQLiteBackend, from_location
from locus.memory.backends.sqlite.engine import SQLiteEngine

__all__ = ["SQLiteBackend", "SQLiteEngine", "from_location"]
