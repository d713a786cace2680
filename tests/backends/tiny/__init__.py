"""A backend as a newcomer would add it: see `test_addition`."""

from tests.backends.tiny.backend import TinyBackend, from_location
from tests.backends.tiny.config import TinyConfig

__all__ = ["TinyBackend", "TinyConfig", "from_location"]
