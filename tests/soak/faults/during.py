"""Looks at a store in the middle of a fault, in place of the time that the fault would last."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class During:
    """A duration that lasts as long as it takes to look."""

    look: Callable[[], object]
    seen: list[object] = field(default_factory=list)

    def choose(self, rng: random.Random) -> float:
        self.seen.append(self.look())
        return 0.0
