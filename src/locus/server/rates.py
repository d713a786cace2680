"""How often something may be done: a bucket that fills steadily, and that each time takes one out of."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from locus.errors import ConfigurationError

_TEXT = re.compile(r"(\d{1,7}(?:\.\d{1,3})?)(?:/(\d{1,7}))?", re.ASCII)


@dataclass(frozen=True)
class Rate:
    """So many times a second, and so many at once after a quiet while."""

    per_second: float
    burst: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """`50`, or `50/200` for bursts of 200. A burst is as long as two seconds if it is not given."""
        found = _TEXT.fullmatch(text)
        per_second = float(found[1]) if found else 0.0
        burst = int(found[2]) if found and found[2] else max(1, round(2 * per_second))
        if per_second <= 0 or burst < 1:
            raise ConfigurationError("a rate is RATE or RATE/BURST, in requests per second: 50, or 50/200")
        return cls(per_second, burst)


class Bucket:
    """Lets through what a rate allows."""

    def __init__(self, rate: Rate, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._left = float(rate.burst)
        self._at = clock()

    def take(self) -> float:
        """Zero if it may be done now, else the seconds until it may."""
        now = self._clock()
        self._left = min(self._rate.burst, self._left + (now - self._at) * self._rate.per_second)
        self._at = now
        if self._left < 1:
            return (1 - self._left) / self._rate.per_second
        self._left -= 1
        return 0.0
