"""Runs a framework's own tests with our store in the place of its own. Nothing of theirs is kept here.

    make suites ARGS="langgraph /path/to/a/clone"
    make suites ARGS="langgraph /path/to/a/clone --store postgresql://…?table_name={name} -k time_travel"

The clone is of the framework's repository, at the version that is installed here. Its tests run in a copy, which is
removed afterwards. Words that are no option of this command go to pytest.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Final

PLUGINS: Final = Path(__file__).parent / "plugins"
_TOOLS: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "locus-suites"


@dataclass(frozen=True)
class Suite:
    """Which tests of a framework are about its store, and which of them are about its inside."""

    package: str
    measured: str
    """The version of the package with which the figures in docs/testing.md were measured."""
    folder: str
    """Where the package is in the repository."""
    plugin: str
    tests: Sequence[str]
    tools: Sequence[str] = ()
    """What the tests need beside our own environment, installed into a cache."""
    only: str = ""
    """An expression of `pytest -k`: the tests that use the store that ours takes the place of."""
    variables: Mapping[str, str] = field(default_factory=dict)
    private: Mapping[str, str] = field(default_factory=dict)
    """Tests that cannot pass with another store, and why."""


_CONNECTIONS: Final = "it is about the connections of SQLiteSession, and the errors of sqlite3"
_ROWS: Final = "it writes what is no JSON into the table of SQLiteSession, and damage is an error here"

SUITES: Final = {
    "langgraph": Suite(
        package="langgraph",
        measured="1.2.22",
        folder="libs/langgraph",
        plugin="locus_langgraph",
        tests=("tests",),
        tools=("pytest-mock==3.17.0", "syrupy==7.0.1"),
        only="sqlite and not aes",  # encrypted by a serializer of LangGraph's, which is no part of a saver here
        variables={"NO_DOCKER": "true"},
    ),
    "openai-agents": Suite(
        package="openai-agents",
        measured="none",
        folder=".",
        plugin="locus_openai_agents",
        tests=("tests/memory/test_session.py", "tests/memory/test_session_limit.py"),
        private={
            "tests/memory/test_session.py::test_sqlite_session_close_closes_worker_thread_connections": _CONNECTIONS,
            "tests/memory/test_session.py::test_sqlite_session_closed_rejects_empty_add_items": _CONNECTIONS,
            "tests/memory/test_session.py::test_sqlite_session_pop_item_skips_corrupt_most_recent": _ROWS,
            "tests/memory/test_session.py"
            "::test_sqlite_session_pop_item_returns_none_after_dropping_only_corrupt_rows": _ROWS,
            "tests/memory/test_session.py::test_sqlite_session_get_items_limit_skips_corrupt_newest_rows": _ROWS,
            "tests/memory/test_session.py"
            "::test_sqlite_session_get_items_session_settings_limit_skips_corrupt_rows": _ROWS,
        },
    ),
}


def command(suite: Suite, words: Sequence[str]) -> list[str]:
    """The command that runs the tests in the folder of the package."""
    chosen = ["-k", suite.only] if suite.only and "-k" not in words else []
    left_out = [f"--deselect={name}" for name in suite.private]
    return [
        *(sys.executable, "-m", "pytest", "-q", "-ra", "-W", "ignore", "-o", "addopts=", "-p", suite.plugin),
        *(*chosen, *left_out, *suite.tests, *words),
    ]


def _tools(suite: Suite) -> list[str]:
    folder = _TOOLS / "-".join(tool.replace("==", "-") for tool in suite.tools)
    if suite.tools and not folder.exists():
        install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), *suite.tools]
        subprocess.run(install, check=True)
    return [str(folder)] if suite.tools else []


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make suites ARGS=…", description=__doc__, allow_abbrev=False)
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("checkout", type=Path, help="a clone of the framework's repository")
    parser.add_argument("--store", default="sqlite", metavar="URL", help="a URL in which {name} is new for each test")
    options, more = parser.parse_known_args(words)
    suite = SUITES[options.suite]
    source = options.checkout / suite.folder
    missing = [name for name in suite.tests if not (source / name).exists()]
    if missing:
        parser.error(f"{source} has no {missing[0]}: is it a clone of {suite.package}'s repository?")
    sys.stdout.write(f"{suite.package} {version(suite.package)} is installed; {suite.measured} was measured last\n")
    for name, reason in suite.private.items():
        sys.stdout.write(f"left out: {name}: {reason}\n")
    sys.stdout.flush()
    with tempfile.TemporaryDirectory(prefix="locus-suites-") as folder:
        shutil.copytree(source / "tests", Path(folder, "tests"))
        shutil.copy(source / "pyproject.toml", folder)
        paths = [str(PLUGINS), *_tools(suite), *filter(None, [os.environ.get("PYTHONPATH")])]
        variables = {**suite.variables, "PYTHONPATH": os.pathsep.join(paths), "LOCUS_SUITE_STORE": options.store}
        return subprocess.run(command(suite, more), cwd=folder, env=os.environ | variables).returncode


if __name__ == "__main__":
    sys.exit(main())
