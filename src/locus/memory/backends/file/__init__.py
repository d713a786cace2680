"""Files: one human-readable log a thread, in a folder. Several processes may use it at once."""

from locus.memory.backends.file.backend import FileCheckpointer, from_location
from locus.memory.backends.file.engine import FileEngine

__all__ = ["FileCheckpointer", "FileEngine", "from_location"]
