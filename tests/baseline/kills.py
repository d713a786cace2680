"""At how many lines a saver is killed: told by each test that kills at lines, and held against the baseline."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import locus
from locus.testing.processes.lines import Position
from tests.baseline.recorded import read_kills

NOTES = "LOCUS_BASELINE_KILLS"
"""Names a file that the figures of a run are added to, a line of JSON for each test."""

LEAST, ROUNDING = 0.9, 2
"""How much of the number in the baseline has to be there: threads race, and a save may come to need fewer lines. Where
only every hundredth line is meant, one kill more or less is chance."""

ENGINES = tuple(
    str(Path(locus.__file__).parent / folder) + os.sep for folder in ("memory/backends", "memory/runtime", "wire")
)


def counted(positions: Sequence[Position]) -> dict[str, int]:
    return {"all": len(positions), "engine": sum(file.startswith(ENGINES) for file, _, _ in positions)}


def check(test_class: str, step: str, positions: Sequence[Position]) -> None:
    """Refuse fewer kills than there were."""
    found = counted(positions)
    if NOTES in os.environ:
        with Path(os.environ[NOTES]).open("a", encoding="utf-8") as notes:
            notes.write(json.dumps([test_class, step, found]) + "\n")
    before = read_kills().get(test_class, {}).get(step)
    if before is not None:
        least = {what: LEAST * number - ROUNDING for what, number in before.items()}
        fewer = {what: (before[what], found[what]) for what in before if found[what] < least[what]}
        assert not fewer, f"{test_class}, {step}: (lines killed at in the baseline, now) are {fewer}"
