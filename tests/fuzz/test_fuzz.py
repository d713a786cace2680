"""A few hundred cases of every target, the same in every run, and all that a longer one has ever found."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.changes import WORDS, changed
from tests.fuzz.judge import judged
from tests.fuzz.targets import NAMES, load

FOUND = Path(__file__).parent / "found"
EXAMPLES = 60
"""For each target."""
CHANGED = 150


@pytest.mark.parametrize("name", NAMES)
def test_the_seeds_are_read(name: str) -> None:
    target = load(name)
    assert target.seeds
    for data in target.seeds:
        judged(target.run, data)


@pytest.mark.parametrize("name", NAMES)
def test_any_bytes_are_read_or_refused(name: str) -> None:
    target = load(name)
    pieces = st.one_of(st.sampled_from(target.seeds), st.sampled_from(WORDS), st.binary(max_size=40))

    @settings(max_examples=EXAMPLES, database=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(pieces, max_size=5).map(b"".join))
    def read(data: bytes) -> None:
        judged(target.run, data)

    read()


@pytest.mark.parametrize("name", NAMES)
def test_changed_seeds_are_read_or_refused(name: str) -> None:
    target, chance = load(name), random.Random(1)
    for _ in range(CHANGED):
        judged(target.run, changed(chance, target.seeds))


def _found() -> list[tuple[str, str]]:
    return sorted((path.parent.name, path.name) for path in FOUND.glob("*/*"))


@pytest.mark.parametrize(("name", "case"), _found())
def test_what_was_found_is_mended(name: str, case: str) -> None:
    judged(load(name).run, (FOUND / name / case).read_bytes())


def test_every_case_that_was_found_belongs_to_a_target() -> None:
    assert {path.name for path in FOUND.iterdir()} <= set(NAMES)
