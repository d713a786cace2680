"""The base of this integration's stores, and the error for using one after it was closed."""

from __future__ import annotations

from locus.errors import LocusError
from locus.threads import AsyncStoreUser


class ClosedError(LocusError, RuntimeError):
    """A store of this integration is used after it was closed."""


class OwnedStore(AsyncStoreUser):
    """The base of the three public classes: a user of a store, closed with `await store.close()`."""

    def _closed_error(self, name: str) -> Exception:
        return ClosedError(f"this {name} is closed: make a new {name}")
