"""Plans of rounds: a seed decides which faults strike."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MIXTURES: Final = 4
"""After this many rounds with one fault each, there is a round with several."""
MOST_MIXED: Final = 3
ALONE: Final = 4
"""One in this many rounds has no additional faults."""


@dataclass(frozen=True)
class RoundPlan:
    """The plan of one round of a campaign. It depends only on the seed, the store and the number of the round.

    The plan decides the faults and their order, and the steps of each client. It cannot decide which operation a fault
    hits: that depends on timing.
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
        """Whether clients vacuum in this round. A vacuum may explain missing checkpoints, so most rounds have none."""
        return self.number % 3 == 2

    @property
    def prefix(self) -> str:
        """The prefix of the thread ids of this round."""
        return f"campaign/{self.seed}/{self.number}/"

    def rng(self, of: str = "") -> random.Random:
        """The random numbers that decide the faults; with a name, an independent series."""
        return random.Random(f"{self.name}/{of}" if of else self.name)


def planned(seed: int, site: str, number: int, names: Sequence[str], besides: Sequence[str] = ()) -> RoundPlan:
    """Plan a round. The faults `names` take turns, in an order that the seed decides.

    `besides` are additional faults in three of four rounds.
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
    return RoundPlan(seed, site, number, tuple(chosen))
