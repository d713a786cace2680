"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """`lengths` are thread lengths in turns; the figures compare the last with the first."""

    lengths: tuple[int, ...] = (10, 100, 1_000, 10_000)
    rounds: int = 40
    """Saves that are timed for each length and workload."""
    slow_rounds: int = 8
    """The same, for workloads whose saves go over the whole state."""
    longest_read: int = 1_000
    """Up to which length whole loads, listings and the first search are measured by the way."""
    loads: int = 9
    listings: int = 40
    """How often a thread is loaded, and listed, for each length."""
    conversations: int = 32
    turns_each: int = 25
    repeats: int = 5
    """How often the concurrent run is done."""
    turn_lengths: tuple[int, ...] = (10, 1_000, 10_000)
    """Thread lengths for the costs of turns and loads."""
    turn_rounds: int = 5
    quick_calls: int = 4
    """How often a round repeats the calls that take about a millisecond."""
    dict_calls: int = 2
    """How often a round repeats the load of a dict, and its floor."""
    threads: tuple[int, int] = (1_000, 1_000_000)
    """How many threads a store has whose pages are listed."""
    pages: int = 15
    checkpoints: tuple[int, int] = (1_000, 10_000)
    """How many checkpoints a thread has whose pages the command line shows."""
    inspected: tuple[int, int] = (10, 10_000)
    """How many checkpoints a thread has whose pages the inspector shows; one in twenty is a fork."""
    shown: int = 500
    """How many pages a process shows whose memory is measured."""
    served: int = 10_000
    """How many threads a process serves whose memory is measured."""
    facts: int = 100_000
    """How many items of long-term memory are searched."""
    loop_lengths: tuple[int, ...] = (10, 1_000)
    loop_rounds: int = 60
    http_turns: int = 50
    http_length: int = 1_000
    http_repeats: int = 3
    graph_lengths: tuple[int, ...] = (10, 1_000)
    graph_rounds: int = 20
    graph_turns: int = 60
    framework_lengths: tuple[int, ...] = (10, 30, 100, 400, 1_000, 10_000)
    framework_rounds: int = 40
    framework_seconds: float = 10.0
    """How long the turns of a length may be timed before it is left at what it has, on all sides together."""
    framework_growth_seconds: float = 30.0
    """How long a side may take to come to a length, before it is left out."""
    object_turns: int = 1_000
    peer_lengths: tuple[int, ...] = (10, 100, 1_000)
    peer_seconds: float = 120.0
    peer_megabytes: int = 2_500


FULL = Settings()
QUICK = Settings(
    lengths=(4, 12),
    rounds=4,
    slow_rounds=3,
    loads=2,
    listings=2,
    conversations=4,
    turns_each=5,
    repeats=1,
    turn_lengths=(4, 12),
    turn_rounds=1,
    quick_calls=1,
    dict_calls=1,
    threads=(100, 2_000),
    checkpoints=(600, 1_200),
    pages=3,
    inspected=(10, 300),
    shown=20,
    served=200,
    facts=600,
    loop_lengths=(4, 12),
    loop_rounds=5,
    http_turns=3,
    http_length=20,
    http_repeats=1,
    graph_lengths=(4, 12),
    graph_rounds=4,
    graph_turns=3,
    framework_lengths=(4, 12),
    framework_rounds=4,
    framework_seconds=1.0,
    object_turns=20,
    peer_lengths=(4, 12),
    peer_seconds=5.0,
    peer_megabytes=200,
)
