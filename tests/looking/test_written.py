"""Words that stand in pending writes only are found by a search, on every kind of store."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from locus.looking.searching import Wanted, search_said
from locus.looking.written import search_written
from locus.memory.model.ids import check_pattern
from tests.backends.every_store import embedded_store, store_on_server
from tests.looking.stories import tell_langgraph, tell_langgraph_deltas

STORES = ["memory", "sqlite", "file", pytest.param("postgresql", marks=pytest.mark.server("postgresql"))]


@pytest.mark.parametrize("kind", STORES)
async def test_words_in_pending_writes_are_found(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    is_embedded = kind in ("memory", "sqlite", "file")
    opened = nullcontext(embedded_store(kind, tmp_path)) if is_embedded else store_on_server(kind, request, tmp_path)
    with opened as place:
        async with place.open() as checkpointer:
            await tell_langgraph_deltas(checkpointer)
            await tell_langgraph(checkpointer, asks=True)
            store = checkpointer.store
            assert store.keeps_writes
            page = await search_said(store, "8.99", 10)
            assert {one.hit.entry.thread_id for one in page.found} == {"langgraph-deltas"}
            assert {(one.role, one.excerpt) for one in page.found} == {
                ("tool", "8.99"),
                ("assistant", "The Peak jacket costs 8.99."),
            }
            # With the save that brought the words, and not with the one before, whose tasks wrote them.
            (result,) = [one.hit.entry for one in page.found if one.role == "tool"]
            latest = await store.entry("langgraph-deltas", None, "")
            assert latest is not None
            assert result.checkpoint_id == latest.parent_id
            (asked,) = (await search_said(store, "may look price up", 10)).found
            assert (asked.hit.entry.thread_id, asked.excerpt) == ("langgraph-waiting", "May I look the price up?")
            nobody = Wanted(check_pattern("nobody*"))
            assert (await search_said(store, "8.99", 10, wanted=nobody)).found == []
            assert await search_written(store, "8.99", timeout_seconds=0.0) == []
            assert await search_written(store, "8.99", "langgraph-w") == []
