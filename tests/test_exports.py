"""What can be imported, and what an import brings along."""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

import pytest

from tests.samples import run_script

PACKAGES = ["locus", "locus.memory", "locus.memory.backends"]
DRIVERS = ["redis", "psycopg", "asyncpg", "aiomysql", "pymysql", "opensearchpy", "oracledb", "oci", "obstore", "boto3"]
FRAMEWORKS = [
    "langgraph",
    "agents",
    "llmfy",
    "claude_agent_sdk",
    "pydantic_ai",
    "google",
    "agent_framework",
    "strands",
    "openai",
    "anthropic",
    "ollama",
    "starlette",
    "httpx",
    "hypothesis",
    "pytest",
]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_that_is_exported_can_be_imported(package: str) -> None:
    module = importlib.import_module(package)
    names = module.__all__
    assert len(set(names)) == len(names) > 4
    for name in names:
        assert getattr(module, name) is not None
        namespace: dict[str, object] = {}
        exec(f"from {package} import {name}", namespace)
        assert namespace[name] is getattr(module, name)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_that_is_not_there_is_an_attribute_error(package: str) -> None:
    module = importlib.import_module(package)
    with pytest.raises(AttributeError, match="NoSuchThing"):
        _ = module.NoSuchThing


FRESH = """
import json, sys
import locus.memory, locus.memory.backends as backends
packages = (locus, locus.memory, backends)
facts = {"dir": {package.__name__: dir(package) for package in packages}, "before": sorted(sys.modules)}
for name in backends.__all__:
    getattr(backends, name)
facts["after"] = sorted(sys.modules)
print(json.dumps(facts))
"""


@pytest.fixture(scope="module")
def fresh() -> dict[str, Any]:
    """What an interpreter knows that has imported our packages, and then used every backend."""
    facts: dict[str, Any] = json.loads(run_script(FRESH))
    return facts


@pytest.mark.parametrize("package", PACKAGES)
def test_dir_shows_what_is_exported_before_it_is_used(fresh: dict[str, Any], package: str) -> None:
    assert set(importlib.import_module(package).__all__) <= set(fresh["dir"][package])


def test_an_import_brings_no_driver_and_no_framework(fresh: dict[str, Any]) -> None:
    loaded = {name.partition(".")[0] for name in fresh["after"]}
    assert "pydantic" in loaded
    assert loaded & {*DRIVERS, *FRAMEWORKS} == set()


def test_importing_the_package_brings_nothing_but_the_standard_library() -> None:
    code = "import sys; before = set(sys.modules); import locus; print(*set(sys.modules) - before)"
    brought = {name for name in run_script(code).split() if name.partition(".")[0] not in sys.stdlib_module_names}
    assert brought == {"locus", "locus._moved", "locus._other_distribution"}


def test_a_backend_is_imported_when_it_is_first_used(fresh: dict[str, Any]) -> None:
    engines = {f"locus.memory.backends.{name}" for name in ("memory", "file", "sqlite")}
    assert not {"sqlite3", *engines} & set(fresh["before"])
    assert {"sqlite3", *engines} <= set(fresh["after"])


def test_the_memory_and_file_backends_do_without_sqlite() -> None:
    code = (
        "import sys\n"
        "sys.modules['sqlite3'] = None\n"
        "from locus.memory import get_checkpointer\n"
        "from locus.memory.backends import MemoryCheckpointer, FileCheckpointer\n"
        "print(get_checkpointer('memory').sync.list_threads())"
    )
    assert run_script(code).strip() == "[]"
