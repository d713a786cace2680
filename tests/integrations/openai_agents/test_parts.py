"""The newest items of a long session are read without the rest."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from locus.errors import CheckpointNotFoundError, CorruptCheckpointError
from locus.integrations.openai_agents import NAMESPACE, LocusSession
from locus.memory.backends import SQLiteBackend, sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.memory.item_log import ItemLog

SHORT, LONG = 40, 800
"""Items, of which each save brings some."""
A_SAVE = 8


class Rows:
    """Counts the rows that SQLite gives out."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        connect = sqlite3.connect

        def counted(*args: Any, **options: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(*args, **options)
            connection.row_factory = self._counted
            return connection

        patch.setattr(sqlite3, "connect", counted)

    def _counted(self, _cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> tuple[Any, ...]:
        self.count += 1
        return row


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Rows:
    return Rows(monkeypatch)


@pytest.fixture
async def handle(tmp_path: Path, rows: Rows) -> AsyncIterator[Checkpointer]:
    async with sqlite_checkpointer(tmp_path / "locus.db", durability="normal") as handle:
        for count in (SHORT, LONG):
            session = LocusSession(f"{count}", handle)
            for first in range(0, count, A_SAVE):
                await session.add_items(_items(*range(first, first + A_SAVE)))
        yield handle


def _items(*numbers: int) -> list[Any]:
    return [{"role": "user", "content": f"item {number}"} for number in numbers]


async def _compacted(session: LocusSession) -> list[Any]:
    snapshot = await session._get_compaction_snapshot(5)
    assert snapshot is not None
    assert await snapshot.replace_suffix(2, _items(9_000))
    return await session.get_items(2)


async def _rewound(session: LocusSession, earlier: str) -> Any:
    await session.rewind(earlier)
    return await session.pop_item()


Work = Callable[[LocusSession, str], Awaitable[Any]]
WORK: dict[str, tuple[Work, Callable[[list[Any], list[Any]], Any]]] = {
    "get_items": (lambda session, _: session.get_items(10), lambda now, _: now[-10:]),
    "one item": (lambda session, _: session.get_items(1), lambda now, _: now[-1:]),
    "no item": (lambda session, _: session.get_items(0), lambda _now, _: []),
    "pop_item": (lambda session, _: session.pop_item(), lambda now, _: now[-1]),
    "at": (lambda session, earlier: session.at(earlier).get_items(5), lambda _, then: then[-5:]),
    "rewind": (_rewound, lambda _, then: then[-1]),
    "compaction": (lambda session, _: _compacted(session), lambda now, _: [now[-4], *_items(9_000)]),
}
"""What is done with a session, and what comes of it: from its items now, and as they were at an earlier point."""


async def test_as_many_rows_are_read_of_a_long_session_as_of_a_short_one(handle: Checkpointer, rows: Rows) -> None:
    """By sessions that know nothing yet."""
    for name, (work, expected) in WORK.items():
        read = []
        for count in (SHORT, LONG):
            session = LocusSession(f"{count}", handle)
            earlier = (await session.history(3))[-1].checkpoint_id
            now, then = await session.get_items(), await session.at(earlier).get_items()
            before = rows.count
            assert await work(LocusSession(f"{count}", handle), earlier) == expected(now, then), name
            read.append(rows.count - before)
        assert read[0] == read[1] <= 30, f"{name}: {read}"


async def test_more_than_there_are_is_all(handle: Checkpointer) -> None:
    session = LocusSession(f"{SHORT}", handle)
    for limit in (SHORT, SHORT + 1, 2**60, None):
        assert await session.get_items(limit) == _items(*range(SHORT))
    assert await session.get_items(-3) == []
    with pytest.raises(CheckpointNotFoundError):
        await session.at("never").get_items(1)


async def test_a_list_that_others_wrote_is_read_in_parts_too(tmp_path: Path) -> None:
    """A short one is in the head, and beside it may be what is not read."""
    async with SQLiteBackend(tmp_path / "locus.db") as backend:
        others = [f"{number} {'and so on ' * 20}" for number in range(50)]
        await backend.save("t", {"items": [1, 2, 3], "others": others})
        await backend.save("u", {"items": [], "others": others})
        await backend.save("v", {"others": others, "more": "x" * 5_000})
        log = ItemLog(backend.store, "t", "default")
        assert await log.read(2) == [2, 3]
        assert await log.pop() == 3
        assert await ItemLog(backend.store, "t", "default").read() == [1, 2]
        assert await ItemLog(backend.store, "u", "default").read(2) == []
        for limit in (None, 2):
            with pytest.raises(CorruptCheckpointError, match="is no list of items"):
                await ItemLog(backend.store, "v", "default").read(limit)


async def test_every_run_knows_what_precedes_it_though_little_was_read(handle: Checkpointer) -> None:
    session = LocusSession(f"{SHORT}", handle)
    for limit in (1, 2):
        await session.get_items(limit)
        await session.add_items(_items(100 + limit))
        await session.pop_item()
        await session.add_items(_items(200 + limit))
    stored = await handle.store.read(f"{SHORT}", None, NAMESPACE)
    assert stored is not None
    newest = sorted((run for runs in stored.runs.values() for run in runs), key=lambda run: run.number)[-4:]
    assert all(run.before for run in newest)
    assert (await LocusSession(f"{SHORT}", handle).get_items())[-2:] == _items(201, 202)
