"""Harm by the server itself: it ends the connections of its clients, as an administrator or a fail-over makes it do."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from tests.soak.faults.harm import Duration, Harm, Seconds

BETWEEN = Seconds(0.02, 0.3)


class SessionsEnded(Harm):
    """The server ends all sessions but the one that tells it to, a few times."""

    name = "connections killed by the server"

    def __init__(self, end_sessions: Callable[[], int], between: Duration = BETWEEN) -> None:
        """`end_sessions` returns how many it has ended."""
        self._end_sessions = end_sessions
        self._between = between

    def do(self, rng: random.Random) -> int:
        rounds = 0
        for _ in range(rng.randint(1, 4)):
            rounds += self._end_sessions() > 0
            time.sleep(self._between.choose(rng))
        return rounds
