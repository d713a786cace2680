"""SQLite: one file, no server. Several processes may use it at once."""

from locus.memory.backends.sqlite.engine import SQLiteBackend, SQLiteEngine, from_location

__all__ = ["SQLiteBackend", "SQLiteEngine", "from_location"]
