"""Newer Pythons than the one that runs the tests: all that the base install can do, and a part of the contract."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tests.versions.declared import EXTRAS, floors, requirements
from tests.versions.environments import check_contract, environment, version_of
from tests.versions.pythons import NEWER, newer_python

PYDANTIC = canonicalize_name("pydantic")
pytestmark = pytest.mark.timeout(900)  # the first run downloads what it needs


@pytest.mark.parametrize("version", NEWER)
def test_the_base_with_the_lowest_pydantic(version: str, tmp_path: Path) -> None:
    python = newer_python(version)
    assert version_of(python).startswith(f"{version}.")
    made = environment(requirements(), python, lowest=True)
    installed = {name: found for name, found, _ in made.packages()}
    assert installed["pydantic"].startswith(f"{floors(requirements(), version)[PYDANTIC]}.")
    made.run("-W", "error", "-m", "tests.versions.smoke.base", str(tmp_path))


@pytest.mark.parametrize("version", NEWER)
def test_the_contract_with_the_newest_of_everything(version: str, tmp_path: Path) -> None:
    made = environment([*requirements(), *EXTRAS["testing"]], newer_python(version), lowest=False)
    check_contract(made, tmp_path)
