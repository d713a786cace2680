"""The lowest versions that pyproject.toml declares: they are what is installed, and they work.

Each extra has an environment of its own, because all of them together ask for more than each does alone.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import httpx
import pytest
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from locus.testing.stores import DurableTestStore
from tests.backends.every_store import SERVERS, server_store
from tests.server.ambiguous import AMBIGUOUS, check_refused
from tests.server.running import serving
from tests.servers.redis import RedisCluster
from tests.versions.declared import COLLECTIONS, EXTRAS, floor_of, floors, requirements
from tests.versions.environments import Environment, check_contract, environment
from tests.versions.smoke import store as smoke

__all__ = ["server_store"]

pytestmark = pytest.mark.timeout(900)  # the first run downloads what it needs

Packages = dict[NormalizedName, tuple[Version, list[str]]]
"""The version of each, and what it requires."""

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
MODELS = ("openai", "anthropic", "ollama")
FRAMEWORKS = {"langgraph": "langgraph", "openai-agents": "openai_agents", "llmfy": "llmfy", "crewai": "crewai"}
TOGETHER = {
    "claude-agent-sdk": "claude_agent_sdk",
    "pydantic-ai": "pydantic_ai",
    "google-adk": "google_adk",
    "agent-framework": "agent_framework",
    "strands": "strands",
    "a2a": "a2a",
}
"""Frameworks whose floors can be installed together: one environment is enough for them."""


VECTORS = {"vectors": "import numpy", "embeddings": "import tokenizers, safetensors.numpy, locus.embeddings"}
"""What long-term memory may need, and how it is imported."""


def lowest(*extras: str) -> Environment:
    """The environment of extras. What it has of each declared package is the floor of that package."""
    declared = requirements(*extras)
    made = environment(declared, lowest=True)
    packages = {canonicalize_name(name): (Version(version), asked) for name, version, asked in made.packages()}
    raised = {}
    for name, floor in floors(declared, PYTHON).items():
        version, _ = packages[name]
        if version != floor and not (extras and name == "pydantic" and _others_need_more(name, floor, packages)):
            raised[name] = f"{floor} is declared, and {version} is the lowest that can be installed"
    assert raised == {}
    return made


def _others_need_more(name: NormalizedName, floor: Version, packages: Packages) -> bool:
    """Whether a package that an extra brings refuses the floor of the base."""
    asked = [Requirement(line) for _, lines in packages.values() for line in lines]
    return any(
        canonicalize_name(one.name) == name and floor not in one.specifier
        for one in asked
        if one.marker is None or one.marker.evaluate({"extra": ""})
    )


def test_every_requirement_declares_a_floor() -> None:
    for extra in EXTRAS:
        if extra not in COLLECTIONS:
            for line in requirements(extra):
                assert floor_of(Requirement(line)) > Version("0"), line


def test_every_extra_is_tried() -> None:
    stores = {str(param.values[0]) for param in SERVERS}
    assert (
        stores | {*MODELS, *FRAMEWORKS, *TOGETHER, "server", "inspect", "testing", "otel", "encryption", *VECTORS}
        == {*EXTRAS} - COLLECTIONS
    )


def test_the_base(tmp_path: Path) -> None:
    lowest().run("-m", "tests.versions.smoke.base", str(tmp_path))


def test_a_backend(server_store: DurableTestStore, request: pytest.FixtureRequest) -> None:
    extra = re.findall(r"\[(.*?)[\]-]", request.node.name)[0]
    lowest(extra).run("-W", "ignore", "-m", "tests.versions.smoke.store", server_store.url)


@pytest.mark.parametrize("extra", MODELS)
def test_a_model(extra: str) -> None:
    lowest(extra).run("-m", "tests.versions.smoke.model", extra)


@pytest.mark.parametrize("extra", FRAMEWORKS)
def test_a_framework(extra: str, tmp_path: Path) -> None:
    lowest(extra).run("-m", f"tests.versions.smoke.{FRAMEWORKS[extra]}", str(tmp_path))


@pytest.mark.parametrize("extra", TOGETHER)
def test_a_framework_beside_others(extra: str, tmp_path: Path) -> None:
    lowest(*TOGETHER).run("-m", f"tests.versions.smoke.{TOGETHER[extra]}", str(tmp_path))


def test_the_inspector() -> None:
    lowest("inspect").run("-c", "import jinja2, locus.server")


@pytest.mark.parametrize("extra", VECTORS)
def test_vectors(extra: str) -> None:
    """The models of `embeddings` are wheels of their own, which no extra brings."""
    made = lowest(extra)
    made.run("-m", "tests.versions.smoke.vectors")
    made.run("-c", VECTORS[extra])


def test_encryption() -> None:
    lowest("encryption").run("-m", "tests.versions.smoke.encryption")


def test_telemetry() -> None:
    lowest("otel").run("-m", "tests.versions.smoke.otel")


def test_a_redis_cluster_that_was_away(redis_cluster: RedisCluster) -> None:
    lowest("redis").run("-m", "tests.versions.smoke.cluster", str(redis_cluster.port))


@pytest.mark.http
def test_the_server(tmp_path: Path) -> None:
    made = lowest("server")
    database = f"sqlite:{tmp_path / 'served.db'}"
    with serving(tmp_path, database, python=str(made.python), **made.variables()) as server:
        smoke.check(server.url)
        answers = {
            "/openapi.json": httpx.get(f"{server.url}/openapi.json"),
            "/metrics": httpx.get(f"{server.url}/metrics"),
            "another path": httpx.get(f"{server.url}/nowhere"),
            "another method": httpx.delete(f"{server.url}/recent"),
            "a wrong body": httpx.post(f"{server.url}/search", json={"query": 1}),
        }
        for request in AMBIGUOUS:
            check_refused(server.port, request)
    assert {what: answer.status_code for what, answer in answers.items()} == {
        "/openapi.json": 200,
        "/metrics": 200,
        "another path": 404,
        "another method": 405,
        "a wrong body": 422,
    }
    assert "GET" in answers["another method"].headers["Allow"]


def test_the_contract_suite(tmp_path: Path) -> None:
    check_contract(lowest("testing"), tmp_path)
