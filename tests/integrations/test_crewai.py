"""The tests in `tests/integrations/crewai`, in the environment that has CrewAI: a run for each server, and one more."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from locus.errors import MissingDependencyError
from tests.docs.pages import WITH_CREWAI
from tests.docs.typed import write_modules
from tests.inner_pytest import NO_STRANGERS
from tests.integrations.crewai.environment import with_crewai
from tests.servers.base import Server
from tests.servers.pool import variable
from tests.servers.seaweedfs import SeaweedServer
from tests.versions.declared import ROOT

TESTS = Path(__file__).with_name("crewai")
ON_SERVERS = ("postgresql", "mysql", "redis", "opensearch", "s3")

pytestmark = pytest.mark.timeout(900)  # the first run downloads what it needs


def run_inner(tmp_path: Path, only: str, variables: Mapping[str, str] = {}) -> None:
    """Run those of the tests that these words name. None of them may be left out for want of something."""
    options = ["-q", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "inner"), *NO_STRANGERS, "-k", only]
    told = with_crewai().run("-m", "pytest", *options, str(TESTS), cwd=ROOT, **variables)
    assert re.search(r"^\d+ passed, \d+ deselected in ", told, re.MULTILINE), told


def test_flows_without_a_server(tmp_path: Path) -> None:
    run_inner(tmp_path, f"not ({' or '.join(ON_SERVERS)})")


@pytest.mark.parametrize("server", [pytest.param(name, marks=pytest.mark.server(name)) for name in ON_SERVERS])
def test_flows_on(server: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The server is the one of this run, so that there need not be two; but for PostgreSQL, which carries the stand-in
    for Oracle as well, and that wants a server of its own.
    """
    given: dict[str, str] = {}
    if server != "postgresql":
        found: Server = request.getfixturevalue(f"{server}_server")
        given[variable(server)] = found.url
        if isinstance(found, SeaweedServer):
            place = found.url.replace("://", f"://{found.access_key}:{found.secret_key}@")
            given[variable(server)] = f"{place}/{found.bucket}"
    run_inner(tmp_path, server, given)


def test_types(tmp_path: Path) -> None:
    """For `.venv` all of CrewAI is `Any`. Here strict mypy sees its types: in the adapter, its tests and its page."""
    write_modules(ROOT, [WITH_CREWAI], tmp_path)
    places = [str(ROOT / "src/locus/integrations/crewai"), str(TESTS), str(tmp_path)]
    cache = ROOT / ".mypy_cache" / "crewai"
    options = [
        "--follow-imports",
        "silent",
        "--python-executable",
        str(with_crewai().python),
        "--cache-dir",
        str(cache),
    ]
    done = subprocess.run([sys.executable, "-m", "mypy", *options, *places], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.startswith("Success: no issues found"), done.stdout + done.stderr


def test_without_crewai_the_extra_is_named() -> None:
    with pytest.raises(MissingDependencyError, match=r"locus-state\[crewai\]"):
        importlib.import_module("locus.integrations.crewai")
