"""The newest threads, where a list ends before it has what was asked for: it says so, and goes on from there."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from locus.memory.backends import sqlite_checkpointer
from locus.memory.backends.sql import read as sql_read
from locus.memory.backends.sql.flavour import run_steps
from locus.memory.backends.sqlite.schema import SQL
from locus.memory.checkpointer import Checkpointer
from locus.testing.laws.base import dicts
from locus.testing.laws.listing.newest_threads import all_pages


@pytest_asyncio.fixture
async def checkpointer(tmp_path: Path) -> AsyncIterator[Checkpointer]:
    async with sqlite_checkpointer(tmp_path / "a.db", durability="normal") as handle:
        yield handle


async def test_a_busy_thread_is_skipped_inside_the_database(
    checkpointer: Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has more checkpoints than are sent, and still the page is full."""
    monkeypatch.setattr(sql_read, "_NEWEST_PORTIONS", (5, 15, 500))
    backend = dicts(checkpointer)
    for number in range(30):
        await backend.save(f"q{number:02}", {})
    for number in range(200):
        await backend.save("busy", {"n": number})
    page = await checkpointer.recent_threads(10)
    assert [one.thread_id for one in page.threads] == ["busy", *(f"q{number:02}" for number in range(29, 20, -1))]
    assert page.more


async def test_a_page_that_ends_early_says_so(checkpointer: Checkpointer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_read, "_NEWEST_PORTIONS", (2, 3, 5))
    monkeypatch.setattr(sql_read, "LOOKED_AT", 4)
    backend = dicts(checkpointer)
    names = [f"t/{number}" for number in range(6)]
    for name in names:
        await backend.save(name, {})
    for number in range(25):
        await backend.save("t/busy", {"n": number})
    for name in names[:2]:
        await backend.save(name, {})
    first = await checkpointer.recent_threads(4)
    assert [one.thread_id for one in first.threads] == ["t/1", "t/0", "t/busy"]
    assert first.more
    second = await checkpointer.recent_threads(4, before=first.next)
    assert second.threads == ()
    assert second.more
    expected = ["t/1", "t/0", "t/busy", "t/5", "t/4", "t/3", "t/2"]
    for limit in (1, 2, 4, 9):
        for prefix in ("", "t/"):
            found = await all_pages(checkpointer, limit, prefix=prefix)
            assert [one.thread_id for one in found] == expected


async def test_threads_that_have_expired_end_a_page_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_read, "_NEWEST_PORTIONS", (2, 2, 2))
    async with sqlite_checkpointer(tmp_path / "a.db") as stays:
        await dicts(stays).save("old", {})
        async with sqlite_checkpointer(tmp_path / "a.db", ttl_seconds=1e-6) as ends:
            for number in range(8):
                await dicts(ends).save(f"t{number}", {})
        page = await stays.recent_threads(3)
        assert page.threads == ()
        assert page.more
        assert [one.thread_id for one in await all_pages(stays, 3)] == ["old"]


@pytest.mark.parametrize("changed", ["added", "removed"])
async def test_what_changes_between_two_statements_neither_repeats_nor_hides_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    monkeypatch.setattr(sql_read, "_NEWEST_PORTIONS", (4, 4, 100))
    async with sqlite_checkpointer(tmp_path / "a.db") as handle:
        for number in range(20):
            await dicts(handle).save("busy" if number % 2 else f"t{number:02}", {"n": number})
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        columns = "thread, namespace, checkpoint_id, parent_id, rev, created_at, metadata, head, manifest"
        newest = f"SELECT {columns}, max(seq) AS seq FROM locus_checkpoints GROUP BY thread HAVING count(*) > 1"
        thread = "SELECT thread FROM locus_checkpoints GROUP BY thread HAVING count(*) > 1"

        def execute(statement: str, values: Sequence[Any]) -> list[Any]:
            found = connection.execute(statement, values).fetchall()
            if changed == "added":
                copied = f"SELECT {columns.replace('checkpoint_id', 'hex(randomblob(8))')}, seq + 1 FROM ({newest})"
                connection.execute(f"INSERT INTO locus_checkpoints ({columns}, seq) {copied}")
            else:
                last = f"SELECT max(id) FROM locus_checkpoints WHERE thread IN ({thread})"
                connection.execute(f"DELETE FROM locus_checkpoints WHERE id = ({last})")
            return found

        page = run_steps(sql_read.newest_threads(SQL, 50, None, ""), execute)
        found = [entry.thread_id for entry in page.entries]
        assert sorted(found) == ["busy", *(f"t{number:02}" for number in range(0, 20, 2))]
