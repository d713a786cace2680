"""The security page names tests: they exist, under these names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.findall(r"`((?:tests|src)/[\w/]+\.py)::(\w+)`", (ROOT / "docs/security.md").read_text(encoding="utf-8"))


def test_tests_are_named() -> None:
    assert len(NAMED) >= 10


@pytest.mark.parametrize(("file", "name"), sorted({*NAMED}))
def test_a_test_that_is_named_exists(file: str, name: str) -> None:
    source = (ROOT / file).read_text(encoding="utf-8")
    assert re.search(rf"^\s*(?:async )?(?:def|class) {name}\b", source, re.MULTILINE), f"{name} is not in {file}"
