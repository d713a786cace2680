"""Retries: exponential back-off with jitter, bounded, heeding `Retry-After`."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from email.utils import mktime_tz, parsedate_tz
from typing import TypeVar

T = TypeVar("T")

FIRST_DELAY = 0.5
LONGEST_DELAY = 8.0
LONGEST_RETRY_AFTER = 120.0
"""Seconds. A server that asks for more is not waited for: the caller hears of it at once."""

Wish = Callable[[Exception], "float | None"]
"""How long to wait after this error: as long as the server asks, 0 for the usual delay, None if nothing will help."""


async def with_retries(attempt: Callable[[], Awaitable[T]], wish: Wish, max_retries: int) -> T:
    """Call `attempt` until it succeeds, `max_retries` times more at most; the last error is raised."""
    for retry in range(max_retries):
        try:
            return await attempt()
        except Exception as error:
            wished = wish(error)
            if wished is None or wished > LONGEST_RETRY_AFTER:
                raise
        await asyncio.sleep(delay_before(retry, wished))
    return await attempt()


def delay_before(retry: int, wished: float) -> float:
    """Seconds to wait before the retry with this number, counted from 0."""
    if wished > 0:
        return wished
    # A quarter at random, so that clients which failed together don't come back together.
    return min(FIRST_DELAY * 2.0 ** min(retry, 10), LONGEST_DELAY) * random.uniform(0.75, 1.0)


def retry_after(header: str | None) -> float | None:
    """The seconds in a `Retry-After` header, which is a number or a date."""
    if header is None:
        return None
    try:
        return float(header)
    except ValueError:
        date = parsedate_tz(header)
        return None if date is None else mktime_tz(date) - time.time()
