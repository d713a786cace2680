"""Branches with every version of their list written out: what the real ones are compared with."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

from hypothesis import strategies as st

from locus.memory.model.codec import encode
from locus.memory.model.records import Extent, Run


@dataclass
class Branches:
    """Branches with every version of their list written out."""

    runs: dict[str, list[Run]] = field(default_factory=dict)
    versions: dict[str, list[list[Any]]] = field(default_factory=dict)

    def add(self, branch: str, start: int, items: list[Any]) -> None:
        runs = self.runs.setdefault(branch, [])
        versions = self.versions.setdefault(branch, [])
        before = versions[-1] if versions else []
        assert start <= len(before)
        runs.append(Run(branch, len(runs), start, len(items), encode(items)))
        versions.append([*before[:start], *items])

    def read(self, extents: list[Extent]) -> list[Any]:
        return [item for e in extents for item in self.versions[e.branch][e.run][e.skip : e.skip + e.length]]


@st.composite
def branches(draw: st.DrawFn, *, append_only: bool = False) -> Branches:
    model, numbers = Branches(), count()
    for branch in ("a", "b", "c")[: draw(st.integers(1, 3))]:
        for _ in range(draw(st.integers(1, 6))):
            length = len(model.versions[branch][-1]) if branch in model.versions else 0
            start = length if append_only else draw(st.integers(0, length))
            # A comma, brackets and a new line inside items must not be taken for what is between them.
            items = [{"n": next(numbers), "text": ",\n]["} for _ in range(draw(st.integers(1, 4)))]
            model.add(branch, start, items)
    return model


@st.composite
def extents_of(draw: st.DrawFn, model: Branches, at_most: int = 4) -> list[Extent]:
    found: list[Extent] = []
    for _ in range(draw(st.integers(1, at_most))):
        branch = draw(st.sampled_from(sorted(model.versions)))
        run = draw(st.integers(0, len(model.versions[branch]) - 1))
        length = len(model.versions[branch][run])
        skip = draw(st.integers(0, length - 1))
        found.append(Extent(branch, run, skip, draw(st.integers(1, length - skip))))
    return found


@st.composite
def lists(draw: st.DrawFn, *, append_only: bool = False) -> tuple[Branches, list[Extent]]:
    model = draw(branches(append_only=append_only))
    return model, draw(extents_of(model))
