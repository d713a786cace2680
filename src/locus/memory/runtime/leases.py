"""Leases: whoever works on something says until when they may be silent, and is taken for dead afterwards.

Times are by the clock of the writer. A reader adds `SKEW` seconds before it takes a worker for dead, so the clocks of
workers may be that far apart.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

SKEW = 5.0
"""How many seconds the clocks of workers may differ."""

LONGEST = 3600.0
"""The longest lease, in seconds: what a worker has left is not lost for longer."""


@dataclass(frozen=True)
class Lease:
    """A lease that is stored: `seconds` long, and valid `until` a time by its writer's clock."""

    seconds: float
    until: float


class Watch:
    """Measures how long another worker's lease still lasts, for one worker that looks at it repeatedly.

    A lease ends `SKEW` seconds after its time by the writer's clock. It also ends when its whole length has passed
    since this worker saw it first, which needs no clock but this worker's own.
    """

    def __init__(self) -> None:
        self._seen: tuple[str, float] | None = None
        self._since = 0.0

    def seconds_left(self, checkpoint_id: str, lease: Lease) -> float:
        """How long the lease of a checkpoint still lasts; 0 when it is over."""
        now = time.monotonic()
        if self._seen != (checkpoint_id, lease.until):
            self._seen, self._since = (checkpoint_id, lease.until), now
        by_own_clock = self._since + lease.seconds - now
        return max(0.0, min(by_own_clock, lease.until + SKEW - time.time()))
