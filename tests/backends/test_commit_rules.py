"""Every engine answers a commit as `decide` does, whatever shortcut it takes."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from locus.memory.engine import CommitsTogether
from locus.memory.model import commit_rules
from locus.memory.model.records import Verdict
from locus.testing.data import SOAK
from tests.backends.commit_courses import DIRECTED, Course, DifferenceFound, one_after_another, seeds_of, shortened
from tests.backends.conditions import watch
from tests.backends.course_stores import KINDS, Bench, bench, kinds

ALL_WAYS = 16
"""So many courses go all ways of `decide`; on some servers, there is time for fewer."""

IMPOSSIBLE = {
    # A checkpoint that is there is in a namespace that has a latest one.
    "_parent: latest is not None: False",
}


@pytest.mark.timeout(0 if SOAK else 300)
@pytest.mark.parametrize("name", kinds(*KINDS))
def test_an_engine_answers_as_the_rule_does(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = KINDS[name]
    portion = len(kind.enough)
    courses = random.sample(range(2**32), portion * 20) if SOAK else kind.courses
    answers: Counter[str] = Counter()
    asked = watch(monkeypatch, commit_rules.decide, commit_rules._parent)

    # A store that has grown large makes every course slow.
    for start in range(0, len(courses), portion):
        with kind.open(request, tmp_path) as open_handle, bench(open_handle) as place:

            def tried(seeds: list[int], *, place: Bench = place, together: bool = False) -> DifferenceFound | None:
                overlap = one_after_another if together else kind.overlap
                try:
                    place.run(Course(place.handles, kind.traits, overlap, answers, together=together).run(seeds))
                except DifferenceFound as difference:
                    return difference
                return None

            for directed in DIRECTED:
                place.run(Course(place.handles, kind.traits, kind.overlap, answers).follow(directed))
            for course in courses[start : start + portion]:
                found = shortened(seeds_of(course), tried)
                assert found is None, f"course {course}: {found}"

            if not place.handles[0].offers(CommitsTogether):
                continue
            for directed in DIRECTED:
                place.run(Course(place.handles, kind.traits, tally=answers, together=True).follow(directed))
            for course in courses[start : start + max(2, portion // 4)]:
                found = shortened(seeds_of(course), partial(tried, together=True))
                assert found is None, f"course {course}, in groups: {found}"

    if len(courses) < ALL_WAYS:
        return
    expected = {verdict.name for verdict in Verdict} | {"COMMITTED again"}
    assert answers.keys() == expected, f"some verdicts were never the right ones: {answers}"
    never = {way for way, times in asked.items() if not times} - IMPOSSIBLE
    assert not never, f"the courses never went some ways of `decide`: {never}"
