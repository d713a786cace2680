"""What happens in a round, decided by its seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MIXTURES: Final = 4
"""After so many rounds with one fault each there is one with several."""
MOST_MIXED: Final = 3
ALONE: Final = 4
"""In one of so many rounds nothing strikes besides."""


@dataclass(frozen=True)
class Plan:
    """One round of a campaign. The same seed, store and number give the same plan.

    It decides the faults and their order, and what each client does. It cannot decide at which instant a fault meets
    which operation: that is up to the machine.
    """

    seed: int
    site: str
    number: int
    faults: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.site}/{self.seed}/{self.number}"

    @property
    def vacuums(self) -> bool:
        """Whether clients vacuum, whatever the fault. Less can be said about what is missing then: not always."""
        return self.number % 3 == 2

    @property
    def prefix(self) -> str:
        """What the ids of its threads begin with."""
        return f"campaign/{self.seed}/{self.number}/"

    def rng(self, of: str = "") -> random.Random:
        """The numbers that decide what strikes; or others, of this name."""
        return random.Random(f"{self.name}/{of}" if of else self.name)


def planned(seed: int, site: str, number: int, names: Sequence[str], besides: Sequence[str] = ()) -> Plan:
    """A plan with some of these faults: each has its turn, in an order that the seed decides.

    `besides` are faults that strike besides those whose turn it is, in three of four rounds.
    """
    order = list(names)
    random.Random(f"{seed}/{site}").shuffle(order)
    rng = random.Random(f"{seed}/{site}/{number}")
    mixed, single = number // (MIXTURES + 1), number % (MIXTURES + 1)
    if single == MIXTURES and len(order) > 1:
        chosen = rng.sample(order, min(len(order), rng.randint(2, MOST_MIXED)))
    else:
        chosen = [order[(mixed * MIXTURES + single) % len(order)]]
    if number % ALONE:
        chosen += [name for name in besides if name not in chosen]
    return Plan(seed, site, number, tuple(chosen))
