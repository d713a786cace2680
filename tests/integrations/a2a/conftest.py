"""An empty store for each test: of a kind that needs no server, or on a server."""

from tests.backends.every_store import handle, store
from tests.integrations.suites import server_store

__all__ = ["handle", "server_store", "store"]
