"""The stores that are multiplied by SQL are whole, and the process that serves many threads keeps within its bound."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks.clock import frozen
from benchmarks.served_threads import PARTS, serve
from benchmarks.settings import QUICK
from benchmarks.thread_pages import BUSY, SQLiteCrowd, measure_pages


async def test_a_multiplied_thread_is_like_one_that_was_saved(tmp_path: Path) -> None:
    crowd = SQLiteCrowd(tmp_path)
    handle = await crowd.fill(30)
    try:
        assert len(await handle.list_threads(None)) == 32
        state = await handle.load("thread-0000007")
        assert state is not None
        assert [message.text for message in state.messages] == ["Hello there"]
        assert len(await handle.history("thread-0000030")) == 1
        assert len(await handle.query_by_metadata("kind", "chat", 100)) == 31
        found = {hit["thread_id"] for hit in await handle.search("hello", 100)}
        assert len(found) == 32
        assert {hit["thread_id"] for hit in await handle.search("zanzibar", 100)} == {BUSY}
        await handle.save(state, "thread-0000007")
        assert len(await handle.history("thread-0000007")) == 2
    finally:
        await handle.close()
        crowd.remove()
    assert list(tmp_path.iterdir()) == []


async def test_the_pages_of_a_small_and_a_large_store_are_compared(tmp_path: Path) -> None:
    section = await measure_pages(replace(QUICK, threads=(10, 30), pages=1), tmp_path, [SQLiteCrowd])
    assert {figure.backend for figure in section.figures} == {"sqlite"}
    assert all("at 30 ÷ at 10 threads" in figure.what for figure in section.figures)
    assert section.table.count("\n| sqlite |") == len(section.figures)


async def test_memory_is_told_as_the_threads_go_by(tmp_path: Path) -> None:
    with frozen():  # the tests' own objects are many
        found = await serve(tmp_path / "threads.db", 2 * PARTS)
    assert [line["threads"] for line in found] == [2 * part for part in range(1, PARTS + 1)]
    assert all(0 < line["cache"] <= line["bound"] < line["memory"] for line in found)
