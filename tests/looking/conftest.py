"""One store with a conversation of every framework, for all tests that look at them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.looking.stories import tell_all


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stories") / "agents.db"
    asyncio.run(tell_all(path))
    return path
