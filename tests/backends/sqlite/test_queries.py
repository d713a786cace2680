"""Queries that do not end by themselves: they end at their deadline, and nobody waits for them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from locus.core.state import AgentState
from locus.errors import BackendUnavailableError, ConfigurationError
from locus.memory.backends import SQLiteBackend, sqlite_checkpointer
from locus.memory.backends.sql.flavour import Steps
from locus.memory.backends.sqlite import search as sqlite_search
from locus.memory.backends.sqlite.engine import READERS, SQLiteEngine
from locus.memory.checkpointer import Checkpointer


def _endless() -> Steps[list[Any]]:
    return (yield "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n", ())


def _endlessly_many() -> Steps[None]:
    """Each of them is quick, so SQLite never asks for the time."""
    while True:
        yield "SELECT 1", ()


async def _stall(handle: Checkpointer, steps: Any = _endless) -> None:
    async with handle.store.using() as engine:
        assert isinstance(engine, SQLiteEngine)
        await engine.carry_out(steps, writing=False)


@pytest.mark.parametrize("steps", [_endless, _endlessly_many])
@pytest.mark.parametrize("name", ["a.db", ":memory:"])
async def test_a_query_ends_at_its_deadline(tmp_path: Path, name: str, steps: Any) -> None:
    path = tmp_path / name if name.endswith("db") else name
    async with sqlite_checkpointer(path, query_timeout=0.05) as handle:
        await handle.save(AgentState(), "t")
        with pytest.raises(BackendUnavailableError, match="query_timeout"):
            await _stall(handle, steps)
        assert await handle.exists("t")


async def test_reads_do_not_wait_for_a_query_that_takes_long(tmp_path: Path) -> None:
    async with sqlite_checkpointer(tmp_path / "a.db", query_timeout=3_600) as handle:
        state = AgentState()
        await handle.save(state, "t")
        stalled = [asyncio.create_task(_stall(handle)) for _ in range(READERS - 1)]
        await asyncio.sleep(0)
        try:
            for _ in range(READERS):
                assert await handle.load("t") == state
                assert await handle.list_threads() == ["t"]
            assert not any(task.done() for task in stalled)
        finally:
            for task in stalled:
                task.cancel()
        await asyncio.gather(*stalled, return_exceptions=True)
        # Whoever gave up is not waited for: these need all readers.
        assert all(await asyncio.gather(*(handle.exists("t") for _ in range(READERS * 2))))


async def test_much_text_is_indexed_in_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_search, "PORTION_CHARACTERS", 10)
    async with SQLiteBackend(tmp_path / "a.db") as backend:
        for number in range(5):
            await backend.save(f"t{number}", {"m": [f"heron number{number}"], "head": "stork"})
        for word in ("heron", "stork"):
            assert len(await backend.store.search(word, 10)) == 5


async def test_the_time_for_queries_is_a_number_of_seconds(tmp_path: Path) -> None:
    for bad in (0, -1, float("nan")):
        with pytest.raises(ConfigurationError, match="query_timeout"):
            SQLiteBackend(tmp_path / "a.db", query_timeout=bad)
