"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """`lengths` are thread lengths in turns; the figures compare the last with the first."""

    lengths: tuple[int, ...] = (10, 100, 300, 1_000)
    rounds: int = 40
    """Saves that are timed for each length and workload."""
    slow_rounds: int = 12
    """The same, for workloads whose saves go over the whole state."""
    loads: int = 21
    listings: int = 60
    """How often a thread is loaded, and listed, for each length."""
    conversations: int = 32
    turns_each: int = 50
    repeats: int = 3
    """How often the concurrent run is done."""
    turn_lengths: tuple[int, ...] = (10, 1_000, 10_000)
    """Thread lengths for the costs of turns and loads."""
    turn_rounds: int = 5
    quick_calls: int = 4
    """How often a round repeats the calls that take about a millisecond."""
    peer_seconds: float = 60.0
    peer_megabytes: int = 2_500


FULL = Settings()
QUICK = Settings(
    lengths=(6, 18),
    rounds=6,
    slow_rounds=3,
    loads=3,
    listings=3,
    conversations=4,
    turns_each=5,
    repeats=1,
    turn_lengths=(6, 18),
    turn_rounds=1,
    quick_calls=1,
    peer_seconds=5.0,
    peer_megabytes=200,
)
