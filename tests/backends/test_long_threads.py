"""A vacuum of a long thread is done in portions: others save in between, and it may be interrupted after any of them.

Here a portion is small, so that a thread need not be long.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from locus.core.state import AgentState
from locus.memory.backends import sqlite_checkpointer
from locus.memory.backends.redis import engine as redis_engine
from locus.memory.backends.redis import scripts
from locus.memory.backends.redis.engine import RedisEngine
from locus.memory.backends.sql import trim as sql_trim
from locus.memory.backends.sqlite import engine as sqlite_engine
from locus.memory.backends.sqlite.client import transaction
from locus.memory.backends.sqlite.commit import commit_within
from locus.memory.backends.sqlite.engine import SQLiteEngine
from locus.memory.checkpointer import Checkpointer
from locus.memory.engine import Engine
from locus.memory.model.manifest import wanted
from locus.memory.model.records import Base, Commit, Run
from locus.memory.model.retention import unneeded_runs
from locus.memory.model.trimming import MOST_ROWS
from locus.testing.data import message
from locus.testing.laws.base import assert_all_load
from locus.testing.stores import TestStore
from tests.backends.every_store import embedded_store, store_on_server

LONG = 36
COUNT = 3_000
"""The checkpoints of a thread that is long indeed."""
PORTION = 6
_SERVERS = ("postgresql", "mysql", "redis")
STORES = (
    "sqlite",
    *(pytest.param(name, marks=pytest.mark.server(name)) for name in _SERVERS),
    pytest.param("oracle", marks=[pytest.mark.server("postgresql"), pytest.mark.oracle]),
)


class Stopped(Exception):
    """Stands for the end of a process."""


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestStore]:
    monkeypatch.setattr(sql_trim, "LONG", PORTION)
    monkeypatch.setattr(sql_trim, "MOST_ROWS", PORTION)
    monkeypatch.setattr(redis_engine, "MOST_ROWS", PORTION)
    if request.param == "sqlite":
        yield embedded_store("sqlite", tmp_path)
        return
    with store_on_server(request.param, request, tmp_path) as found:
        yield found


async def _grown(handle: Checkpointer) -> dict[str, AgentState]:
    """A thread whose last message is edited again and again, so that portions free runs; its states by id."""
    state, saved = AgentState(), dict[str, AgentState]()
    for turn in range(LONG):
        state = state.with_messages_replaced((*state.messages[:-1], message(turn), message(turn + 1_000)))
        checkpoint_id = await handle.save(state, "t", metadata={"turn": turn})
        saved[checkpoint_id] = state
        if turn % 5 == 0:
            await handle.put_writes("t", checkpoint_id, "task", [("x", turn)])
    return saved


async def _check_whole(handle: Checkpointer, saved: dict[str, AgentState]) -> None:
    """All that is there loads as it was saved, came from what is there, and has no run beside it."""
    history = await handle.store.history("t", 1_000, None, None)
    there = {entry.checkpoint_id for entry in history}
    assert all(entry.parent_id is None or entry.parent_id in there for entry in history)
    await assert_all_load(handle, "t", {name: state for name, state in saved.items() if name in there})
    async with handle.store.using() as engine:
        found = await engine.measure("t")
    assert found is not None
    extents = [extent for one in found.checkpoints for extent in wanted(one.manifest)]
    assert unneeded_runs(extents, found.runs) == []
    assert {place[1] for place in found.writes} <= there


@contextmanager
def _after_portions(engine: Engine, between: Callable[[], Awaitable[None]]) -> Iterator[None]:
    """Do something whenever the engine has removed a portion."""
    if isinstance(engine, RedisEngine):
        owner: Any = engine._clients
        name = "run_reporting_repeats"
    else:
        owner, name = engine, "_remove_in_turn"
    original = getattr(owner, name)

    async def watched(*arguments: Any) -> Any:
        answer = await original(*arguments)
        if not isinstance(engine, RedisEngine) or arguments[0] is scripts.REMOVE:
            await between()
        return answer

    setattr(owner, name, watched)
    try:
        yield
    finally:
        setattr(owner, name, original)


async def test_others_save_between_two_portions(store: TestStore) -> None:
    handle, other = store.open(), store.open()
    saved = await _grown(handle)
    names = list(saved)
    portions = 0

    async def save_elsewhere() -> None:
        """At the end of the thread, and from a checkpoint that is about to go."""
        nonlocal portions
        portions += 1
        if portions in (1, 3):
            latest = await other.load("t")
            assert latest is not None
            appended = latest.with_message(message(portions))
            saved[await other.save(appended, "t")] = appended
            going = await other.load("t", names[20])
            if going is not None:
                fork = going.with_message(message(portions + 50))
                saved[await other.save(fork, "t", parent=names[20])] = fork
        await _check_whole(other, saved)

    with _after_portions(handle.store.engine, save_elsewhere):
        assert await handle.vacuum(keep_last=4) == LONG - 4
    assert portions > 3
    await _check_whole(store.open(), saved)
    left = {entry.checkpoint_id for entry in await other.store.history("t", 1_000, None, None)}
    assert set(names) & left == set(names[-4:])
    assert len(left) == len(saved) - (LONG - 4), "what was saved meanwhile stays"


async def test_after_an_interruption_the_next_vacuum_goes_on(store: TestStore) -> None:
    handle = store.open()
    saved = await _grown(handle)
    done = 0

    async def stop() -> None:
        nonlocal done
        done += 1
        if done == 3:
            raise Stopped

    with _after_portions(handle.store.engine, stop), pytest.raises(Stopped):
        await handle.vacuum(keep_last=4)
    fresh = store.open()
    left = await fresh.store.history("t", 1_000, None, None)
    assert 4 < len(left) < LONG
    await _check_whole(fresh, saved)
    assert await fresh.vacuum(keep_last=4) == len(left) - 4
    await _check_whole(fresh, saved)
    await assert_all_load(fresh, "t", dict(list(saved.items())[-4:]))


async def test_a_thread_with_nothing_left_is_gone_at_once(store: TestStore) -> None:
    handle = store.open()
    if isinstance(handle.store.engine, RedisEngine):
        return  # the keys of a thread are freed in the background
    await _grown(handle)

    async def stop() -> None:
        raise Stopped

    with _after_portions(handle.store.engine, stop), pytest.raises(Stopped):
        await handle.vacuum(older_than_days=0)
    fresh = store.open()
    assert await fresh.load("t") is None
    assert await fresh.list_threads() == []
    assert await fresh.vacuum(older_than_days=0) == LONG, "what was left behind"
    assert await fresh.vacuum(older_than_days=0) == 0
    begun = AgentState().with_message(message(1))
    await fresh.save(begun, "t", if_latest=None)
    assert await fresh.load("t") == begun


async def test_a_thread_that_has_ended_can_be_begun_anew(store: TestStore) -> None:
    handle = store.open()
    saved = await _grown(handle)
    begun = AgentState().with_message(message(7))
    other, done = store.open(), False

    async def begin() -> None:
        nonlocal done
        if not done and await other.load("t") is None:
            done = True
            await other.save(begun, "t", if_latest=None)

    with _after_portions(handle.store.engine, begin):
        assert await handle.vacuum(older_than_days=0) == len(saved)
    if done:
        assert await store.open().load("t") == begun
        assert await store.open().vacuum(keep_last=1) == 0


def _commits(count: int) -> Iterator[Commit]:
    """The saves of a thread: each adds a message, and replaces what it thought before."""
    base: Base | None = None
    for turn in range(count):
        runs = (Run("messages", turn, turn, 1, f'[{{"n":{turn}}}]'), Run("thoughts", turn, 0, 1, f"[{turn}]"))
        manifest = f'[[["messages"],[["messages",{turn},0,{turn + 1}]]],[["thoughts"],[["thoughts",{turn},0,1]]]]'
        facts = ("t", "default", f"c{turn}", f"rev {turn}", datetime.now(UTC), f'{{"turn":{turn}}}')
        yield Commit(*facts, '{"messages":[],"thoughts":[]}', manifest, runs, base=base, fresh_id=True)
        base = Base(f"c{turn}", f"rev {turn}")


@pytest.mark.parametrize("kept", [10, 0])
async def test_no_transaction_of_sqlite_is_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    """Another handle saves after each portion, and waits for a bounded number of rows."""
    handle, other = (sqlite_checkpointer(tmp_path / "locus.db", durability="normal") for _ in range(2))
    async with handle, other:
        await other.save(AgentState(), "another")
        engine = handle.store.engine
        assert isinstance(engine, SQLiteEngine)
        await engine._in_transaction(lambda connection: [commit_within(connection, one) for one in _commits(COUNT)])
        changed: list[int] = []

        @contextmanager
        def counting(connection: sqlite3.Connection, *kind: str) -> Iterator[None]:
            before = connection.total_changes
            with transaction(connection, *kind):
                yield
            changed.append(connection.total_changes - before)

        async def save_elsewhere() -> None:
            await other.save(AgentState().with_message(message(len(changed))), "another")

        monkeypatch.setattr(sqlite_engine, "transaction", counting)
        with _after_portions(engine, save_elsewhere):
            removed = await (handle.vacuum(keep_last=kept) if kept else handle.vacuum(older_than_days=0))
        assert removed >= COUNT - kept
    assert len(changed) > COUNT * 2 / MOST_ROWS
    # Of each checkpoint a row, its metadata and what it alone needs.
    assert max(changed) <= 3 * MOST_ROWS
