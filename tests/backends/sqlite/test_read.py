"""What is read of a checkpoint in SQLite, and what is not."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest_asyncio

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.backends import sqlite_checkpointer
from locus.memory.backends.sql import read as sql_read
from locus.memory.backends.sqlite.schema import SQL
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.parts import Window
from locus.memory.model.records import DEFAULT_NAMESPACE, Base
from tests.backends.sql.reading import (
    MESSAGES,
    check_any_course,
    check_digests_of_any_value,
    check_hidden_runs,
    read_of,
    texts_of,
)


@pytest_asyncio.fixture
async def checkpointer(tmp_path: Path) -> AsyncIterator[Checkpointer]:
    async with sqlite_checkpointer(tmp_path / "locus.db", durability="normal") as opened:
        yield opened


async def test_runs_that_later_ones_hide_are_not_read(checkpointer: Checkpointer) -> None:
    await check_hidden_runs(checkpointer)


async def test_runs_fit_together_around_hidden_ones_whatever_they_hold(checkpointer: Checkpointer) -> None:
    await check_digests_of_any_value(checkpointer)


async def test_every_version_of_any_course_is_what_it_was(checkpointer: Checkpointer) -> None:
    await check_any_course(checkpointer, 150)


async def test_a_held_checkpoint_that_is_damaged_is_of_no_use(checkpointer: Checkpointer, tmp_path: Path) -> None:
    """It is no reason to refuse the one that was asked for."""
    state = AgentState().with_messages([Message.user("first"), Message.assistant("answer")])
    await checkpointer.save(state, "t", "held")
    held = await read_of(checkpointer, "held")
    await checkpointer.save(state.with_message(Message.user("last")), "t")
    with closing(sqlite3.connect(tmp_path / "locus.db")) as database, database:
        changed = "replace(manifest, ',0,0,2]', ',7,0,2]')"
        database.execute(f"UPDATE locus_checkpoints SET manifest = {changed} WHERE checkpoint_id = 'held'")
    async with checkpointer.store.using() as engine:
        found = await engine.read_since("t", DEFAULT_NAMESPACE, None, Base("held", held.entry.rev))
    assert found is not None
    assert found.since is None
    assert texts_of(found, found.runs) == ["first", "answer", "last"]


async def test_every_look_goes_by_an_index(checkpointer: Checkpointer, tmp_path: Path) -> None:
    """The plan of each statement: nothing is scanned, and nothing sorted."""
    state = AgentState()
    for number in range(40):
        state = state.with_messages_replaced((*state.messages[:-1], Message.user("q"), Message.user(f"{number % 3}")))
        last = await checkpointer.save(state, "t")
    held = Base(last, (await read_of(checkpointer)).entry.rev)
    place = ("t", DEFAULT_NAMESPACE, None)
    with closing(sqlite3.connect(tmp_path / "locus.db")) as database:
        for steps in (
            sql_read.read(SQL, *place, at_once=True),
            sql_read.read(SQL, *place, Window(1, frozenset({MESSAGES})), at_once=True),
            sql_read.read(SQL, *place, held=held, at_once=True),
        ):
            statement, values = next(steps)
            while True:
                plan = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {statement}", tuple(values))]
                # `f` is the table of the format, which has one row.
                scanned = [line for line in plan if re.match(r"SCAN (?!\d|v\b|f\b|newest|oldest|\(|CONSTANT)", line)]
                assert not scanned, plan
                try:
                    statement, values = steps.send(database.execute(statement, tuple(values)).fetchall())
                except StopIteration:
                    break
