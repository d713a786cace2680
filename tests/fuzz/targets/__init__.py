"""The targets: one module each. `load` imports only the one that is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

from tests.fuzz.judge import Target

SHARES = {
    "codec": 8, "payloads": 3, "file_log": 2, "url": 1, "revisions": 4, "langgraph": 4, "imports": 1, "wire": 6,
    "http_api": 2,
}  # fmt: skip
"""How many of the cases of a run a target gets: those that open a file or ask a server take longer than the others."""
NAMES = tuple(SHARES)


class Fuzzed(NamedTuple):
    """A target, and what to begin with."""

    run: Target
    seeds: list[bytes]


def load(name: str) -> Fuzzed:
    module = import_module(f"tests.fuzz.targets.{name}")
    return Fuzzed(module.run, list(module.SEEDS))
