"""The tests in `tests/integrations/crewai`, in the environment that has CrewAI: a run for each store."""

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
from tests.integrations.suites import FULL, OTHERS, marked
from tests.servers.fixtures import MARKERS
from tests.servers.pool import variable
from tests.servers.seaweedfs import SeaweedServer
from tests.versions.declared import ROOT

TESTS = Path(__file__).with_name("crewai")
STORES = ("memory", *FULL, *OTHERS)

pytestmark = pytest.mark.timeout(900)  # the first run downloads what it needs


def run_inner(tmp_path: Path, only: str, variables: Mapping[str, str] = {}) -> None:
    """Run those of the tests that these words name. None of them may be left out for want of something."""
    options = ["-q", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "inner"), *NO_STRANGERS, "-k", only]
    told = with_crewai().run("-m", "pytest", *options, str(TESTS), cwd=ROOT, **variables)
    assert re.search(r"^\d+ passed, \d+ deselected in ", told, re.MULTILINE), told


@pytest.mark.parametrize("store", marked(STORES))
def test_flows_on(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    # Tests on the stand-in for Oracle have the marker of PostgreSQL, on which it stands.
    only = "postgresql and not oracle" if store == "postgresql" else store
    run_inner(tmp_path, only, started(store, request))


def started(store: str, request: pytest.FixtureRequest) -> dict[str, str]:
    """Where the server of a store is, if this run has one: the inner run need not start another."""
    if store == "s3":
        server: SeaweedServer = request.getfixturevalue("s3_server")
        place = server.url.removeprefix("http://")
        return {variable("s3"): f"http://{server.access_key}:{server.secret_key}@{place}/{server.bucket}"}
    if store in MARKERS:
        return {variable(store): request.getfixturevalue(f"{store}_server").url}
    return {}


def test_flows_that_need_no_server(tmp_path: Path) -> None:
    run_inner(tmp_path, " and ".join(f"not {store}" for store in STORES))


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
