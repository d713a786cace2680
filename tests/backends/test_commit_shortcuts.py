"""Each condition of each shortcut is guarded: without it, the courses of `test_commit_rules` find a difference.

`shortcuts` says what is examined, `mutants` how a condition is taken away, and `equivalent_mutants` where that changes
no answer.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.backends.commit_courses import DIRECTED
from tests.backends.course_stores import kind_of, kinds
from tests.backends.equivalent_mutants import AS_KNOWN, BASE_AS_SEEN, EQUIVALENT
from tests.backends.mutants import python_mutants, sql_conditions
from tests.backends.shortcuts import SHORTCUTS, AnyCourse, trial_of

_LOG = logging.getLogger(__name__)
"""`--log-cli-level info` shows how far a soak run is."""

_LUA_HAS_RUN_0 = "call('HEXISTS', r, branch .. ' 0') == 1"
_LUA_RUN_0 = f"Lua if number == 0 and {_LUA_HAS_RUN_0} then"

SAMPLE: dict[str, tuple[tuple[str, AnyCourse], ...]] = {
    "sqlite": (
        ("append: rev is None -> False", 3),
        ("append: is_taken -> False", 6),
        ("SQL SELECT FROM locus_threads JOIN locus_checkpoints | c.namespace = ?", "two namespaces have the same id"),
    ),
    "file": (
        ("LogFile.has_run: number == 0 and branch in runs -> False", "a rev is used twice"),
        ("LogFile.has_run: branch in runs (2) -> True", "a branch was continued before the last save"),
        ("FileEngine.commit: not outcome.repeated -> True", "a save is sent twice"),
    ),
    "objects": (
        ("ThreadIndex.has_run: top >= number -> False", "a branch has a gap"),
        ("ThreadLog._change: proposal.draft is None -> False", 0),
    ),
    "opensearch model": (
        ("_run_locations: location.newest -> True", "a branch was continued before saves that leave it alone"),
        ("_drafted: state_is_current (2) -> True", 13),
        ("_stored_runs: brought -> False", "several runs of a branch come at once"),
    ),
    "opensearch model together": (
        ("commit_group: is_known (2) -> True", 1),
        (
            "_written: is_same(draft.record, found.get(draft.record.id)) -> True",
            "a thread is gone and another is like it",
        ),
    ),
    "redis together": (("RedisEngine._call: member.replaces is not None -> False", 1),),
    "redis": (
        ("Lua if same and planned ~= version() then: same and planned ~= version() -> false", 6),
        (f"{_LUA_RUN_0}: number == 0 -> true", "another handle saves in another namespace"),
        (f"{_LUA_RUN_0}: number == 0 and {_LUA_HAS_RUN_0} -> false", "a rev is used twice"),
        ("Lua elseif parent_mode == '!' then: parent_mode == '!' -> false", 0),
    ),
    "postgresql": (('SQL UPDATE "locus_threads" FROM seen | t.removals = s.removals', 0),),
    "postgresql in groups": (
        ("SQL SELECT FROM sound | t.removals = s.removals", 0),
        ("SQL SELECT FROM sound | t.last_seq = s.last_seq", 2),
        ('SQL SELECT FROM "locus_checkpoints" | base.thread = s.id', "a base is of another thread"),
        ('SQL INSERT INTO "locus_runs" SELECT FROM done JOIN run | r.member = d.number', 0),
    ),
    "mysql in groups": (
        (f"_outcome: {AS_KNOWN} -> True", "an older base is not what it was"),
        (f"_outcome: {AS_KNOWN} -> True", "a failover has lost what was saved last"),
        ("Group.decide: row[-1] -> True", "a thread has ended"),
    ),
    "mysql": (
        ("LastSeenThread.continued_by: commit.base == base -> True", "a base is of another thread"),
        ("SQL UPDATE threads | last_seq = ?", "another handle saves in another namespace"),
        (f"{BASE_AS_SEEN} | c.rev = ?", "an older base is not what it was"),
        (BASE_AS_SEEN, "a failover has lost what was saved last"),
        ("SQL UPDATE threads | thread_id = ?", "a failover has lost a thread"),
        ("LastSeenThread.continued_by: commit.if_latest in (ANY, base.checkpoint_id) -> True", 1),
    ),
    "oracle": (
        ("SQL UPDATE threads | (expires_at IS NULL OR expires_at > ?)", "a thread has ended"),
        ("LastSeenThread.continued_by: commit.fresh_id (2) -> True", "a branch lacks its beginning"),
        ("LastSeenThread.continued_by: commit.if_latest in (ANY, base.checkpoint_id) -> True", 1),
        (f"{BASE_AS_SEEN} | c.rev = ?", "a failover has lost what was saved last"),
        (f"{BASE_AS_SEEN} | c.thread = ?", "a failover has lost what was saved last"),
        ("SQL UPDATE threads | thread_id = ?", "a failover has lost a thread"),
    ),
}
"""Some mutants of each engine, and for each a course that finds out about it."""


@pytest.mark.parametrize("name", kinds(*SHORTCUTS))
def test_a_course_finds_out_that_a_condition_is_missing(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with trial_of(name, request, tmp_path) as trial:
        assert trial.differs(dict.fromkeys(course for _, course in SAMPLE[name])) is None
        mutants = {mutant.name: mutant for mutant in trial.mutants()}
        for taken_away, course in SAMPLE[name]:
            assert trial.differs_without(mutants[taken_away], [course]) == course, taken_away


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", kinds(*SHORTCUTS))
def test_no_condition_can_be_taken_away(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    with trial_of(name, request, tmp_path) as trial:
        courses = list(kind_of(name).enough)
        assert trial.differs([*DIRECTED, *courses]) is None, "the code as it is does not pass"
        mutants = trial.mutants()
        survivors = set()
        for mutant in mutants:
            found = trial.differs_without(mutant, [*DIRECTED, *courses])
            _LOG.info("%s, without %s: %s", name, mutant.name, "nothing" if found is None else f"course {found!r}")
            if found is None:
                survivors.add(mutant.name)
            elif isinstance(found, int):
                # What has found one finds the next, more often than not.
                courses.remove(found)
                courses.insert(0, found)
    _LOG.info("%s: %d mutants, and %d are not noticed", name, len(mutants), len(survivors))
    equivalent, there = _equivalent(name), {mutant.name for mutant in mutants}
    faults = {
        "nobody notices that these conditions are missing": survivors - equivalent,
        "these are listed, and there is no such condition": equivalent - there,
        "these are listed as equivalent, and are not": equivalent & there - survivors,
    }
    told = [f"{fault}: {mutant}" for fault, found in faults.items() for mutant in sorted(found)]
    assert not told, "\n".join(told)


def _equivalent(name: str) -> set[str]:
    return {mutant for names in EQUIVALENT[name].values() for mutant in names}


@pytest.mark.parametrize("name", EQUIVALENT)
def test_each_equivalent_mutant_exists(name: str) -> None:
    """Those of SQL are known only after courses."""
    shortcut = SHORTCUTS[name]
    there = {mutant.name for mutant in (*python_mutants(*shortcut.functions), *shortcut.scripts())}
    assert {mutant for mutant in _equivalent(name) if not mutant.startswith("SQL ")} <= there
    reasons = [mutant for names in EQUIVALENT[name].values() for mutant in names]
    assert len(reasons) == len(set(reasons)), "one reason is enough"


def test_the_conditions_of_a_statement_are_found() -> None:
    text = (
        'WITH seen AS (SELECT t.id, (SELECT c.seq FROM c WHERE c.thread = t.id LIMIT 1) FROM "s".threads t'
        " WHERE t.id = $1::bigint AND (t.expires_at IS NULL OR t.expires_at > $2)),"
        " moved AS (UPDATE threads t SET n = 1 FROM seen s WHERE t.id = s.id AND NOT EXISTS (SELECT 1 FROM runs r"
        " JOIN threads u ON u.id = r.thread WHERE r.branch = ? AND r.number IN (?, ?) ORDER BY r.number))"
        " INSERT INTO checkpoints SELECT m.id FROM moved m ON CONFLICT DO NOTHING"
    )
    assert [condition.span.of(text) for condition in sql_conditions(text)] == [
        "c.thread = t.id",
        "t.id = $1::bigint",
        "(t.expires_at IS NULL OR t.expires_at > $2)",
        "t.id = s.id",
        "NOT EXISTS (SELECT 1 FROM runs r JOIN threads u ON u.id = r.thread WHERE r.branch = ? AND r.number IN (?, ?)"
        " ORDER BY r.number)",
        "u.id = r.thread",
        "r.branch = ?",
        "r.number IN (?, ?)",
    ]


def test_a_condition_is_named_by_its_query() -> None:
    """Two queries that are for different purposes would else lose a condition together, and only one need notice."""

    def names(text: str) -> list[str]:
        return [condition.name for condition in sql_conditions(text)]

    assert names("SELECT c.id, c.rev FROM `t0123456789ab_checkpoints` c WHERE c.thread = ?") == [
        "SELECT FROM checkpoints | c.thread = ?"
    ]
    assert names("SELECT c.id, c.rev FROM `t0123456789ab_checkpoints` c WHERE c.thread = ? ORDER BY c.seq") == [
        "SELECT FROM checkpoints in order | c.thread = ?"
    ]
    assert names("SELECT branch FROM locus_t0123456789ab_runs WHERE thread = :1") == [
        "SELECT branch FROM runs | thread = ?"
    ]
    assert names("UPDATE `t0123456789ab_threads` SET last_seq = ? WHERE id = ? AND removals = ?") == [
        "UPDATE threads | id = ?",
        "UPDATE threads | removals = ?",
    ]
