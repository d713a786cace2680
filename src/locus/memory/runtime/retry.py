"""Pauses between attempts: the back-off that all retries of Locus use.

Each caller decides what may be tried again; this module decides how long to wait before that.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass

_MOST_DOUBLINGS = 64
"""The largest exponent: higher powers would overflow a float, and every pause is at its longest long before."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that grow from `first` to `longest` seconds, each `factor` times the one before.

    The fraction `random_part` of a pause is random, so that callers who failed together do not retry together.
    """

    first: float
    longest: float
    factor: float = 2.0
    random_part: float = 0.5

    def seconds(self, attempt: int) -> float:
        """How long to pause after an attempt, counted from 0."""
        pause = min(self.first * self.factor ** min(attempt, _MOST_DOUBLINGS), self.longest)
        return pause * random.uniform(1.0 - self.random_part, 1.0)

    async def pause(self, attempt: int) -> None:
        await asyncio.sleep(self.seconds(attempt))

    def block(self, attempt: int) -> None:
        """Pause after an attempt, on a thread that may block."""
        time.sleep(self.seconds(attempt))
