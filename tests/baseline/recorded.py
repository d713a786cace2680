"""The files of the baseline: text that a person can read in a diff."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

FOLDER = Path(__file__).parent
TESTS = FOLDER / "tests.txt"
KILLS = FOLDER / "kills.json"
IMPORTS = FOLDER / "imports.txt"

Tests = dict[str, Counter[str]]
"""By backend: the tests, and how many cases each has."""

Kills = dict[str, dict[str, dict[str, int]]]
"""By test class and step: how many lines a saver is killed at, and how many of them are lines of the engine."""


def read_tests(text: str) -> Tests:
    found: Tests = {}
    for line in text.splitlines():
        if line.startswith("# "):
            tests = found.setdefault(line[2:], Counter())
        elif line:
            name, _, count = line.rpartition(" ")
            tests[name] = int(count)
    return found


def tests_text(tests: Mapping[str, Counter[str]]) -> str:
    parts = []
    for backend, names in sorted(tests.items()):
        parts.append(f"# {backend}\n" + "".join(f"{name} {count}\n" for name, count in sorted(names.items())))
    return "\n".join(parts)


def read_kills() -> Kills:
    found: Kills = json.loads(KILLS.read_text(encoding="utf-8"))
    return found


def read_imports() -> dict[str, list[str]]:
    lines = IMPORTS.read_text(encoding="utf-8").splitlines()
    return {module: names.split() for module, _, names in (line.partition(":") for line in lines)}


def imports_text(names: Mapping[str, Iterable[str]]) -> str:
    return "".join(f"{module}: {' '.join(sorted(found))}\n" for module, found in sorted(names.items()))
