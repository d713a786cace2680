"""The environment of CrewAI's tests. CrewAI needs openai 2, and the OpenAI Agents SDK openai 3, so `.venv` has it not.

It has the newest CrewAI, the drivers of all stores, and of the tools of `dev` those that these tests use.
"""

from __future__ import annotations

from packaging.requirements import Requirement

from tests.versions.declared import EXTRAS, requirements
from tests.versions.environments import Environment, environment

DRIVERS = ("redis", "postgresql", "mysql", "opensearch", "oracle", "oci", "s3", "http", "inspect")
TOOLS = {"pytest", "pytest-timeout", "pytest-xdist", "obstore", "cryptography", "psutil", "pyyaml", "markdown-it-py"}


def with_crewai() -> Environment:
    """The environment, which is built once."""
    tools = [line for line in EXTRAS["dev"] if Requirement(line).name in TOOLS]
    return environment([*requirements("crewai", *DRIVERS, "testing"), *tools], lowest=False)
