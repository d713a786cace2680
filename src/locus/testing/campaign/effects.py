"""Checks that no tool of an agent has taken effect twice. Pure functions but for `read_effects`."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from locus.agent.sessions import RESULT
from locus.testing.campaign.finding import Finding, Kind
from locus.testing.campaign.history import History, Operation

EFFECTS: Final = "effects.jsonl"
"""The file in the folder of a round to which tools append a line for each effect."""
MOST_WITHOUT_EFFECT: Final = 8
"""How many recorded results without any effect are plausible: a worker may be killed before the effect."""


@dataclass(frozen=True)
class Effect:
    """One effect of a tool."""

    thread: str
    call: str
    at: float
    repeatable: bool
    client: str
    begun: float
    """The time at which this client began, or resumed, the run that made the call."""

    def repeats(self, record: Operation) -> bool:
        """Whether the run that made this call could have known the result in `record`.

        A run that was taken over does not see what its successor records, and cannot withdraw an idempotent call that
        it has begun.
        """
        is_own = record.client == self.client and record.begun >= self.begun
        return record.ended < (self.at if is_own else self.begun)


def read_effects(folder: Path) -> list[Effect]:
    path = folder / EFFECTS
    if not path.exists():
        return []
    return [Effect(**json.loads(line)) for line in path.read_bytes().split(b"\n")[:-1]]


def check_effects(history: History, effects: Iterable[Effect]) -> Iterator[Finding]:
    """Calls that must not be repeated took effect once, and no run repeated a call whose result it could know."""
    by_call: defaultdict[tuple[str, str], list[Effect]] = defaultdict(list)
    for effect in effects:
        by_call[effect.thread, effect.call].append(effect)
    recorded: defaultdict[tuple[str, str], list[Operation]] = defaultdict(list)
    for operation in history.of_kind("writes"):
        if operation.told == "acknowledged" and RESULT in operation.facts["channels"]:
            recorded[operation.thread, operation.facts["task"]].append(operation)
    if not by_call and len(recorded) > MOST_WITHOUT_EFFECT:
        yield Finding(Kind.LOST, "", f"{len(recorded)} results of tools were acknowledged, and no tool left a line")
    for (thread, call), done in by_call.items():
        if len(done) > 1 and not done[0].repeatable:
            yield Finding(Kind.TWICE, thread, f"the call {call!r} had its effect {len(done)} times")
        if any(effect.repeats(record) for effect in done for record in recorded[thread, call]):
            yield Finding(Kind.TWICE, thread, f"the call {call!r} was made again after its result was recorded")
