"""Pauses between attempts: one back-off for everything that is tried again.

What may be tried again is for each caller to know; how long it waits before that is said here, once.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass

_MOST_DOUBLINGS = 64
"""Beyond this the power would be a number that no float holds; every pause is at its longest long before."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that grow from `first` to `longest` seconds, each `factor` times the one before.

    `random_part` of a pause is random, so that those who failed together do not come back together.
    """

    first: float
    longest: float
    factor: float = 2.0
    random_part: float = 0.5

    def seconds(self, attempt: int) -> float:
        """How long to wait after the attempt with this number, counted from 0."""
        pause = min(self.first * self.factor ** min(attempt, _MOST_DOUBLINGS), self.longest)
        return pause * random.uniform(1.0 - self.random_part, 1.0)

    async def pause(self, attempt: int) -> None:
        await asyncio.sleep(self.seconds(attempt))

    def block(self, attempt: int) -> None:
        """Like `pause`, on a thread that may block."""
        time.sleep(self.seconds(attempt))
