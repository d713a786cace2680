"""Options that the backends on SQL servers share."""

from __future__ import annotations

from dataclasses import dataclass

from locus.errors import ConfigurationError
from locus.memory.model.arguments import checked_seconds


@dataclass(frozen=True)
class PoolOptions:
    """How many connections a pool keeps. `least` of them stay open, the others only for `idle_seconds` without use."""

    least: int = 1
    most: int = 10
    wait_seconds: float = 10.0
    """How long to wait for a connection while all are in use."""
    idle_seconds: float = 300.0


def check_pool_sizes(least: int, most: int) -> None:
    for value, what in ((least, "min_pool_size"), (most, "max_pool_size")):
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ConfigurationError(f"{what} must be a number from 0 on, got {value!r:.40}")
    if most < 1 or least > most:
        raise ConfigurationError(f"max_pool_size must be at least 1, and at least min_pool_size, got {most!r}")


def check_timeouts(**seconds: float) -> None:
    for what, value in seconds.items():
        checked_seconds(value, what, least=-1.0 if what == "retry_seconds" else 0.0)
