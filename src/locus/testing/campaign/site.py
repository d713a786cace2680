"""The protocols of a store in a campaign, and of the faults that can strike it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol


class Fault(Protocol):
    """A fault that strikes a store, or its clients, while they are at work."""

    @property
    def name(self) -> str:
        """The fault's row in the report: "server killed", "answer dropped after the commit"."""

    async def strike(self, rng: random.Random) -> int:
        """Cause this fault once or a few times, then make the store usable again. Returns how often it was caused."""


class Site(Protocol):
    """A store that a campaign may use and break."""

    @property
    def name(self) -> str:
        """The store's rows in the report: "postgresql"."""

    def url(self) -> str:
        """The URL for clients. It leads through the proxy, if there is one."""

    def direct_url(self) -> str:
        """The URL for the checker, without the proxy."""

    def versions(self) -> str:
        """The server and its version: "PostgreSQL 18.6"."""

    def faults(self) -> Sequence[Fault]:
        """The faults of this store. Each may strike many times."""

    async def start(self) -> None:
        """Start the store, empty."""

    async def stop(self) -> None:
        """Stop the store, and remove its data."""
