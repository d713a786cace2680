"""A store on SQLite for each test, and the framework without its notices."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from agent_framework._feature_stage import ExperimentalWarning

from locus.memory.backends import sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer


@pytest.fixture(autouse=True)
def without_notices() -> Iterator[None]:
    """The framework calls its stores of files and sessions experimental when they are first used."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        yield


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[Checkpointer]:
    async with sqlite_checkpointer(tmp_path / "agents.db") as opened:
        yield opened
