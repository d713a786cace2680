"""What takes long for large states, metadata and manifests is not done on the event loop, for which all others wait."""

from __future__ import annotations

import importlib
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from locus.memory.backends import MemoryCheckpointer
from locus.memory.model.ids import new_id
from locus.memory.model.records import NewestThreads
from locus.memory.storage import StorageBackend
from locus.server import Limits, create_app
from tests.server.inspector.access import looking
from tests.server.running import asking

LARGE = 2_000_000
MANY = {f"key {number}": "x" * 100 for number in range(LARGE // 100)}
"""Short values, which all stay in the head."""
MESSAGE = {"role": "user", "content": "x" * LARGE}


@pytest.fixture
async def store() -> MemoryCheckpointer:
    """A thread of which everything is large."""
    checkpointer = MemoryCheckpointer()
    backend = StorageBackend(checkpointer.store)
    metadata = {"note": "x" * LARGE}
    await backend.save("t", {**MANY, "messages": [MESSAGE]}, checkpoint_id="a", metadata=metadata)
    await backend.save("t", {**MANY, "messages": [MESSAGE] * 3, "more": 1}, checkpoint_id="b", metadata=metadata)
    await backend.put_writes("t", "b", "task", [("channel", "x" * LARGE)])
    return checkpointer


@pytest.fixture
async def client(store: MemoryCheckpointer) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(create_app(store)) as client:
        yield client


@pytest.fixture
def threads_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[threading.Thread]]:
    """In which threads a function is called from now on, by its module and name."""

    def watched(place: str) -> list[threading.Thread]:
        module, _, name = place.rpartition(".")
        work, seen = getattr(importlib.import_module(module), name), list[threading.Thread]()

        def noted(*args: Any, **kwargs: Any) -> Any:
            seen.append(threading.current_thread())
            return work(*args, **kwargs)

        monkeypatch.setattr(place, noted)
        return seen

    return watched


@pytest.mark.parametrize(
    ("url", "work"),
    [
        ("/recent-threads", "locus.server.routes.queries.thread_data"),
        ("/recent-threads?titles=true", "locus.memory.titles.page_of"),
        ("/threads/t/stored", "locus.server.routes.engine.stored_text"),
        ("/threads/t/diff?a=a&b=b", "locus.memory.store.Side"),
        ("/threads/t/diff?a=a&b=b", "locus.server.routes.threads.diff_data"),
    ],
)
async def test_answers(client: httpx.AsyncClient, threads_of: Any, url: str, work: str) -> None:
    seen = threads_of(work)
    assert (await client.get(url)).status_code == 200
    assert seen
    assert threading.main_thread() not in seen


async def test_records(client: httpx.AsyncClient, threads_of: Any) -> None:
    seen = threads_of("locus.server.routes.engine.exported_text")
    assert (await client.post("/threads/t/records", json={"known": {}})).status_code == 200
    assert seen
    assert threading.main_thread() not in seen


async def test_the_lists_that_a_commit_names(client: httpx.AsyncClient, threads_of: Any) -> None:
    seen, rev, names = threads_of("locus.server.extents._check"), new_id(), [f"list {at}" for at in range(5_000)]
    commit = {
        "checkpoint_id": "c",
        "rev": rev,
        "created_at": "2026-01-31T12:00:00+00:00",
        "metadata": {},
        "head": {name: [] for name in names},
        "manifest": [[[name], [[f"{rev}-{at}", 0, 0, 1]]] for at, name in enumerate(names)],
        "runs": [[f"{rev}-{at}", 0, 0, [at]] for at in range(len(names))],
    }
    answer = await client.post("/threads/many/commits", json=commit)
    assert answer.json()["verdict"] == "committed", answer.text
    assert seen
    assert threading.main_thread() not in seen


@pytest.mark.parametrize(
    ("url", "work"),
    [
        ("/threads", "some_metadata"),
        ("/t/t", "rows_of"),
        ("/t/t/c/b", "items_shown"),
        ("/t/t/c/b", "tree"),
        ("/t/t/c/b?view=state", "decode_manifest"),
        ("/t/t/diff/a/b", "_change"),
        ("/t/t/stats", "kinds_of"),
        ("/t/t/export?format=json", "_gathered"),
        ("/t/t/export?format=jsonl", "_checkpoint_line"),
    ],
)
async def test_pages(store: MemoryCheckpointer, threads_of: Any, url: str, work: str) -> None:
    page = {"/threads": "threads", "/t/t": "timeline", "/t/t/stats": "stats"}.get(url)
    page = page or ("diff" if "diff" in url else "checkpoint")
    page = "export" if "export" in url else page
    where = "locus.looking.documents" if work == "_checkpoint_line" else f"locus.server.inspector.pages.{page}"
    seen = threads_of(f"{where}.{work}")
    async with looking(store.store) as client:
        answer = await client.get(url)
        assert answer.status_code == 200, answer.text
    assert seen
    assert threading.main_thread() not in seen


async def test_the_newest_threads_are_read_a_portion_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a store reads is in memory before its size is known."""
    monkeypatch.setattr("locus.server.routes.queries.FIRST_PORTION", 4)
    checkpointer = MemoryCheckpointer()
    backend, asked = StorageBackend(checkpointer.store), list[int]()
    for number in range(10):
        await backend.save(f"t{number}", {}, metadata={"note": "x" * 1_000})
    ask = checkpointer.store.newest_threads

    async def counted(limit: int | None, before: str | None = None, prefix: str = "") -> NewestThreads:
        assert limit is not None
        asked.append(limit)
        return await ask(limit, before, prefix)

    monkeypatch.setattr(checkpointer.store, "newest_threads", counted)
    async with asking(create_app(checkpointer, limits=Limits(state_bytes=100_000))) as client:
        page = (await client.get("/recent-threads?limit=9")).json()
        assert [thread["thread_id"] for thread in page["threads"]] == [f"t{number}" for number in range(9, 0, -1)]
        assert page["more"] is True
        assert asked == [4, 4, 1]
        last = (await client.get("/recent-threads", params={"limit": 9, "before": page["next"]})).json()
        assert [thread["thread_id"] for thread in last["threads"]] == ["t0"]
        assert last["more"] is False
    asked.clear()
    async with asking(create_app(checkpointer, limits=Limits(state_bytes=5_000))) as client:
        assert (await client.get("/recent-threads?limit=9")).status_code == 413
        assert asked == [4]
