"""Search where nothing may be written: the index as it is, and a look at what is not in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from locus.memory.backends import sqlite_checkpointer
from locus.memory.backends.adapters import StorageBackendAdapter
from locus.memory.backends.sqlite import search
from locus.memory.storage import StorageBackend


async def _filled(path: Path, *, index: bool) -> None:
    async with sqlite_checkpointer(path) as handle:
        backend = StorageBackend(handle.store)
        await backend.save("a", {"messages": [{"text": "an old wombat"}]}, "c1")
        if index:
            assert len(await handle.search("wombat")) == 1
        await backend.save("a", {"messages": [{"text": "an old wombat"}, {"text": "a new wombat"}]}, "c2")
        await backend.save("b", {"word": "wombat", "messages": []}, "c3", {"about": "kangaroos"})


def _reading(path: Path) -> StorageBackendAdapter:
    handle = sqlite_checkpointer(path)
    handle.store.engine.reading_only = True
    return handle


@pytest.mark.parametrize("index", [True, False], ids=["indexed", "never indexed"])
async def test_a_file_that_is_only_read_is_searched(tmp_path: Path, index: bool) -> None:
    path = tmp_path / "a.db"
    await _filled(path, index=index)
    before = path.read_bytes()
    async with _reading(path) as handle:
        found = await handle.search("wombat")
        assert ({(hit["thread_id"], hit["checkpoint_id"]) for hit in found}, found.complete) == (
            {("a", "c1"), ("a", "c2"), ("b", "c3")},
            True,
        )
        assert [hit["checkpoint_id"] for hit in await handle.search("new wombat")] == ["c2"]
        assert [hit["checkpoint_id"] for hit in await handle.search("kangaroos")] == ["c3"]
        assert await handle.search("kookaburra") == []
        within = await handle.store.search("wombat", 10, "b")
        assert [hit.entry.checkpoint_id for hit in within] == ["c3"]
    assert path.read_bytes() == before


async def test_the_look_at_what_is_not_indexed_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.db"
    await _filled(path, index=True)
    monkeypatch.setattr(search, "MOST_SCANNED", 1)
    async with _reading(path) as handle:
        found = await handle.search("wombat")
        assert not found.complete
        assert {hit["checkpoint_id"] for hit in found} == {"c1", "c2", "c3"}  # the newest of either kind
        old = await handle.search("nothing like it")
        assert (old, old.complete) == ([], False)


async def test_indexing_stops_at_the_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.db"
    await _filled(path, index=False)
    monkeypatch.setattr(search, "PORTION", 1)
    async with sqlite_checkpointer(path) as handle:
        first = await handle.search("wombat", timeout_seconds=1e-9)
        assert (len(first), first.complete) == (1, False)
        rest = await handle.search("wombat")
        assert (len(rest), rest.complete) == (3, True)
