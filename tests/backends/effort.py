"""How often the laws repeat themselves, where repetition is slow.

No class keeps fewer laws for that. What they find in the hundredth repetition they find on the embedded stores, which
repeat them most; `LOCUS_SOAK=1` (`make soak`) repeats them as often on every store.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from locus.testing.data import LOOK_ALIKE_IDS, SOAK


class EmbeddedRepetitions:
    """For files and SQLite, whose requests take little, and whose processes are what is killed."""

    random_kills: ClassVar[int] = 24
    line_step: ClassVar[int] = 3
    line_samples: ClassVar[int] = 12
    evolution_turns: ClassVar[int] = 50 if SOAK else 30
    late_turn: ClassVar[int] = 200 if SOAK else 100
    examples_and_steps: ClassVar[tuple[int, int]] = (20, 30)


class FewerRepetitions:
    """For a server on which the whole contract is kept: each of its requests takes long."""

    random_kills: ClassVar[int] = 10
    line_step: ClassVar[int] = 12
    line_samples: ClassVar[int] = 6
    line_last: ClassVar[int] = 4
    turns_of_processes: ClassVar[int] = 12
    evolution_turns: ClassVar[int] = 50 if SOAK else 12
    late_turn: ClassVar[int] = 200 if SOAK else 50
    examples_and_steps: ClassVar[tuple[int, int]] = (6, 25)
    saves_while_removing: ClassVar[Mapping[str, int]] = {"checkpoints": 20, "vacuum": 20, "thread": 60}
    long_thread: ClassVar[int] = 1_100 if SOAK else 510
    if not SOAK:
        other_ids: ClassVar[Sequence[str]] = LOOK_ALIKE_IDS


class FewestRepetitions(FewerRepetitions):
    """For a relative of such a server: the same engine, behind another server or client."""

    random_kills: ClassVar[int] = 6
    line_step: ClassVar[int] = 60
    line_samples: ClassVar[int] = 3
    line_last: ClassVar[int] = 2
    turns_of_processes: ClassVar[int] = 6
    evolution_turns: ClassVar[int] = 50 if SOAK else 9
    late_turn: ClassVar[int] = 200 if SOAK else 30
    examples_and_steps: ClassVar[tuple[int, int]] = (3, 25)
    saves_while_removing: ClassVar[Mapping[str, int]] = {"checkpoints": 15, "vacuum": 15, "thread": 40}
    long_thread: ClassVar[int] = 1_100 if SOAK else 60
