"""How often the laws repeat themselves, where repetition is slow.

No class keeps fewer laws for that. What they find in the hundredth repetition they find on the embedded stores, which
repeat them most; `LOCUS_SOAK=1` (`make soak`) repeats them as often on every store.

Each number is as low as its law allows. Nine turns let every way in which a conversation changes happen at least once
(the longest waits for the eighth); thirty give a save that grows with its thread time to show; and a process is killed
at a few lines of every step on each store, at every fifth of the engine on the embedded ones, at all in the soak run.
How many saves race with a removal is not cut further: fewer would be over before the removal begins.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from locus.testing.data import LOOK_ALIKE_IDS, SOAK

FEW_LOOK_ALIKE_IDS = (
    "'", "%", "a_b", "axb", "*", "a:b", "tenant/a", "..", "a", "a ", "a\0", "josé", "jose\u0301", "Alice", "alice",
    "x" * 255, "x" * 254 + "y",
)  # fmt: skip
"""One of each kind of syntax, and each pair that stores have taken for one."""


class EmbeddedRepetitions:
    """For files, SQLite and objects in memory: requests take little, and processes are what is killed."""

    random_kills: ClassVar[int] = 24
    line_step: ClassVar[int] = 5
    line_samples: ClassVar[int] = 12
    evolution_turns: ClassVar[int] = 50 if SOAK else 30
    late_turn: ClassVar[int] = 200 if SOAK else 60
    examples_and_steps: ClassVar[tuple[int, int]] = (12, 30)
    winding_threads: ClassVar[int] = 4 if SOAK else 3
    if not SOAK:
        saves_while_removing: ClassVar[Mapping[str, int]] = {"checkpoints": 40, "vacuum": 40, "thread": 150}


class FewerRepetitions:
    """For a server on which the whole contract is kept: each of its requests takes long."""

    random_kills: ClassVar[int] = 8
    line_step: ClassVar[int] = 24
    line_samples: ClassVar[int] = 5
    line_last: ClassVar[int] = 3
    turns_of_processes: ClassVar[int] = 8
    times_at_once: ClassVar[int] = 15 if SOAK else 9
    processes_at_first: ClassVar[int] = 8 if SOAK else 5
    readers_while_removing: ClassVar[int] = 2 if SOAK else 1
    evolution_turns: ClassVar[int] = 50 if SOAK else 9
    late_turn: ClassVar[int] = 200 if SOAK else 30
    examples_and_steps: ClassVar[tuple[int, int]] = (4, 25)
    winding_threads: ClassVar[int] = 4 if SOAK else 1
    saves_while_removing: ClassVar[Mapping[str, int]] = {"checkpoints": 20, "vacuum": 20, "thread": 60}
    long_thread: ClassVar[int] = 1_100 if SOAK else 510
    if not SOAK:
        other_ids: ClassVar[Sequence[str]] = LOOK_ALIKE_IDS


class FewestRepetitions(FewerRepetitions):
    """For a relative of such a server: the same engine, behind another server or client.

    And for a server that is slower still, and whose engine is tried on a model of it or over objects in memory.
    """

    random_kills: ClassVar[int] = 6
    line_step: ClassVar[int] = 60
    line_samples: ClassVar[int] = 3
    line_last: ClassVar[int] = 2
    turns_of_processes: ClassVar[int] = 5
    times_at_once: ClassVar[int] = 15 if SOAK else 6
    processes_at_first: ClassVar[int] = 8 if SOAK else 4
    late_turn: ClassVar[int] = 200 if SOAK else 30
    examples_and_steps: ClassVar[tuple[int, int]] = (3, 25)
    saves_while_removing: ClassVar[Mapping[str, int]] = {"checkpoints": 15, "vacuum": 15, "thread": 40}
    long_thread: ClassVar[int] = 1_100 if SOAK else 60
    if not SOAK:
        other_ids: ClassVar[Sequence[str]] = FEW_LOOK_ALIKE_IDS
