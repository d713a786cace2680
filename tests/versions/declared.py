"""What pyproject.toml declares, and the lowest version that it promises of each package."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
COLLECTIONS = {"all", "dev"}
"""Extras that put others together."""


def requirements(*extras: str) -> list[str]:
    """What an installation with these extras asks for; that of the base alone without one."""
    return [*PROJECT["dependencies"], *(line for extra in extras for line in _lines(extra))]


def _lines(extra: str) -> list[str]:
    """The requirements of an extra, with those of the extras that it is built on."""
    found: list[str] = []
    for line in EXTRAS[extra]:
        asked = Requirement(line)
        found += [each for own in asked.extras for each in _lines(own)] if asked.name == PROJECT["name"] else [line]
    return found


def floors(lines: list[str], python: str) -> dict[NormalizedName, Version]:
    """The lowest version of each package that these requirements allow, on this version of Python."""
    found: dict[NormalizedName, Version] = {}
    for requirement in map(Requirement, lines):
        if requirement.marker is None or requirement.marker.evaluate({"python_version": python}):
            name = canonicalize_name(requirement.name)
            found[name] = max(floor_of(requirement), found.get(name, Version("0")))
    return found


def floor_of(requirement: Requirement) -> Version:
    (floor,) = [part.version for part in requirement.specifier if part.operator in (">=", "==", "~=")]
    return Version(floor)
