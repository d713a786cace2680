"""An empty store for each test, of a kind that needs no server."""

from tests.backends.every_store import handle, store

__all__ = ["handle", "store"]
