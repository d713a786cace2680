"""Faults that need nothing but a URL: they strike clients."""

from __future__ import annotations

import asyncio
import random
from typing import Final

from locus.testing.campaign.client import CANCELLED, CLOCK, CROWD
from locus.testing.campaign.clients import Clients

KILLED: Final = "client killed"
INSIDE: Final = (CANCELLED, CROWD, CLOCK)
"""Those that a client does to itself; its history says how often."""
CLIENT_FAULTS: Final = (KILLED, *INSIDE)

SHORTEST, LONGEST = 0.005, 0.15
"""Seconds between two kills."""


class ClientKilled:
    """SIGKILL, at any instant. It counts if the client was at work."""

    name = KILLED

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    async def strike(self, rng: random.Random) -> int:
        await asyncio.sleep(rng.uniform(SHORTEST, LONGEST))
        return int(self._clients.kill_one(rng))


class InsideOfClients:
    """Goes on as long as the clients do."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def strike(self, rng: random.Random) -> int:
        await asyncio.sleep(rng.uniform(SHORTEST, LONGEST))
        return 0
