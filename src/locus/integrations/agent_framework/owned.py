"""The store behind one of the framework's interfaces, and what is raised after it was closed."""

from __future__ import annotations

from locus.errors import LocusError
from locus.threads import AsyncStoreUser


class ClosedError(LocusError, RuntimeError):
    """Something is used after it was closed."""


class OwnedStore(AsyncStoreUser):
    """What the three classes have in common."""

    def _closed_error(self, name: str) -> Exception:
        return ClosedError(f"this {name} is closed: make a new {name}")
