"""Rate limits by token buckets: a bucket fills steadily, and each request takes one from it."""

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
    """A limit of `per_second` requests a second, and of `burst` at once after a pause."""

    per_second: float
    burst: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a rate: `50`, or `50/200` for bursts of 200. By default, a burst is the requests of two seconds."""
        match = _TEXT.fullmatch(text)
        per_second = float(match[1]) if match else 0.0
        burst = int(match[2]) if match and match[2] else max(1, round(2 * per_second))
        if per_second <= 0 or burst < 1:
            raise ConfigurationError("a rate is RATE or RATE/BURST, in requests per second: 50, or 50/200")
        return cls(per_second, burst)


class Bucket:
    """Lets requests through as a rate allows."""

    def __init__(self, rate: Rate, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._left = float(rate.burst)
        self._at = clock()

    def take(self) -> float:
        """Let a request through, and return 0; or else return the seconds until the next may come."""
        now = self._clock()
        self._left = min(self._rate.burst, self._left + (now - self._at) * self._rate.per_second)
        self._at = now
        if self._left < 1:
            return (1 - self._left) / self._rate.per_second
        self._left -= 1
        return 0.0
