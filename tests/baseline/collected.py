"""The tests that pytest collects, by the backend that they need."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.baseline.recorded import Tests, read_tests, tests_text

ROOT = Path(__file__).resolve().parents[2]

BACKENDS = ("opensearch", "mysql", "postgresql", "s3", "redis", "oracle", "oci", "http", "file", "sqlite", "memory")


class Collector:
    """A plugin that looks at what was collected."""

    def __init__(self) -> None:
        self.tests: Tests = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.tests = tests_of(session)


def tests_of(session: pytest.Session) -> Tests:
    tests: Tests = {}
    for item in session.items:
        tests.setdefault(_backend(item), Counter())[_name(item)] += 1
    return tests


def _name(item: pytest.Item) -> str:
    """Without its file, which may be moved, its parameters, which are counted, and the group it is run in."""
    return re.split(r"[\[@]", item.nodeid.partition("::")[2])[0]


def _backend(item: pytest.Item) -> str:
    marked = [name for name in BACKENDS if item.get_closest_marker(name)]
    if marked:
        return marked[0]
    words = {*re.split(r"[^a-z0-9]+", item.nodeid.partition("::")[0].lower())}
    if isinstance(item, pytest.Function) and item.cls is not None:
        words |= {item.cls.__name__.lower().removeprefix("test")}
    return next((name for name in BACKENDS if name in words), "none")


def all_tests(session: pytest.Session) -> Tests:
    """Those of this session, unless it was asked for only some of them."""
    asked = session.config.option
    whole = {Path(argument).resolve() for argument in session.config.args} == {ROOT / "tests"}
    return tests_of(session) if whole and asked.markexpr == "not soak" and not asked.keyword else collected()


def collected() -> Tests:
    """In a process of its own, whatever part of the tests this one was asked for."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.baseline.collected"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return read_tests(done.stdout.partition("\n\n\n")[2])


def main() -> int:
    collector = Collector()
    status = pytest.main(["--collect-only", "-qq", "-p", "no:xdist", "-p", "no:cacheprovider"], plugins=[collector])
    sys.stdout.write("\n\n\n" + tests_text(collector.tests))
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
