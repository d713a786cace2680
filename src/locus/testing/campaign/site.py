"""What a campaign needs to know of a store: how to open it, and what bad can be done to it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol


class Fault(Protocol):
    """Something bad that happens to a store while it is used."""

    @property
    def name(self) -> str:
        """Its row in the report: "server killed", "answer dropped after the commit"."""

    async def strike(self, rng: random.Random) -> int:
        """Do it once, or a few times, and make the store usable again. Returns how many faults it was."""


class Site(Protocol):
    """A store that a campaign may use and hurt."""

    @property
    def name(self) -> str:
        """Its rows in the report: "postgresql"."""

    def url(self) -> str:
        """What clients open; goes through the proxy where there is one."""

    def direct_url(self) -> str:
        """What the checker opens, past the proxy."""

    def versions(self) -> str:
        """What it runs: "PostgreSQL 18.6"."""

    def faults(self) -> Sequence[Fault]:
        """What may be done to it, each of which may strike many times."""

    async def start(self) -> None:
        """Start it, with nothing stored."""

    async def stop(self) -> None:
        """Stop it, and leave nothing behind."""
