"""What holds for the project as a whole, whatever the code does."""

import importlib
import os
import pkgutil
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import locus

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]

DATABASES = {"redis", "postgresql", "mysql", "opensearch", "oracle", "oci", "s3", "http", "server", "inspect"}
FRAMEWORKS = {
    *("langgraph", "openai-agents", "llmfy"),
    *("claude-agent-sdk", "pydantic-ai", "google-adk", "agent-framework", "strands", "a2a"),
    *("openai", "anthropic", "ollama", "otel", "vectors", "embeddings", "encryption"),
}
ALONE = {"crewai"}
"""Extras that cannot be installed together with all others."""
# With the dots escaped, so that the search does not find this line.
REGISTRIES = rb"pypi\.org|pythonhosted\.org|npmjs\.(org|com)|debian\.org/debian|anaconda\.org"


def modules() -> list[str]:
    found = pkgutil.walk_packages(locus.__path__, "locus.")
    return ["locus", *(module.name for module in found if not module.name.endswith("__main__"))]


def files() -> Iterator[Path]:
    for folder, folders, names in os.walk(ROOT):
        hidden = [name for name in folders if name.startswith(".") and name != ".ci"]
        for name in [*hidden, *({"__pycache__", "build", "dist", "node_modules"} & {*folders})]:
            folders.remove(name)
        yield from (Path(folder, name) for name in names)


@pytest.mark.parametrize("name", [name for name in modules() if not name.startswith("locus.integrations.crewai")])
def test_what_a_module_exports_is_there(name: str) -> None:
    module = importlib.import_module(name)
    for export in getattr(module, "__all__", []):
        assert hasattr(module, export), f"{name}.__all__ names {export}"


def test_the_base_install_stays_small() -> None:
    assert {re.split(r"[<>=\[]", line)[0] for line in PROJECT["dependencies"]} == {"pydantic", "filelock"}


def test_the_extras_are_these() -> None:
    assert {*EXTRAS} == DATABASES | FRAMEWORKS | ALONE | {"all", "testing", "dev"}


def test_the_extra_all_is_the_union_of_what_a_user_may_want() -> None:
    named = re.findall(r"locus-state\[(.*?)\]", " ".join(EXTRAS["all"]))
    assert sorted(",".join(named).split(",")) == sorted(DATABASES | FRAMEWORKS)


def test_the_extra_dev_and_the_group_dev_are_the_same() -> None:
    assert EXTRAS["dev"] == PYPROJECT["dependency-groups"]["dev"]


def test_the_changelog_has_a_section_for_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[{re.escape(PROJECT['version'])}\]", changelog, re.MULTILINE)


def test_the_package_knows_its_version() -> None:
    assert locus.__version__ == PROJECT["version"]


def test_no_file_names_a_package_registry() -> None:
    """Which registry serves a machine is the machine's setting."""
    assert [str(file.relative_to(ROOT)) for file in files() if re.search(REGISTRIES, file.read_bytes())] == []


def test_the_settings_name_no_address() -> None:
    """The project has no public address. A placeholder for one would be a dead link on the package index."""
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.findall(r"https?://\w\S*", settings) == []
    assert "urls" not in PROJECT


def test_hatch_runs_what_make_runs() -> None:
    dry_run = subprocess.run(["make", "-n", "test", "ARGS="], cwd=ROOT, capture_output=True, text=True, check=True)
    by_make = {line.strip().removeprefix(".venv/bin/") for line in dry_run.stdout.splitlines()}
    scripts = PYPROJECT["tool"]["hatch"]["envs"]["default"]["scripts"]
    for script in ("test", "lint", "format-check"):
        commands = scripts[script] if isinstance(scripts[script], list) else [scripts[script]]
        for command in commands:
            assert command.removesuffix(" {args}") in by_make
