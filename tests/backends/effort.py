"""How often the laws repeat themselves, where repetition is slow."""

from typing import ClassVar


class FewerRepetitions:
    """For a store of which each request takes long, or whose engine is tried in full on another server.

    `LOCUS_SOAK=1` (`make soak`) kills as often as anywhere.
    """

    random_kills = 16
    turns_of_processes = 16
    evolution_turns = 24
    examples_and_steps: ClassVar[tuple[int, int]] = (8, 25)
