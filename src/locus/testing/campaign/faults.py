"""Faults of client processes, which need nothing from the store but its URL."""

from __future__ import annotations

import asyncio
import random
from typing import Final

from locus.testing.campaign.client import CANCELLED, CLOCK, CROWD
from locus.testing.campaign.clients import Clients

KILLED: Final = "client killed"
INSIDE: Final = (CANCELLED, CROWD, CLOCK)
"""The faults that strike inside a client. Its history counts them."""
CLIENT_FAULTS: Final = (KILLED, *INSIDE)

SHORTEST, LONGEST = 0.005, 0.15
"""The least and the most seconds between two kills."""


class ClientKilled:
    """A fault that kills a client at a random instant. It counts as a fault only if the client was at work then."""

    name = KILLED

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    async def strike(self, rng: random.Random) -> int:
        await asyncio.sleep(rng.uniform(SHORTEST, LONGEST))
        return int(self._clients.kill_one(rng))


class InsideOfClients:
    """A fault that clients do to themselves, as long as they run."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def strike(self, rng: random.Random) -> int:
        await asyncio.sleep(rng.uniform(SHORTEST, LONGEST))
        return 0
