"""Stores that agents are tested on."""

from __future__ import annotations

from pathlib import Path

import pytest

from locus.memory.backends import FileCheckpointer, MemoryCheckpointer, sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer
from tests.agent.support import Effects


@pytest.fixture(params=["memory", "file", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Checkpointer:
    """Each embedded store in turn."""
    if request.param == "memory":
        return MemoryCheckpointer()
    if request.param == "file":
        return FileCheckpointer(tmp_path / "threads")
    return sqlite_checkpointer(tmp_path / "agents.db")


@pytest.fixture
def memory() -> MemoryCheckpointer:
    return MemoryCheckpointer()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A path for an SQLite file."""
    return tmp_path / "agents.db"


@pytest.fixture
def effects() -> Effects:
    return Effects()
