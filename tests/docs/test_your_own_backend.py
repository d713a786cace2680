"""The engine of the page "Your own backend" keeps the contract: its blocks are taken from the page, word for word."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import pytest

from tests.backends.effort import FewestRepetitions
from tests.docs.blocks import find_blocks

PAGE = Path(__file__).resolve().parents[2] / "docs" / "backends" / "your-own.md"
PARTS = ("class DocumentEngine(", "def documents_checkpointer(", "class TestDocuments(")
"""What the blocks define that make up the engine, its face and its tests, in this order."""


def from_the_page() -> ModuleType:
    module = sys.modules["documents_of_the_page"] = ModuleType("documents_of_the_page")
    blocks = [block for block in find_blocks(PAGE) if block.language == "python"]
    for part in PARTS:
        (block,) = [block for block in blocks if part in block.text]
        exec(compile("\n" * block.line + block.text, str(PAGE), "exec"), module.__dict__)
    return module


_AS_WRITTEN: Any = from_the_page().TestDocuments


class TestDocuments(FewestRepetitions, _AS_WRITTEN):  # type: ignore[misc]
    """Every law, with few repetitions: each save of this engine reads and writes a whole thread, as the page says."""


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory where the machine can: the suite saves thousands of times, and nothing here has to outlive it."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)
