"""Effects: calls that change something elsewhere, such as a payment, made once although processes die.

effects     `Effects`, the public face, and the algorithm; `sync` has its blocking twin
effect      what an effect is, and how the ledger keeps it
terms       what a caller may choose
keyed       functions of which each call is an effect
tools       what the adapters of frameworks share: the calls of a tool as effects
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from locus.extras import lazy_names

if TYPE_CHECKING:
    from locus.effects.effect import Effect
    from locus.effects.effects import Effects, current_effect
    from locus.effects.sync import SyncEffects
    from locus.effects.terms import NOT_MADE, CleanFailure, Made, NotMade, Terms

__all__ = ["NOT_MADE", "CleanFailure", "Effect", "Effects", "Made", "NotMade", "SyncEffects", "Terms", "current_effect"]

__getattr__ = lazy_names(
    __name__,
    {
        "effect": ("Effect",),
        "effects": ("Effects", "current_effect"),
        "sync": ("SyncEffects",),
        "terms": ("NOT_MADE", "CleanFailure", "Made", "NotMade", "Terms"),
    },
)
