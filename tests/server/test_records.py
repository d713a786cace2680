"""Threads of large checkpoints, as a client reads them whole: no request holds more than a portion of them."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from locus.errors import ConflictError
from locus.looking.reading import exported_pages
from locus.memory.engine import Exports
from locus.memory.model import sizes
from locus.memory.model.records import ANY
from locus.memory.registry import get_checkpointer
from locus.memory.storage import StorageBackend
from locus.memory.store import CheckpointStore
from locus.server import create_app
from tests.server.running import asking

COUNT = 40
SIZE = 200_000
MOST = 1_000_000


def _head(number: int) -> dict[str, Any]:
    """Many small fields: nothing is cut out of them."""
    return {f"{number}-{field}": "h" * 80 for field in range(SIZE // 100)}


def _item(number: int) -> dict[str, Any]:
    return {"items": [{"n": number, "text": "i" * SIZE}]}


async def _saved(store: CheckpointStore, what: str) -> None:
    backend = StorageBackend(store)
    for number in range(COUNT):
        payload = {"heads": _head, "runs": _item}.get(what, lambda n: {"n": n})(number)
        await backend.save("t", payload, f"c{number:02}", parent=ANY)
        if what == "writes":
            await backend.put_writes("t", f"c{number:02}", "task", [("x", "w" * SIZE)])


@pytest.fixture(params=["memory:", "sqlite:{}/agents.db", "file:{}/threads"], ids=["memory", "sqlite", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.param).format(tmp_path)


@pytest.mark.parametrize("what", ["heads", "runs", "writes"])
async def test_large_checkpoints_come_a_few_at_a_time(url: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "EXPORT_BYTES", MOST)
    checkpointer = get_checkpointer(url)
    await _saved(checkpointer.store, what)
    found: list[str] = []
    after, known = 0, dict[str, int]()
    async with asking(create_app(checkpointer)) as client:
        while True:
            response = await client.post("/threads/t/records", json={"after_seq": after, "known": known})
            page = response.json()
            if not page["checkpoints"]:
                break
            assert len(response.content) < MOST + SIZE
            found += [entry["checkpoint_id"] for *_, entry in page["checkpoints"]]
            assert page["more"] == (len(found) < COUNT)
            after = page["checkpoints"][-1][2]["seq"]
            known |= {run[0]: run[1] for run in page["runs"]}
    assert found == [f"c{number:02}" for number in range(COUNT)]


@pytest.mark.parametrize("what", ["heads", "runs", "writes"])
@pytest.mark.parametrize("kind", ["sqlite:{}/agents.db", "file:{}/threads"], ids=["sqlite", "file"])
async def test_no_more_is_in_memory_while_a_page_is_read(
    kind: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "EXPORT_BYTES", MOST)
    checkpointer = get_checkpointer(kind.format(tmp_path))
    await _saved(checkpointer.store, what)
    engine = checkpointer.store.engine
    assert isinstance(engine, Exports)
    tracemalloc.start()
    try:
        page = await engine.export("t", 0, 500, {})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0 < len(page.checkpoints) < COUNT
    assert peak < 3 * MOST < COUNT * SIZE
    await checkpointer.close()


@pytest.mark.parametrize("again", [False, True], ids=["gone", "written again"])
async def test_a_thread_that_is_deleted_between_two_small_pages_is_not_all(
    url: str, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "EXPORT_BYTES", MOST)
    checkpointer = get_checkpointer(url)
    await _saved(checkpointer.store, "heads")
    with pytest.raises(ConflictError, match="was changed while it was read"):
        async for _ in exported_pages(checkpointer.store, "t", dict):
            await checkpointer.delete("t")
            if again:
                await _saved(checkpointer.store, "heads")
    await checkpointer.close()
