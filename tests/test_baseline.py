"""Nothing gets lost on the way: tests, places of kills, and names that users import."""

from __future__ import annotations

import importlib
import warnings
from collections import Counter, defaultdict

import pytest

from locus.testing.processes.lines import Position
from tests.baseline import kills
from tests.baseline.collected import all_tests
from tests.baseline.recorded import TESTS, Tests, read_imports, read_kills, read_tests

SERVERLESS = {"file", "sqlite", "memory", "none"}

GONE = {
    "test_a_slower_session_is_told": "it is a case of test_sessions_that_cost_too_much_are_told",
    "test_both_sides_keep_the_same_and_are_timed": "there are three sides: test_all_sides_keep_the_same_and_are_timed",
    "test_the_default_is_oci_where_it_is_configured_and_else_the_mock": "it is an error, not the mock",
    "test_no_module_is_two_rooms": "modules are as long as their idea is",
    "test_what_a_module_exports_is_there": "one case for each module, and there are fewer modules",
}
"""Tests that there are fewer of on purpose, each with its reason."""

RELATIVES = {
    "TestRedis": "the same engine and server as TestRedisWithModules, without the modules",
    "TestValkey": "the same engine and scripts on another server",
    "TestRedisCluster": "the same engine and scripts on several nodes",
    "TestOCI": "the same engine as TestS3, through another client; `make soak` runs the whole contract",
    "TestHTTPOnPostgreSQL": "the same client and server as TestHTTPOnSQLite, over another store",
}
"""Classes that keep only the laws that can differ there; each says which, and why, where it is defined."""


def test_no_test_is_lost(request: pytest.FixtureRequest) -> None:
    before = by_server(read_tests(TESTS.read_text(encoding="utf-8")))
    now = by_server(all_tests(request.session))
    lost = {
        f"{server}: {name}": f"{count} before, {now[server][name]} now"
        for server, tests in before.items()
        for name, count in tests.items()
        if now[server][name] < count and name not in GONE and name.partition("::")[0] not in RELATIVES
    }
    assert lost == {}


def by_server(tests: Tests) -> defaultdict[str, Counter[str]]:
    """Backends without a server are told by names of files, which may change; so these are taken together."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for backend, names in tests.items():
        found["none" if backend in SERVERLESS else backend] += names
    return found


@pytest.mark.parametrize(("module", "names"), read_imports().items())
def test_what_users_import_can_be_imported(module: str, names: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        found = importlib.import_module(module)
        missing = [name for name in names if not hasattr(found, name)]
    assert missing == []


def test_fewer_kills_are_noticed() -> None:
    test_class, steps = next(iter(read_kills().items()))
    step, numbers = next(iter(steps.items()))
    engine: Position = (f"{kills.ENGINES[0]}engine.py", 1, 1)
    kills.check(test_class, step, [engine] * numbers["all"])
    with pytest.raises(AssertionError, match="lines killed at"):
        kills.check(test_class, step, [engine] * (numbers["all"] // 2))
    with pytest.raises(AssertionError, match="engine"):
        kills.check(test_class, step, [("/model.py", 1, 1)] * numbers["all"])
