"""Changes of a store, one after another, and what became of the answers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass, field

from locus.doctor import examine
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.records import Finding
from tests.flips.stores import ChangedStore
from tests.flips.stories import Answer, answers, write

PROVEN = ("newest", "by id", "history", "pending writes")
"""The answers that an agent goes on from."""


@dataclass
class Figures:
    """What became of the changes of one store."""

    changes: int = 0
    told: int = 0
    """Changes that some answer told, and of which no answer was wrong."""
    unseen: int = 0
    """Changes of what no answer shows: all answers are as before."""
    wrong: Counter[str] = field(default_factory=Counter)
    """Changes after which an answer was another one, and no error, by the kind of the answer."""
    foreign: Counter[str] = field(default_factory=Counter)
    """Changes after which an error was not one of Locus, by its type."""
    silent: int = 0
    """Changes with wrong answers of which `locus doctor` says nothing."""
    examples: list[str] = field(default_factory=list)

    @property
    def damaging(self) -> int:
        """Changes after which some answer was wrong."""
        return self.changes - self.told - self.unseen

    @property
    def misleading(self) -> int:
        """How often an answer that an agent goes on from was wrong."""
        return sum(self.wrong[kind] for kind in PROVEN)

    def line(self, name: str) -> str:
        wrong = ", ".join(f"{kind} {count}" for kind, count in sorted(self.wrong.items())) or "none"
        foreign = ", ".join(f"{kind} {count}" for kind, count in sorted(self.foreign.items())) or "none"
        return (
            f"{name}: {self.changes:,} changes, {self.told:,} told, {self.unseen:,} unseen; wrong answers: {wrong};"
            f" foreign errors: {foreign}; unknown to doctor: {self.silent}"
        )


async def campaign(store: ChangedStore, changes: int, seed: int) -> Figures:
    """Write a store, and change it so many times, each time from what was written."""
    figures = Figures()
    async with store.opened() as cp:
        await write(cp)
    store.keep()
    async with store.opened() as cp:
        truth = await answers(cp)
        known = set((await examine(cp.store)).findings)  # of how the server is set up
    assert not any(answer.error or answer.warned for answer in truth), "the store answers before it is changed"
    for number in range(changes):
        chance = random.Random(f"{seed} {number}")
        what = store.change(chance)
        async with store.opened() as cp:
            found = await answers(cp)
            wrong = _judged(figures, truth, found)
            if wrong:
                silent = await _says_nothing(cp, figures, known)
                figures.silent += silent
                figures.examples.append(f"{number}: {what}: {', '.join(sorted(wrong))}{' (silent)' * silent}")
        store.restore()
    return figures


async def _says_nothing(cp: Checkpointer, figures: Figures, known: Set[Finding]) -> bool:
    """Tell whether `locus doctor` finds nothing that it did not find before."""
    try:
        examination = await examine(cp.store)
        return not examination.damaged and set(examination.findings) <= known
    except Exception as error:  # noqa: BLE001 - which errors there are is what is asked
        figures.foreign[f"{type(error).__name__} of doctor"] += 1
        return False


def _judged(figures: Figures, truth: Sequence[Answer], found: Sequence[Answer]) -> set[str]:
    """Count the answers after one change. Returns the kinds of those that are wrong."""
    wrong = {
        f"{now.kind}!{type(now.error).__name__}" if now.is_foreign else now.kind
        for then, now in zip(truth, found, strict=True)
        if not now.is_told and (now.error is not None or now.value != then.value)
    }
    figures.changes += 1
    figures.foreign.update({type(now.error).__name__ for now in found if now.is_foreign})
    figures.wrong.update({kind for kind in wrong if "!" not in kind})
    if not wrong:
        told = any(now.is_told for now in found)
        figures.told += told
        figures.unseen += not told
    return wrong
