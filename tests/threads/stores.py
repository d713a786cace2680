"""The stores that tests of the port run on: those that need no server, and one that keeps no runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from locus.memory.backends.adapters import StorageBackendAdapter
from locus.memory.checkpointer import Checkpointer
from locus.threads import ThreadStore
from tests.backends.every_store import EMBEDDED, embedded_store
from tests.backends.strangers import AsyncStore

NAMESPACE = "default"
"""The only namespace that every store has."""

OpenStore = Callable[[], ThreadStore]


@pytest_asyncio.fixture(params=(*EMBEDDED, "plain"))
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenStore]:
    """Opens another handle on the same store."""
    handles: list[Checkpointer] = []
    kept = AsyncStore() if request.param == "plain" else embedded_store(request.param, tmp_path)

    def another() -> ThreadStore:
        handle = StorageBackendAdapter(kept) if isinstance(kept, AsyncStore) else kept.open()
        assert isinstance(handle, Checkpointer)
        handles.append(handle)
        return ThreadStore.open(handle)

    yield another
    for handle in handles:
        await handle.close()


@pytest.fixture
def threads(opened: OpenStore) -> ThreadStore:
    return opened()
