"""What long-term memory keeps is copied with the threads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from locus.cli import main
from locus.core.state import AgentState
from locus.integrations.langgraph_store import LocusStore
from locus.memory.backends import sqlite_checkpointer
from locus.transfer import copy_store
from tests.backends.postgresql.store import new_store
from tests.servers.postgresql import PostgreSQLServer
from tests.servers.proxy import Proxy

BOOKS = ("library", "books/ä~")


def items_in(url: str) -> dict[tuple[Any, ...], Any]:
    with LocusStore(url) as store:
        found = store.search((), limit=10_000, refresh_ttl=False)
        return {(item.namespace, item.key): (item.value, item.created_at, item.updated_at) for item in found}


@pytest.fixture
def source(tmp_path: Path) -> str:
    url = f"sqlite:{tmp_path / 'a.db'}"
    with sqlite_checkpointer(tmp_path / "a.db").sync as handle:
        handle.save(AgentState(), "t")
    with LocusStore(url) as store:
        for number in range(5):
            store.put(BOOKS, f"{number}\0", {"n": number, "nested": {"x": [1, None, -0.0]}})
        store.put(("cache",), "ends", {"n": 1}, ttl=60)
    return url


async def test_items_are_copied_with_their_times_and_kept_up_to_date(source: str, tmp_path: Path) -> None:
    copy = f"sqlite:{tmp_path / 'b.db'}"
    report = await copy_store(source, copy, dry_run=True)
    assert (report.ok, report.items, report.items_moved) == (True, 6, 0)
    for moved in (6, 0):
        report = await copy_store(source, copy)
        assert (report.ok, report.items, report.items_moved) == (True, 6, moved), report.problems
        assert items_in(copy) == items_in(source)
    with LocusStore(copy) as store:
        store.put(BOOKS, "0\0", {"changed": "later, there"})
    with LocusStore(source) as store:
        store.put(BOOKS, "1\0", {"changed": "here"})
    report = await copy_store(source, copy)
    assert (report.ok, report.items_moved) == (True, 1)
    found = items_in(copy)
    assert found[BOOKS, "0\0"][0] == {"changed": "later, there"}
    assert found[BOOKS, "1\0"][0] == {"changed": "here"}


async def test_a_database_with_nothing_but_items_is_copied(tmp_path: Path) -> None:
    source, copy = f"sqlite:{tmp_path / 'a.db'}", f"sqlite:{tmp_path / 'b.db'}"
    with LocusStore(source) as store:
        for number in range(1_001):
            store.put(("n",), str(number), {"n": number})
    report = await copy_store(source, copy)
    assert (report.ok, report.threads, report.items_moved) == (True, 0, 1_001)
    assert items_in(copy) == items_in(source)


def test_the_command_says_how_many_were_copied(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["copy", "--json", "--threads", "t", source, f"file:{tmp_path / 'files'}"]) == 0
    assert "items" not in json.loads(capsys.readouterr().out)
    for name in ("file:files", "sqlite:b.db"):
        scheme, _, path = name.partition(":")
        assert main(["copy", source, f"{scheme}:{tmp_path / path}"]) == 0
        assert "6 of 6 items of long-term memory: 6 versions moved" in capsys.readouterr().out
        assert items_in(f"{scheme}:{tmp_path / path}") == items_in(source)


@pytest.mark.postgresql
async def test_items_are_copied_between_databases(
    postgresql_server: PostgreSQLServer, source: str, tmp_path: Path
) -> None:
    with Proxy(postgresql_server.port) as proxy, new_store(postgresql_server.url, proxy) as place:
        report = await copy_store(source, place.url)
        assert (report.ok, report.items_moved) == (True, 6), report.problems
        assert items_in(place.url) == items_in(source)
        back = f"sqlite:{tmp_path / 'back.db'}"
        assert (await copy_store(place.url, back)).ok
        assert items_in(back) == items_in(source)
