"""Files: one human-readable log a thread, in a folder. Several processes may use it at once."""

from locus.memory.backends.file.engine import FileCheckpointer, FileEngine, from_location

__all__ = ["FileCheckpointer", "FileEngine", "from_location"]
