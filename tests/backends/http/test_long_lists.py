"""Lists that are longer or larger than one answer of a server."""

from __future__ import annotations

import pytest

from locus.memory.backends import HTTPCheckpointer, MemoryCheckpointer
from locus.memory.backends.http import engine as http_engine
from locus.memory.model.ids import Pattern
from locus.memory.storage import StorageBackend
from locus.server import Limits, create_app
from locus.server.routes import threads as thread_routes
from tests.server.running import threaded

pytestmark = pytest.mark.http


async def test_all_threads_are_listed_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_routes, "MOST_LISTED", 3)
    monkeypatch.setattr(http_engine, "MOST_IDS", 2)
    names = sorted(f"t{number}" for number in range(10))
    store = MemoryCheckpointer()
    for name in names:
        await StorageBackend(store.store).save(name, {"n": 1})
    with threaded(create_app(store)) as port:
        async with HTTPCheckpointer(f"http://127.0.0.1:{port}") as handle:
            for limit in (None, 0, 1, 2, 3, 5, 10, 11):
                assert await handle.list_threads(limit) == names[:limit]
            async with handle.store.using() as engine:
                assert await engine.threads(Pattern("t*", "t", "t4"), None) == names[5:]


async def test_a_history_with_much_metadata_is_fetched_in_smaller_pages() -> None:
    store = MemoryCheckpointer()
    for number in range(40):
        await StorageBackend(store.store).save("t", {"n": number}, f"c{number}", metadata={"much": "x" * 1_000})
    with threaded(create_app(store, limits=Limits(state_bytes=20_000))) as port:
        async with HTTPCheckpointer(f"http://127.0.0.1:{port}") as handle:
            for limit in (None, 30, 1):
                found = [entry.checkpoint_id for entry in await handle.history("t", limit)]
                assert found == [f"c{number}" for number in range(39, -1, -1)][:limit]
